package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// ConvOptions say how a convolution moves over its input. Each list has either one number for all
// spatial dimensions, or one number for each:
//
//	x.Conv2d(w, b, tensor.ConvOptions{Stride: []int{2}, Padding: []int{1, 2}})
//
// The zero value is torch's default: stride 1, no padding, dilation 1, one group.
type ConvOptions struct {
	Stride   []int // distance between windows; nil means 1
	Padding  []int // zeros on both sides of a dimension; nil means 0, torch's padding="valid"
	Dilation []int // distance between the elements of a window; nil means 1
	Groups   int   // number of groups that the channels are divided into; 0 means 1
	// Same pads so that the result has the input's size, as torch's padding="same" does. If a
	// dimension needs an odd number of zeros, the extra zero is at its end. Same requires a stride
	// of 1 and no Padding.
	Same bool
}

// ConvTransposeOptions say how a transposed convolution moves over its result; see [ConvOptions].
// The zero value is torch's default.
type ConvTransposeOptions struct {
	Stride  []int // distance between windows in the result; nil means 1
	Padding []int // elements cut off on both sides of the result; nil means 0
	// elements added at the end of the result, fewer than stride or dilation; nil means 0
	OutputPadding []int
	Dilation      []int // distance between the elements of a window; nil means 1
	Groups        int   // number of groups that the channels are divided into; 0 means 1
}

// Conv1d returns the convolution, or rather cross-correlation, of x with weight:
//
//	y[n, o, l] = bias[o] +
//		Σ x[n, c, l·stride + k·dilation - padding] · weight[o, c, k], summed over c and k
//
// x is [n, channels, length], or [channels, length] without a batch. weight is [outputs,
// channels/groups, kernel]. bias is [outputs] or nil. The result's length is (length + 2·padding -
// dilation·(kernel-1) - 1)/stride + 1. With groups, each output uses only the channels of its own
// group. All operands have one type. 16-bit floats accumulate in float32 and are rounded once,
// integers wrap, bool is refused. To pad with other values than zeros call [Tensor.PadReflect],
// [Tensor.PadReplicate] or [Tensor.PadCircular] first. Padding takes part in the products, so an
// infinite weight times a zero of the padding gives NaN.
func (x *Tensor) Conv1d(weight, bias *Tensor, o ConvOptions) *Tensor {
	return x.conv("conv1d", 1, weight, bias, o)
}

// Conv2d is [Tensor.Conv1d] in two dimensions: x is [n, channels, height, width] or [channels,
// height, width], and weight is [outputs, channels/groups, kernel height, kernel width].
func (x *Tensor) Conv2d(weight, bias *Tensor, o ConvOptions) *Tensor {
	return x.conv("conv2d", 2, weight, bias, o)
}

// Conv3d is [Tensor.Conv1d] in three dimensions: x is [n, channels, depth, height, width] or the
// same without n. weight is [outputs, channels/groups, kernel depth, kernel height, kernel width].
func (x *Tensor) Conv3d(weight, bias *Tensor, o ConvOptions) *Tensor {
	return x.conv("conv3d", 3, weight, bias, o)
}

// ConvTranspose1d returns the transposed convolution of x with weight. It is the function that
// computes the gradient of a convolution's input:
//
//	y[n, o, l·stride + k·dilation - padding] += x[n, c, l] · weight[c, o, k]
//
// x is [n, channels, length], or [channels, length] without a batch. weight is [channels,
// outputs/groups, kernel]. bias is [outputs] or nil. The result's length is (length-1)·stride -
// 2·padding + dilation·(kernel-1) + output padding + 1. Types are as for [Tensor.Conv1d]. Of the
// integers torch supports only int64 here.
func (x *Tensor) ConvTranspose1d(weight, bias *Tensor, o ConvTransposeOptions) *Tensor {
	return x.convTranspose("conv_transpose1d", 1, weight, bias, o)
}

// ConvTranspose2d is [Tensor.ConvTranspose1d] in two dimensions: x is [n, channels, height, width]
// or the same without n. weight is [channels, outputs/groups, kernel height, kernel width].
func (x *Tensor) ConvTranspose2d(weight, bias *Tensor, o ConvTransposeOptions) *Tensor {
	return x.convTranspose("conv_transpose2d", 2, weight, bias, o)
}

// ConvTranspose3d is [Tensor.ConvTranspose1d] in three dimensions: x is [n, channels, depth,
// height, width] or the same without n. weight is [channels, outputs/groups, kernel depth, kernel
// height, kernel width].
func (x *Tensor) ConvTranspose3d(weight, bias *Tensor, o ConvTransposeOptions) *Tensor {
	return x.convTranspose("conv_transpose3d", 3, weight, bias, o)
}

func (x *Tensor) conv(op string, rank int, weight, bias *Tensor, o ConvOptions) *Tensor {
	if y := underAutocast(op, AutocastLow, func(in []*Tensor) *Tensor { return in[0].conv(op, rank, in[1], in[2], o) }, x, weight, bias); y != nil {
		return y
	}
	in := checkConv(op, rank, x, weight, bias)
	v := convolution{op: op, groups: groupsOf(op, in, o.Groups), outputs: weight.Dim(0)}
	v.rank = rank
	v.channels = weight.Dim(1) * v.groups
	if v.outputs%v.groups != 0 {
		fail(op, ErrShape, in, "%d outputs cannot be divided into %d groups", v.outputs, v.groups)
	}
	checkChannels(op, rank, in, v.channels, fmt.Sprintf("%d in each of %d groups", weight.Dim(1), v.groups))
	checkBias(op, in, bias, v.outputs)
	v.stride = sizesFor(op, in, "stride", rank, o.Stride, 1, 1)
	v.dilation = sizesFor(op, in, "dilation", rank, o.Dilation, 1, 1)
	v.before = sizesFor(op, in, "padding", rank, o.Padding, 0, 0)
	v.behind = v.before
	if o.Same && len(o.Padding) > 0 {
		fail(op, ErrValue, in, "both padding %v and Same are given", o.Padding)
	}
	for i := range rank {
		v.in[i], v.kernel[i] = x.Dim(i-rank), weight.Dim(2+i)
		if v.kernel[i] < 1 {
			fail(op, ErrShape, in, "the kernel %v is empty", weight.layout.Shape.Tail(2))
		}
		if o.Same {
			if v.stride[i] != 1 {
				fail(op, ErrValue, in, "padding to the same size needs a stride of 1, it is %v", o.Stride)
			}
			v.before[i] = (v.span(i) - 1) / 2
			v.behind[i] = v.span(i) - 1 - v.before[i]
		}
		if v.span(i) > v.wide(i) {
			e := newError(op, ErrShape, in, fmt.Sprintf("a window of %d (kernel %d, dilation %d) is larger than the input of %d with padding in dimension %d: %d",
				v.span(i), v.kernel[i], v.dilation[i], v.in[i], i-rank, v.wide(i)))
			panic(e.hint("pad more, or use a smaller kernel"))
		}
		v.out[i] = (v.wide(i)-v.span(i))/v.stride[i] + 1
	}
	return batchedConv(x, rank, func(x *Tensor) *Tensor { return Apply(&convFunc{v}, operands(x, weight, bias)...) })
}

func (x *Tensor) convTranspose(op string, rank int, weight, bias *Tensor, o ConvTransposeOptions) *Tensor {
	if y := underAutocast(op, AutocastLow, func(in []*Tensor) *Tensor { return in[0].convTranspose(op, rank, in[1], in[2], o) }, x, weight, bias); y != nil {
		return y
	}
	in := checkConv(op, rank, x, weight, bias)
	// This op computes the gradient of the input of the convolution v. So the input of v has the
	// shape of this op's result, and the result of v has the shape of x.
	v := convolution{op: op, groups: groupsOf(op, in, o.Groups), outputs: weight.Dim(0)}
	v.rank = rank
	v.channels = weight.Dim(1) * v.groups
	if v.outputs%v.groups != 0 {
		fail(op, ErrShape, in, "%d channels cannot be divided into %d groups", v.outputs, v.groups)
	}
	checkChannels(op, rank, in, v.outputs, "its first dimension")
	checkBias(op, in, bias, v.channels)
	v.stride = sizesFor(op, in, "stride", rank, o.Stride, 1, 1)
	v.dilation = sizesFor(op, in, "dilation", rank, o.Dilation, 1, 1)
	v.before = sizesFor(op, in, "padding", rank, o.Padding, 0, 0)
	v.behind = v.before
	more := sizesFor(op, in, "output padding", rank, o.OutputPadding, 0, 0)
	for i := range rank {
		v.out[i], v.kernel[i] = x.Dim(i-rank), weight.Dim(2+i)
		if v.kernel[i] < 1 || v.out[i] < 1 {
			fail(op, ErrShape, in, "the kernel %v or the input is empty", weight.layout.Shape.Tail(2))
		}
		if more[i] >= max(v.stride[i], v.dilation[i]) {
			fail(op, ErrValue, in, "an output padding of %d is not less than the stride, %d, or the dilation, %d", more[i], v.stride[i], v.dilation[i])
		}
		v.in[i] = (v.out[i]-1)*v.stride[i] + v.span(i) + more[i] - 2*v.before[i]
		if v.in[i] < 1 {
			fail(op, ErrShape, in, "a padding of %d cuts off all of dimension %d of the result: its size would be %d", v.before[i], i-rank, v.in[i])
		}
	}
	return batchedConv(x, rank, func(x *Tensor) *Tensor { return Apply(&convDataFunc{v}, operands(x, weight, bias)...) })
}

func checkConv(op string, rank int, x, weight, bias *Tensor) []*Tensor {
	in := []*Tensor{x, weight}
	youngest(op, in)
	if bias != nil {
		in = append(in, bias)
		youngest(op, in)
	}
	sameDevice(op, in)
	if x.Rank() != rank+1 && x.Rank() != rank+2 || weight.Rank() != rank+2 {
		fail(op, ErrShape, in, "needs an input of %d dimensions, or %d without a batch, and a weight of %d; shapes are %s", rank+2, rank+1, rank+2, shapes(in))
	}
	for _, t := range in {
		if t.dtype != x.dtype {
			e := newError(op, ErrType, in, fmt.Sprintf("operands are %v and %v", x.dtype, t.dtype))
			panic(e.hint("Cast one of them"))
		}
	}
	if x.dtype == dtype.Bool {
		fail(op, ErrType, in, "is not defined for bool")
	}
	return in
}

func groupsOf(op string, in []*Tensor, groups int) int {
	if groups < 0 {
		fail(op, ErrValue, in, "%d groups", groups)
	}
	return max(1, groups)
}

func checkChannels(op string, rank int, in []*Tensor, want int, how string) {
	x := in[0]
	if have := x.Dim(-rank - 1); have != want {
		e := newError(op, ErrShape, in, fmt.Sprintf("the input has %d channels, the weight is for %d (%s)", have, want, how))
		if x.Dim(-1) == want {
			last := []string{"0, 2, 1", "0, 3, 1, 2", "0, 4, 1, 2, 3"}
			if x.Rank() == rank+1 {
				last = []string{"1, 0", "2, 0, 1", "3, 0, 1, 2"}
			}
			e.hint("channels come before the spatial dimensions: use Permute(%s)", last[rank-1])
		}
		panic(e)
	}
}

func checkBias(op string, in []*Tensor, bias *Tensor, outputs int) {
	if bias != nil && bias.layout.Shape != shape.Of(outputs) {
		fail(op, ErrShape, in, "the bias has shape %v, there are %d outputs", bias.Shape(), outputs)
	}
}

func operands(x, weight, bias *Tensor) []*Tensor {
	if bias == nil {
		return []*Tensor{x, weight}
	}
	return []*Tensor{x, weight, bias}
}

// batchedConv runs f on x. If x has no batch, f receives a batch of one sample.
func batchedConv(x *Tensor, rank int, f func(x *Tensor) *Tensor) *Tensor {
	if x.Rank() == rank+2 {
		return f(x)
	}
	y := f(x.Unsqueeze(0))
	defer y.Free() // the view keeps y's memory
	return y.Squeeze(0)
}
