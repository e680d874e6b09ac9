package optest

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// An array holds numbers in row-major order. The references compute with arrays, which share no
// code with package tensor.
type array struct {
	dims []int
	v    []float64
}

func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

func newArray(dims ...int) array { return array{slices.Clone(dims), make([]float64, size(dims))} }

func (a array) clone() array { return array{slices.Clone(a.dims), slices.Clone(a.v)} }

// each calls f with every index of a shape, in row-major order. f must not keep idx.
func each(dims []int, f func(i int, idx []int)) {
	idx := make([]int, len(dims))
	for i := range size(dims) {
		f(i, idx)
		for d := len(dims) - 1; d >= 0; d-- {
			if idx[d]++; idx[d] < dims[d] {
				break
			}
			idx[d] = 0
		}
	}
}

// offset returns the position of idx in a.v. If a is broadcast, idx may have more entries than a
// has dimensions. Then only the last entries are used. A dimension of size 1 accepts any entry.
func (a array) offset(idx []int) int {
	idx = idx[len(idx)-len(a.dims):]
	at := 0
	for d, n := range a.dims {
		at *= n
		if n != 1 {
			at += idx[d]
		}
	}
	return at
}

func (a array) at(idx ...int) float64 { return a.v[a.offset(idx)] }

// joint returns the common shape to which the arrays are broadcast.
func joint(in ...array) []int {
	var dims []int
	for _, a := range in {
		for len(dims) < len(a.dims) {
			dims = append([]int{1}, dims...)
		}
		for i, n := range a.dims {
			if at := len(dims) - len(a.dims) + i; dims[at] == 1 {
				dims[at] = n
			}
		}
	}
	return dims
}

// expand broadcasts a to dims.
func (a array) expand(dims []int) array {
	y := newArray(dims...)
	each(dims, func(i int, idx []int) { y.v[i] = a.v[a.offset(idx)] })
	return y
}

// sumTo sums over the dimensions that expand repeats. It is the adjoint of expand.
func (a array) sumTo(dims []int) array {
	y := newArray(dims...)
	each(a.dims, func(i int, idx []int) { y.v[y.offset(idx)] += a.v[i] })
	return y
}

func (a array) permute(p []int) array {
	dims := make([]int, len(p))
	for i, d := range p {
		dims[i] = a.dims[d]
	}
	y := newArray(dims...)
	from := make([]int, len(p))
	each(dims, func(i int, idx []int) {
		for k, d := range p {
			from[d] = idx[k]
		}
		y.v[i] = a.at(from...)
	})
	return y
}

func (a array) narrow(dim, start, n int) array {
	dims := slices.Clone(a.dims)
	dims[dim] = n
	y := newArray(dims...)
	each(dims, func(i int, idx []int) {
		from := slices.Clone(idx)
		from[dim] += start
		y.v[i] = a.at(from...)
	})
	return y
}

func (a array) reshape(dims ...int) array { return array{slices.Clone(dims), slices.Clone(a.v)} }

func (a array) apply(f func(float64) float64) array {
	y := newArray(a.dims...)
	for i, v := range a.v {
		y.v[i] = f(v)
	}
	return y
}

// rounded returns a copy of a with every number rounded to element type t.
func (a array) rounded(t dtype.Type) array {
	return a.apply(func(v float64) float64 { return round(t, v) })
}

func round(t dtype.Type, v float64) float64 {
	switch t {
	case dtype.F64:
		return v
	case dtype.F32:
		return float64(float32(v))
	case dtype.Bool:
		if v != 0 {
			return 1
		}
		return 0
	case dtype.U8: // integers wrap around
		return float64(uint8(int64(v)))
	case dtype.I8:
		return float64(int8(int64(v)))
	case dtype.I16:
		return float64(int16(int64(v)))
	case dtype.I32:
		return float64(int32(int64(v)))
	case dtype.I64:
		return float64(int64(v))
	}
	return expr.Decode(t, expr.Encode(t, v))
}

// ulp returns the distance from v to its neighbours in type t. For v = 0 it returns the smallest
// positive number.
func ulp(t dtype.Type, v float64) float64 {
	// bits is the number of bits of the significand after the point, and low the exponent of the
	// smallest normal number.
	bits, low := 0, 0
	switch t {
	case dtype.F64:
		bits, low = 52, -1022
	case dtype.F32:
		bits, low = 23, -126
	case dtype.F16:
		bits, low = 10, -14
	case dtype.BF16:
		bits, low = 7, -126
	default:
		return 0
	}
	v = math.Abs(v)
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return math.Ldexp(1, low-bits)
	}
	_, e := math.Frexp(v)
	return math.Ldexp(1, max(e-1, low)-bits)
}
