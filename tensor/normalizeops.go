package tensor

import (
	"fmt"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// trailing checks that the shape of x ends with the given sizes. It returns the product of these
// sizes.
func trailing(op string, in []*Tensor, normalized []int) int {
	x := in[0]
	fits := len(normalized) > 0 && len(normalized) <= x.Rank()
	n := 1
	for i, d := range normalized {
		fits = fits && x.layout.Shape.At(x.Rank()-len(normalized)+i) == d
		n *= d
	}
	if !fits {
		fail(op, ErrShape, in, "dimensions of shape %s are to be normalised, the input has shape %v", strings.ReplaceAll(fmt.Sprint(normalized), " ", ", "), x.Shape())
	}
	want := shape.Of(normalized...)
	for _, t := range in[1:] {
		if t.layout.Shape != want {
			fail(op, ErrShape, in, "weight and bias have the shape %v of what is normalised, not %v", want, t.Shape())
		}
	}
	return n
}

// LayerNorm normalises x over its last dimensions to mean 0 and variance 1. The parameter
// normalized is the shape of these dimensions. LayerNorm then scales and shifts each element: (x -
// mean)/√(variance + eps)·weight + bias. The variance is the mean square distance from the mean (J.
// L. Ba, J. R. Kiros, G. E. Hinton, arXiv:1607.06450). weight and bias have the shape normalized,
// or are nil. 16-bit floats are computed in float32. If x is a 16-bit float, weight and bias may be
// float32. torch's eps is 1e-5.
func (x *Tensor) LayerNorm(normalized []int, weight, bias *Tensor, eps float64) *Tensor {
	return x.layerNorm(dtype.Invalid, normalized, weight, bias, eps)
}

// LayerNormAs is [Tensor.LayerNorm] followed by Cast to the floating point type t. If x is float32
// and t has 16 bits, one pass over x computes both. Use LayerNormAs for a result that only matrix
// products read: under [Autocast] these products compute in the type that [Scope.Autocast] returns.
func (x *Tensor) LayerNormAs(t dtype.Type, normalized []int, weight, bias *Tensor, eps float64) *Tensor {
	floatResult("layer_norm", x, t)
	return x.layerNorm(t, normalized, weight, bias, eps)
}

// floatResult panics if t, the type of a normalisation's result, is not floating point.
func floatResult(op string, x *Tensor, t dtype.Type) {
	if !t.IsFloat() {
		fail(op, ErrType, present(x), "a result of %v cannot be: its elements are no integers", t)
	}
}

// layerNorm computes LayerNorm with a result of type t. Invalid means x's type.
func (x *Tensor) layerNorm(t dtype.Type, normalized []int, weight, bias *Tensor, eps float64) *Tensor {
	if y := underAutocast("layer_norm", AutocastHigh, func(in []*Tensor) *Tensor { return in[0].layerNorm(t, normalized, in[1], in[2], eps) }, x, weight, bias); y != nil {
		return y
	}
	const op = "layer_norm"
	in := normInput(op, x, weight, bias)
	n := trailing(op, in, normalized)
	return (&normalizeFunc{op: op, zero: true, eps: eps}).normalizeAs(t, x, weight, bias, n, len(normalized))
}

// normalizeAs normalises the last dimensions of x, which hold n elements in total, and returns a
// result of type t.
func (f *normalizeFunc) normalizeAs(t dtype.Type, x, weight, bias *Tensor, n, last int) *Tensor {
	if x.dtype == dtype.F32 && t.IsHalf() {
		f.resultType = t
	}
	y := f.normalize(x, weight, bias, rowsOf(x, last), 1, n, 1)
	if t == dtype.Invalid || y.dtype == t {
		return y
	}
	defer y.Free() // only the cast below uses y
	return y.Cast(t)
}

// rowsOf returns the product of the sizes of x's dimensions, without the last skip dimensions.
func rowsOf(x *Tensor, skip int) int {
	n := 1
	for i := range x.Rank() - skip {
		n *= x.layout.Shape.At(i)
	}
	return n
}

// RMSNorm divides x by its root mean square over the last dimensions: x/√(mean(x²) + eps)·weight
// (B. Zhang, R. Sennrich, arXiv:1910.07467). normalized and weight are as for [Tensor.LayerNorm];
// torch also accepts other types and promotes them. A negative eps means torch's default: the
// distance from 1 to the next number of the type in which x is computed. That is 2⁻⁵² for float64,
// and 2⁻²³ for other types.
func (x *Tensor) RMSNorm(normalized []int, weight *Tensor, eps float64) *Tensor {
	return x.rmsNorm(dtype.Invalid, normalized, weight, eps)
}

// RMSNormAs is [Tensor.RMSNorm] with a result of the floating point type t: see
// [Tensor.LayerNormAs].
func (x *Tensor) RMSNormAs(t dtype.Type, normalized []int, weight *Tensor, eps float64) *Tensor {
	floatResult("rms_norm", x, t)
	return x.rmsNorm(t, normalized, weight, eps)
}

// rmsNorm computes RMSNorm with a result of type t. Invalid means x's type.
func (x *Tensor) rmsNorm(t dtype.Type, normalized []int, weight *Tensor, eps float64) *Tensor {
	if y := underAutocast("rms_norm", AutocastHigh, func(in []*Tensor) *Tensor { return in[0].rmsNorm(t, normalized, in[1], eps) }, x, weight); y != nil {
		return y
	}
	const op = "rms_norm"
	in := normInput(op, x, weight, nil)
	n := trailing(op, in, normalized)
	if eps < 0 {
		if eps = 0x1p-23; x.dtype == dtype.F64 {
			eps = 0x1p-52
		}
	}
	return (&normalizeFunc{op: op, rms: true, eps: eps}).normalizeAs(t, x, weight, nil, n, len(normalized))
}

// channelled checks that x is [n, channels, …] and that all other operands have one value per
// channel. It returns n and the number of channels. inner is the product of the sizes of all
// dimensions after these two.
func channelled(op string, in []*Tensor) (n, channels, inner int) {
	x := in[0]
	if x.Rank() < 2 {
		fail(op, ErrShape, in, "the input is [n, channels, …], its shape is %v", x.Shape())
	}
	n, channels, inner = x.layout.Shape.At(0), x.layout.Shape.At(1), 1
	for i := 2; i < x.Rank(); i++ {
		inner *= x.layout.Shape.At(i)
	}
	for _, t := range in[1:] {
		if t.layout.Shape != shape.Of(channels) {
			fail(op, ErrShape, in, "weight, bias and running statistics have shape [%d], one value per channel, not %v", channels, t.Shape())
		}
	}
	return n, channels, inner
}

// statistics checks running statistics. Both or neither must be given. They must require no
// gradient, and must not be expanded if they are to be updated. statistics returns the given
// tensors.
func statistics(op string, in []*Tensor, mean, variance *Tensor, update bool) []*Tensor {
	if (mean == nil) != (variance == nil) {
		fail(op, ErrValue, in, "either both running statistics are given or neither")
	}
	if mean == nil {
		return nil
	}
	for _, t := range []*Tensor{mean, variance} {
		if t.needsGrad {
			fail(op, ErrGrad, in, "running statistics have no gradient")
		}
		if update && t.layout.Overlaps() {
			fail(op, ErrShape, in, "a running statistic is expanded: several elements share one place; use Clone first")
		}
	}
	return []*Tensor{mean, variance}
}

// BatchNorm normalises each channel of x, of shape [n, channels, …], to mean 0 and variance 1. It
// then scales and shifts the channel: (x - mean)/√(variance + eps)·weight + bias (S. Ioffe, C.
// Szegedy, arXiv:1502.03167). weight, bias and statistics have shape [channels], or are nil. 16-bit
// floats are computed in float32. If x is a 16-bit float, the other operands may be float32.
//
// In training, mean and variance are those of the batch, over all dimensions except the channels.
// The variance is the mean square distance. The running statistics, if given, are changed in place
// to (1 - momentum)·running + momentum·batch, here with the unbiased variance. An empty batch
// leaves them unchanged. Unlike in torch, the update counts as an in-place change of the
// statistics. A momentum of 1/k at the k-th batch makes the running mean the average of all
// batches.
//
// Outside of training, BatchNorm uses the running statistics, and no gradient reaches them.
//
// As in torch, a vector of shape [0] without weight and bias is returned unchanged. torch's
// momentum is 0.1 and its eps 1e-5. In training eps must be positive, otherwise it must not be
// negative.
func (x *Tensor) BatchNorm(runningMean, runningVar, weight, bias *Tensor, training bool, momentum, eps float64) *Tensor {
	const op = "batch_norm"
	in := normInput(op, x, weight, bias, runningMean, runningVar)
	switch {
	case training && !(eps > 0):
		fail(op, ErrValue, in, "eps is %v, in training it must be positive", eps)
	case !(eps >= 0):
		fail(op, ErrValue, in, "eps is %v, it must not be negative", eps)
	}
	running := statistics(op, in, runningMean, runningVar, training)
	if x.layout.Shape == shape.Of(0) && weight == nil && bias == nil {
		return x.Clone()
	}
	n, channels, inner := channelled(op, in)
	f := &normalizeFunc{op: op, kind: normFixed, zero: true, eps: eps, momentum: momentum}
	switch {
	case training && n*inner == 1:
		panic(newError(op, ErrOneValue, in, fmt.Sprintf("in training there is one value per channel, and the variance of one value is 0; the input has shape %v", x.Shape())).
			hint("DropLast of a loader leaves out a last batch of one; outside of training nn.Eval(model)"))
	case training:
		f.kind = normBatch
	case running == nil:
		fail(op, ErrValue, in, "outside of training the running statistics are needed")
	}
	return f.normalize(x, weight, bias, n, channels, 1, inner, running...)
}

// InstanceNorm normalises each channel of each instance of x, of shape [n, channels, …], to mean 0
// and variance 1. It then scales and shifts the channel, as [Tensor.BatchNorm] does for the
// channels of a whole batch (D. Ulyanov, A. Vedaldi, V. Lempitsky, arXiv:1607.08022). With
// useInputStats the running statistics, if given, are updated with the average over the instances.
// Without it, they are used for normalisation.
func (x *Tensor) InstanceNorm(runningMean, runningVar, weight, bias *Tensor, useInputStats bool, momentum, eps float64) *Tensor {
	const op = "instance_norm"
	in := normInput(op, x, weight, bias, runningMean, runningVar)
	n, channels, inner := channelled(op, in)
	running := statistics(op, in, runningMean, runningVar, useInputStats)
	f := &normalizeFunc{op: op, kind: normRows, zero: true, eps: eps, momentum: momentum}
	switch {
	case useInputStats && inner == 1:
		fail(op, ErrShape, in, "there is one element a channel, whose variance is 0; the input has shape %v", x.Shape())
	case !useInputStats && running == nil:
		fail(op, ErrValue, in, "without the input's statistics the running ones are needed")
	case !useInputStats:
		f.kind = normFixed
	}
	return f.normalize(x, weight, bias, n, channels, 1, inner, running...)
}

// GroupNorm divides the channels of x, of shape [n, channels, …], into groups. It normalises each
// group of each instance to mean 0 and variance 1, then scales and shifts each channel (Y. Wu, K.
// He, arXiv:1803.08494). weight and bias have shape [channels], or are nil. 16-bit floats are
// computed in float32. If x is a 16-bit float, weight and bias may be float32. torch's eps is 1e-5.
func (x *Tensor) GroupNorm(groups int, weight, bias *Tensor, eps float64) *Tensor {
	if y := underAutocast("group_norm", AutocastHigh, func(in []*Tensor) *Tensor { return in[0].GroupNorm(groups, in[1], in[2], eps) }, x, weight, bias); y != nil {
		return y
	}
	const op = "group_norm"
	in := normInput(op, x, weight, bias)
	n, channels, inner := channelled(op, in)
	switch {
	case groups <= 0 || channels%groups != 0:
		fail(op, ErrValue, in, "%d channels cannot be divided into %d groups", channels, groups)
	case channels*inner == 0:
		fail(op, ErrShape, in, "there is nothing to normalise in shape %v", x.Shape())
	case n*inner*(channels/groups) == 1:
		fail(op, ErrShape, in, "there is one value a group, whose variance is 0; the input has shape %v", x.Shape())
	}
	return (&normalizeFunc{op: op, eps: eps}).normalize(x, weight, bias, n, groups, channels/groups, inner)
}

// Normalize divides x by its norm of order p along dim, or by eps if eps is greater: x/max(‖x‖,
// eps). 16-bit floats are computed in float32. torch's defaults are p = 2, dim = 1 and eps = 1e-12.
// See [Tensor.Norm] for the orders.
func (x *Tensor) Normalize(p float64, dim int, eps float64) *Tensor {
	if y := underAutocast("normalize", AutocastHigh, func(in []*Tensor) *Tensor { return in[0].Normalize(p, dim, eps) }, x); y != nil {
		return y
	}
	const op = "normalize"
	x.use(op)
	x.mustFloat(op)
	if x.Rank() > 0 {
		dim = x.axis(op, dim)
	} else if dim != 0 && dim != -1 {
		fail(op, ErrShape, []*Tensor{x}, "dimension %d is out of range for a tensor of rank 0", dim)
	}
	return within(x.scope, func(c *Scope) *Tensor {
		wide := x.In(c).Cast(x.dtype.Compute())
		if x.Rank() == 0 {
			return wide.Div(wide.Norm(p).ClampMin(eps)).Cast(x.dtype)
		}
		return wide.Div(wide.Norm(p, dim, KeepDim).ClampMin(eps)).Cast(x.dtype)
	})
}

// LocalResponseNorm divides each element of x, of shape [n, channels, …] and at least rank 3, by (k
// + alpha·mean)^beta. The mean is over the squares at the same position in neighbouring channels.
// The number of these channels is size, and the first of them is size/2 channels before the
// element's channel. Channels that do not exist count as 0 (A. Krizhevsky, I. Sutskever, G. E.
// Hinton, ImageNet classification with deep convolutional neural networks). 16-bit floats are
// computed in float32. For int64 the means of squares lose their fractions, as in torch, and the
// result is float32. torch's alpha, beta and k are 1e-4, 0.75 and 1.
func (x *Tensor) LocalResponseNorm(size int, alpha, beta, k float64) *Tensor {
	if y := underAutocast("local_response_norm", AutocastHigh, func(in []*Tensor) *Tensor { return in[0].LocalResponseNorm(size, alpha, beta, k) }, x); y != nil {
		return y
	}
	const op = "local_response_norm"
	x.needsMean(op)
	in := []*Tensor{x}
	if x.Rank() < 3 || x.Rank() == shape.MaxRank {
		fail(op, ErrShape, in, "the input is [n, channels, …] of 3 to %d dimensions, its shape is %v", shape.MaxRank-1, x.Shape())
	}
	if size < 1 {
		fail(op, ErrValue, in, "the size %d is not positive", size)
	}
	if x.Size() == 0 {
		return x.Clone()
	}
	return within(x.scope, func(c *Scope) *Tensor {
		wide, to := x.In(c).Cast(x.dtype.Compute()), x.dtype
		squares := wide.Square().MoveAxis(1, -1).Pad(0, size/2, (size-1)/2).Unfold(-1, size, 1)
		var mean *Tensor
		if to.IsFloat() {
			mean = squares.Mean(-1)
		} else {
			to = dtype.F32
			mean = squares.Sum(-1).TruncDivideScalar(float64(size)).Float()
		}
		return wide.Div(mean.MoveAxis(-1, 1).MulScalar(alpha).AddScalar(k).PowScalar(beta)).Cast(to)
	})
}
