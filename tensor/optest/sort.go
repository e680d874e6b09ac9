package optest

import (
	"cmp"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func init() { rowTables = append(rowTables, sortRows, quantileRows, uniqueRows, searchRows) }

// orderOf returns the positions that sort v. Equal elements keep their order.
func orderOf(v []float64, descending bool) []int {
	at := make([]int, len(v))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(i, j int) int {
		if descending {
			return cmp.Compare(v[j], v[i])
		}
		return cmp.Compare(v[i], v[j])
	})
	return at
}

func picked(v []float64, at []int) []float64 {
	y := make([]float64, len(at))
	for i, k := range at {
		y[i] = v[k]
	}
	return y
}

func floatsOf(at []int) []float64 {
	y := make([]float64, len(at))
	for i, k := range at {
		y[i] = float64(k)
	}
	return y
}

func dropped(x array, dim int) array {
	if len(x.dims) == 0 {
		return x
	}
	return x.reshape(slices.Delete(slices.Clone(x.dims), dim, dim+1)...)
}

// rounding rounds the elements of x, so that many are equal.
func rounding(x array) array { return x.apply(math.RoundToEven) }

// even rounds the elements of a tensor like [rounding]. It does not change bool, which PyTorch and
// this library do not round.
func even(x *tt) *tt {
	if x.Type() == dtype.Bool {
		return x
	}
	return x.Round()
}

// pairRows returns table rows for an op that selects positions along a dimension. They test the
// values and the indices that it returns, for distinct and for equal elements.
func pairRows(op, method string, in []int, dim int, keep bool, call func(x *tt) (*tt, *tt), at func(v []float64) []int) []row {
	shaped := func(x array) array {
		if keep {
			return x
		}
		return dropped(x, dim)
	}
	values := func(x array) array {
		return shaped(rowsOf(x, dim, func(v []float64) []float64 { return picked(v, at(v)) }))
	}
	indices := func(x array) array {
		return shaped(rowsOf(x, dim, func(v []float64) []float64 { return floatsOf(at(v)) }))
	}
	first := one(op, method, in, func(x *tt) *tt { y, _ := call(x); return y }, values)
	// If the layout repeats rows, all elements along dimension 0 are equal. Then central
	// differences do not give the gradient.
	first.noGrad = dim == 0
	first.kernels = op == "sort" && dim == 1 && len(in) == 2 && in[1] > 0
	second := one(op+" index", method, in, func(x *tt) *tt { _, i := call(x); return i }, indices)
	third := one(op+" equal", method, in, func(x *tt) *tt { _, i := call(x.Round()); return i }, func(x array) array { return indices(rounding(x)) })
	for _, r := range []*row{&second, &third} {
		r.noGrad, r.ints, r.result = true, false, dtype.I64
	}
	second.ints = true
	return []row{first, second, third}
}

func sortRows() []row {
	var rows []row
	for _, c := range []struct {
		in  []int
		dim int
	}{{[]int{3, 7}, 1}, {[]int{2, 6, 2}, 1}, {[]int{5, 3}, 0}, {[]int{}, 0}, {[]int{3, 0}, 1}, {[]int{0, 3}, 1}} {
		for _, down := range []bool{false, true} {
			at := func(v []float64) []int { return orderOf(v, down) }
			rows = append(rows, pairRows("sort", "Sort", c.in, c.dim, true, func(x *tt) (*tt, *tt) { return x.Sort(c.dim, down) }, at)...)
		}
		rows = append(rows, pairRows("argsort", "Argsort", c.in, c.dim, true, func(x *tt) (*tt, *tt) { return nil, x.Argsort(c.dim, false) },
			func(v []float64) []int { return orderOf(v, false) })[1:]...)
	}
	for _, c := range []struct {
		in     []int
		dim, k int
	}{{[]int{3, 7}, 1, 3}, {[]int{2, 6, 2}, 1, 6}, {[]int{5, 3}, 0, 1}, {[]int{3, 4}, 1, 0}} {
		for _, largest := range []bool{true, false} {
			rows = append(rows, pairRows("topk", "TopK", c.in, c.dim, true, func(x *tt) (*tt, *tt) { return x.TopK(c.k, c.dim, largest, true) },
				func(v []float64) []int { return orderOf(v, largest)[:c.k] })...)
		}
	}
	for _, c := range []struct {
		in  []int
		dim int
	}{{[]int{3, 7}, 1}, {[]int{2, 6, 2}, 1}, {[]int{5, 3}, 0}, {[]int{}, 0}} {
		rows = append(rows, pairRows("kthvalue", "Kthvalue", c.in, c.dim, false, func(x *tt) (*tt, *tt) { return x.Kthvalue(1+x.Size()/30, c.dim) },
			func(v []float64) []int { return orderOf(v, false)[:1] })...)
		middle := func(v []float64) []int { k := (len(v) - 1) / 2; return orderOf(v, false)[k : k+1] }
		rows = append(rows, pairRows("median", "Median", c.in, c.dim, false, func(x *tt) (*tt, *tt) { return x.Median(c.dim) }, middle)...)
		rows = append(rows, pairRows("nanmedian", "NanMedian", c.in, c.dim, false, func(x *tt) (*tt, *tt) { return x.NanMedian(c.dim) }, middle)...)
		// most returns the most frequent element. If several elements are equally frequent, it
		// returns the least of them.
		most := func(v []float64) []int {
			at, best, run := orderOf(v, false), 0, 0
			place := 0
			for i := range at {
				if run++; i == 0 || v[at[i]] != v[at[i-1]] {
					run = 1
				}
				if run > best {
					best, place = run, i
				}
			}
			return at[place : place+1]
		}
		rows = append(rows, pairRows("mode", "Mode", c.in, c.dim, false, func(x *tt) (*tt, *tt) { return x.Mode(c.dim) }, most)...)
	}
	rows = append(rows, pairRows("kthvalue", "Kthvalue", []int{2, 9}, 1, true, func(x *tt) (*tt, *tt) { return x.Kthvalue(4, -1, tensor.KeepDim) },
		func(v []float64) []int { return orderOf(v, false)[3:4] })...)
	all := func(op, method string, call func(x *tt) (*tt, *tt)) {
		flat := func(x array) array { return x.reshape(len(x.v)) }
		for _, r := range pairRows(op, method, []int{3, 5}, 0, false, call, func(v []float64) []int { k := (len(v) - 1) / 2; return orderOf(v, false)[k : k+1] }) {
			ref := r.ref
			r.ref = func(x []array) array { return ref([]array{flat(x[0])}) }
			rows = append(rows, r)
		}
	}
	all("median", "Median", func(x *tt) (*tt, *tt) { return x.Median() })
	all("nanmedian", "NanMedian", func(x *tt) (*tt, *tt) { return x.NanMedian() })
	return rows
}

// quantileRef returns the quantile q of a row, with the given mode of interpolation.
func quantileRef(q float64, mode tensor.Interpolation) func(v []float64) float64 {
	return func(v []float64) float64 {
		v = slices.Clone(v)
		slices.Sort(v)
		rank := q * float64(len(v)-1)
		lo, hi, w := math.Floor(rank), math.Ceil(rank), rank-math.Floor(rank)
		switch mode {
		case tensor.Lower:
			hi = lo
		case tensor.Higher:
			lo = hi
		case tensor.Nearest:
			lo = math.RoundToEven(rank)
			hi = lo
		case tensor.Midpoint:
			w = 0.5
		}
		return v[int(lo)] + w*(v[int(hi)]-v[int(lo)])
	}
}

func quantileRows() []row {
	var rows []row
	add := func(op, method string, in []int, call func(x *tt) *tt, ref func(x array) array) {
		r := one(op, method, in, call, ref)
		r.ints = false
		r.terms = func(x []array) array { return ref(x[0]).apply(func(float64) float64 { return 4 }) }
		rows = append(rows, r)
	}
	for _, how := range []tensor.Interpolation{tensor.Linear, tensor.Lower, tensor.Higher, tensor.Midpoint, tensor.Nearest} {
		add("quantile", "Quantile", []int{3, 7}, func(x *tt) *tt { return x.Quantile(0.3, how, 1) }, func(x array) array { return along(x, []int{1}, quantileRef(0.3, how)) })
	}
	add("quantile", "Quantile", []int{2, 3, 4}, func(x *tt) *tt { return x.Quantile(0.6, tensor.Linear, -1, 1) }, func(x array) array { return along(x, []int{1, 2}, quantileRef(0.6, tensor.Linear)) })
	add("quantile", "Quantile", []int{2, 5}, func(x *tt) *tt { return x.Quantile(1, tensor.Linear, 1, tensor.KeepDim) }, func(x array) array {
		return along(x, []int{1}, quantileRef(1, tensor.Linear)).reshape(2, 1)
	})
	add("quantile", "Quantile", []int{}, func(x *tt) *tt { return x.Quantile(0.6, tensor.Linear) }, array.clone)
	add("quantile", "Quantiles", []int{2, 5}, func(x *tt) *tt { return x.Quantiles([]float64{0.1, 0.5, 0.9}, tensor.Linear, 1) }, func(x array) array {
		return joinedArrays(along(x, []int{1}, quantileRef(0.1, tensor.Linear)), along(x, []int{1}, quantileRef(0.5, tensor.Linear)), along(x, []int{1}, quantileRef(0.9, tensor.Linear))).reshape(3, 2)
	})
	add("nanquantile", "NanQuantiles", []int{2, 5}, func(x *tt) *tt { return x.NanQuantiles([]float64{0.4}, tensor.Lower, 1) }, func(x array) array {
		return along(x, []int{1}, quantileRef(0.4, tensor.Lower)).reshape(1, 2)
	})
	add("nanquantile", "NanQuantile", []int{2, 5}, func(x *tt) *tt { return x.NanQuantile(0.4, tensor.Lower, 1) }, func(x array) array { return along(x, []int{1}, quantileRef(0.4, tensor.Lower)) })
	return rows
}

// distinctRef returns the distinct elements of v, sorted. If consecutive is true, it compares only
// neighbours and does not sort.
func distinctRef(v []float64, consecutive bool) (values, inverse, counts []float64) {
	inverse = make([]float64, len(v))
	order := orderOf(v, false)
	if consecutive {
		for i := range order {
			order[i] = i
		}
	}
	for i, k := range order {
		if i == 0 || v[k] != v[order[i-1]] {
			values, counts = append(values, v[k]), append(counts, 0)
		}
		counts[len(counts)-1]++
		inverse[k] = float64(len(values) - 1)
	}
	return values, inverse, counts
}

func uniqueRows() []row {
	var rows []row
	add := func(op, method string, in []int, call func(x *tt) *tt, ref func(x array) array, result dtype.Type) {
		r := one(op, method, in, call, ref)
		r.noGrad, r.reads, r.result = true, 1, result
		r.ints = result == dtype.Invalid
		rows = append(rows, r)
	}
	vector := func(v []float64) array { return array{[]int{len(v)}, v} }
	for _, in := range [][]int{{3, 5}, {7}, {}, {0, 3}} {
		for _, c := range []struct {
			op, method  string
			consecutive bool
			call        func(x *tt, o tensor.UniqueOptions) (*tt, *tt, *tt)
		}{{"unique", "Unique", false, func(x *tt, o tensor.UniqueOptions) (*tt, *tt, *tt) { return x.Unique(o) }},
			{"unique_consecutive", "UniqueConsecutive", true, func(x *tt, o tensor.UniqueOptions) (*tt, *tt, *tt) { return x.UniqueConsecutive(o) }}} {
			ref := func(part int) func(x array) array {
				return func(x array) array {
					values, inverse, counts := distinctRef(rounding(x).v, c.consecutive)
					return []array{vector(values), {x.dims, inverse}, vector(counts)}[part]
				}
			}
			add(c.op, c.method, in, func(x *tt) *tt { y, _, _ := c.call(even(x), tensor.UniqueOptions{}); return y }, ref(0), dtype.Invalid)
			add(c.op+" inverse", c.method, in, func(x *tt) *tt { _, y, _ := c.call(x.Round(), tensor.UniqueOptions{Inverse: true}); return y }, ref(1), dtype.I64)
			add(c.op+" counts", c.method, in, func(x *tt) *tt {
				_, _, y := c.call(x.Round(), tensor.UniqueOptions{Inverse: true, Counts: true})
				return y
			}, ref(2), dtype.I64)
		}
	}
	// digits maps each entry of a dimension to one number whose digits are the entry's elements.
	// The elements have few values, so different entries have different numbers.
	digits := func(x array) []float64 {
		x = x.apply(func(v float64) float64 { return math.Copysign(1, v) })
		y := make([]float64, x.dims[1])
		for k := range x.dims[0] {
			for i := range y {
				y[i] = y[i]*3 + x.at(k, i)
			}
		}
		return y
	}
	signs := func(x *tt) *tt { return x.Sign().Add(x.Sign().Abs().RSubScalar(1)) }
	byDim := func(op, method string, consecutive bool, call func(x *tt) (*tt, *tt)) {
		r := func(part int) func(x array) array {
			return func(x array) array {
				x = x.apply(func(v float64) float64 {
					if v == 0 {
						return 1
					}
					return math.Copysign(1, v)
				})
				_, inverse, counts := distinctRef(digits(x), consecutive)
				if part == 1 {
					return vector(inverse)
				}
				at := make([]int, len(counts))
				for i, n := len(inverse)-1, 0; i >= n; i-- {
					at[int(inverse[i])] = i
				}
				return x.pick(1, 0, at...)
			}
		}
		add(op+" dim", method, []int{3, 6}, func(x *tt) *tt { y, _ := call(signs(x)); return y }, r(0), dtype.Invalid)
		rows[len(rows)-1].ints = false
		add(op+" dim inverse", method, []int{3, 6}, func(x *tt) *tt { _, y := call(signs(x)); return y }, r(1), dtype.I64)
	}
	byDim("unique", "Unique", false, func(x *tt) (*tt, *tt) { y, i, _ := x.Unique(tensor.UniqueOptions{Inverse: true}, 1); return y, i })
	byDim("unique_consecutive", "UniqueConsecutive", true, func(x *tt) (*tt, *tt) {
		y, i, _ := x.UniqueConsecutive(tensor.UniqueOptions{Inverse: true}, -1)
		return y, i
	})
	for _, c := range []struct {
		in  []int
		dim int
		n   int
	}{{[]int{4, 2}, 0, 4}, {[]int{2, 3}, 1, 3}, {[]int{3}, 0, 3}, {[]int{2, 3}, -1, 1}} {
		dim := (c.dim + len(c.in)) % len(c.in)
		rows = append(rows, row{op: "repeat_interleave_by", methods: []string{"RepeatInterleaveBy"}, in: [][]int{c.in, {c.n}}, index: map[int]int{1: 4}, ints: true, reads: 1,
			call: func(x []*tt) *tt { return x[0].RepeatInterleaveBy(x[1], c.dim) }, ref: func(x []array) array {
				var at []int
				for i := range x[0].dims[dim] {
					for range int(x[1].v[min(i, len(x[1].v)-1)]) {
						at = append(at, i)
					}
				}
				return x[0].pick(dim, 0, at...)
			}})
	}
	return rows
}

func searchRows() []row {
	var rows []row
	lookUp := func(v []float64, a float64, right bool) float64 {
		n := 0
		for _, b := range v {
			if b < a || right && b == a {
				n++
			}
		}
		return float64(n)
	}
	add := func(op, method string, in [][]int, result dtype.Type, call func(x []*tt) *tt, ref func(x []array) array) {
		rows = append(rows, row{op: op, methods: []string{method}, in: in, noGrad: true, result: result, call: call, ref: ref})
	}
	for _, right := range []bool{false, true} {
		for _, in := range [][][]int{{{5}, {2, 4}}, {{3, 6}, {3, 4}}, {{2, 2, 3}, {2, 2, 1}}, {{1}, {}}, {{0}, {3}}, {{4}, {0, 2}}} {
			ref := func(sorted, values array) array {
				n := sorted.dims[len(sorted.dims)-1]
				per := len(values.v)
				if len(sorted.dims) > 1 {
					per = values.dims[len(values.dims)-1]
				}
				y := newArray(values.dims...)
				for i, a := range values.v {
					row := i / max(1, per)
					y.v[i] = lookUp(sorted.v[row*n:row*n+n], a, right)
				}
				return y
			}
			add("searchsorted", "Searchsorted", in, dtype.I64, func(x []*tt) *tt {
				sorted, _ := x[0].Round().Sort(-1, false)
				return sorted.Searchsorted(x[1].Round(), right)
			}, func(x []array) array { return ref(rounding(x[0]), rounding(x[1])) })
			if len(in[0]) == 1 {
				add("bucketize", "Bucketize", in, dtype.I64, func(x []*tt) *tt {
					sorted, _ := x[0].Round().Sort(-1, false)
					return x[1].Round().Bucketize(sorted, right)
				}, func(x []array) array { return ref(rounding(x[0]), rounding(x[1])) })
			}
		}
	}
	for _, invert := range []bool{false, true} {
		for _, in := range [][][]int{{{3, 5}, {2, 2}}, {{4}, {0}}, {{}, {3}}} {
			add("isin", "IsIn", in, dtype.Bool, func(x []*tt) *tt { return x[0].Round().IsIn(x[1].Round(), invert) }, func(x []array) array {
				set := rounding(x[1]).v
				return rounding(x[0]).apply(func(v float64) float64 {
					if slices.Contains(set, v) != invert {
						return 1
					}
					return 0
				})
			})
		}
	}
	for _, c := range []struct{ n, dim int }{{1, 1}, {2, 0}, {0, 0}, {9, 1}} {
		dim := c.dim
		r := one("diff", "Diff", []int{4, 5}, func(x *tt) *tt { return x.Diff(c.n, dim) }, func(x array) array {
			x = x.clone()
			for range min(c.n, x.dims[dim]) {
				n := x.dims[dim]
				a, b := x.narrow(dim, min(1, n), max(n-1, 0)), x.narrow(dim, 0, max(n-1, 0))
				x = a.clone()
				for i := range x.v {
					x.v[i] -= b.v[i]
				}
			}
			return x
		})
		r.terms = func(x []array) array { return r.ref(x).apply(func(float64) float64 { return 8 }) }
		// the reference is not valid for repeated differences of bools
		r.rounds, r.ints = c.n > 1, c.n != 2
		rows = append(rows, r)
	}
	for _, c := range []struct{ lo, hi float64 }{{-1, 1.5}, {0, 0}} {
		add("histc", "Histc", [][]int{{3, 7}}, dtype.Invalid, func(x []*tt) *tt { return x[0].Histc(4, c.lo, c.hi) }, func(x []array) array {
			lo, hi := c.lo, c.hi
			if lo == hi {
				lo, hi = slices.Min(x[0].v), slices.Max(x[0].v)
			}
			y := newArray(4)
			for _, v := range x[0].v {
				if v >= lo && v <= hi {
					y.v[min(3, int((v-lo)*4/(hi-lo)))]++
				}
			}
			return y
		})
	}
	return rows
}
