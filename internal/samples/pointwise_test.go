package samples

import (
	"maps"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// T is the type that most adapters take and return.
type T = *tensor.Tensor

// calls holds adapters by the name of the entry and its variant.
var calls = map[string]call{}

func init() {
	for _, table := range []map[string]call{
		pointwise, pairs, activations, reductions, scans, views, joins, indexing, products, linalgs,
		convolutions, pools, norms, losses, makers, moreViews,
	} {
		maps.Copy(calls, table)
	}
}

// un adapts a function of one tensor.
func un(f func(x T) T) call {
	return func(a *args) any { return f(a.x()) }
}

// bin adapts a function of two tensors.
func bin(f func(x, y T) T) call {
	return func(a *args) any { return f(a.x(), a.T(1, "other")) }
}

// either adapts a function of two tensors for which PyTorch also accepts a number. If the second
// operand is a number, the call uses g. If the first operand is a number, the call uses reversed. A
// boolean, or a number that no method accepts, becomes a tensor without dimensions.
func either(f func(x, y T) T, g func(x T, v float64) T, reversed ...func(x T, v float64) T) call {
	return func(a *args) any {
		u, v := a.arg(0, "input"), a.arg(1, "other")
		x, isX := u.(T)
		y, isY := v.(T)
		switch {
		case isX && isNumber(v) && !isBool(v) && g != nil:
			return g(x, number64(v))
		case isY && isNumber(u) && !isBool(u) && len(reversed) > 0:
			return reversed[0](y, number64(u))
		case !isX && !isY:
			lacks("a function of two numbers")
		}
		return f(a.scalar(u), a.scalar(v))
	}
}

// method adapts a method: it calls f if the first operand is a tensor, and otherwise refuses the
// call.
func method(f call) call {
	return func(a *args) any {
		a.x()
		return f(a)
	}
}

// pointwise holds adapters of functions that map each element of one tensor.
var pointwise = map[string]call{
	"abs": un(T.Abs), "acos": un(T.Acos), "acosh": un(T.Acosh), "asin": un(T.Asin),
	"asinh": un(T.Asinh), "atan": un(T.Atan), "atanh": un(T.Atanh), "ceil": un(T.Ceil),
	"cos": un(T.Cos), "cosh": un(T.Cosh), "erf": un(T.Erf), "erfc": un(T.Erfc),
	"erfinv": un(T.Erfinv), "exp": un(T.Exp), "exp2": un(T.Exp2), "expm1": un(T.Expm1),
	"floor": un(T.Floor), "frac": un(T.Frac), "isfinite": un(T.IsFinite), "isinf": un(T.IsInf),
	"isnan": un(T.IsNaN), "isneginf": un(T.IsNegInf), "isposinf": un(T.IsPosInf), "log": un(T.Log),
	"log10": un(T.Log10), "log1p": un(T.Log1p), "log2": un(T.Log2), "logical_not": un(T.LogicalNot),
	"neg": un(T.Neg), "reciprocal": un(T.Reciprocal), "rsqrt": un(T.Rsqrt),
	"sigmoid": un(T.Sigmoid), "sign": un(T.Sign), "sgn": un(T.Sign), "sin": un(T.Sin),
	"sinh": un(T.Sinh), "sqrt": un(T.Sqrt), "square": un(T.Square), "tan": un(T.Tan),
	"tanh": un(T.Tanh), "trunc": un(T.Trunc), "bitwise_not": un(T.BitwiseNot),
	"special.entr": un(T.Entr), "special.ndtr": un(T.Ndtr),
	"round":                un(T.Round),
	"round.decimals_0":     rounded,
	"round.decimals_3":     rounded,
	"round.decimals_neg_3": rounded,
	"logit": func(a *args) any {
		if a.has(1, "eps") {
			return a.x().Logit(a.float(1, "eps", 0))
		}
		return a.x().Logit()
	},
	"nan_to_num": func(a *args) any {
		v := []float64{a.float(1, "nan", 0)}
		if a.has(2, "posinf") || a.has(3, "neginf") {
			if !a.has(2, "posinf") || !a.has(3, "neginf") {
				lacks("posinf without neginf")
			}
			v = append(v, a.float(2, "posinf", 0), a.float(3, "neginf", 0))
		}
		return a.x().NanToNum(v...)
	},
	"clamp": func(a *args) any {
		lo, hi := a.arg(1, "min"), a.arg(2, "max")
		x := a.x()
		_, lowTensor := lo.(T)
		_, highTensor := hi.(T)
		switch {
		case lowTensor || highTensor:
			if lo != nil {
				x = x.Maximum(lo.(T))
			}
			if hi != nil {
				x = x.Minimum(hi.(T))
			}
			return x
		case lo == nil && hi == nil:
			panic(wrong("neither min nor max"))
		case lo == nil:
			return x.ClampMax(number64(hi))
		case hi == nil:
			return x.ClampMin(number64(lo))
		}
		return x.Clamp(number64(lo), number64(hi))
	},
	"clamp_max": func(a *args) any { return clampTo(a, "max", T.Minimum, T.ClampMax) },
	"clamp_min": func(a *args) any { return clampTo(a, "min", T.Maximum, T.ClampMin) },
	"deg2rad":   un(func(x T) T { return floating(x).MulScalar(math.Pi / 180) }),
	"rad2deg":   un(func(x T) T { return floating(x).MulScalar(180 / math.Pi) }),
	"positive":  un(func(x T) T { return x }), "conj": un(func(x T) T { return x }),
	"conj_physical": un(func(x T) T { return x }), "resolve_conj": un(func(x T) T { return x }),
	"resolve_neg": un(func(x T) T { return x }), "real": un(func(x T) T { return x }),
	"clone": func(a *args) any {
		a.ignored("memory_format")
		return a.x().Clone()
	},
	"contiguous": func(a *args) any {
		a.ignored("memory_format")
		return a.x().Contiguous()
	},
	"isreal":     un(func(x T) T { return x.OnesLike().Cast(dtype.Bool) }),
	"signbit":    un(func(x T) T { return signs(x).LtScalar(0) }),
	"alias_copy": un(T.Clone),
	"fill": func(a *args) any {
		return a.x().Clone().Fill(number64(a.arg(1, "value")))
	},
	"zero_": un(func(x T) T { return x.Clone().Zero() }),
	"to":    casts, "bfloat16": cast(dtype.BF16), "bool": cast(dtype.Bool), "byte": cast(dtype.U8),
	"char": cast(dtype.I8), "double": cast(dtype.F64), "float": cast(dtype.F32),
	"half": cast(dtype.F16), "int": cast(dtype.I32), "long": cast(dtype.I64),
	"short": cast(dtype.I16),
	"item": func(a *args) any {
		if a.x().Type() == dtype.Bool {
			return a.x().Item() != 0
		}
		return a.x().Item()
	},
	"sinc": un(func(x T) T {
		p := floating(x).MulScalar(math.Pi)
		origin := p.EqScalar(0)
		p = p.MaskedFill(origin, 1) // p must have no zero, because the gradient divides by it
		return tensor.RWhereScalar(origin, 1, p.Sin().Div(p))
	}),
}

var rounded call = func(a *args) any { return a.x().RoundDecimals(a.int(1, "decimals", 0)) }

// signs returns ±1 with the sign bits of the elements of x, also for zero and NaN.
func signs(x T) T {
	if !x.Type().IsFloat() {
		return x
	}
	return x.OnesLike().CopySign(x)
}

// floating returns x, converted to float32 if x holds integers.
func floating(x T) T {
	if x.Type().IsFloat() {
		return x
	}
	return x.Cast(dtype.F32)
}

func clampTo(a *args, name string, f func(x, y T) T, g func(x T, v float64) T) any {
	if y, ok := a.arg(1, name).(T); ok {
		return f(a.x(), y)
	}
	return g(a.x(), number64(a.arg(1, name)))
}

func cast(t dtype.Type) call {
	return func(a *args) any {
		a.ignored("memory_format")
		return a.x().Cast(t)
	}
}

var casts call = func(a *args) any {
	a.ignored("memory_format", "non_blocking", "copy")
	x := a.x()
	for i := range a.pos[1:] {
		switch v := a.arg(i+1, "").(type) {
		case dtype.Type:
			x = x.Cast(v)
		case T:
			x = x.Cast(v.Type())
		}
	}
	return a.cast(-1, x)
}

// pairs holds adapters of functions of the elements of two tensors.
var pairs = map[string]call{
	"add":                  func(a *args) any { return sumOf(a, T.Add, T.AddScalar, T.AddScalar) },
	"sub":                  func(a *args) any { return sumOf(a, T.Sub, T.SubScalar, T.RSubScalar) },
	"mul":                  either(T.Mul, T.MulScalar, T.MulScalar),
	"div.no_rounding_mode": either(T.Div, T.DivScalar, T.RDivScalar),
	"true_divide":          either(T.Div, T.DivScalar, T.RDivScalar),
	"div.trunc_rounding":   rounding(either(T.TruncDivide, T.TruncDivideScalar)),
	"div.floor_rounding": rounding(either(T.FloorDivide, T.FloorDivideScalar,
		T.RFloorDivideScalar)),
	"floor_divide": either(T.FloorDivide, T.FloorDivideScalar, T.RFloorDivideScalar),
	"remainder":    either(T.Remainder, T.RemainderScalar, T.RRemainderScalar),
	"fmod":         method(either(T.Fmod, T.FmodScalar)),
	"atan2":        bin(T.Atan2), "hypot": bin(T.Hypot), "fmax": bin(T.Fmax), "fmin": bin(T.Fmin),
	"maximum": bin(T.Maximum), "minimum": bin(T.Minimum), "max.binary": bin(T.Maximum),
	"min.binary": bin(T.Minimum), "logaddexp": bin(T.LogAddExp),
	"logaddexp2": bin(func(x, y T) T {
		return x.MulScalar(math.Ln2).LogAddExp(y.MulScalar(math.Ln2)).MulScalar(1 / math.Ln2)
	}),
	"logical_and": bin(T.LogicalAnd), "logical_or": bin(T.LogicalOr),
	"logical_xor": bin(T.LogicalXor),
	"bitwise_and": bits(T.BitwiseAnd, T.BitwiseAndScalar, T.BitwiseAndScalar),
	"bitwise_or":  bits(T.BitwiseOr, T.BitwiseOrScalar, T.BitwiseOrScalar),
	"bitwise_xor": bits(T.BitwiseXor, T.BitwiseXorScalar, T.BitwiseXorScalar),
	"__rand__":    method(bits(T.BitwiseAnd, T.BitwiseAndScalar, T.BitwiseAndScalar)),
	"__ror__":     method(bits(T.BitwiseOr, T.BitwiseOrScalar, T.BitwiseOrScalar)),
	"__rxor__":    method(bits(T.BitwiseXor, T.BitwiseXorScalar, T.BitwiseXorScalar)),

	"bitwise_left_shift": bits(T.BitwiseLeftShift, T.BitwiseLeftShiftScalar,
		T.RBitwiseLeftShiftScalar),
	"bitwise_right_shift": bits(T.BitwiseRightShift, T.BitwiseRightShiftScalar,
		T.RBitwiseRightShiftScalar),

	"eq":       method(either(T.Eq, T.EqScalar)),
	"ne":       method(either(T.Ne, T.NeScalar)),
	"lt":       method(either(T.Lt, T.LtScalar)),
	"le":       method(either(T.Le, T.LeScalar)),
	"gt":       method(either(T.Gt, T.GtScalar)),
	"ge":       method(either(T.Ge, T.GeScalar)),
	"copysign": method(either(T.CopySign, T.CopySignScalar)),
	"pow":      func(a *args) any { return power(a.arg(0, "input"), a.arg(1, "exponent")) },
	"__rpow__": func(a *args) any { return power(a.arg(1, "other"), a.arg(0, "input")) },
	"float_power": func(a *args) any {
		double := func(v any) any {
			if x, ok := v.(T); ok {
				return x.Double()
			}
			return v
		}
		return power(double(a.arg(0, "input")), double(a.arg(1, "exponent")))
	},
	"xlogy": func(a *args) any {
		x, isTensor := a.arg(0, "input").(T)
		y, other := a.arg(1, "other").(T)
		switch {
		case !isTensor:
			return y.RXLogYScalar(number64(a.arg(0, "input")))
		case !other:
			return x.XLogYScalar(number64(a.arg(1, "other")))
		}
		return x.XLogY(y)
	},
	"heaviside": bin(func(x, y T) T {
		over := x.GtScalar(0).Cast(x.Type())
		return tensor.Where(x.EqScalar(0), y, over)
	}),
	"ldexp": bin(func(x, y T) T { return x.Mul(y.Cast(wide(x, y)).RPowScalar(2)) }),
	"lerp": func(a *args) any {
		if w, ok := a.arg(2, "weight").(T); ok {
			return a.x().Lerp(a.T(1, "end"), w)
		}
		return a.x().LerpScalar(a.T(1, "end"), a.float(2, "weight", 0))
	},
	"addcmul": func(a *args) any {
		return a.x().Addcmul(a.T(1, "tensor1"), a.T(2, "tensor2"), a.float(-1, "value", 1))
	},
	"addcdiv": func(a *args) any {
		return a.x().Addcdiv(a.T(1, "tensor1"), a.T(2, "tensor2"), a.float(-1, "value", 1))
	},
	"isclose": func(a *args) any {
		return a.x().IsClose(a.T(1, "other"), a.float(2, "rtol", 1e-5), a.float(3, "atol", 1e-8),
			a.close()...)
	},
	"allclose": func(a *args) any {
		return a.x().AllClose(a.T(1, "other"), a.float(2, "rtol", 1e-5), a.float(3, "atol", 1e-8),
			a.close()...)
	},
	"equal": func(a *args) any {
		x, y := a.x(), a.T(1, "other")
		return sameDims(x, y) && x.Eq(y).All().Item() == 1
	},
	"where": func(a *args) any {
		x, y := a.arg(0, "input"), a.arg(2, "other")
		c := a.T(1, "condition")
		xt, isX := x.(T)
		yt, isY := y.(T)
		switch {
		case isX && isY:
			return tensor.Where(c, xt, yt)
		case isX:
			return tensor.WhereScalar(c, xt, number64(y))
		case isY:
			return tensor.RWhereScalar(c, number64(x), yt)
		}
		if !isFloat(x) && !isFloat(y) {
			return tensor.Where(c, a.scalar(x), a.scalar(y))
		}
		return tensor.WhereScalars(c, number64(x), number64(y))
	},
	"__radd__": method(either(T.Add, T.AddScalar)),
	"__rmul__": method(either(T.Mul, T.MulScalar)),
	"__rsub__": method(either(func(x, y T) T { return y.Sub(x) }, T.RSubScalar)),
	"__rdiv__": method(either(func(x, y T) T { return y.Div(x) }, T.RDivScalar)),
	"__rmod__": either(func(x, y T) T { return y.Remainder(x) }, T.RRemainderScalar,
		T.RemainderScalar),
	"rsub": reversed,
	"dist": distance,
}

func wide(x, y T) dtype.Type {
	if t := dtype.Promote(x.Type(), y.Type()); t.IsFloat() {
		return t
	}
	return dtype.F32
}

func sameDims(x, y T) bool {
	if x.Rank() != y.Rank() {
		return false
	}
	for i := range x.Rank() {
		if x.Dim(i) != y.Dim(i) {
			return false
		}
	}
	return true
}

var reversed call = func(a *args) any {
	x, alpha := a.x(), a.float(2, "alpha", 1)
	if alpha != 1 {
		x = x.MulScalar(alpha)
	}
	if y, ok := a.arg(1, "other").(T); ok {
		return y.Sub(x)
	}
	return x.RSubScalar(a.float(1, "other", 0))
}

var distance call = func(a *args) any {
	return a.x().Sub(a.T(1, "other")).Norm(a.float(2, "p", 2))
}

// sumOf adapts addition or subtraction. The second operand is multiplied by the argument alpha.
func sumOf(a *args, f func(x, y T) T, g, reversed func(x T, v float64) T) any {
	alpha := a.arg(-1, "alpha")
	switch y, ok := a.arg(1, "other").(T); {
	case alpha == nil:
		return either(f, g, reversed)(a)
	case !ok:
		return g(a.x(), a.float(1, "other", 0)*number64(alpha))
	case isBool(alpha):
		return f(a.scalar(a.arg(0, "input")), y.Mul(a.scalar(alpha)))
	default:
		return f(a.scalar(a.arg(0, "input")), y.MulScalar(number64(alpha)))
	}
}

func rounding(f call) call {
	return func(a *args) any {
		a.ignored("rounding_mode")
		return f(a)
	}
}

func bits(f func(x, y T) T, g func(x T, v int64) T, reversed ...func(x T, v int64) T) call {
	var other []func(x T, v float64) T
	for _, r := range reversed {
		other = append(other, func(x T, v float64) T { return r(x, int64(v)) })
	}
	return either(f, func(x T, v float64) T { return g(x, int64(v)) }, other...)
}

func power(x, y any) any {
	xt, isX := x.(T)
	yt, isY := y.(T)
	switch {
	case isX && isY:
		return xt.Pow(yt)
	case isX:
		return xt.PowScalar(number64(y))
	}
	return yt.RPowScalar(number64(x))
}

// close returns the options for a comparison of nearly equal values.
func (a *args) close() []tensor.CloseOption {
	if a.bool(4, "equal_nan", false) {
		return []tensor.CloseOption{tensor.EqualNaN}
	}
	return nil
}
