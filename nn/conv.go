package nn

import (
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// filter makes a convolution's weight, uniform as torch's default, and its bias, uniform in ±1/√fan, where fan is the number of
// terms of a sum: the size of the weight's entries.
func filter(outputs int, dims []int, o layerOptions) (weight, bias *tensor.Tensor) {
	weight = o.parameters().Empty(dims...)
	initial.KaimingUniform(weight, initial.LeakyGain(2.23606797749979)) // a = √5
	weight.RequiresGrad()
	if !o.noBias {
		fan := 1
		for _, n := range dims[1:] {
			fan *= n
		}
		bias = o.parameters().Empty(outputs)
		initial.Uniform(bias, -initial.Bound(fan), initial.Bound(fan))
		bias.RequiresGrad()
	}
	return weight, bias
}

// dimensions returns two sizes, of which groups divides the second, and those of a kernel: one for all of rank, or one for each.
func dimensions(o layerOptions, first, second, rank int, kernel []int) []int {
	layer, groups := o.layer, max(1, o.groups)
	if first < 1 || second < 1 || first%groups != 0 || second%groups != 0 {
		panic(&Error{Path: layer, Msg: "the groups must divide the channels of input and output, which are positive"})
	}
	if len(kernel) != 1 && len(kernel) != rank {
		panic(&Error{Path: layer, Msg: "the kernel needs one size for all dimensions, or one for each"})
	}
	dims := []int{first, second / groups}
	for i := range rank {
		n := kernel[min(i, len(kernel)-1)]
		if n < 1 {
			panic(&Error{Path: layer, Msg: "a size of the kernel is not positive"})
		}
		dims = append(dims, n)
	}
	return dims
}

// Conv1d is a convolution over length; see [tensor.Tensor.Conv1d].
type Conv1d struct {
	Base
	Weight  *tensor.Tensor `nn:"weight"` // [out, in/groups, kernel]
	Bias    *tensor.Tensor `nn:"bias"`   // [out], nil for none
	Options tensor.ConvOptions
}

// NewConv1d returns a layer from in to out channels: see [NewConv2d].
func NewConv1d[K Sizes](in, out int, kernel K, opts ...Option) *Conv1d {
	o := options("Conv1d", opts, convolution...)
	l := &Conv1d{Options: o.convolution()}
	l.Weight, l.Bias = filter(out, dimensions(o, out, in, 1, sizes(kernel)), o)
	return l
}

// Forward maps x of shape [n, in, length], or without n.
func (l *Conv1d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.Conv1d(l.Weight, l.Bias, l.Options)
}

// Conv2d is a convolution over height and width; see [tensor.Tensor.Conv2d].
type Conv2d struct {
	Base
	Weight  *tensor.Tensor `nn:"weight"` // [out, in/groups, kernel height, kernel width]
	Bias    *tensor.Tensor `nn:"bias"`   // [out], nil for none
	Options tensor.ConvOptions
}

// NewConv2d returns a layer from in to out channels. Its kernel has one size for all dimensions, as in 3, or one for each, as in
// []int{3, 5}. Weight and bias are uniform in ±1/√(in/groups·size of the kernel), as torch's. It takes the options [Stride],
// [Padding], [SamePadding], [Dilation], [Groups], [NoBias], [In] and [Typed].
func NewConv2d[K Sizes](in, out int, kernel K, opts ...Option) *Conv2d {
	o := options("Conv2d", opts, convolution...)
	l := &Conv2d{Options: o.convolution()}
	l.Weight, l.Bias = filter(out, dimensions(o, out, in, 2, sizes(kernel)), o)
	return l
}

// Forward maps x of shape [n, in, height, width], or without n.
func (l *Conv2d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.Conv2d(l.Weight, l.Bias, l.Options)
}

// Conv3d is a convolution over depth, height and width; see [tensor.Tensor.Conv3d].
type Conv3d struct {
	Base
	Weight  *tensor.Tensor `nn:"weight"` // [out, in/groups, three sizes of the kernel]
	Bias    *tensor.Tensor `nn:"bias"`   // [out], nil for none
	Options tensor.ConvOptions
}

// NewConv3d returns a layer from in to out channels: see [NewConv2d].
func NewConv3d[K Sizes](in, out int, kernel K, opts ...Option) *Conv3d {
	o := options("Conv3d", opts, convolution...)
	l := &Conv3d{Options: o.convolution()}
	l.Weight, l.Bias = filter(out, dimensions(o, out, in, 3, sizes(kernel)), o)
	return l
}

// Forward maps x of shape [n, in, depth, height, width], or without n.
func (l *Conv3d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.Conv3d(l.Weight, l.Bias, l.Options)
}

// ConvTranspose1d is a transposed convolution over length; see [tensor.Tensor.ConvTranspose1d].
type ConvTranspose1d struct {
	Base
	Weight  *tensor.Tensor `nn:"weight"` // [in, out/groups, kernel]
	Bias    *tensor.Tensor `nn:"bias"`   // [out], nil for none
	Options tensor.ConvTransposeOptions
}

// NewConvTranspose1d returns a layer from in to out channels: see [NewConvTranspose2d].
func NewConvTranspose1d[K Sizes](in, out int, kernel K, opts ...Option) *ConvTranspose1d {
	o := options("ConvTranspose1d", opts, transposed...)
	l := &ConvTranspose1d{Options: o.transposed()}
	l.Weight, l.Bias = filter(out, dimensions(o, in, out, 1, sizes(kernel)), o)
	return l
}

// Forward maps x of shape [n, in, length], or without n.
func (l *ConvTranspose1d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.ConvTranspose1d(l.Weight, l.Bias, l.Options)
}

// ConvTranspose2d is a transposed convolution over height and width; see [tensor.Tensor.ConvTranspose2d].
type ConvTranspose2d struct {
	Base
	Weight  *tensor.Tensor `nn:"weight"` // [in, out/groups, kernel height, kernel width]
	Bias    *tensor.Tensor `nn:"bias"`   // [out], nil for none
	Options tensor.ConvTransposeOptions
}

// NewConvTranspose2d returns a layer from in to out channels. Its kernel has one size for all dimensions, or one for each. Weight
// and bias are uniform in ±1/√(out/groups·size of the kernel), as torch's. It takes the options [Stride], [Padding],
// [OutputPadding], [Dilation], [Groups], [NoBias], [In] and [Typed].
func NewConvTranspose2d[K Sizes](in, out int, kernel K, opts ...Option) *ConvTranspose2d {
	o := options("ConvTranspose2d", opts, transposed...)
	l := &ConvTranspose2d{Options: o.transposed()}
	l.Weight, l.Bias = filter(out, dimensions(o, in, out, 2, sizes(kernel)), o)
	return l
}

// Forward maps x of shape [n, in, height, width], or without n.
func (l *ConvTranspose2d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.ConvTranspose2d(l.Weight, l.Bias, l.Options)
}

// ConvTranspose3d is a transposed convolution over depth, height and width; see [tensor.Tensor.ConvTranspose3d].
type ConvTranspose3d struct {
	Base
	Weight  *tensor.Tensor `nn:"weight"` // [in, out/groups, three sizes of the kernel]
	Bias    *tensor.Tensor `nn:"bias"`   // [out], nil for none
	Options tensor.ConvTransposeOptions
}

// NewConvTranspose3d returns a layer from in to out channels: see [NewConvTranspose2d].
func NewConvTranspose3d[K Sizes](in, out int, kernel K, opts ...Option) *ConvTranspose3d {
	o := options("ConvTranspose3d", opts, transposed...)
	l := &ConvTranspose3d{Options: o.transposed()}
	l.Weight, l.Bias = filter(out, dimensions(o, in, out, 3, sizes(kernel)), o)
	return l
}

// Forward maps x of shape [n, in, depth, height, width], or without n.
func (l *ConvTranspose3d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.ConvTranspose3d(l.Weight, l.Bias, l.Options)
}
