package optest

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func init() { rowTables = append(rowTables, scatterRows, maskedRows) }

// placedIndex makes an integer tensor from an array, on x's device, without a copy from the host.
func placedIndex(x *tt, a array) *tt {
	y := x.Scope().On(x.Device()).Typed(dtype.I64).Zeros(len(a.v))
	for i, v := range a.v {
		y.Narrow(0, i, 1).Fill(v)
	}
	return y.Reshape(a.dims...)
}

// truths makes a bool tensor from an array, on x's device, without a copy from the host.
func truths(x *tt, a array) *tt { return placedIndex(x, a).NeScalar(0) }

// fullIndex broadcasts a vector of indices along the axis to the sizes of all other dimensions in
// dims.
func fullIndex(index array, axis int, dims []int) array {
	ones, to := make([]int, len(dims)), append([]int(nil), dims...)
	for i := range ones {
		ones[i] = 1
	}
	ones[axis], to[axis] = len(index.v), len(index.v)
	return index.reshape(ones...).expand(to)
}

// intoRef combines src with the elements of x that index selects along axis. The function combine
// gets all values for one element, in order. If self is true, the element of x is one of them.
func intoRef(x, index, src array, axis int, self bool, combine func(v []float64) float64) array {
	met := make([][]float64, len(x.v))
	hit := make([]bool, len(x.v))
	for i, v := range x.v {
		if self {
			met[i] = []float64{v}
		}
	}
	each(index.dims, func(i int, idx []int) {
		to := append([]int(nil), idx...)
		to[axis] = int(index.v[i])
		at := x.offset(to)
		met[at], hit[at] = append(met[at], src.at(idx...)), true
	})
	y := x.clone()
	for i := range y.v {
		if hit[i] {
			y.v[i] = combine(met[i])
		}
	}
	return y
}

func totalOf(v []float64) (s float64) {
	for _, a := range v {
		s += a
	}
	return s
}

func productOf(v []float64) float64 {
	p := 1.0
	for _, a := range v {
		p *= a
	}
	return p
}

func lastOf(v []float64) float64 { return v[len(v)-1] }

func meanOf(v []float64) float64 { return totalOf(v) / float64(len(v)) }

func maxOf(v []float64) float64 {
	m := v[0]
	for _, a := range v[1:] {
		m = math.Max(m, a)
	}
	return m
}

func leastOf(v []float64) float64 {
	m := v[0]
	for _, a := range v[1:] {
		m = math.Min(m, a)
	}
	return m
}

func scatterRows() []row {
	var rows []row
	add := func(r row) { rows = append(rows, r) }

	// apart is an index along dimension 1 of a tensor of shape [3, 4]. It selects no element twice:
	// if an element is set twice, central differences do not give the right gradient.
	apart := array{[]int{2, 3}, []float64{3, 0, 1, 2, 1, 0}}
	// down is an index along dimension 0 of a tensor of shape [3, 4]. It selects no element twice
	// either.
	down := array{[]int{2, 3}, []float64{2, 0, 1, 0, 1, 2}}
	for _, c := range []struct {
		axis  int
		index array
	}{{1, apart}, {0, down}} {
		set := func(x []array) array { return intoRef(x[0], c.index, x[1], c.axis, false, lastOf) }
		in := [][]int{{3, 4}, {2, 4}}
		add(row{op: "scatter", methods: []string{"Scatter"}, in: in, ints: true, ref: set,
			call: func(x []*tt) *tt { return x[0].Scatter(c.axis, placedIndex(x[0], c.index), x[1]) }})
		add(row{op: "scatter", methods: []string{"ScatterInPlace"}, in: in, ints: true, ref: set,
			call: func(x []*tt) *tt { return x[0].Clone().ScatterInPlace(c.axis-2, placedIndex(x[0], c.index), x[1]) }})
		sum := func(x []array) array { return intoRef(x[0], x[1], x[2], c.axis, true, totalOf) }
		// The index is smaller than x and src.
		for _, method := range []string{"ScatterAdd", "ScatterAddInPlace"} {
			add(row{op: "scatter_add", methods: []string{method}, in: [][]int{{3, 4}, {2, 3}, {3, 5}}, index: map[int]int{1: []int{3, 4}[c.axis]}, ints: true, ref: sum, terms: absAll(sum),
				call: func(x []*tt) *tt {
					if method == "ScatterAdd" {
						return x[0].ScatterAdd(c.axis, x[1], x[2])
					}
					return x[0].Clone().ScatterAddInPlace(c.axis, x[1], x[2])
				}})
		}
	}
	one := func(x []array) array {
		return intoRef(x[0], apart, newArray(2, 3).apply(func(float64) float64 { return 1 }), 1, false, lastOf)
	}
	add(row{op: "scatter", methods: []string{"ScatterScalar"}, in: [][]int{{3, 4}}, ints: true, ref: one, call: func(x []*tt) *tt { return x[0].ScatterScalar(1, placedIndex(x[0], apart), 1) }})
	add(row{op: "scatter", methods: []string{"ScatterScalarInPlace"}, in: [][]int{{3, 4}}, ints: true, ref: one,
		call: func(x []*tt) *tt { return x[0].Clone().ScatterScalarInPlace(1, placedIndex(x[0], apart), 1) }})
	add(row{op: "scatter_add", methods: []string{"ScatterAdd"}, in: [][]int{{}, {}, {}}, index: map[int]int{1: 1}, terms: ones,
		ref: func(x []array) array { return array{nil, []float64{x[0].v[0] + x[2].v[0]}} }, call: func(x []*tt) *tt { return x[0].ScatterAdd(0, x[1], x[2]) }})

	for _, axis := range []int{0, 1} {
		dims := []int{3, 4}
		src := append([]int(nil), dims...)
		src[axis] = 3
		rowsRef := func(self bool, combine func(v []float64) float64) func(x []array) array {
			return func(x []array) array { return intoRef(x[0], fullIndex(x[1], axis, dims), x[2], axis, self, combine) }
		}
		in, at := [][]int{dims, {3}, src}, map[int]int{1: dims[axis]}
		sum := rowsRef(true, totalOf)
		add(row{op: "index_add", methods: []string{"IndexAdd"}, in: in, index: at, ints: true, ref: sum, terms: absAll(sum), call: func(x []*tt) *tt { return x[0].IndexAdd(axis, x[1], x[2], 1) }})
		twice := func(x []array) array {
			return sum([]array{x[0], x[1], x[2].apply(func(v float64) float64 { return -2 * v })})
		}
		add(row{op: "index_add", methods: []string{"IndexAddInPlace"}, in: in, index: at, ref: twice, terms: absAll(func(x []array) array {
			return sum([]array{x[0], x[1], x[2].apply(func(v float64) float64 { return 2 * v })})
		}), call: func(x []*tt) *tt { return x[0].Clone().IndexAddInPlace(axis, x[1], x[2], -2) }})
		order := array{[]int{3}, []float64{2, 0, 1}}
		set := func(x []array) array {
			return intoRef(x[0], fullIndex(order, axis, dims), x[1], axis, false, lastOf)
		}
		add(row{op: "index_copy", methods: []string{"IndexCopy"}, in: [][]int{dims, src}, ints: true, ref: set, call: func(x []*tt) *tt { return x[0].IndexCopy(axis, placedIndex(x[0], order), x[1]) }})
		add(row{op: "index_copy", methods: []string{"IndexCopyInPlace"}, in: [][]int{dims, src}, ints: true, ref: set,
			call: func(x []*tt) *tt { return x[0].Clone().IndexCopyInPlace(axis, placedIndex(x[0], order), x[1]) }})
		fill := func(x []array) array {
			return intoRef(x[0], fullIndex(x[1], axis, dims), newArray(src...).apply(func(float64) float64 { return 1 }), axis, false, lastOf)
		}
		add(row{op: "index_fill", methods: []string{"IndexFill"}, in: [][]int{dims, {3}}, index: at, ints: true, ref: fill, call: func(x []*tt) *tt { return x[0].IndexFill(axis, x[1], 1) }})
		add(row{op: "index_fill", methods: []string{"IndexFillInPlace"}, in: [][]int{dims, {3}}, index: at, ints: true, ref: fill,
			call: func(x []*tt) *tt { return x[0].Clone().IndexFillInPlace(axis, x[1].SubScalar(float64(dims[axis])), 1) }})
		fillBy := func(x []array) array {
			src := append([]int(nil), dims...)
			src[axis] = 3
			return intoRef(x[0], fullIndex(x[1], axis, dims), newArray(src...).apply(func(float64) float64 { return x[2].v[0] }), axis, false, lastOf)
		}
		by := [][]int{dims, {3}, {}}
		add(row{op: "index_fill", methods: []string{"IndexFillBy"}, in: by, index: at, ints: true, ref: fillBy, call: func(x []*tt) *tt { return x[0].IndexFillBy(axis, x[1], x[2]) }})
		add(row{op: "index_fill", methods: []string{"IndexFillByInPlace"}, in: by, index: at, ints: true, ref: fillBy,
			call: func(x []*tt) *tt { return x[0].Clone().IndexFillByInPlace(axis, x[1], x[2]) }})
	}

	for _, c := range []struct {
		name   string
		of     func(v []float64) float64
		scaled bool // true if the function is a sum, a product or a mean, which rounds
	}{{"sum", totalOf, true}, {"prod", productOf, true}, {"mean", meanOf, true}, {"amax", maxOf, false}, {"amin", leastOf, false}} {
		for _, self := range []bool{true, false} {
			r := row{op: "scatter_reduce", methods: []string{"ScatterReduce"}, in: [][]int{{3, 4}, {3, 3}, {3, 4}}, index: map[int]int{1: 4}, ints: c.name != "mean",
				ref:  func(x []array) array { return intoRef(x[0], x[1], x[2], 1, self, c.of) },
				call: func(x []*tt) *tt { return x[0].ScatterReduce(1, x[1], x[2], c.name, self) }}
			if c.scaled {
				r.terms = absAll(r.ref)
			}
			add(r)
			r.op, r.methods, r.in, r.index = "index_reduce", []string{"IndexReduce"}, [][]int{{3, 4}, {5}, {5, 4}}, map[int]int{1: 3}
			r.ref = func(x []array) array { return intoRef(x[0], fullIndex(x[1], 0, []int{3, 4}), x[2], 0, self, c.of) }
			if c.scaled {
				r.terms = absAll(r.ref)
			}
			r.call = func(x []*tt) *tt { return x[0].IndexReduce(0, x[1], x[2], c.name, self) }
			add(r)
		}
	}

	take := func(x []array) array {
		return x[1].apply(func(i float64) float64 { return x[0].v[int(i)] })
	}
	add(row{op: "take", methods: []string{"Take"}, in: [][]int{{3, 4}, {2, 5}}, index: map[int]int{1: 12}, ints: true, ref: take, call: func(x []*tt) *tt { return x[0].Take(x[1].SubScalar(12)) }})
	for axis := range 2 {
		in := [][]int{{3, 4}, {3, 4}}
		in[1][axis], in[1][1-axis] = 5, 1
		add(row{op: "take_along_dim", methods: []string{"TakeAlong"}, in: in, index: map[int]int{1: in[0][axis]}, ints: true, call: func(x []*tt) *tt { return x[0].TakeAlong(x[1], axis) },
			ref: func(x []array) array {
				to := []int{3, 4}
				to[axis] = 5
				return gatherRef(axis)([]array{x[0], x[1].expand(to)})
			}})
	}
	add(row{op: "gather", methods: []string{"Gather"}, in: [][]int{{}, {}}, index: map[int]int{1: 1}, ref: first, call: func(x []*tt) *tt { return x[0].Gather(-1, x[1]) }})
	add(row{op: "index_select", methods: []string{"IndexSelect"}, in: [][]int{{}, {1}}, index: map[int]int{1: 1}, ref: first, call: func(x []*tt) *tt { return x[0].IndexSelect(0, x[1]) }})
	// No index selects the last row, because EmbeddingPadded gives this row no gradient.
	add(row{op: "embedding", methods: []string{"EmbeddingPadded"}, in: [][]int{{5, 3}, {2, 4}}, index: map[int]int{1: 4}, ref: selectRef(0),
		call: func(x []*tt) *tt { return x[0].EmbeddingPadded(x[1], -1) }})

	count := func(x []array) array {
		y := newArray(6)
		for i, k := range x[1].v {
			y.v[int(k)] += x[0].v[i]
		}
		return y
	}
	add(row{op: "bincount", methods: []string{"Bincount"}, in: [][]int{{9}, {9}}, index: map[int]int{1: 6}, noGrad: true, reads: 1, result: dtype.F64, ref: count, terms: absAll(count),
		call: func(x []*tt) *tt { return x[1].Bincount(x[0].Double(), 6) }})
	add(row{op: "bincount", methods: []string{"Bincount"}, in: [][]int{{}, {9}}, index: map[int]int{1: 6}, noGrad: true, reads: 1, result: dtype.I64, call: func(x []*tt) *tt { return x[1].Bincount(nil, 6) },
		ref: func(x []array) array {
			return count([]array{x[1].apply(func(float64) float64 { return 1 }), x[1]})
		}})
	return rows
}

// renormRef limits the length of the rows that the index selects to 1.5.
func renormRef(x []array) array {
	y, n := x[0].clone(), x[0].dims[1]
	for _, at := range x[1].v {
		row, sum := x[0].v[int(at)*n:int(at)*n+n], 0.0
		for _, v := range row {
			sum += v * v
		}
		if length := math.Sqrt(sum); length > 1.5 {
			for i, v := range row {
				y.v[int(at)*n+i] = v * 1.5 / (length + 1e-7)
			}
		}
	}
	return y
}

func maskedRows() []row {
	var rows []row
	add := func(r row) { rows = append(rows, r) }
	positive := func(x array) (at [][]int) {
		each(x.dims, func(i int, idx []int) {
			if x.v[i] > 0 {
				at = append(at, append([]int(nil), idx...))
			}
		})
		return at
	}
	for _, dims := range [][]int{{3, 4}, {2, 3, 2}, {7}, {}, {0, 3}} {
		ref := func(x []array) array {
			at := positive(x[0])
			y := newArray(len(at), len(dims))
			for i, idx := range at {
				for k, v := range idx {
					y.v[i*len(dims)+k] = float64(v)
				}
			}
			return y
		}
		add(row{op: "nonzero", methods: []string{"Nonzero"}, in: [][]int{dims}, ints: true, noGrad: true, reads: min(1, size(dims)), result: dtype.I64, ref: ref, call: func(x []*tt) *tt { return x[0].GtScalar(0).Nonzero() }})
		if len(dims) > 0 {
			add(row{op: "nonzero", methods: []string{"NonzeroTuple"}, in: [][]int{dims}, ints: true, noGrad: true, reads: min(1, size(dims)), result: dtype.I64, ref: ref,
				call: func(x []*tt) *tt { return tensor.Stack(-1, x[0].ClampMin(0).NonzeroTuple()...) }})
		}
	}
	for _, c := range []struct {
		in   []int
		mask array
	}{{[]int{3, 4}, array{[]int{3, 4}, []float64{1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 0}}}, {[]int{3, 1}, array{[]int{4}, []float64{0, 1, 1, 0}}},
		{[]int{4}, array{[]int{2, 1}, []float64{0, 1}}}, {[]int{3}, array{nil, []float64{0}}}} {
		joined := joint(newArray(c.in...), c.mask)
		selected := func(x []array) array {
			var v []float64
			from, mask := x[0].expand(joined), c.mask.expand(joined)
			for i := range from.v {
				if mask.v[i] != 0 {
					v = append(v, from.v[i])
				}
			}
			return array{[]int{len(v)}, v}
		}
		add(row{op: "masked_select", methods: []string{"MaskedSelect"}, in: [][]int{c.in}, ints: true, reads: 1, ref: selected, call: func(x []*tt) *tt { return x[0].MaskedSelect(truths(x[0], c.mask)) }})
		scattered := func(x []array) array {
			y, mask, n := x[0].expand(joined), c.mask.expand(joined), 0
			for i := range y.v {
				if mask.v[i] != 0 {
					y.v[i] = x[1].v[n]
					n++
				}
			}
			return y
		}
		add(row{op: "masked_scatter", methods: []string{"MaskedScatter"}, in: [][]int{c.in, {2, 4}}, ints: true, ref: scattered,
			call: func(x []*tt) *tt { return x[0].MaskedScatter(truths(x[0], c.mask), x[1]) }})
		filled := func(x []array) array {
			y, mask := x[0].expand(joined), c.mask.expand(joined)
			for i := range y.v {
				if mask.v[i] != 0 {
					y.v[i] = x[1].v[0]
				}
			}
			return y
		}
		add(row{op: "masked_fill", methods: []string{"MaskedFillBy"}, in: [][]int{c.in, {}}, ints: true, ref: filled,
			call: func(x []*tt) *tt { return x[0].MaskedFillBy(truths(x[0], c.mask), x[1]) }})
		if size(joined) == size(c.in) {
			add(row{op: "masked_fill", methods: []string{"MaskedFillByInPlace"}, in: [][]int{c.in, {}}, ints: true, ref: filled,
				call: func(x []*tt) *tt { return x[0].Clone().MaskedFillByInPlace(truths(x[0], c.mask), x[1]) }})
			add(row{op: "masked_scatter", methods: []string{"MaskedScatterInPlace"}, in: [][]int{c.in, {2, 4}}, ints: true, ref: scattered,
				call: func(x []*tt) *tt { return x[0].Clone().MaskedScatterInPlace(truths(x[0], c.mask), x[1]) }})
		}
	}
	return rows
}
