package optest

import (
	"maps"

	"github.com/flambeau-go/flambeau/tensor"
)

func ternary(name string, f func(x, y, z *tt) *tt) method {
	return method{name, func(x []*tt, _ []float64) *tt { return f(x[0], x[1], x[2]) }}
}

func withWhole(name string, f func(*tt, int64) *tt) method {
	return method{name, func(x []*tt, p []float64) *tt { return f(x[0], int64(p[0])) }}
}

func init() {
	maps.Copy(methods, map[string]method{
		"sin": unary("Sin", (*tt).Sin), "cos": unary("Cos", (*tt).Cos), "tan": unary("Tan", (*tt).Tan), "asin": unary("Asin", (*tt).Asin),
		"acos": unary("Acos", (*tt).Acos), "atan": unary("Atan", (*tt).Atan), "sinh": unary("Sinh", (*tt).Sinh), "cosh": unary("Cosh", (*tt).Cosh),
		"asinh": unary("Asinh", (*tt).Asinh), "acosh": unary("Acosh", (*tt).Acosh), "atanh": unary("Atanh", (*tt).Atanh),
		"atan2": binary("Atan2", (*tt).Atan2), "hypot": binary("Hypot", (*tt).Hypot),

		"exp2": unary("Exp2", (*tt).Exp2), "expm1": unary("Expm1", (*tt).Expm1), "log2": unary("Log2", (*tt).Log2), "log10": unary("Log10", (*tt).Log10),
		"log1p": unary("Log1p", (*tt).Log1p), "erf": unary("Erf", (*tt).Erf), "erfc": unary("Erfc", (*tt).Erfc), "erfinv": unary("Erfinv", (*tt).Erfinv),
		"log_sigmoid": unary("LogSigmoid", (*tt).LogSigmoid), "logaddexp": binary("LogAddExp", (*tt).LogAddExp), "xlogy": binary("XLogY", (*tt).XLogY),
		"entr": unary("Entr", (*tt).Entr), "ndtr": unary("Ndtr", (*tt).Ndtr),
		"logit":     unary("Logit", func(x *tt) *tt { return x.Logit() }),
		"logit_eps": withScalar("Logit", func(x *tt, eps float64) *tt { return x.Logit(eps) }),

		"sign": unary("Sign", (*tt).Sign), "floor": unary("Floor", (*tt).Floor), "ceil": unary("Ceil", (*tt).Ceil), "round": unary("Round", (*tt).Round),
		"trunc": unary("Trunc", (*tt).Trunc), "frac": unary("Frac", (*tt).Frac),
		"round_decimals": unary("RoundDecimals", func(x *tt) *tt { return x.RoundDecimals(1) }),
		"isnan":          unary("IsNaN", (*tt).IsNaN), "isinf": unary("IsInf", (*tt).IsInf), "isfinite": unary("IsFinite", (*tt).IsFinite),
		"isposinf": unary("IsPosInf", (*tt).IsPosInf), "isneginf": unary("IsNegInf", (*tt).IsNegInf),
		"nan_to_num": {"NanToNum", func(x []*tt, p []float64) *tt { return x[0].NanToNum(p...) }},

		"floor_divide": binary("FloorDivide", (*tt).FloorDivide), "floor_divide_integer": binary("FloorDivide", (*tt).FloorDivide),
		"floor_divide_scalar": withScalar("FloorDivideScalar", (*tt).FloorDivideScalar), "floor_divide_integer_scalar": withScalar("FloorDivideScalar", (*tt).FloorDivideScalar),
		"trunc_divide": binary("TruncDivide", (*tt).TruncDivide), "trunc_divide_integer": binary("TruncDivide", (*tt).TruncDivide),
		"trunc_divide_scalar": withScalar("TruncDivideScalar", (*tt).TruncDivideScalar), "trunc_divide_integer_scalar": withScalar("TruncDivideScalar", (*tt).TruncDivideScalar),
		"remainder": binary("Remainder", (*tt).Remainder), "remainder_integer": binary("Remainder", (*tt).Remainder),
		"remainder_scalar": withScalar("RemainderScalar", (*tt).RemainderScalar), "remainder_integer_scalar": withScalar("RemainderScalar", (*tt).RemainderScalar),
		"fmod": binary("Fmod", (*tt).Fmod), "fmod_integer": binary("Fmod", (*tt).Fmod),
		"fmod_scalar": withScalar("FmodScalar", (*tt).FmodScalar), "fmod_integer_scalar": withScalar("FmodScalar", (*tt).FmodScalar),

		"bitwise_and": binary("BitwiseAnd", (*tt).BitwiseAnd), "bitwise_and_scalar": withWhole("BitwiseAndScalar", (*tt).BitwiseAndScalar),
		"bitwise_or": binary("BitwiseOr", (*tt).BitwiseOr), "bitwise_or_scalar": withWhole("BitwiseOrScalar", (*tt).BitwiseOrScalar),
		"bitwise_xor": binary("BitwiseXor", (*tt).BitwiseXor), "bitwise_xor_scalar": withWhole("BitwiseXorScalar", (*tt).BitwiseXorScalar),
		"bitwise_left_shift": binary("BitwiseLeftShift", (*tt).BitwiseLeftShift), "bitwise_left_shift_scalar": withWhole("BitwiseLeftShiftScalar", (*tt).BitwiseLeftShiftScalar),
		"bitwise_right_shift": binary("BitwiseRightShift", (*tt).BitwiseRightShift), "bitwise_right_shift_scalar": withWhole("BitwiseRightShiftScalar", (*tt).BitwiseRightShiftScalar),
		"bitwise_not": unary("BitwiseNot", (*tt).BitwiseNot),
		"logical_and": binary("LogicalAnd", (*tt).LogicalAnd), "logical_or": binary("LogicalOr", (*tt).LogicalOr), "logical_xor": binary("LogicalXor", (*tt).LogicalXor),

		"softplus": {"Softplus", func(x []*tt, p []float64) *tt { return x[0].Softplus(p[0], p[1]) }},
		"softsign": unary("Softsign", (*tt).Softsign), "leaky_relu": withScalar("LeakyRelu", (*tt).LeakyRelu),
		"prelu": {"PRelu", func(x []*tt, p []float64) *tt {
			if x[1].Size() == 1 {
				return x[0].PRelu(x[1])
			}
			for _, e := range tensor.Declared() { // more than one weight a channel
				if e.Name == "prelu" {
					return e.Apply(x)
				}
			}
			panic("prelu is not declared")
		}},
		"elu": withScalar("Elu", (*tt).Elu), "celu": withScalar("Celu", (*tt).Celu), "selu": unary("Selu", (*tt).Selu), "mish": unary("Mish", (*tt).Mish),
		"relu6": unary("Relu6", (*tt).Relu6), "hardtanh": {"Hardtanh", func(x []*tt, p []float64) *tt { return x[0].Hardtanh(p[0], p[1]) }},
		"hardsigmoid": unary("Hardsigmoid", (*tt).Hardsigmoid), "hardswish": unary("Hardswish", (*tt).Hardswish),
		"hardshrink": withScalar("Hardshrink", (*tt).Hardshrink), "softshrink": withScalar("Softshrink", (*tt).Softshrink),
		"tanhshrink": unary("Tanhshrink", (*tt).Tanhshrink),
		"threshold":  {"Threshold", func(x []*tt, p []float64) *tt { return x[0].Threshold(p[0], p[1]) }},

		"fmax": binary("Fmax", (*tt).Fmax), "fmin": binary("Fmin", (*tt).Fmin), "rpow_scalar": withScalar("RPowScalar", (*tt).RPowScalar),
		"isclose": {"IsClose", func(x []*tt, p []float64) *tt { return x[0].IsClose(x[1], p[0], p[1]) }},

		"lerp":        ternary("Lerp", (*tt).Lerp),
		"lerp_scalar": {"LerpScalar", func(x []*tt, p []float64) *tt { return x[0].LerpScalar(x[1], p[0]) }},
		"addcmul":     {"Addcmul", func(x []*tt, p []float64) *tt { return x[0].Addcmul(x[1], x[2], p[0]) }},
		"addcdiv":     {"Addcdiv", func(x []*tt, p []float64) *tt { return x[0].Addcdiv(x[1], x[2], p[0]) }},
		"copysign":    binary("CopySign", (*tt).CopySign), "copysign_scalar": withScalar("CopySignScalar", (*tt).CopySignScalar),
	})
}
