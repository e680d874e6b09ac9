package optest

import (
	"math"

	"github.com/flambeau-go/flambeau/tensor"
)

func init() {
	rowTables = append(rowTables, crossEntropyRows, attentionRows, ropeRows, formRows)
	functions = append(functions, "ScaledDotProductAttention")
	for _, name := range []string{"AlphaDropout", "DropoutAdd", "FeatureAlphaDropout", "Dropout1d", "Dropout2d", "Dropout3d", "GumbelSoftmax", "ReluDropout"} {
		noValue[name] = "random"
	}
}

// lossRef computes the cross entropy of logits x[0]. The classes are in dimension 1, or in
// dimension 0 of a vector. x[1] holds classes, or probabilities with x[0]'s shape. x[2] holds
// weights. If logs is true, x[0] holds logarithms of probabilities.
func lossRef(smoothing float64, ignore int, logs bool) func(x []array) array {
	return func(x []array) array {
		dim := min(1, len(x[0].dims)-1)
		p, _ := softmax(x[0], dim)
		if logs {
			p = x[0].apply(math.Exp)
		}
		classes := x[0].dims[dim]
		out := append(append([]int(nil), x[0].dims[:dim]...), x[0].dims[dim+1:]...)
		weight := func(c int) float64 {
			if len(x) > 2 {
				return x[2].v[c]
			}
			return 1
		}
		return arrayOfFunc(out, func(i []int) float64 {
			full := append(append(append([]int(nil), i[:dim]...), 0), i[dim:]...)
			target := -1
			if len(x[1].dims) < len(x[0].dims) {
				if target = int(x[1].at(i...)); target == ignore {
					return 0
				}
			}
			loss := 0.0
			for c := range classes {
				full[dim] = c
				y := 0.0
				switch {
				case target < 0:
					y = x[1].at(full...)
				case target == c:
					y = 1
				}
				loss -= weight(c) * ((1-smoothing)*y + smoothing/float64(classes)) * math.Log(p.at(full...))
			}
			return loss
		})
	}
}

func crossEntropyRows() []row {
	var rows []row
	for _, c := range []struct {
		in        [][]int
		smoothing float64
		ignore    int
		logs      bool
	}{
		{[][]int{{6, 5}, {6}, {5}}, 0, -100, false}, {[][]int{{6, 5}, {6}}, 0.2, 2, false}, {[][]int{{6, 5}, {6}, {5}}, 0.5, 3, false}, {[][]int{{2, 4, 3}, {2, 3}}, 0, 1, false}, {[][]int{{2, 3, 2, 2}, {2, 2, 2}, {3}}, 0.1, -1, false},
		{[][]int{{4}, {}, {4}}, 0.1, -100, false}, {[][]int{{0, 3}, {0}}, 0.1, -100, false},
		{[][]int{{4, 3}, {4, 3}}, 0, -100, false}, {[][]int{{2, 3, 2}, {2, 3, 2}, {3}}, 0.3, -100, false}, {[][]int{{3}, {3}}, 0.1, -100, false},
		{[][]int{{6, 5}, {6}}, 0, 2, true}, {[][]int{{6, 5}, {6}, {5}}, 0, -100, true}, {[][]int{{2, 4, 3}, {2, 3}}, 0.2, 1, true},
		{[][]int{{2, 3, 2}, {2, 2}, {3}}, 0.3, 1, true}, {[][]int{{4}, {}}, 0, -100, true}, {[][]int{{4, 3}, {4, 3}}, 0.1, -100, true},
	} {
		r := row{op: "cross_entropy", methods: []string{"CrossEntropy"}, in: c.in, kernels: true, ref: lossRef(c.smoothing, c.ignore, c.logs), rounds: true,
			call: func(x []*tt) *tt {
				o := tensor.CrossEntropyOptions{IgnoreIndex: &c.ignore, LabelSmoothing: c.smoothing, LogProbabilities: c.logs}
				if len(x) > 2 {
					o.Weight = x[2]
				}
				return x[0].CrossEntropy(x[1], o)
			}}
		if len(c.in[1]) < len(c.in[0]) {
			r.index = map[int]int{1: c.in[0][min(1, len(c.in[0])-1)]}
		}
		r.terms = func(x []array) array { return r.ref(x).apply(func(v float64) float64 { return 8 + 8*math.Abs(v) }) }
		rows = append(rows, r)
	}
	return rows
}

// attentionRef computes attention by its definition. x holds queries, keys, values, and an optional
// mask. The mask consists of 1 and 0. If additive is true, it holds numbers that are added to the
// scores instead. If ragged is true, the last operand holds the lengths of the samples.
func attentionRef(scale float64, causal, additive, ragged bool) func(x []array) array {
	return func(x []array) array {
		var lengths array
		if n := len(x) - 1; ragged {
			x, lengths = x[:n], x[n]
		}
		lead := func(a array) []int { return a.dims[:len(a.dims)-2] }
		last := func(a array, k int) int { return a.dims[len(a.dims)-k] }
		q, k, v := x[0], x[1], x[2]
		batch := joint(newArray(lead(q)...), newArray(lead(k)...), newArray(lead(v)...))
		// the query heads form groups; the heads of a group use the same head of keys
		if r := len(lead(q)); r > 0 && len(lead(k)) == r && lead(q)[r-1] > lead(k)[r-1] && lead(k)[r-1] > 1 {
			batch = joint(newArray(lead(q)...))
			group := lead(q)[r-1] / lead(k)[r-1]
			spread := func(a array) array {
				pick := []int{}
				for h := range lead(q)[r-1] {
					pick = append(pick, h/group)
				}
				return a.pick(r-1, 0, pick...)
			}
			k, v = spread(k), spread(v)
		}
		scale := scale
		if scale == 0 {
			scale = 1 / math.Sqrt(float64(last(q, 1)))
		}
		weights := arrayOfFunc(append(append([]int(nil), batch...), last(q, 2), last(k, 2)), func(i []int) float64 {
			n := len(i)
			sum := 0.0
			for e := range last(q, 1) {
				a := append(append([]int(nil), i[:n-1]...), e)
				b := append(append([]int(nil), i[:n-2]...), i[n-1], e)
				sum += q.at(a[n-len(q.dims):]...) * k.at(b[n-len(k.dims):]...)
			}
			sum *= scale
			if causal && i[n-1] > i[n-2] || ragged && float64(i[n-1]) >= lengths.v[i[0]] {
				return math.Inf(-1)
			}
			if len(x) > 3 {
				m := x[3].offset(i)
				switch {
				case additive:
					sum += x[3].v[m]
				case x[3].v[m] == 0:
					return math.Inf(-1)
				}
			}
			return sum
		})
		p, _ := softmax(weights, -1)
		for i, w := range p.v {
			if math.IsNaN(w) {
				p.v[i] = 0 // this query attends to no key
			}
		}
		return matmulRef([]array{p, v})
	}
}

func attentionRows() []row {
	var rows []row
	for _, c := range []struct {
		in       [][]int
		o        tensor.AttentionOptions
		mask     bool // true if the mask operand is 1 where a query attends to a key
		additive bool
		ragged   bool // true if the last operand holds lengths
	}{
		{in: [][]int{{3, 4}, {5, 4}, {5, 2}}},
		{in: [][]int{{2, 2, 3, 4}, {2, 2, 4, 4}, {2, 2, 4, 3}}, o: tensor.AttentionOptions{Scale: 0.7}},
		{in: [][]int{{2, 4, 3}, {2, 3, 3}, {2, 3, 2}}, o: tensor.AttentionOptions{Causal: true}},
		{in: [][]int{{2, 2, 3, 2}, {2, 2, 4, 2}, {2, 2, 4, 2}, {2, 1, 1, 4}}, o: tensor.AttentionOptions{Causal: true}, mask: true},
		{in: [][]int{{2, 3, 2}, {2, 3, 2}, {2, 3, 2}, {3, 3}}, o: tensor.AttentionOptions{Causal: true}, additive: true},
		{in: [][]int{{2, 3}, {4, 3}, {4, 2}}, o: tensor.AttentionOptions{Causal: true}},
		{in: [][]int{{2, 3, 4}, {2, 5, 4}, {2, 5, 2}, {3, 5}}, mask: true},
		{in: [][]int{{2, 3, 2, 2}, {2, 3, 3, 2}, {2, 3, 3, 2}, {2, 1, 1, 3}}, mask: true},
		{in: [][]int{{2, 2, 3, 2}, {2, 2, 3, 2}, {2, 2, 3, 2}, {2, 1, 3}}, additive: true},
		{in: [][]int{{2, 4, 3, 2}, {2, 2, 3, 2}, {2, 2, 3, 2}}, o: tensor.AttentionOptions{GroupedHeads: true}},
		{in: [][]int{{4, 2, 3}, {2, 3, 3}, {2, 3, 2}, {4, 2, 3}}, o: tensor.AttentionOptions{GroupedHeads: true}, additive: true},
		{in: [][]int{{2, 1, 2, 3}, {3, 2, 3}, {2, 1, 2, 2}}},
		{in: [][]int{{3, 2, 3, 2}, {3, 2, 4, 2}, {3, 2, 4, 3}, {3}}, ragged: true},
		{in: [][]int{{3, 4, 4, 2}, {3, 2, 4, 2}, {3, 2, 4, 2}, {3}}, o: tensor.AttentionOptions{Causal: true, GroupedHeads: true}, ragged: true},
		{in: [][]int{{2, 2, 3, 2}, {2, 1, 4, 2}, {1, 2, 4, 2}, {2, 1, 3, 4}, {2}}, mask: true, ragged: true},
		{in: [][]int{{2, 0, 3}, {2, 2, 3}, {2, 2, 2}}}, {in: [][]int{{2, 2, 3}, {2, 0, 3}, {2, 0, 2}}},
	} {
		r := row{op: "scaled_dot_product_attention", methods: []string{"ScaledDotProductAttention"}, in: c.in, kernels: true, roundsWeights: true,
			ref: attentionRef(c.o.Scale, c.o.Causal, c.additive, c.ragged),
			call: func(x []*tt) *tt {
				o := c.o
				if c.mask {
					o.Mask = x[3].EqScalar(1)
				} else if c.additive {
					o.Mask = x[3]
				}
				if c.ragged {
					o.Lengths = x[len(x)-1]
				}
				return tensor.ScaledDotProductAttention(x[0], x[1], x[2], o)
			}}
		r.index = map[int]int{}
		if c.mask {
			r.index[3] = 2
		}
		if c.ragged {
			r.index[len(c.in)-1] = c.in[1][2] + 1
		}
		r.terms = func(x []array) array { return r.ref(x).apply(func(v float64) float64 { return 4 + 8*math.Abs(v) }) }
		rows = append(rows, r)
	}
	return rows
}

// ropeRef rotates pairs of features of x[0] by the angle position·base^(-k/n). x[1] holds
// positions.
func ropeRef(base float64, offset, dims int, interleaved bool) func(x []array) array {
	return func(x []array) array {
		n := len(x[0].dims)
		d := dims
		if d == 0 {
			d = x[0].dims[n-1]
		}
		return arrayOfFunc(x[0].dims, func(i []int) float64 {
			at := i[n-1]
			if at >= d {
				return x[0].at(i...)
			}
			k, second := at%(d/2), at >= d/2
			other := append([]int(nil), i...)
			other[n-1] = (at + d/2) % d
			if interleaved {
				k, second = at/2, at%2 == 1
				other[n-1] = at ^ 1
			}
			p := float64(offset + i[n-2])
			if len(x) > 1 {
				p = x[1].v[x[1].offset(i[:n-1])]
			}
			sin, cos := math.Sincos(p * math.Pow(base, -2*float64(k)/float64(d)))
			if !second {
				sin = -sin
			}
			return x[0].at(i...)*cos + x[0].at(other...)*sin
		})
	}
}

func ropeRows() []row {
	var rows []row
	for _, c := range []struct {
		in    [][]int
		o     tensor.RoPEOptions
		given bool // true if RoPE gets angles that RoPEAngles has computed
	}{
		{in: [][]int{{3, 4}}}, {in: [][]int{{2, 3, 6}}, o: tensor.RoPEOptions{Interleaved: true}},
		{in: [][]int{{2, 2, 3, 8}}, o: tensor.RoPEOptions{Offset: 100, Base: 500, Dims: 4}}, {in: [][]int{{3, 5}}, o: tensor.RoPEOptions{Interleaved: true, Dims: 4}},
		{in: [][]int{{2, 2, 3, 4}, {2, 1, 3}}}, {in: [][]int{{2, 3, 4}, {3}}, o: tensor.RoPEOptions{Interleaved: true}}, {in: [][]int{{0, 4}}},
		{in: [][]int{{2, 3, 8}}, o: tensor.RoPEOptions{Offset: 7}, given: true}, {in: [][]int{{2, 2, 3, 8}, {2, 1, 3}}, o: tensor.RoPEOptions{Dims: 6, Interleaved: true}, given: true},
	} {
		base := c.o.Base
		if base == 0 {
			base = 10000
		}
		r := row{op: "rope", methods: []string{"RoPE", "RoPEAngles"}, in: c.in, ref: ropeRef(base, c.o.Offset, c.o.Dims, c.o.Interleaved),
			call: func(x []*tt) *tt {
				o := c.o
				if len(x) > 1 {
					o.Positions = x[1]
				}
				if c.given {
					cos, sin := x[0].RoPEAngles(o)
					o = tensor.RoPEOptions{Cos: cos, Sin: sin, Interleaved: o.Interleaved}
				}
				return x[0].RoPE(o)
			}}
		r.terms = func(x []array) array { return x[0].apply(func(float64) float64 { return 4 }) }
		if len(c.in) > 1 {
			r.index = map[int]int{1: 50}
		}
		rows = append(rows, r)
	}
	return rows
}

func formRows() []row {
	bilinear := func(x []array) array {
		n := len(x[0].dims)
		dims := append(append([]int(nil), x[0].dims[:n-1]...), x[2].dims[0])
		return arrayOfFunc(dims, func(at []int) float64 {
			sum := 0.0
			if len(x) > 3 {
				sum = x[3].v[at[n-1]]
			}
			a, b := append([]int(nil), at...), append([]int(nil), at...)
			for i := range x[2].dims[1] {
				for j := range x[2].dims[2] {
					a[n-1], b[n-1] = i, j
					sum += x[0].at(a...) * x[2].at(at[n-1], i, j) * x[1].at(b...)
				}
			}
			return sum
		})
	}
	var rows []row
	for _, in := range [][][]int{{{4, 3}, {4, 2}, {3, 3, 2}, {3}}, {{2, 2, 3}, {2, 2, 2}, {2, 3, 2}}, {{3}, {2}, {2, 3, 2}, {2}}} {
		rows = append(rows, row{op: "bilinear", methods: []string{"Bilinear"}, in: in, ref: bilinear, terms: absAll(bilinear), call: func(x []*tt) *tt {
			if len(x) > 3 {
				return x[0].Bilinear(x[1], x[2], x[3])
			}
			return x[0].Bilinear(x[1], x[2], nil)
		}})
	}
	for _, dim := range []int{0, -1} {
		softmin := func(x []array) array {
			p, _ := softmax(x[0].apply(func(v float64) float64 { return -v }), dim)
			return p
		}
		rows = append(rows, row{op: "softmin", methods: []string{"Softmin"}, in: [][]int{{3, 4}}, ref: softmin, terms: softmin, kernels: true, call: func(x []*tt) *tt { return x[0].Softmin(dim) }})
	}
	return rows
}
