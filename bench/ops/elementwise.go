package main

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

var cases = func() (list []bench) {
	for _, c := range [][]bench{unary, binary, typed, inPlace, reductions, shaped, indexed, ordered, neural, products, decomposed, random} {
		list = append(list, c...)
	}
	return list
}()

// of1 makes a case from a method of one tensor, and of2 from a method of two. grad is "" if the op
// has no gradient.
func of1(name, kind, grad, call string, f func(*T) *T) bench {
	return bench{name, kind + ":n", grad, call, func(x []*T) *T { return f(x[0]) }, "tml"}
}

func of2(name, kind, grad, call string, f func(a, b *T) *T) bench {
	return bench{name, kind + ":n " + kind + ":n", grad, call, func(x []*T) *T { return f(x[0], x[1]) }, "tml"}
}

// fixSecond returns a function of one tensor, which calls f with v as the second argument.
func fixSecond(f func(*T, float64) *T, v float64) func(*T) *T {
	return func(x *T) *T { return f(x, v) }
}

func with2(f func(*T, float64, float64) *T, v, w float64) func(*T) *T {
	return func(x *T) *T { return f(x, v, w) }
}

var unary = []bench{
	of1("abs", "f", "a", "a.abs()", (*T).Abs),
	of1("acos", "u", "a", "a.acos()", (*T).Acos),
	of1("acosh", "p", "a", "(a+1).acosh()", func(x *T) *T { return x.AddScalar(1).Acosh() }),
	of1("asin", "u", "a", "a.asin()", (*T).Asin),
	of1("asinh", "f", "a", "a.asinh()", (*T).Asinh),
	of1("atan", "f", "a", "a.atan()", (*T).Atan),
	of1("atanh", "u", "a", "a.atanh()", (*T).Atanh),
	of1("ceil", "f", "", "a.ceil()", (*T).Ceil),
	of1("celu", "f", "a", "F.celu(a, 0.7)", fixSecond((*T).Celu, 0.7)),
	of1("clamp", "f", "a", "a.clamp(-1, 1)", with2((*T).Clamp, -1, 1)),
	of1("clamp_min", "f", "a", "a.clamp_min(0.1)", fixSecond((*T).ClampMin, 0.1)),
	of1("clone", "f", "a", "a.clone()", (*T).Clone),
	of1("cos", "f", "a", "a.cos()", (*T).Cos),
	of1("cosh", "f", "a", "a.cosh()", (*T).Cosh),
	of1("elu", "f", "a", "F.elu(a)", fixSecond((*T).Elu, 1)),
	of1("erf", "f", "a", "a.erf()", (*T).Erf),
	of1("erfc", "f", "a", "a.erfc()", (*T).Erfc),
	of1("erfinv", "u", "a", "a.erfinv()", (*T).Erfinv),
	of1("exp", "f", "a", "a.exp()", (*T).Exp),
	of1("exp2", "f", "a", "a.exp2()", (*T).Exp2),
	of1("expm1", "f", "a", "a.expm1()", (*T).Expm1),
	of1("floor", "f", "", "a.floor()", (*T).Floor),
	of1("frac", "f", "a", "a.frac()", (*T).Frac),
	of1("gelu", "f", "a", "F.gelu(a)", (*T).Gelu),
	of1("gelu_tanh", "f", "a", "F.gelu(a, approximate='tanh')", (*T).GeluTanh),
	of1("hardshrink", "f", "a", "F.hardshrink(a)", fixSecond((*T).Hardshrink, 0.5)),
	of1("hardsigmoid", "f", "a", "F.hardsigmoid(a)", (*T).Hardsigmoid),
	of1("hardswish", "f", "a", "F.hardswish(a)", (*T).Hardswish),
	of1("hardtanh", "f", "a", "F.hardtanh(a)", with2((*T).Hardtanh, -1, 1)),
	of1("isfinite", "f", "", "a.isfinite()", (*T).IsFinite),
	of1("isnan", "f", "", "a.isnan()", (*T).IsNaN),
	of1("leaky_relu", "f", "a", "F.leaky_relu(a, 0.01)", fixSecond((*T).LeakyRelu, 0.01)),
	of1("log", "p", "a", "a.log()", (*T).Log),
	of1("log10", "p", "a", "a.log10()", (*T).Log10),
	of1("log1p", "p", "a", "a.log1p()", (*T).Log1p),
	of1("log2", "p", "a", "a.log2()", (*T).Log2),
	of1("log_sigmoid", "f", "a", "F.logsigmoid(a)", (*T).LogSigmoid),
	of1("logical_not", "o", "", "a.logical_not()", (*T).LogicalNot),
	of1("logit", "p", "a", "a.logit(1e-3)", func(x *T) *T { return x.Logit(1e-3) }),
	of1("mish", "f", "a", "F.mish(a)", (*T).Mish),
	of1("nan_to_num", "f", "a", "a.nan_to_num()", func(x *T) *T { return x.NanToNum() }),
	of1("neg", "f", "a", "a.neg()", (*T).Neg),
	of1("reciprocal", "p", "a", "a.reciprocal()", (*T).Reciprocal),
	of1("relu", "f", "a", "a.relu()", (*T).Relu),
	of1("relu6", "f", "a", "F.relu6(a)", (*T).Relu6),
	of1("round", "f", "", "a.round()", (*T).Round),
	of1("rsqrt", "p", "a", "a.rsqrt()", (*T).Rsqrt),
	of1("selu", "f", "a", "F.selu(a)", (*T).Selu),
	of1("sigmoid", "f", "a", "a.sigmoid()", (*T).Sigmoid),
	of1("sign", "f", "", "a.sign()", (*T).Sign),
	of1("silu", "f", "a", "F.silu(a)", (*T).Silu),
	of1("sin", "f", "a", "a.sin()", (*T).Sin),
	of1("sinh", "f", "a", "a.sinh()", (*T).Sinh),
	of1("softplus", "f", "a", "F.softplus(a)", with2((*T).Softplus, 1, 20)),
	of1("softshrink", "f", "a", "F.softshrink(a)", fixSecond((*T).Softshrink, 0.5)),
	of1("softsign", "f", "a", "F.softsign(a)", (*T).Softsign),
	of1("sqrt", "p", "a", "a.sqrt()", (*T).Sqrt),
	of1("square", "f", "a", "a.square()", (*T).Square),
	of1("tan", "f", "a", "a.tan()", (*T).Tan),
	of1("tanh", "f", "a", "a.tanh()", (*T).Tanh),
	of1("tanhshrink", "f", "a", "F.tanhshrink(a)", (*T).Tanhshrink),
	of1("threshold", "f", "a", "F.threshold(a, 0.1, 0)", with2((*T).Threshold, 0.1, 0)),
	of1("trunc", "f", "", "a.trunc()", (*T).Trunc),
	of1("add_scalar", "f", "a", "a + 1.5", fixSecond((*T).AddScalar, 1.5)),
	of1("mul_scalar", "f", "a", "a * 1.5", fixSecond((*T).MulScalar, 1.5)),
	of1("div_scalar", "f", "a", "a / 1.5", fixSecond((*T).DivScalar, 1.5)),
	of1("rsub_scalar", "f", "a", "1.5 - a", fixSecond((*T).RSubScalar, 1.5)),
	of1("rdiv_scalar", "p", "a", "1.5 / a", fixSecond((*T).RDivScalar, 1.5)),
	of1("pow_2", "f", "a", "a ** 2", fixSecond((*T).PowScalar, 2)),
	of1("pow_3", "f", "a", "a ** 3", fixSecond((*T).PowScalar, 3)),
	of1("pow_half", "p", "a", "a ** 0.5", fixSecond((*T).PowScalar, 0.5)),
	of1("pow_1.7", "p", "a", "a ** 1.7", fixSecond((*T).PowScalar, 1.7)),
	of1("rpow_scalar", "f", "a", "2.5 ** a", fixSecond((*T).RPowScalar, 2.5)),
	of1("remainder_scalar", "f", "a", "a % 0.7", fixSecond((*T).RemainderScalar, 0.7)),
	of1("fmod_scalar", "f", "a", "a.fmod(0.7)", fixSecond((*T).FmodScalar, 0.7)),
	of1("floor_divide_scalar", "f", "", "a // 0.7", fixSecond((*T).FloorDivideScalar, 0.7)),
	of1("gt_scalar", "f", "", "a > 0.5", fixSecond((*T).GtScalar, 0.5)),
	of1("eq_scalar", "f", "", "a == 0.5", fixSecond((*T).EqScalar, 0.5)),
}

var binary = []bench{
	of2("add", "f", "ab", "a + b", (*T).Add),
	of2("sub", "f", "ab", "a - b", (*T).Sub),
	of2("mul", "f", "ab", "a * b", (*T).Mul),
	of2("div", "p", "ab", "a / b", (*T).Div),
	of2("atan2", "f", "ab", "torch.atan2(a, b)", (*T).Atan2),
	of2("copysign", "f", "a", "torch.copysign(a, b)", (*T).CopySign),
	of2("floor_divide", "p", "", "a // b", (*T).FloorDivide),
	of2("fmax", "f", "ab", "torch.fmax(a, b)", (*T).Fmax),
	of2("fmod", "p", "a", "torch.fmod(a, b)", (*T).Fmod),
	of2("hypot", "f", "ab", "torch.hypot(a, b)", (*T).Hypot),
	of2("isclose", "f", "", "torch.isclose(a, b)", func(a, b *T) *T { return a.IsClose(b, 1e-5, 1e-8) }),
	of2("logaddexp", "f", "ab", "torch.logaddexp(a, b)", (*T).LogAddExp),
	of2("maximum", "f", "ab", "torch.maximum(a, b)", (*T).Maximum),
	of2("minimum", "f", "ab", "torch.minimum(a, b)", (*T).Minimum),
	of2("pow", "p", "ab", "a ** b", (*T).Pow),
	of2("remainder", "p", "a", "torch.remainder(a, b)", (*T).Remainder),
	of2("xlogy", "p", "ab", "torch.xlogy(a, b)", (*T).XLogY),
	of2("lerp_scalar", "f", "ab", "torch.lerp(a, b, 0.3)", func(a, b *T) *T { return a.LerpScalar(b, 0.3) }),
	of2("eq", "f", "", "a == b", (*T).Eq),
	of2("lt", "f", "", "a < b", (*T).Lt),
	of2("logical_and", "o", "", "torch.logical_and(a, b)", (*T).LogicalAnd),
	{"addcmul", "f:n f:n f:n", "abc", "torch.addcmul(a, b, c, value=0.5)", func(x []*T) *T { return x[0].Addcmul(x[1], x[2], 0.5) }, "tml"},
	{"addcdiv", "f:n f:n p:n", "abc", "torch.addcdiv(a, b, c, value=0.5)", func(x []*T) *T { return x[0].Addcdiv(x[1], x[2], 0.5) }, "tml"},
	{"lerp", "f:n f:n p:n", "abc", "torch.lerp(a, b, c)", func(x []*T) *T { return x[0].Lerp(x[1], x[2]) }, "tml"},
	{"where", "o:n f:n f:n", "bc", "torch.where(a, b, c)", func(x []*T) *T { return tensor.Where(x[0], x[1], x[2]) }, "tml"},
	{"masked_fill", "f:n o:n", "a", "a.masked_fill(b, -1e9)", func(x []*T) *T { return x[0].MaskedFill(x[1], -1e9) }, "tml"},
	{"prelu", "f:R,C p:C", "ab", "F.prelu(a, b)", func(x []*T) *T { return x[0].PRelu(x[1]) }, "tml"},
	// These cases have operands with various memory layouts.
	{"add_row", "f:R,C f:C", "ab", "a + b", pair((*T).Add), "tml"},
	{"add_column", "f:R,C f:R,1", "ab", "a + b", pair((*T).Add), "tml"},
	{"mul_row", "f:R,C f:C", "ab", "a * b", pair((*T).Mul), "tml"},
	{"mul_column", "f:R,C f:R,1", "ab", "a * b", pair((*T).Mul), "tml"},
	{"add_outer", "f:R,1 f:C", "ab", "a + b", pair((*T).Add), "tml"},
	{"add_turned", "f:R,C f:R,C/t", "ab", "a + b", pair((*T).Add), "tml"},
	{"add_strided", "f:R,C/s f:R,C/s", "ab", "a + b", pair((*T).Add), "tml"},
	{"mul_turned_both", "f:R,C/t f:R,C/t", "ab", "a * b", pair((*T).Mul), "tml"},
	{"relu_turned", "f:R,C/t", "a", "a.relu()", one((*T).Relu), "tml"},
	{"relu_strided", "f:R,C/s", "a", "a.relu()", one((*T).Relu), "tml"},
	{"exp_turned", "f:R,C/t", "a", "a.exp()", one((*T).Exp), "tml"},
	{"where_row", "o:C f:R,C f:R,C", "bc", "torch.where(a, b, c)", func(x []*T) *T { return tensor.Where(x[0], x[1], x[2]) }, "tml"},
	{"masked_fill_row", "f:B,S,D o:S,D", "a", "a.masked_fill(b, -1e9)", func(x []*T) *T { return x[0].MaskedFill(x[1], -1e9) }, "tml"},
	{"contiguous_turned", "f:R,C/t", "a", "a.contiguous()", one((*T).Contiguous), "tml"},
	{"contiguous_strided", "f:R,C/s", "a", "a.contiguous()", one((*T).Contiguous), "tml"},
	{"contiguous_heads", "f:B,S,4,K", "a", "a.transpose(1, 2).contiguous()", func(x []*T) *T { return x[0].Transpose(1, 2).Contiguous() }, "tml"},
	{"contiguous_turned3", "f:B,S,D/t", "a", "a.contiguous()", one((*T).Contiguous), "tml"},
	{"contiguous_expanded", "f:R,1", "a", "a.expand(-1, 64).contiguous()", func(x []*T) *T { return x[0].Expand(-1, 64).Contiguous() }, "tml"},
}

func one(f func(*T) *T) func([]*T) *T       { return func(x []*T) *T { return f(x[0]) } }
func pair(f func(a, b *T) *T) func([]*T) *T { return func(x []*T) *T { return f(x[0], x[1]) } }

var typed = []bench{
	of2("add_bf16", "h", "ab", "a + b", (*T).Add),
	of2("mul_bf16", "h", "ab", "a * b", (*T).Mul),
	of1("relu_bf16", "h", "a", "a.relu()", (*T).Relu),
	of1("gelu_bf16", "h", "a", "F.gelu(a)", (*T).Gelu),
	of1("exp_bf16", "h", "a", "a.exp()", (*T).Exp),
	of1("sum_bf16", "h", "a", "a.sum()", func(x *T) *T { return x.Sum() }),
	{"softmax_bf16", "h:R,C", "a", "a.softmax(-1)", func(x []*T) *T { return x[0].Softmax(-1) }, "tml"},
	of2("add_i64", "g", "", "a + b", (*T).Add),
	of2("mul_i64", "g", "", "a * b", (*T).Mul),
	of2("floor_divide_i64", "g", "", "a // (b.abs() + 1)", func(a, b *T) *T { return a.FloorDivide(b.Abs().AddScalar(1)) }),
	of1("remainder_i64", "g", "", "a % 7", fixSecond((*T).RemainderScalar, 7)),
	of1("eq_scalar_i64", "g", "", "a == 3", fixSecond((*T).EqScalar, 3)),
	of1("sum_i64", "g", "", "a.sum()", func(x *T) *T { return x.Sum() }),
	{"max_i64", "g:R,C", "", "a.amax(1)", func(x []*T) *T { return x[0].Amax(1) }, "tml"},
	of2("bitwise_and_i64", "g", "", "a & b", (*T).BitwiseAnd),
	of1("shift_i64", "g", "", "a << 2", func(x *T) *T { return x.BitwiseLeftShiftScalar(2) }),
	of1("bitwise_not_bool", "o", "", "~a", (*T).BitwiseNot),
	of1("sum_bool", "o", "", "a.sum()", func(x *T) *T { return x.Sum() }),
	of1("any", "o", "", "a.any()", func(x *T) *T { return x.Any() }),
	of1("all", "o", "", "a.all()", func(x *T) *T { return x.All() }),
	{"any_rows", "o:R,C", "", "a.any(1)", func(x []*T) *T { return x[0].Any(1) }, "tml"},
	of1("cast_f32_bf16", "f", "a", "a.bfloat16()", (*T).BFloat16),
	of1("cast_bf16_f32", "h", "a", "a.float()", (*T).Float),
	of1("cast_f32_f16", "f", "a", "a.half()", (*T).Half),
	of1("cast_f32_f64", "f", "a", "a.double()", (*T).Double),
	of1("cast_f32_i64", "f", "", "a.long()", (*T).Long),
	of1("cast_i64_f32", "g", "", "a.float()", (*T).Float),
	of1("cast_bool_f32", "o", "", "a.float()", (*T).Float),
	of1("cast_f32_bool", "f", "", "a.bool()", func(x *T) *T { return x.Cast(dtype.Bool) }),
	of1("cast_i64_i32", "g", "", "a.int()", func(x *T) *T { return x.Cast(dtype.I32) }),
}

// inPlace are ops in place. Their operands are chosen so that repeated calls leave the values in
// range.
var inPlace = []bench{
	{"add_in_place", "f:n p:n", "", "a.add_(b)", pair((*T).AddInPlace), "tml"},
	{"mul_in_place", "f:n 1:n", "", "a.mul_(b)", pair((*T).MulInPlace), "tml"},
	{"mul_scalar_in_place", "f:n", "", "a.mul_(1.0)", one(fixSecond((*T).MulScalarInPlace, 1)), "tml"},
	{"addcmul_in_place", "f:n f:n f:n", "", "a.addcmul_(b, c, value=0.5)", func(x []*T) *T { return x[0].AddcmulInPlace(x[1], x[2], 0.5) }, "tml"},
	{"lerp_in_place", "f:n f:n", "", "a.lerp_(b, 0.1)", pair(func(a, b *T) *T { return a.LerpScalarInPlace(b, 0.1) }), "tml"},
	{"relu_in_place", "f:n", "", "a.relu_()", one((*T).ReluInPlace), "tml"},
	{"clamp_in_place", "f:n", "", "a.clamp_(-1, 1)", one(with2((*T).ClampInPlace, -1, 1)), "tml"},
	{"fill", "f:n", "", "a.fill_(2)", one(fixSecond((*T).Fill, 2)), "tml"},
	{"zero", "f:n", "", "a.zero_()", one((*T).Zero), "tml"},
	{"copy", "f:n f:n", "", "a.copy_(b)", pair((*T).Copy), "tml"},
	{"copy_turned", "f:R,C f:R,C/t", "", "a.copy_(b)", pair((*T).Copy), "tml"},
	{"masked_fill_in_place", "f:n o:n", "", "a.masked_fill_(b, 1)", pair(func(a, b *T) *T { return a.MaskedFillInPlace(b, 1) }), "tml"},
	{"item", "f:1", "", "a.item()", func(x []*T) *T { x[0].Item(); return x[0] }, "t"},
	{"zeros", "f:n", "", "torch.zeros(a.shape)", func(x []*T) *T { return x[0].ZerosLike() }, "tml"},
	{"ones_like", "f:n", "", "torch.ones_like(a)", one((*T).OnesLike), "tml"},
	{"empty_like", "f:n", "", "torch.empty_like(a)", one((*T).EmptyLike), "tml"},
	{"detach", "f:n", "", "a.detach()", one((*T).Detach), "t"},
	{"view", "f:R,C", "a", "a.view(-1)", func(x []*T) *T { return x[0].View(-1) }, "t"},
	{"transpose_view", "f:R,C", "a", "a.transpose(0, 1)", func(x []*T) *T { return x[0].Transpose(0, 1) }, "t"},
	{"slice_view", "f:R,C", "a", "a[:, 1:3]", func(x []*T) *T { return x[0].Slice(1, 1, 3, 1) }, "tml"},
	{"select_view", "f:R,C", "a", "a[1]", func(x []*T) *T { return x[0].Select(0, 1) }, "tml"},
	{"arange", "f:n", "", "torch.arange(a.shape[0])", func(x []*T) *T { return x[0].Scope().Typed(dtype.I64).Arange(x[0].Dim(0)) }, "tml"},
	{"linspace", "f:n", "", "torch.linspace(0, 1, a.shape[0])", func(x []*T) *T { return x[0].Scope().Linspace(0, 1, x[0].Dim(0)) }, "tml"},
	{"eye", "f:R,C", "", "torch.eye(a.shape[1])", func(x []*T) *T { return x[0].Scope().Typed(dtype.F32).Eye(x[0].Dim(1)) }, "tml"},
}
