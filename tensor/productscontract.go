package tensor

import "github.com/flambeau-go/flambeau/shape"

// TensorDot returns the sums of products of x and y over pairs of dimensions: xDims of x and yDims
// of y. The two dimensions of a pair have the same size, or one of them has size 1. The result has
// the remaining dimensions of x, then the remaining dimensions of y. x and y have the same type.
func (x *Tensor) TensorDot(y *Tensor, xDims, yDims []int) *Tensor {
	if y := underAutocast("tensordot", AutocastWidest, func(in []*Tensor) *Tensor { return in[0].TensorDot(in[1], xDims, yDims) }, x, y); y != nil {
		return y
	}
	const op = "tensordot"
	in := []*Tensor{x, y}
	s := youngest(op, in)
	sameDevice(op, in)
	if len(xDims) != len(yDims) {
		fail(op, ErrShape, in, "%d dimensions of the first and %d of the second", len(xDims), len(yDims))
	}
	sum := 1
	// order separates the dimensions of t that stay from the dimensions over which the product is
	// summed.
	order := func(t *Tensor, dims []int) (stay, gone []int, left shape.Dims, rows int) {
		rows = 1
		var seen [shape.MaxRank]bool
		for _, d := range dims {
			a := t.axis(op, d)
			if t.Rank() == 0 || seen[a] {
				fail(op, ErrShape, in, "dimension %d appears twice, or there is none", d)
			}
			seen[a] = true
			gone = append(gone, a)
		}
		for a := range t.Rank() {
			if !seen[a] {
				stay = append(stay, a)
				left = left.Append(t.layout.Shape.At(a))
				rows *= t.layout.Shape.At(a)
			}
		}
		return
	}
	xs, xg, xl, rows := order(x, xDims)
	ys, yg, yl, columns := order(y, yDims)
	// these become the shapes of x and y, with the summed dimensions of size 1 expanded
	xw, yw := x.layout.Shape, y.layout.Shape
	for i := range xg {
		n, m := x.layout.Shape.At(xg[i]), y.layout.Shape.At(yg[i])
		switch {
		case n == 1:
			xw = xw.With(xg[i], m)
			n = m
		case m == 1:
			yw = yw.With(yg[i], n)
		case n != m:
			fail(op, ErrShape, in, "dimension %d of the first is %d, dimension %d of the second %d", xDims[i], n, yDims[i], m)
		}
		sum *= n
	}
	if xl.Rank()+yl.Rank() > shape.MaxRank {
		fail(op, ErrShape, in, "the result has %d dimensions, at most %d are supported", xl.Rank()+yl.Rank(), shape.MaxRank)
	}
	out := xl
	for i := range yl.Rank() {
		out = out.Append(yl.At(i))
	}
	return within(s, func(c *Scope) *Tensor {
		a := x.In(c).expand(xw).Permute(append(xs, xg...)...).reshape(shape.Of(rows, sum))
		b := y.In(c).expand(yw).Permute(append(yg, ys...)...).reshape(shape.Of(sum, columns))
		return a.MatMul(b).reshape(out)
	})
}

// Inner returns the sums of products over the last dimensions of x and y, which have the same size
// n. x is [..., n] and y is [..., n]. If one operand has rank 0, Inner multiplies each element of
// the other operand by it.
func (x *Tensor) Inner(y *Tensor) *Tensor {
	const op = "inner"
	in := []*Tensor{x, y}
	youngest(op, in)
	if x.Rank() == 0 || y.Rank() == 0 {
		return x.Mul(y)
	}
	if x.Dim(-1) != y.Dim(-1) {
		fail(op, ErrShape, in, "the last dimensions are %d and %d; shapes are %s", x.Dim(-1), y.Dim(-1), shapes(in))
	}
	return x.TensorDot(y, []int{-1}, []int{-1})
}

// VecDot returns Σ x·y along dim, a dimension of the shape to which x and y are broadcast. torch's
// dim is -1.
func (x *Tensor) VecDot(y *Tensor, dim int) *Tensor {
	if y := underAutocast("vecdot", AutocastLow, func(in []*Tensor) *Tensor { return in[0].VecDot(in[1], dim) }, x, y); y != nil {
		return y
	}
	const op = "vecdot"
	in := []*Tensor{x, y}
	s := youngest(op, in)
	sameDevice(op, in)
	x.mustFloat(op)
	if x.dtype != y.dtype {
		fail(op, ErrType, in, "operands are %v and %v", x.dtype, y.dtype)
	}
	full := broadcast(op, in)
	a, ok := shape.Axis(dim, full.Rank())
	if !ok || full.Rank() == 0 {
		fail(op, ErrShape, in, "dimension %d is out of range for shape %v", dim, full)
	}
	return within(s, func(c *Scope) *Tensor { return x.In(c).Mul(y.In(c)).Sum(a) })
}

// MultiDot returns the product of two or more matrices of the same type, in the order that needs
// the fewest multiplications. As in torch.linalg.multi_dot, the first may be a row vector and the
// last a column vector, both of rank 1.
func MultiDot(x ...*Tensor) *Tensor {
	if y := underAutocast("multi_dot", AutocastLow, func(in []*Tensor) *Tensor { return MultiDot(in...) }, x...); y != nil {
		return y
	}
	const op = "multi_dot"
	if len(x) < 2 {
		fail(op, ErrValue, x, "needs at least two matrices, not %d", len(x))
	}
	s := youngest(op, x)
	sameDevice(op, x)
	n := len(x)
	rows := make([]int, n+1) // matrix i has shape [rows[i], rows[i+1]]
	for i, t := range x {
		vector := t.Rank() == 1 && (i == 0 || i == n-1)
		if t.Rank() != 2 && !vector {
			fail(op, ErrShape, x, "tensor %d has %d dimensions: matrices have 2, and the first and the last may be vectors", i, t.Rank())
		}
		r, c := t.Dim(0), t.Dim(-1)
		if vector && i == 0 {
			r = 1
		} else if vector {
			c = 1
		}
		if i > 0 && rows[i] != r {
			fail(op, ErrShape, x, "tensor %d has %d columns, tensor %d has %d rows; shapes are %s", i-1, rows[i], i, r, shapes(x))
		}
		rows[i], rows[i+1] = r, c
	}
	cut := chainOrder(rows)
	return within(s, func(c *Scope) *Tensor {
		m := make([]*Tensor, n)
		for i, t := range x {
			m[i] = t.In(c)
		}
		if x[0].Rank() == 1 {
			m[0] = m[0].Unsqueeze(0)
		}
		if x[n-1].Rank() == 1 {
			m[n-1] = m[n-1].Unsqueeze(1)
		}
		var product func(i, j int) *Tensor
		product = func(i, j int) *Tensor {
			if i == j {
				return m[i]
			}
			k := cut[i][j]
			return product(i, k).MatMul(product(k+1, j))
		}
		y := product(0, n-1)
		if x[n-1].Rank() == 1 {
			y = y.Squeeze(-1)
		}
		if x[0].Rank() == 1 {
			y = y.Squeeze(0)
		}
		return y
	})
}

// chainOrder says where to divide each part i…j of a chain of matrices for the fewest
// multiplications. Matrix i has shape [rows[i], rows[i+1]] (Cormen et al., Introduction to
// Algorithms, 15.2).
func chainOrder(rows []int) [][]int {
	n := len(rows) - 1
	cost, cut := make([][]float64, n), make([][]int, n)
	for i := range n {
		cost[i], cut[i] = make([]float64, n), make([]int, n)
	}
	for length := 1; length < n; length++ {
		for i := range n - length {
			j := i + length
			cost[i][j] = -1
			for k := i; k < j; k++ {
				c := cost[i][k] + cost[k+1][j] + float64(rows[i])*float64(rows[k+1])*float64(rows[j+1])
				if cost[i][j] < 0 || c < cost[i][j] {
					cost[i][j], cut[i][j] = c, k
				}
			}
		}
	}
	return cut
}
