// Package shape is the arithmetic of shapes, strides, broadcasting and views.
//
// A [Dims] is a value that holds up to [MaxRank] integers, so a tensor's shape needs no slice.
// [Broadcast] combines two shapes by the same rules as PyTorch. A [Layout] says where the elements
// of a view lie in its storage. Its methods make layouts of other views: [Layout.Transpose],
// [Layout.Narrow], [Layout.Expand].
//
// Element (i₀, i₁, …) of a layout is at Offset + Σ iₖ·Stridesₖ, counted in elements.
package shape

import (
	"fmt"
	"strconv"
)

// MaxRank is the largest number of dimensions.
const MaxRank = 8

// Dims is a list of up to [MaxRank] integers: a shape, or strides. It is a value, and comparable
// with ==.
type Dims struct {
	n uint8
	d [MaxRank]int
}

// A RankError is the error for a shape with more than [MaxRank] dimensions. Its value is the number
// of dimensions.
type RankError int

func (e RankError) Error() string {
	return fmt.Sprintf("shape: %d dimensions, at most %d are supported", int(e), MaxRank)
}

// Raised marks an error that tensor.Try returns: see device.Raised.
func (e RankError) Raised() {}

// Of returns the list as Dims. It panics with a [RankError] if there are more than [MaxRank]
// entries. Callers with a list from a user check its length first.
func Of(d ...int) Dims {
	if len(d) > MaxRank {
		panic(RankError(len(d)))
	}
	var s Dims
	s.n = uint8(copy(s.d[:], d))
	return s
}

// Rank returns the number of dimensions.
func (s Dims) Rank() int { return int(s.n) }

// At returns entry i.
func (s Dims) At(i int) int { return s.d[:s.n][i] }

// With returns s with entry i set to v.
func (s Dims) With(i, v int) Dims {
	s.d[:s.n][i] = v
	return s
}

// Slice returns the entries as a new slice.
func (s Dims) Slice() []int { return append([]int(nil), s.d[:s.n]...) }

// Append returns s with v appended.
func (s Dims) Append(v ...int) Dims { return s.Insert(int(s.n), v...) }

// Insert returns s with v inserted before entry i.
func (s Dims) Insert(i int, v ...int) Dims {
	if int(s.n)+len(v) > MaxRank {
		panic(RankError(int(s.n) + len(v)))
	}
	r := s
	copy(r.d[i+len(v):], s.d[i:s.n])
	copy(r.d[i:], v)
	r.n += uint8(len(v))
	return r
}

// Remove returns s without entry i.
func (s Dims) Remove(i int) Dims {
	copy(s.d[i:], s.d[i+1:s.n])
	s.n--
	s.d[s.n] = 0
	return s
}

// Head returns the first n entries.
func (s Dims) Head(n int) Dims { return Of(s.d[:n]...) }

// Tail returns the entries from n on.
func (s Dims) Tail(n int) Dims { return Of(s.d[n:s.n]...) }

// Size returns the product of the entries: the number of elements of a shape. It is 1 for rank 0.
func (s Dims) Size() int {
	p := 1
	for _, v := range s.d[:s.n] {
		p *= v
	}
	return p
}

// String returns the entries as torch prints a shape: "[2, 3]".
func (s Dims) String() string {
	b := []byte{'['}
	for i, v := range s.d[:s.n] {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, int64(v), 10)
	}
	return string(append(b, ']'))
}

// Contiguous returns the strides, in elements, of a dense row-major tensor of shape s.
func (s Dims) Contiguous() Dims {
	st := Dims{n: s.n}
	p := 1
	for i := int(s.n) - 1; i >= 0; i-- {
		st.d[i] = p
		p *= max(s.d[i], 1)
	}
	return st
}

// Broadcast returns the shape to which a and b broadcast, aligned at the last dimension. ok is
// false if the two sizes of some dimension differ and neither of them is 1. Then dim is the first
// such dimension, counted from the end.
func Broadcast(a, b Dims) (s Dims, dim int, ok bool) {
	if a == b {
		return a, 0, true
	}
	if a.n < b.n {
		a, b = b, a
	}
	s = a
	for k := 1; k <= int(b.n); k++ {
		x, y := a.d[int(a.n)-k], b.d[int(b.n)-k]
		switch {
		case x == y || y == 1:
		case x == 1:
			s.d[int(a.n)-k] = y
		default:
			return Dims{}, k, false
		}
	}
	return s, 0, true
}

// Axis resolves a possibly negative dimension index for rank n. As in torch, rank 0 counts as rank
// 1. Axis returns false if the index is out of range.
func Axis(i, n int) (int, bool) {
	n = max(n, 1)
	if i < -n || i >= n {
		return 0, false
	}
	if i < 0 {
		i += n
	}
	return i, true
}

// A Layout maps the elements of a view to its storage.
type Layout struct {
	Shape Dims
	// distances between neighbours in each dimension, in elements; 0 for a broadcast dimension
	Strides Dims
	Offset  int // index of the first element in the storage
}

// Dense returns the contiguous row-major layout of s at offset 0.
func Dense(s Dims) Layout { return Layout{Shape: s, Strides: s.Contiguous()} }

// Size returns the number of elements.
func (l Layout) Size() int { return l.Shape.Size() }

// Contiguous reports whether the elements are dense and in row-major order. The strides of
// dimensions of size 1 do not matter.
func (l Layout) Contiguous() bool {
	p := 1
	for i := l.Shape.Rank() - 1; i >= 0; i-- {
		n := l.Shape.d[i]
		if n == 0 {
			return true
		}
		if n != 1 {
			if l.Strides.d[i] != p {
				return false
			}
			p *= n
		}
	}
	return true
}

// Span returns the smallest and the largest storage index of the view. It returns false if the view
// has no elements.
func (l Layout) Span() (lo, hi int, ok bool) {
	lo, hi = l.Offset, l.Offset
	for i, n := range l.Shape.d[:l.Shape.n] {
		if n == 0 {
			return 0, 0, false
		}
		if d := (n - 1) * l.Strides.d[i]; d < 0 {
			lo += d
		} else {
			hi += d
		}
	}
	return lo, hi, true
}

// Overlaps reports whether two different indices may refer to the same element, because of a
// broadcast dimension or overlapping strides. It also returns true if it cannot decide, because an
// op must never write one element twice.
func (l Layout) Overlaps() bool {
	type dim struct{ n, s int }
	var d []dim
	for i, n := range l.Shape.d[:l.Shape.n] {
		if n > 1 {
			d = append(d, dim{n, max(l.Strides.d[i], -l.Strides.d[i])})
		} else if n == 0 {
			return false
		}
	}
	reach := 0
	for len(d) > 0 {
		k := 0
		for i := range d {
			if d[i].s < d[k].s {
				k = i
			}
		}
		if d[k].s <= reach {
			return true
		}
		reach += (d[k].n - 1) * d[k].s
		d = append(d[:k], d[k+1:]...)
	}
	return false
}

// Expand returns l broadcast to shape s, with dimensions aligned at the end. ok is false if l does
// not broadcast to s.
func (l Layout) Expand(s Dims) (Layout, bool) {
	if l.Shape == s {
		return l, true
	}
	add := s.Rank() - l.Shape.Rank()
	if add < 0 {
		return Layout{}, false
	}
	r := Layout{Shape: s, Strides: Dims{n: s.n}, Offset: l.Offset}
	for i := range l.Shape.Rank() {
		switch l.Shape.d[i] {
		case s.d[add+i]:
			r.Strides.d[add+i] = l.Strides.d[i]
		case 1:
		default:
			return Layout{}, false
		}
	}
	return r, true
}

// Transpose returns l with dimensions i and j swapped.
func (l Layout) Transpose(i, j int) Layout {
	l.Shape.d[i], l.Shape.d[j] = l.Shape.d[j], l.Shape.d[i]
	l.Strides.d[i], l.Strides.d[j] = l.Strides.d[j], l.Strides.d[i]
	return l
}

// Permute returns l with its dimensions in the order p, a permutation of 0 … Rank-1.
func (l Layout) Permute(p []int) Layout {
	r := Layout{Shape: l.Shape, Strides: l.Strides, Offset: l.Offset}
	for i, k := range p {
		r.Shape.d[i], r.Strides.d[i] = l.Shape.d[k], l.Strides.d[k]
	}
	return r
}

// Narrow returns l with only the n indices start, start+step, … of dimension i.
func (l Layout) Narrow(i, start, n, step int) Layout {
	l.Offset += start * l.Strides.d[i]
	l.Shape.d[i] = n
	l.Strides.d[i] *= step
	return l
}

// Select returns l with only index k of dimension i, and without that dimension.
func (l Layout) Select(i, k int) Layout {
	l.Offset += k * l.Strides.d[i]
	l.Shape, l.Strides = l.Shape.Remove(i), l.Strides.Remove(i)
	return l
}

// Unsqueeze returns l with a new dimension of size 1 before dimension i.
func (l Layout) Unsqueeze(i int) Layout {
	l.Shape, l.Strides = l.Shape.Insert(i, 1), l.Strides.Insert(i, 1)
	return l
}

// Squeeze returns l without dimension i, whose size must be 1.
func (l Layout) Squeeze(i int) Layout {
	l.Shape, l.Strides = l.Shape.Remove(i), l.Strides.Remove(i)
	return l
}

// View returns a layout of the same elements with shape s. It returns false if shape s needs a
// copy. Both shapes must have the same number of elements.
func (l Layout) View(s Dims) (Layout, bool) {
	if s.Size() == 0 || l.Contiguous() {
		return Layout{Shape: s, Strides: s.Contiguous(), Offset: l.Offset}, true
	}
	c := l.Collapse()
	// Each dimension of the collapsed layout must be the product of consecutive dimensions of s.
	r := Layout{Shape: s, Strides: Dims{n: s.n}, Offset: l.Offset}
	k := c.Shape.Rank() - 1
	left, stride := 1, 1
	if k >= 0 {
		left, stride = c.Shape.d[k], c.Strides.d[k]
	}
	for i := s.Rank() - 1; i >= 0; i-- {
		n := s.d[i]
		if n == 1 {
			r.Strides.d[i] = stride
			continue
		}
		for left == 1 && k > 0 {
			k--
			left, stride = c.Shape.d[k], c.Strides.d[k]
		}
		if left%n != 0 {
			return Layout{}, false
		}
		r.Strides.d[i] = stride
		left /= n
		stride *= n
	}
	return r, true
}

// Collapse removes dimensions of size 1 and merges adjacent dimensions whose elements are
// consecutive. The order of the elements stays the same.
func (l Layout) Collapse() Layout {
	r := Layout{Offset: l.Offset}
	for i, n := range l.Shape.d[:l.Shape.n] {
		if n == 1 {
			continue
		}
		if k := int(r.Shape.n) - 1; k >= 0 && r.Strides.d[k] == n*l.Strides.d[i] {
			r.Shape.d[k] *= n
			r.Strides.d[k] = l.Strides.d[i]
			continue
		}
		r.Shape, r.Strides = r.Shape.Append(n), r.Strides.Append(l.Strides.d[i])
	}
	return r
}

// CollapseTogether merges adjacent dimensions of several layouts of the same shape, if all layouts
// allow it. A kernel then needs fewer loops. It returns the common shape and each layout's strides.
func CollapseTogether(s Dims, strides []Dims) (Dims, []Dims) {
	out := make([]Dims, len(strides))
	var r Dims
	for i, n := range s.d[:s.n] {
		if n == 1 {
			continue
		}
		k := int(r.n) - 1
		merge := k >= 0
		for j := range strides {
			if merge && out[j].d[k] != n*strides[j].d[i] {
				merge = false
			}
		}
		if merge {
			r.d[k] *= n
			for j := range strides {
				out[j].d[k] = strides[j].d[i]
			}
			continue
		}
		r = r.Append(n)
		for j := range strides {
			out[j] = out[j].Append(strides[j].d[i])
		}
	}
	return r, out
}
