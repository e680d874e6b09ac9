package tensor

import (
	"strconv"

	"github.com/flambeau-go/flambeau/shape"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Unflatten replaces a dimension by several dimensions of the given sizes. The product of the sizes
// must be the size of the dimension. One size may be -1.
func (x *Tensor) Unflatten(dim int, sizes ...int) *Tensor {
	x.use("unflatten")
	a := x.axis("unflatten", dim)
	in := []*Tensor{x}
	if x.Rank() == 0 || len(sizes) == 0 || x.Rank()-1+len(sizes) > shape.MaxRank {
		fail("unflatten", ErrShape, in, "%d sizes for one dimension of a tensor of rank %d; there must be at least one of each, and at most %d in the result", len(sizes), x.Rank(), shape.MaxRank)
	}
	n, at, known := x.layout.Shape.At(a), -1, 1
	for i, d := range sizes {
		switch {
		case d == -1 && at < 0:
			at = i
		case d < 0:
			fail("unflatten", ErrShape, in, "invalid sizes %v: one is negative or two are -1", sizes)
		default:
			known *= d
		}
	}
	s := shape.Of(sizes...)
	if at >= 0 && known > 0 {
		s = s.With(at, n/known)
	}
	if at >= 0 && known == 0 || s.Size() != n {
		fail("unflatten", ErrShape, in, "sizes %v do not multiply to %d, the size of dimension %d", sizes, n, dim)
	}
	return x.reshape(x.layout.Shape.Remove(a).Insert(a, s.Slice()...))
}

// MoveAxis moves one dimension: dimension source of x becomes dimension destination of the result.
// The other dimensions keep their order. The result is a view.
func (x *Tensor) MoveAxis(source, destination int) *Tensor {
	x.use("moveaxis")
	a, b := x.axis("moveaxis", source), x.axis("moveaxis", destination)
	var p []int
	for i := range x.Rank() {
		if i != a {
			p = append(p, i)
		}
	}
	if a == b {
		return x
	}
	p = append(p[:b], append([]int{a}, p[b:]...)...)
	return x.Permute(p...)
}

// MoveAxes moves dimensions source[i] to positions destination[i], as torch.movedim does for lists.
// The other dimensions keep their order. The result is a view.
func (x *Tensor) MoveAxes(source, destination []int) *Tensor {
	const op = "movedim"
	x.use(op)
	if len(source) != len(destination) {
		fail(op, ErrShape, []*Tensor{x}, "%d dimensions are moved to %d places", len(source), len(destination))
	}
	p, moved := make([]int, max(x.Rank(), len(destination))), uint(0)
	for i := range p {
		p[i] = -1
	}
	for i := range source {
		a, b := x.axis(op, source[i]), x.axis(op, destination[i])
		if moved>>a&1 != 0 || p[b] >= 0 {
			fail(op, ErrShape, []*Tensor{x}, "a dimension of %v or a place of %v appears twice", source, destination)
		}
		moved |= 1 << a
		p[b] = a
	}
	next := 0
	for i := range x.Rank() {
		if p[i] >= 0 {
			continue
		}
		for moved>>next&1 != 0 {
			next++
		}
		p[i] = next
		next++
	}
	return x.Permute(p[:x.Rank()]...)
}

// BroadcastTo is [Tensor.Expand]: it returns x broadcast to a shape, as a view.
func (x *Tensor) BroadcastTo(dims ...int) *Tensor { return x.Expand(dims...) }

// Split divides a dimension into parts of the given size, and returns them as views. The last part
// is smaller if the size does not divide the dimension.
func (x *Tensor) Split(size, dim int) []*Tensor {
	x.use("split")
	a := x.axisOf("split", dim)
	n := x.layout.Shape.At(a)
	if size < 1 && (size < 0 || n > 0) {
		fail("split", ErrValue, []*Tensor{x}, "parts of size %d", size)
	}
	parts := []*Tensor{}
	for at := 0; at < n || len(parts) == 0; at += size {
		parts = append(parts, x.viewPart("split", part{joins: true, axis: a, start: at, n: min(size, n-at)}))
	}
	return parts
}

// axisOf resolves a possibly negative dimension, and panics if x has rank 0.
func (x *Tensor) axisOf(op string, dim int) int {
	if x.Rank() == 0 {
		fail(op, ErrShape, []*Tensor{x}, "needs a tensor with a dimension, this has rank 0")
	}
	return x.axis(op, dim)
}

// SplitSizes divides a dimension into parts of the given sizes, and returns them as views. The
// sizes must add up to the dimension's size.
func (x *Tensor) SplitSizes(sizes []int, dim int) []*Tensor {
	x.use("split")
	a := x.axisOf("split", dim)
	n := x.layout.Shape.At(a)
	left := n
	for _, d := range sizes {
		if d < 0 || d > left {
			left = -1
			break
		}
		left -= d
	}
	if left != 0 {
		fail("split", ErrShape, []*Tensor{x}, "sizes %v do not add up to %d, the size of dimension %d", sizes, n, dim)
	}
	parts := make([]*Tensor, len(sizes))
	at := 0
	for i, d := range sizes {
		parts[i] = x.viewPart("split", part{joins: true, axis: a, start: at, n: d})
		at += d
	}
	return parts
}

// Chunk divides a dimension into n parts, and returns them as views. All parts have the same size,
// except that the last may be smaller. As in torch there may be fewer than n parts.
func (x *Tensor) Chunk(n, dim int) []*Tensor {
	x.use("chunk")
	a := x.axisOf("chunk", dim)
	if n < 1 {
		fail("chunk", ErrValue, []*Tensor{x}, "%d parts; there must be at least one", n)
	}
	size := x.layout.Shape.At(a)
	if size == 0 { // for a dimension of size 0, torch returns n empty parts
		if n > 1<<24 {
			fail("chunk", ErrValue, []*Tensor{x}, "%d parts of nothing; there may be %d", n, 1<<24)
		}
		parts := make([]*Tensor, n)
		for i := range parts {
			parts[i] = x.viewPart("chunk", part{joins: true, axis: a})
		}
		return parts
	}
	return x.Split((size-1)/n+1, a)
}

// Unbind returns the entries of a dimension as views, without the dimension.
func (x *Tensor) Unbind(dim int) []*Tensor {
	x.use("unbind")
	a := x.axisOf("unbind", dim)
	parts := make([]*Tensor, x.layout.Shape.At(a))
	for i := range parts {
		parts[i] = x.viewPart("unbind", part{joins: true, axis: a, start: i, n: 1, single: true})
	}
	return parts
}

// HStack joins tensors side by side, along the second dimension. It joins vectors and scalars along
// the first dimension.
func HStack(x ...*Tensor) *Tensor {
	rows := make([]*Tensor, len(x))
	dim := 1
	for i, t := range x {
		t.use("hstack")
		if rows[i] = t; t.Rank() == 0 {
			rows[i] = t.reshape(shape.Of(1))
		}
		if i == 0 && rows[i].Rank() == 1 {
			dim = 0
		}
	}
	return Cat(dim, rows...)
}

// VStack joins tensors one below the other, along the first dimension. Vectors and scalars are
// rows.
func VStack(x ...*Tensor) *Tensor {
	rows := make([]*Tensor, len(x))
	for i, t := range x {
		t.use("vstack")
		if rows[i] = t; t.Rank() < 2 {
			rows[i] = t.reshape(shape.Of(1, t.Size()))
		}
	}
	return Cat(0, rows...)
}

// Meshgrid returns the coordinates of a grid. For vectors (or scalars) of sizes n₀, n₁, … it
// returns one tensor of shape [n₀, n₁, …] for each vector. Tensor k has x[k] along dimension k,
// repeated along the other dimensions. The results are expanded views. It is torch's indexing="ij".
func Meshgrid(x ...*Tensor) []*Tensor {
	if len(x) == 0 || len(x) > shape.MaxRank {
		fail("meshgrid", ErrValue, nil, "%d vectors; there must be 1 to %d", len(x), shape.MaxRank)
	}
	youngest("meshgrid", x)
	sameDevice("meshgrid", x)
	var full, ones shape.Dims
	for _, t := range x {
		if t.Rank() > 1 || t.dtype != x[0].dtype {
			fail("meshgrid", ErrShape, x, "operands must be vectors of one type; shapes are %s", shapes(x))
		}
		full, ones = full.Append(t.Size()), ones.Append(1)
	}
	grid := make([]*Tensor, len(x))
	for k, t := range x {
		grid[k] = t.reshape(ones.With(k, t.Size())).expand(full)
	}
	return grid
}

// MeshgridXY is [Meshgrid] with the first two dimensions of the results swapped: the first vector
// runs along dimension 1. It is torch's indexing="xy".
func MeshgridXY(x ...*Tensor) []*Tensor {
	grid := Meshgrid(x...)
	if len(grid) > 1 {
		for k, t := range grid {
			grid[k] = t.Transpose(0, 1)
		}
	}
	return grid
}
