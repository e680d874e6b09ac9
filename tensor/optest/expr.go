package optest

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func init() {
	rowTables = append(rowTables, exprRows)
	functions = append(functions, "Expr")
}

// exprRows returns the rows of expressions written as text. The expressions contain arithmetic,
// functions, kinks, conditions, numbers, and operands that are broadcast.
func exprRows() []row {
	each := func(f func(a, b, c float64) float64) func(x []array) array {
		return func(x []array) array {
			out := joint(x...)
			v := [3]array{newArray(out...), newArray(out...), newArray(out...)}
			for i := range x {
				v[i] = x[i].expand(out)
			}
			y := newArray(out...)
			for i := range y.v {
				y.v[i] = f(v[0].v[i], v[1].v[i], v[2].v[i])
			}
			return y
		}
	}
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	var rows []row
	for _, c := range []struct {
		text  string
		n     int
		ref   func(a, b, c float64) float64
		terms func(a, b, c float64) float64 // sum of the absolute terms of the formula
		ints  bool
	}{
		{"a*b + c", 3, func(a, b, c float64) float64 { return a*b + c }, func(a, b, c float64) float64 { return 4 * (math.Abs(a*b) + math.Abs(c)) }, false},
		{"max(0.1, a*b + k) * a", 2, func(a, b, _ float64) float64 { return math.Max(0.1, a*b+0.5) * a },
			func(a, b, _ float64) float64 { return 8 * (math.Abs(a*b) + 1) * math.Abs(a) }, false},
		{"exp(-pow(a, 2)/2) * sigmoid(b) + sin(c)", 3, func(a, b, c float64) float64 { return math.Exp(-a*a/2)*sigmoid(b) + math.Sin(c) },
			func(a, b, c float64) float64 { return 16 }, false},
		{"where(a > b && !(c < -k), a/(1 + abs(b)), tanh(b)*c)", 3, func(a, b, c float64) float64 {
			if a > b && !(c < -0.5) {
				return a / (1 + math.Abs(b))
			}
			return math.Tanh(b) * c
		}, func(a, b, c float64) float64 { return 8 * (math.Abs(a) + math.Abs(c) + 1) }, false},
		{"silu(a) + gelu(b) + softplus(c) + relu(a*b) + clamp(c, -k, k)", 3, func(a, b, c float64) float64 {
			return a*sigmoid(a) + 0.5*b*math.Erfc(-b/math.Sqrt2) + math.Log1p(math.Exp(c)) + math.Max(a*b, 0) + min(max(c, -0.5), 0.5)
		}, func(a, b, c float64) float64 {
			return 16 * (1 + math.Abs(a) + math.Abs(b) + math.Abs(c) + math.Abs(a*b))
		}, false},
		{"min(a, b, c) + max(a, b)", 3, func(a, b, c float64) float64 { return min(a, b, c) + max(a, b) },
			func(a, b, c float64) float64 { return 4 * (math.Abs(a) + math.Abs(b) + math.Abs(c)) }, false},
		{"sqrt(1 + a*a) * log(2 + b*b) * rsqrt(1 + c*c)", 3, func(a, b, c float64) float64 { return math.Sqrt(1+a*a) * math.Log(2+b*b) / math.Sqrt(1+c*c) },
			func(a, b, c float64) float64 { return 16 * math.Sqrt(1+a*a) * math.Log(2+b*b) }, false},
		{"a", 1, func(a, _, _ float64) float64 { return a }, nil, true},
		{"-a", 1, func(a, _, _ float64) float64 { return -a }, nil, false},
	} {
		shapes := [][][]int{{{3, 4}, {3, 4}, {3, 4}}, {{2, 3, 4}, {4}, {2, 1, 1}}, {{}, {}, {}}, {{0, 3}, {1, 3}, {3}}, {{3, 4}, {}, {3, 1}}}
		if c.n == 1 {
			shapes = shapes[:1]
		}
		for _, in := range shapes {
			r := row{op: "expr", text: c.text, methods: []string{"Expr"}, in: in[:c.n], ints: c.ints, ref: each(c.ref), call: func(x []*tt) *tt {
				vars := tensor.Vars{"k": 0.5}
				for i, t := range x {
					vars[string(rune('a'+i))] = t
				}
				if !named(c.text, 'k') {
					delete(vars, "k")
				}
				return tensor.Expr(c.text, vars)
			}}
			if c.terms != nil {
				r.terms = each(c.terms)
			}
			rows = append(rows, r)
		}
	}
	return append(rows, row{op: "expr", text: "a > b", methods: []string{"Expr"}, in: [][]int{{3, 4}, {4}}, ints: true, noGrad: true, result: dtype.Bool,
		ref: each(func(a, b, _ float64) float64 {
			if a > b {
				return 1
			}
			return 0
		}), call: func(x []*tt) *tt { return tensor.Expr("a > b", tensor.Vars{"a": x[0], "b": x[1]}) }})
}

// named reports whether text contains the letter as a name of its own, and not only within other
// names.
func named(text string, letter byte) bool {
	word := func(i int) bool {
		return i >= 0 && i < len(text) && (text[i] >= 'a' && text[i] <= 'z' || text[i] == '_')
	}
	for i := range len(text) {
		if text[i] == letter && !word(i-1) && !word(i+1) {
			return true
		}
	}
	return false
}
