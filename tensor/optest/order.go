package optest

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
)

func init() { rowTables = append(rowTables, scanRows) }

// rowsOf applies f to each row of x along a dimension. f may change the length of the row.
func rowsOf(x array, dim int, f func(v []float64) []float64) array {
	if len(x.dims) == 0 {
		return array{x.dims, f(x.v)}
	}
	if dim < 0 {
		dim += len(x.dims)
	}
	first := append([]int(nil), x.dims...)
	first[dim] = 1
	var y array
	row := 0
	each(first, func(_ int, idx []int) {
		v := make([]float64, x.dims[dim])
		from := append([]int(nil), idx...)
		for i := range v {
			from[dim] = i
			v[i] = x.at(from...)
		}
		out := f(v)
		if row == 0 {
			dims := append([]int(nil), x.dims...)
			dims[dim] = len(out)
			y = newArray(dims...)
		}
		for i := range out {
			from[dim] = i
			y.v[y.offset(from)] = out[i]
		}
		row++
	})
	if row == 0 {
		return newArray(x.dims...)
	}
	return y
}

// prefixes returns a function that applies f to the first 1, 2, … elements.
func prefixes(f func(v []float64) float64) func(v []float64) []float64 {
	return func(v []float64) []float64 {
		y := make([]float64, len(v))
		for i := range v {
			y[i] = f(v[:i+1])
		}
		return y
	}
}

func scanRows() []row {
	var rows []row
	sum := func(v []float64) (s float64) {
		for _, a := range v {
			s += a
		}
		return s
	}
	product := func(v []float64) float64 {
		p := 1.0
		for _, a := range v {
			p *= a
		}
		return p
	}
	sizes := func(f func(v []float64) float64) func(v []float64) float64 {
		return func(v []float64) float64 {
			a := make([]float64, len(v))
			for i := range v {
				a[i] = math.Abs(v[i])
			}
			return f(a)
		}
	}
	last := func(better func(a, b float64) bool) func(v []float64) float64 {
		return func(v []float64) float64 {
			k := 0
			for i := range v {
				if better(v[i], v[k]) {
					k = i
				}
			}
			return float64(k)
		}
	}
	for _, c := range []struct {
		in  []int
		dim int
	}{{[]int{3, 11}, -1}, {[]int{5, 2, 3}, 0}, {[]int{2, 6, 2}, 1}, {[]int{}, 0}, {[]int{3, 0}, 1}, {[]int{0, 3}, 1}} {
		composed := c.dim == -1 // one shape of each op is enough for the composition
		add := func(op, method string, call func(x *tt) *tt, f, terms func(v []float64) float64) {
			r := one(op, method, c.in, call, func(x array) array { return rowsOf(x, c.dim, prefixes(f)) })
			r.ints, r.whole, r.kernels = op != "logcumsumexp", dtype.I64, composed
			r.terms = func(x []array) array { return rowsOf(x[0], c.dim, prefixes(terms)) }
			rows = append(rows, r)
		}
		add("cumsum", "CumSum", func(x *tt) *tt { return x.CumSum(c.dim) }, sum, sizes(sum))
		add("cumprod", "CumProd", func(x *tt) *tt { return x.CumProd(c.dim) }, product, func(v []float64) float64 { return float64(len(v)) * math.Abs(product(v)) })
		add("logcumsumexp", "LogCumSumExp", func(x *tt) *tt { return x.LogCumSumExp(c.dim) }, logSumExpRef, func(v []float64) float64 { return 2 + math.Abs(logSumExpRef(v)) })
		for _, e := range []struct {
			op, method string
			call       func(x *tt) (*tt, *tt)
			better     func(a, b float64) bool
		}{{"cummax", "CumMax", func(x *tt) (*tt, *tt) { return x.CumMax(c.dim) }, func(a, b float64) bool { return a >= b }},
			{"cummin", "CumMin", func(x *tt) (*tt, *tt) { return x.CumMin(c.dim) }, func(a, b float64) bool { return a <= b }}} {
			at := prefixes(last(e.better))
			r := one(e.op, e.method, c.in, func(x *tt) *tt { y, _ := e.call(x); return y }, func(x array) array {
				return rowsOf(x, c.dim, func(v []float64) []float64 {
					y := at(v)
					for i := range y {
						y[i] = v[int(y[i])]
					}
					return y
				})
			})
			// If the layout repeats rows, all elements along dimension 0 are equal. Then central
			// differences do not give the gradient.
			r.kernels, r.noGrad = composed, c.dim == 0
			rows = append(rows, r)
			r = one(e.op+" index", e.method, c.in, func(x *tt) *tt { _, i := e.call(x); return i }, func(x array) array { return rowsOf(x, c.dim, at) })
			r.noGrad, r.ints, r.result, r.kernels = true, false, dtype.I64, composed
			rows = append(rows, r)
		}
	}
	// In the first case each row has one factor of 0. In the second case it has two. The gradient
	// with respect to such a factor needs the product of the other factors.
	for _, zeros := range [][]int{{1}, {0, 3}} {
		spare := func(x array) array {
			return rowsOf(x, 1, func(v []float64) []float64 {
				v = append([]float64(nil), v...)
				for _, z := range zeros {
					v[z] = 0
				}
				return prefixes(product)(v)
			})
		}
		r := one("cumprod", "CumProd", []int{2, 5}, func(x *tt) *tt {
			keep := x.Scope().On(x.Device()).Arange(5)
			mask := keep.NeScalar(float64(zeros[0])).LogicalAnd(keep.NeScalar(float64(zeros[len(zeros)-1])))
			return x.Mul(mask.Cast(x.Type())).CumProd(1)
		}, spare)
		r.ints = false
		r.terms = func(x []array) array { return absolute(x[0]).apply(func(float64) float64 { return 16 }) }
		rows = append(rows, r)
	}
	return rows
}
