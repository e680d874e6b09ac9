package tensor

import "math"

// In-place forms of functions: torch's names with an underscore. Each replaces x's elements and returns x, bumps its version, and takes part
// in gradients as a result of its own; a result that x's type cannot hold is refused, as is a leaf that requires a gradient.

// AbsInPlace replaces x by |x|; see [Tensor.Abs].
func (x *Tensor) AbsInPlace() *Tensor { return x.inPlace(absOp, []*Tensor{x}) }

// NegInPlace replaces x by -x; see [Tensor.Neg].
func (x *Tensor) NegInPlace() *Tensor { return x.inPlace(negOp, []*Tensor{x}) }

// SquareInPlace replaces x by x²; see [Tensor.Square].
func (x *Tensor) SquareInPlace() *Tensor { return x.inPlace(squareOp, []*Tensor{x}) }

// SqrtInPlace replaces x by √x; see [Tensor.Sqrt].
func (x *Tensor) SqrtInPlace() *Tensor { return x.inPlace(sqrtOp, []*Tensor{x}) }

// RsqrtInPlace replaces x by 1/√x; see [Tensor.Rsqrt].
func (x *Tensor) RsqrtInPlace() *Tensor { return x.inPlace(rsqrtOp, []*Tensor{x}) }

// ReciprocalInPlace replaces x by 1/x; see [Tensor.Reciprocal].
func (x *Tensor) ReciprocalInPlace() *Tensor { return x.inPlace(reciprocalOp, []*Tensor{x}) }

// ExpInPlace replaces x by eˣ; see [Tensor.Exp].
func (x *Tensor) ExpInPlace() *Tensor { return x.inPlace(expOp, []*Tensor{x}) }

// Expm1InPlace replaces x by eˣ-1; see [Tensor.Expm1].
func (x *Tensor) Expm1InPlace() *Tensor { return x.inPlace(expm1Op, []*Tensor{x}) }

// LogInPlace replaces x by its natural logarithm; see [Tensor.Log].
func (x *Tensor) LogInPlace() *Tensor { return x.inPlace(logOp, []*Tensor{x}) }

// Log1pInPlace replaces x by log(1+x); see [Tensor.Log1p].
func (x *Tensor) Log1pInPlace() *Tensor { return x.inPlace(log1pOp, []*Tensor{x}) }

// SinInPlace replaces x by its sine; see [Tensor.Sin].
func (x *Tensor) SinInPlace() *Tensor { return x.inPlace(sinOp, []*Tensor{x}) }

// CosInPlace replaces x by its cosine; see [Tensor.Cos].
func (x *Tensor) CosInPlace() *Tensor { return x.inPlace(cosOp, []*Tensor{x}) }

// ErfinvInPlace replaces x by its inverse error function; see [Tensor.Erfinv].
func (x *Tensor) ErfinvInPlace() *Tensor { return x.inPlace(erfinvOp, []*Tensor{x}) }

// TanhInPlace replaces x by its hyperbolic tangent; see [Tensor.Tanh].
func (x *Tensor) TanhInPlace() *Tensor { return x.inPlace(tanhOp, []*Tensor{x}) }

// SigmoidInPlace replaces x by 1/(1+e⁻ˣ); see [Tensor.Sigmoid].
func (x *Tensor) SigmoidInPlace() *Tensor { return x.inPlace(sigmoidOp, []*Tensor{x}) }

// ReluInPlace replaces x by the greater of x and 0; see [Tensor.Relu].
func (x *Tensor) ReluInPlace() *Tensor { return x.inPlace(reluOp, []*Tensor{x}) }

// Relu6InPlace replaces x by x limited to [0, 6]; see [Tensor.Relu6].
func (x *Tensor) Relu6InPlace() *Tensor { return x.inPlace(relu6Op, []*Tensor{x}) }

// SiluInPlace replaces x by x·sigmoid(x); see [Tensor.Silu].
func (x *Tensor) SiluInPlace() *Tensor { return x.inPlace(siluOp, []*Tensor{x}) }

// GeluInPlace replaces x by x·Φ(x); see [Tensor.Gelu].
func (x *Tensor) GeluInPlace() *Tensor { return x.inPlace(geluOp, []*Tensor{x}) }

// MishInPlace replaces x by x·tanh(softplus(x)); see [Tensor.Mish].
func (x *Tensor) MishInPlace() *Tensor { return x.inPlace(mishOp, []*Tensor{x}) }

// SeluInPlace replaces x by the scaled exponential linear unit; see [Tensor.Selu].
func (x *Tensor) SeluInPlace() *Tensor { return x.inPlace(seluOp, []*Tensor{x}) }

// HardswishInPlace replaces x by x·Hardsigmoid(x); see [Tensor.Hardswish].
func (x *Tensor) HardswishInPlace() *Tensor { return x.inPlace(hardswishOp, []*Tensor{x}) }

// HardsigmoidInPlace replaces x by x/6 + ½ limited to [0, 1]; see [Tensor.Hardsigmoid].
func (x *Tensor) HardsigmoidInPlace() *Tensor { return x.inPlace(hardsigmoidOp, []*Tensor{x}) }

// SignInPlace replaces x by its sign; see [Tensor.Sign].
func (x *Tensor) SignInPlace() *Tensor { return x.inPlace(signOp, []*Tensor{x}) }

// FloorInPlace replaces x by the greatest integer not above; see [Tensor.Floor].
func (x *Tensor) FloorInPlace() *Tensor { return x.inPlace(floorOp, []*Tensor{x}) }

// CeilInPlace replaces x by the least integer not below; see [Tensor.Ceil].
func (x *Tensor) CeilInPlace() *Tensor { return x.inPlace(ceilOp, []*Tensor{x}) }

// RoundInPlace replaces x by the nearest integer, the even one of two; see [Tensor.Round].
func (x *Tensor) RoundInPlace() *Tensor { return x.inPlace(roundOp, []*Tensor{x}) }

// TruncInPlace replaces x by x without its fraction; see [Tensor.Trunc].
func (x *Tensor) TruncInPlace() *Tensor { return x.inPlace(truncOp, []*Tensor{x}) }

// SubScalarInPlace subtracts v from x.
func (x *Tensor) SubScalarInPlace(v float64) *Tensor { return x.AddScalarInPlace(-v) }

// DivScalarInPlace divides x, of floating point type, by v.
func (x *Tensor) DivScalarInPlace(v float64) *Tensor {
	return x.inPlace(divScalarOp, []*Tensor{x}, v)
}

// ClampInPlace limits x to [lo, hi]; see [Tensor.Clamp].
func (x *Tensor) ClampInPlace(lo, hi float64) *Tensor {
	x.holds("clamp", lo)
	x.holds("clamp", hi)
	x.limits("clamp", lo, hi)
	return x.inPlace(clampBy(lo, hi), []*Tensor{x}, lo, hi)
}

// ClampMinInPlace replaces x by the greater of x and lo.
func (x *Tensor) ClampMinInPlace(lo float64) *Tensor {
	x.holds("clamp_min", lo)
	x.limits("clamp_min", lo, math.Inf(1))
	return x.inPlace(maxScalarOp, []*Tensor{x}, lo)
}

// ClampMaxInPlace replaces x by the lesser of x and hi.
func (x *Tensor) ClampMaxInPlace(hi float64) *Tensor {
	x.holds("clamp_max", hi)
	x.limits("clamp_max", math.Inf(-1), hi)
	return x.inPlace(minScalarOp, []*Tensor{x}, hi)
}

// HardtanhInPlace limits x to [lo, hi]; see [Tensor.Hardtanh].
func (x *Tensor) HardtanhInPlace(lo, hi float64) *Tensor {
	x.interval(lo, hi)
	if integral(x.dtype) {
		return x.ClampInPlace(math.Trunc(lo), math.Trunc(hi))
	}
	return x.inPlace(hardtanhOp, []*Tensor{x}, lo, hi)
}

// LeakyReluInPlace multiplies the elements of x that are not positive by slope.
func (x *Tensor) LeakyReluInPlace(slope float64) *Tensor {
	return x.inPlace(leakyReluOp, []*Tensor{x}, slope)
}

// EluInPlace replaces the elements of x that are not positive by α·(eˣ-1).
func (x *Tensor) EluInPlace(alpha float64) *Tensor { return x.inPlace(eluOp, []*Tensor{x}, alpha) }

// PowInPlace raises x, of floating point type, to the power y.
func (x *Tensor) PowInPlace(y *Tensor) *Tensor { return x.inPlace(powOp, []*Tensor{x, y}) }

// PowScalarInPlace raises x, of floating point type, to the power p.
func (x *Tensor) PowScalarInPlace(p float64) *Tensor {
	x.use("pow_scalar")
	if x.dtype.IsFloat() {
		switch p { // as PowScalar
		case 2:
			return x.SquareInPlace()
		case 3:
			return x.inPlace(powCubeOp, []*Tensor{x})
		case 0.5:
			return x.SqrtInPlace()
		case -0.5:
			return x.inPlace(powRsqrtOp, []*Tensor{x})
		case -1:
			return x.ReciprocalInPlace()
		}
	}
	op, params := x.powerOf(p)
	return x.inPlace(op, []*Tensor{x}, params...)
}

// RemainderScalarInPlace replaces x by x - v·⌊x/v⌋; see [Tensor.Remainder].
func (x *Tensor) RemainderScalarInPlace(v float64) *Tensor {
	x.holds("remainder", v)
	if x.dtype.IsFloat() {
		return x.inPlace(remainders.floatScalar, []*Tensor{x}, v)
	}
	if v == 0 {
		fail("remainder", ErrValue, []*Tensor{x}, "integers are divided by 0")
	}
	return x.inPlace(remainders.integerScalar, []*Tensor{x}, v)
}

// MaskedFillInPlace sets x to v where mask, a bool tensor, is true; see [Tensor.MaskedFill].
func (x *Tensor) MaskedFillInPlace(mask *Tensor, v float64) *Tensor {
	v = x.takes("masked_fill", v)
	mask.use("masked_fill")
	if mask.dtype != boolType {
		fail("masked_fill", ErrType, []*Tensor{x, mask}, "the mask is %v, it must be bool", mask.dtype)
	}
	return x.inPlace(maskedFillOp, []*Tensor{x, mask}, v)
}

// NanToNumInPlace replaces NaN, +Inf and -Inf in x; see [Tensor.NanToNum].
func (x *Tensor) NanToNumInPlace(values ...float64) *Tensor {
	v, ok := x.replacements(values)
	if !ok {
		return x
	}
	return x.inPlace(nanToNumOp, []*Tensor{x}, v...)
}

// LerpInPlace moves x towards end by w·(end-x).
func (x *Tensor) LerpInPlace(end, w *Tensor) *Tensor { return x.inPlace(lerpOp, []*Tensor{x, end, w}) }

// LerpScalarInPlace moves x towards end by w·(end-x): an exponential moving average.
func (x *Tensor) LerpScalarInPlace(end *Tensor, w float64) *Tensor {
	return x.inPlace(lerpScalarOp, []*Tensor{x, end}, w)
}

// AddcmulInPlace adds value·a·b to x.
func (x *Tensor) AddcmulInPlace(a, b *Tensor, value float64) *Tensor {
	x.holds("addcmul", value)
	return x.inPlace(addcmulOp, []*Tensor{x, a, b}, value)
}

// AddcdivInPlace adds value·a/b to x, of floating point type.
func (x *Tensor) AddcdivInPlace(a, b *Tensor, value float64) *Tensor {
	return x.inPlace(addcdivOp, []*Tensor{x, a, b}, value)
}

// BitwiseAndInPlace replaces x by x & y.
func (x *Tensor) BitwiseAndInPlace(y *Tensor) *Tensor { return x.inPlace(andOp, []*Tensor{x, y}) }

// BitwiseOrInPlace replaces x by x | y.
func (x *Tensor) BitwiseOrInPlace(y *Tensor) *Tensor { return x.inPlace(orOp, []*Tensor{x, y}) }

// BitwiseXorInPlace replaces x by x ^ y.
func (x *Tensor) BitwiseXorInPlace(y *Tensor) *Tensor { return x.inPlace(xorOp, []*Tensor{x, y}) }
