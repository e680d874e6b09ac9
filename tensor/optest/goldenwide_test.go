package optest

import (
	"maps"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// fromMethods lists the golden ops that run through [methods]. The values name the arguments of a
// case that are passed to the method.
var fromMethods = map[string][]string{
	"sin": nil, "cos": nil, "tan": nil, "asin": nil, "acos": nil, "atan": nil, "sinh": nil, "cosh": nil, "asinh": nil, "acosh": nil, "atanh": nil, "atan2": nil,
	"hypot": nil, "exp2": nil, "expm1": nil, "log2": nil, "log10": nil, "log1p": nil, "erf": nil, "erfc": nil, "erfinv": nil, "log_sigmoid": nil,
	"entr": nil, "ndtr": nil,
	"logaddexp": nil, "xlogy": nil, "sign": nil, "floor": nil, "ceil": nil, "round": nil, "trunc": nil, "frac": nil, "isnan": nil, "isinf": nil, "isposinf": nil,
	"isneginf": nil, "isfinite": nil, "nan_to_num": {"nan", "posinf", "neginf"}, "remainder": nil, "fmod": nil, "floor_divide": nil, "bitwise_and": nil,
	"bitwise_or": nil, "bitwise_xor": nil, "bitwise_not": nil, "bitwise_left_shift": nil, "bitwise_right_shift": nil, "logical_and": nil, "logical_or": nil,
	"logical_xor": nil, "softplus": {"beta", "threshold"}, "softsign": nil, "leaky_relu": {"slope"}, "elu": {"alpha"}, "celu": {"alpha"}, "selu": nil,
	"mish": nil, "relu6": nil, "hardtanh": {"min_val", "max_val"}, "hardsigmoid": nil, "hardswish": nil, "hardshrink": {"lambd"}, "softshrink": {"lambd"},
	"tanhshrink": nil, "threshold": {"threshold", "value"}, "lerp": nil, "lerp_scalar": {"weight"}, "addcmul": {"value"}, "addcdiv": {"value"}, "copysign": nil,
	"fmax": nil, "fmin": nil, "rpow_scalar": {"base"}, "isclose": {"rtol", "atol"},
	"rsqrt": nil, "reciprocal": nil, "silu": nil, "logical_not": nil, "masked_fill": {"value"},
}

func init() {
	for op, args := range fromMethods {
		m, ok := methods[op]
		if !ok {
			panic("optest: no method " + op)
		}
		goldenOps[op] = func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor {
			var p []float64
			for _, name := range args {
				p = append(p, a.Float(name))
			}
			return m.call(x, p)
		}
	}
	maps.Copy(goldenOps, map[string]goldenOp{
		"logit": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor {
			if a.Has("eps") {
				return x[0].Logit(a.Float("eps"))
			}
			return x[0].Logit()
		},
		"isclose_nan": func(_ golden.Args, x []*tensor.Tensor) *tensor.Tensor {
			return x[0].IsClose(x[1], 0.25, 0.125, tensor.EqualNaN)
		},
		"round_decimals": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor { return x[0].RoundDecimals(a.Int("decimals")) },
		"prelu":          binaryOp((*tensor.Tensor).PRelu),
		"div_floor":      binaryOp((*tensor.Tensor).FloorDivide),
		"div_trunc":      binaryOp((*tensor.Tensor).TruncDivide),
	})
}

// cancels lists ops whose result or gradient is a difference. The functions out and grad add the
// terms of the result and of the gradient instead of subtracting them. Their arguments are the
// operands x, the case's arguments a, and the result y.
var cancels = map[string]struct {
	out, grad func(x []float64, a golden.Args, y float64) float64
}{
	// The derivative is T + x·σ(x)·(1 - T²) with T = tanh(softplus(x)).
	"mish": {grad: func(x []float64, _ golden.Args, _ float64) float64 {
		e := math.Exp(x[0])
		t := math.Tanh(math.Log1p(e))
		return t + math.Abs(x[0])*e/(1+e)*(1+t*t)
	}},
	"tanhshrink": {out: func(x []float64, _ golden.Args, _ float64) float64 { return math.Abs(x[0]) + math.Abs(math.Tanh(x[0])) },
		// PyTorch computes this gradient as 1 - (1 - y²), whose largest term is 1.
		grad: func([]float64, golden.Args, float64) float64 { return 1 }},
	"lerp": {out: func(x []float64, _ golden.Args, _ float64) float64 {
		return math.Abs(x[0]) + math.Abs(x[1]) + math.Abs(x[2]*(x[1]-x[0]))
	}},
	"lerp_scalar": {out: func(x []float64, a golden.Args, _ float64) float64 {
		return math.Abs(x[0]) + math.Abs(x[1]) + math.Abs(a.Float("weight")*(x[1]-x[0]))
	}},
	"addcmul": {out: func(x []float64, a golden.Args, _ float64) float64 {
		return math.Abs(x[0]) + math.Abs(a.Float("value")*x[1]*x[2])
	}},
	"addcdiv": {out: func(x []float64, a golden.Args, _ float64) float64 {
		return math.Abs(x[0]) + math.Abs(a.Float("value")*x[1]/x[2])
	}},
}

func finite(v float64) float64 {
	if v = math.Abs(v); !(v <= math.MaxFloat64) {
		return 0
	}
	return v
}

// elementTerms returns the sums of absolute terms of a golden case of an elementwise op. For a
// gradient they are the sums of |seed·derivative|.
func elementTerms(c golden.Case) (t terms) {
	t.grads = map[int][]float64{}
	cancel, y := cancels[c.Op], arrayOf(c.Out[0].F64)
	more := newArray(y.dims...)
	if cancel.out != nil || cancel.grad != nil {
		x := make([]float64, len(c.In))
		t.out = make([]float64, len(y.v))
		each(y.dims, func(i int, idx []int) {
			for k, o := range c.In {
				a := viewed(o)
				x[k] = a.v[a.offset(idx)]
			}
			if cancel.out != nil {
				t.out[i] = finite(cancel.out(x, c.Args, y.v[i]))
			}
			if cancel.grad != nil {
				more.v[i] = finite(cancel.grad(x, c.Args, y.v[i]))
			}
		})
	}
	if c.Out[0].Seed == nil {
		return t
	}
	tensor.Do(func(s *tensor.Scope) {
		out, seed := c.Out[0].F64.Shape, absolute(arrayOf(*c.Out[0].Seed))
		var in, leaves []*tensor.Tensor
		var at []int
		for i, o := range c.In {
			a := viewed(o)
			if c.Op != "prelu" { // expand the weight, so that there is a sum for each element
				a = a.expand(out)
			}
			x := s.On(hostDevice()).Typed(dtype.F64).From(a.v).Reshape(a.dims...)
			if o.Base.DType == "BOOL" {
				x = x.Cast(dtype.Bool)
			}
			if o.GradF64 != nil {
				leaves, at = append(leaves, x.RequiresGrad()), append(at, i)
			}
			in = append(in, x)
		}
		if len(leaves) == 0 {
			return
		}
		y := goldenOps[c.Op](c.Args, in)
		for n, g := range tensor.Gradients(y, leaves, tensor.GradOutput(s.On(hostDevice()).From(seed.v).Reshape(out...))) {
			i := at[n]
			a := array{g.Shape().Slice(), g.Floats()}.apply(finite)
			if c.Op != "prelu" {
				for k := range a.v {
					a.v[k] += more.v[k] * seed.v[k]
				}
				a = a.sumTo(viewed(c.In[i]).dims)
			}
			t.grads[i] = a.v
		}
	})
	return t
}
