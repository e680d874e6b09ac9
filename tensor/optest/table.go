package optest

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func absAll(f func(x []array) array) func(x []array) array {
	return func(x []array) array {
		a := make([]array, len(x))
		for k := range x {
			a[k] = absolute(x[k])
		}
		return f(a)
	}
}

func absolute(a array) array { return a.apply(math.Abs) }

func ones(x []array) array {
	return newArray(joint(x...)...).apply(func(float64) float64 { return 4 })
}

func first(x []array) array { return x[0].clone() }

// rowTables holds further parts of the table. A file with a part adds it in init.
var rowTables []func() []row

// table lists the heavy ops, the views and the in-place forms.
func table() []row {
	var rows []row
	add := func(r row) { rows = append(rows, r) }

	for _, in := range [][][]int{{{3, 4}, {4, 5}}, {{2, 3, 4}, {2, 4, 5}}, {{2, 1, 3, 4}, {3, 4, 2}}, {{2, 3, 4}, {4, 5}}, {{3, 4}, {2, 4, 5}},
		{{4}, {4}}, {{4}, {4, 5}}, {{3, 4}, {4}}, {{9, 17}, {17, 3}}, {{3, 0}, {0, 2}}, {{0, 4}, {4, 2}}} {
		add(row{op: "matmul", methods: []string{"MatMul"}, in: in, ints: true, noBool: true, ref: matmulRef, terms: absAll(matmulRef),
			call: func(x []*tt) *tt { return x[0].MatMul(x[1]) }})
		add(row{op: "int_mm", methods: []string{"IntMM"}, in: in, ints: true, noGrad: true, kernels: true, result: dtype.I32, whole: dtype.I32,
			ref:  func(x []array) array { return matmulRef([]array{x[0].apply(math.Trunc), x[1].apply(math.Trunc)}) },
			call: func(x []*tt) *tt { return x[0].Cast(dtype.I8).IntMM(x[1].Cast(dtype.I8)) }})
	}
	for _, in := range [][][]int{{{3, 4}, {5, 4}, {5}}, {{2, 3, 4}, {7, 4}, {7}}, {{4}, {2, 4}, {2}}, {{3, 0}, {2, 0}, {2}}, {{0, 4}, {2, 4}, {2}}, {{9, 17}, {3, 17}}} {
		add(row{op: "linear_int8", methods: []string{"LinearInt8", "QuantizeRows"}, in: in, noGrad: true, kernels: true, result: dtype.F32,
			ref: func(x []array) array { return linearRef(false)(x).apply(func(float64) float64 { return 1 }) }, call: linearInt8Same})
		for _, byInputs := range []bool{false, true} {
			name, in := "Linear", slices.Clone(in)
			if byInputs {
				name, in[1] = "LinearT", []int{in[1][1], in[1][0]}
			}
			ref := linearRef(byInputs)
			add(row{op: "linear", methods: []string{name}, in: in, ints: true, noBool: true, ref: ref, terms: absAll(ref),
				call: func(x []*tt) *tt {
					x = append(x, nil)
					if byInputs {
						return x[0].LinearT(x[1], x[2])
					}
					return x[0].Linear(x[1], x[2])
				}})
			add(row{op: "linear", methods: []string{name + "Act"}, in: in, ref: siluOf(ref), terms: absAll(ref), rounds: true, kernels: true,
				call: func(x []*tt) *tt {
					x = append(x, nil)
					if byInputs {
						return x[0].LinearTAct(x[1], x[2], (*tt).Silu)
					}
					return x[0].LinearAct(x[1], x[2], (*tt).Silu)
				}})
		}
	}
	for _, c := range []struct {
		in  []int
		dim int
	}{{[]int{3, 7}, -1}, {[]int{2, 3, 4}, 1}, {[]int{4, 3}, 0}, {[]int{}, -1}, {[]int{0, 3}, 1}, {[]int{2, 3, 2, 3}, -2}} {
		add(row{op: "softmax", methods: []string{"Softmax"}, in: [][]int{c.in}, ref: softmaxRef(c.dim, false), kernels: true,
			terms: softmaxRef(c.dim, false), call: func(x []*tt) *tt { return x[0].Softmax(c.dim) }})
		add(row{op: "log_softmax", methods: []string{"LogSoftmax"}, in: [][]int{c.in}, ref: softmaxRef(c.dim, true), kernels: true,
			terms: ones, call: func(x []*tt) *tt { return x[0].LogSoftmax(c.dim) }})
	}
	for _, ignore := range []int{-100, 2} {
		add(row{op: "cross_entropy", methods: []string{"CrossEntropy"}, in: [][]int{{6, 5}, {6}}, index: map[int]int{1: 5}, kernels: true,
			ref: crossRef(ignore), call: func(x []*tt) *tt { return x[0].CrossEntropy(x[1], tensor.CrossEntropyOptions{IgnoreIndex: &ignore}) },
			terms: func(x []array) array { return newArray(x[1].dims...).apply(func(float64) float64 { return 4 }) }})
	}

	for axis := range 3 {
		in := [][]int{{3, 4, 2}, {3, 4, 2}}
		in[1][axis] = 5
		if axis == 1 {
			in[1][0] = 2 // here the index is smaller than x in the other dimension
		}
		add(row{op: "gather", methods: []string{"Gather"}, in: in, index: map[int]int{1: in[0][axis]}, ints: true,
			ref: gatherRef(axis), call: func(x []*tt) *tt { return x[0].Gather(axis, x[1]) }})
		src := append([]int(nil), in[0]...)
		src[axis] = 5
		add(row{op: "scatter_add", methods: []string{"ScatterAdd"}, in: [][]int{in[0], src, src}, index: map[int]int{1: in[0][axis]}, ints: true,
			ref: scatterRef(axis), terms: absAll(scatterRef(axis)), call: func(x []*tt) *tt { return x[0].ScatterAdd(axis, x[1], x[2]) }})
		add(row{op: "index_select", methods: []string{"IndexSelect"}, in: [][]int{{3, 4, 2}, {6}}, index: map[int]int{1: in[0][axis]}, ints: true,
			ref: selectRef(axis), call: func(x []*tt) *tt { return x[0].IndexSelect(axis-3, x[1]) }})
	}
	add(row{op: "embedding", methods: []string{"Embedding"}, in: [][]int{{5, 3}, {2, 4}}, index: map[int]int{1: 5}, ints: true,
		ref: selectRef(0), call: func(x []*tt) *tt { return x[0].Embedding(x[1]) }})

	add(row{op: "embedding", methods: []string{"EmbeddingRenormInPlace"}, in: [][]int{{5, 3}, {2, 4}}, index: map[int]int{1: 5}, noGrad: true,
		ref: renormRef, terms: func(x []array) array { return newArray(x[0].dims...).apply(func(float64) float64 { return 16 }) },
		call: func(x []*tt) *tt { return x[0].Clone().EmbeddingRenormInPlace(x[1], 1.5, 2) }})

	view := func(op string, in []int, call func(x *tt) *tt, ref func(x array) array, methods ...string) {
		add(row{op: op, methods: methods, in: [][]int{in}, ints: true, call: func(x []*tt) *tt { return call(x[0]) }, ref: func(x []array) array { return ref(x[0]) }})
	}
	shaped := func(dims ...int) func(x array) array { return func(x array) array { return x.reshape(dims...) } }
	permuted := func(p ...int) func(x array) array { return func(x array) array { return x.permute(p) } }
	view("reshape", []int{3, 4}, func(x *tt) *tt { return x.Reshape(2, -1) }, shaped(2, 6), "Reshape")
	view("reshape", []int{2, 3, 4}, func(x *tt) *tt { return x.Reshape(4, 1, 6) }, shaped(4, 1, 6))
	view("reshape", []int{2, 0, 4}, func(x *tt) *tt { return x.Reshape(0, 7) }, shaped(0, 7))
	view("reshape", []int{1, 1}, func(x *tt) *tt { return x.Reshape() }, shaped())
	view("view", []int{2, 3}, func(x *tt) *tt { return x.Contiguous().View(6) }, shaped(6), "View", "Contiguous")
	view("flatten", []int{2, 3, 2}, func(x *tt) *tt { return x.Flatten(1, -1) }, shaped(2, 6), "Flatten")
	view("transpose", []int{2, 3, 4}, func(x *tt) *tt { return x.Transpose(0, -1) }, permuted(2, 1, 0), "Transpose")
	view("t", []int{2, 3, 4}, func(x *tt) *tt { return x.T() }, permuted(0, 2, 1), "T")
	view("permute", []int{2, 3, 2, 2}, func(x *tt) *tt { return x.Permute(2, 0, -1, 1) }, permuted(2, 0, 3, 1), "Permute")
	view("expand", []int{3, 1, 2}, func(x *tt) *tt { return x.Expand(2, -1, 4, 2) }, func(x array) array { return x.expand([]int{2, 3, 4, 2}) }, "Expand")
	view("unsqueeze", []int{2, 3}, func(x *tt) *tt { return x.Unsqueeze(-1) }, shaped(2, 3, 1), "Unsqueeze")
	view("squeeze", []int{1, 3, 1}, func(x *tt) *tt { return x.Squeeze() }, shaped(3), "Squeeze")
	view("squeeze", []int{1, 3, 1}, func(x *tt) *tt { return x.Squeeze(0, 1) }, shaped(3, 1))
	view("narrow", []int{3, 5}, func(x *tt) *tt { return x.Narrow(-1, 1, 3) }, func(x array) array { return x.narrow(1, 1, 3) }, "Narrow")
	view("narrow", []int{4, 2}, func(x *tt) *tt { return x.Narrow(0, 4, 0) }, shapedEmpty(0, 2))
	view("select", []int{3, 5}, func(x *tt) *tt { return x.Select(0, -1) }, func(x array) array { return x.narrow(0, 2, 1).reshape(5) }, "Select")
	view("in", []int{3, 5}, func(x *tt) *tt {
		c := x.Scope().New(tensor.Named("child"))
		y := x.In(c).Clone()
		c.Close(y)
		return y
	}, func(x array) array { return x.clone() }, "In")

	add(row{op: "cat", methods: []string{"Cat"}, in: [][]int{{3, 2}, {3, 4}, {3, 1}}, ints: true, ref: catRef(1), call: func(x []*tt) *tt { return tensor.Cat(-1, x...) }})
	add(row{op: "stack", methods: []string{"Stack"}, in: [][]int{{3, 2}, {3, 2}}, ints: true, call: func(x []*tt) *tt { return tensor.Stack(1, x...) },
		ref: func(x []array) array { return catRef(1)([]array{x[0].reshape(3, 1, 2), x[1].reshape(3, 1, 2)}) }})

	for _, c := range []struct {
		name string
		to   dtype.Type
		call func(x *tt) *tt
	}{{"Float", dtype.F32, (*tt).Float}, {"Double", dtype.F64, (*tt).Double}, {"Half", dtype.F16, (*tt).Half}, {"BFloat16", dtype.BF16, (*tt).BFloat16},
		{"Long", dtype.I64, (*tt).Long}, {"Bool", dtype.Bool, (*tt).Bool}, {"Cast", dtype.I8, func(x *tt) *tt { return x.Cast(dtype.I8) }}} {
		add(row{op: "cast", methods: []string{c.name}, in: [][]int{{3, 5}}, result: c.to, noGrad: !c.to.IsFloat(),
			call: func(x []*tt) *tt { return c.call(x[0]) }, ref: func(x []array) array {
				switch {
				case c.to.IsFloat():
					return x[0].clone()
				case c.to == dtype.Bool:
					return x[0].apply(func(v float64) float64 {
						if v != 0 {
							return 1
						}
						return 0
					})
				}
				return x[0].apply(math.Trunc)
			}})
	}

	// The in-place op changes a copy of the operand, because the operand is a leaf. The copy is an
	// intermediate result with a gradient.
	inPlace := func(method string, call func(x, y *tt) *tt, f func(a, b float64) float64) {
		add(row{op: "in place", methods: []string{method}, in: [][]int{{3, 4}, {4}}, call: func(x []*tt) *tt { return call(x[0].Clone(), x[1]) },
			terms: ones, ref: func(x []array) array {
				b := x[1].expand(x[0].dims)
				y := x[0].clone()
				for i := range y.v {
					y.v[i] = f(y.v[i], b.v[i])
				}
				return y
			}})
	}
	inPlace("AddInPlace", (*tt).AddInPlace, func(a, b float64) float64 { return a + b })
	inPlace("SubInPlace", (*tt).SubInPlace, func(a, b float64) float64 { return a - b })
	inPlace("MulInPlace", (*tt).MulInPlace, func(a, b float64) float64 { return a * b })
	add(row{op: "in place", methods: []string{"DivInPlace"}, in: [][]int{{3, 4}, {4}}, call: func(x []*tt) *tt { return x[0].Clone().DivInPlace(x[1].Square().AddScalar(1)) },
		terms: ones, ref: func(x []array) array {
			b := x[1].expand(x[0].dims)
			y := x[0].clone()
			for i := range y.v {
				y.v[i] /= b.v[i]*b.v[i] + 1
			}
			return y
		}})
	scalarInPlace := func(method string, call func(x *tt) *tt, f func(a float64) float64) {
		add(row{op: "in place", methods: []string{method}, in: [][]int{{3, 4}}, terms: ones, call: func(x []*tt) *tt { return call(x[0].Clone()) },
			ref: func(x []array) array { return x[0].apply(f) }})
	}
	scalarInPlace("AddScalarInPlace", func(x *tt) *tt { return x.AddScalarInPlace(1.5) }, func(v float64) float64 { return v + 1.5 })
	scalarInPlace("MulScalarInPlace", func(x *tt) *tt { return x.MulScalarInPlace(-3) }, func(v float64) float64 { return -3 * v })
	scalarInPlace("SubScalar", func(x *tt) *tt { return x.SubScalar(0.5) }, func(v float64) float64 { return v - 0.5 })
	for _, c := range []struct {
		in  []int
		dim int
	}{{[]int{3, 6}, -1}, {[]int{4, 3, 2}, 0}, {[]int{2, 0}, 1}} {
		add(row{op: "glu", methods: []string{"Glu"}, in: [][]int{c.in}, call: func(x []*tt) *tt { return x[0].Glu(c.dim) }, terms: ones, ref: gluRef(c.dim)})
	}
	constantLike := func(method string, call func(x *tt) *tt, v float64) {
		add(row{op: "like", methods: []string{method}, in: [][]int{{3, 4}}, ints: true, noGrad: true, call: func(x []*tt) *tt { return call(x[0]) },
			ref: func(x []array) array { return x[0].apply(func(float64) float64 { return v }) }})
	}
	constantLike("ZerosLike", (*tt).ZerosLike, 0)
	constantLike("OnesLike", (*tt).OnesLike, 1)
	constantLike("FullLike", func(x *tt) *tt { return x.FullLike(1) }, 1)
	add(row{op: "copy", methods: []string{"Copy"}, in: [][]int{{3, 4}, {4}}, ints: true, call: func(x []*tt) *tt { return x[0].Clone().Copy(x[1]) },
		ref: func(x []array) array { return x[1].expand(x[0].dims) }})
	add(row{op: "fill", methods: []string{"Fill"}, in: [][]int{{3, 4}}, ints: true, call: func(x []*tt) *tt { return x[0].Clone().Fill(1) },
		ref: func(x []array) array { return x[0].apply(func(float64) float64 { return 1 }) }})
	add(row{op: "zero", methods: []string{"Zero"}, in: [][]int{{3, 4}}, ints: true, call: func(x []*tt) *tt { return x[0].Clone().Zero() },
		ref: func(x []array) array { return newArray(x[0].dims...) }})
	add(row{op: "detach", methods: []string{"Detach"}, in: [][]int{{3, 4}}, ints: true, noGrad: true, call: func(x []*tt) *tt { return x[0].Detach() }, ref: first})
	rows = slices.Concat(rows, shapeRows(), reductionRows(), productRows())
	for _, more := range rowTables {
		rows = append(rows, more()...)
	}
	return rows
}

func shapedEmpty(dims ...int) func(x array) array {
	return func(array) array { return newArray(dims...) }
}
