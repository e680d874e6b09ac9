package optest

import "github.com/flambeau-go/flambeau/tensor"

// method is how users call an elementwise op.
type method struct {
	name string // of the method of *tensor.Tensor, or of the function of package tensor
	call func(x []*tensor.Tensor, p []float64) *tensor.Tensor
}

func unary(name string, f func(*tensor.Tensor) *tensor.Tensor) method {
	return method{name, func(x []*tensor.Tensor, _ []float64) *tensor.Tensor { return f(x[0]) }}
}

func binary(name string, f func(x, y *tensor.Tensor) *tensor.Tensor) method {
	return method{name, func(x []*tensor.Tensor, _ []float64) *tensor.Tensor { return f(x[0], x[1]) }}
}

func withScalar(name string, f func(*tensor.Tensor, float64) *tensor.Tensor) method {
	return method{name, func(x []*tensor.Tensor, p []float64) *tensor.Tensor { return f(x[0], p[0]) }}
}

type (
	tt = tensor.Tensor
)

// methods maps the names of elementwise ops to methods.
var methods = map[string]method{
	"clone": unary("Clone", (*tt).Clone), "add": binary("Add", (*tt).Add), "sub": binary("Sub", (*tt).Sub), "mul": binary("Mul", (*tt).Mul),
	"div": binary("Div", (*tt).Div), "minimum": binary("Minimum", (*tt).Minimum), "maximum": binary("Maximum", (*tt).Maximum),
	"pow": binary("Pow", (*tt).Pow), "pow_scalar": withScalar("PowScalar", (*tt).PowScalar),
	"add_scalar": withScalar("AddScalar", (*tt).AddScalar), "mul_scalar": withScalar("MulScalar", (*tt).MulScalar),
	"div_scalar": withScalar("DivScalar", (*tt).DivScalar), "rsub_scalar": withScalar("RSubScalar", (*tt).RSubScalar),
	"rdiv_scalar": withScalar("RDivScalar", (*tt).RDivScalar), "clamp_min": withScalar("ClampMin", (*tt).ClampMin),
	"clamp_max":   withScalar("ClampMax", (*tt).ClampMax),
	"clamp_plain": {"Clamp", func(x []*tt, p []float64) *tt { return x[0].Clamp(p[0], p[1]) }},
	"clamp":       {"Clamp", func(x []*tt, p []float64) *tt { return x[0].Clamp(p[0], p[1]) }},
	"neg":         unary("Neg", (*tt).Neg), "abs": unary("Abs", (*tt).Abs), "square": unary("Square", (*tt).Square), "sqrt": unary("Sqrt", (*tt).Sqrt),
	"rsqrt": unary("Rsqrt", (*tt).Rsqrt), "reciprocal": unary("Reciprocal", (*tt).Reciprocal), "exp": unary("Exp", (*tt).Exp), "log": unary("Log", (*tt).Log),
	"pow_fraction": unary("PowScalar", func(x *tt) *tt { return x.PowScalar(2.4) }),
	"pow_cube":     unary("PowScalar", func(x *tt) *tt { return x.PowScalar(3) }),
	"pow_rsqrt":    unary("PowScalar", func(x *tt) *tt { return x.PowScalar(-0.5) }), "tanh": unary("Tanh", (*tt).Tanh), "sigmoid": unary("Sigmoid", (*tt).Sigmoid), "relu": unary("Relu", (*tt).Relu), "silu": unary("Silu", (*tt).Silu),
	"gelu": unary("Gelu", (*tt).Gelu), "gelu_tanh": unary("GeluTanh", (*tt).GeluTanh),
	"eq": binary("Eq", (*tt).Eq), "ne": binary("Ne", (*tt).Ne), "lt": binary("Lt", (*tt).Lt), "le": binary("Le", (*tt).Le), "gt": binary("Gt", (*tt).Gt), "ge": binary("Ge", (*tt).Ge),
	"eq_scalar": withScalar("EqScalar", (*tt).EqScalar), "ne_scalar": withScalar("NeScalar", (*tt).NeScalar), "lt_scalar": withScalar("LtScalar", (*tt).LtScalar),
	"le_scalar": withScalar("LeScalar", (*tt).LeScalar), "gt_scalar": withScalar("GtScalar", (*tt).GtScalar), "ge_scalar": withScalar("GeScalar", (*tt).GeScalar),
	"where":       {"Where", func(x []*tt, _ []float64) *tt { return tensor.Where(x[0], x[1], x[2]) }},
	"masked_fill": {"MaskedFill", func(x []*tt, p []float64) *tt { return x[0].MaskedFill(x[1], p[0]) }},
	"logical_not": unary("LogicalNot", (*tt).LogicalNot),
}
