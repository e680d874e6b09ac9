package nn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// filter returns the weight and bias of a convolution. The weight has torch's default
// distribution. The bias is uniform in ±1/√fan, where fan is the product of dims[1:]: the number
// of kernel elements times the channels of a group. These are the input channels of a convolution,
// and the output channels of a transposed convolution.
func filter(outputs int, dims []int, o layerOptions) (weight, bias *tensor.Tensor) {
	weight = o.parameters().Empty(dims...)
	initial.KaimingUniform(weight, initial.LeakyGain(2.23606797749979)) // torch uses a = √5
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

// dimensions returns the shape of a weight, [dim0, channels1/groups, kernel…]. kernel holds one
// size for all spatial dimensions, or one size for each.
func dimensions(o layerOptions, dim0, channels1, rank int, kernel []int) []int {
	layer, groups := o.layer, max(1, o.groups)
	if dim0 < 1 || channels1 < 1 || dim0%groups != 0 || channels1%groups != 0 {
		panic(wrong(layer, fmt.Sprintf("%d groups do not divide the channels of input and output, %d and %d, which are positive", groups, dim0, channels1)))
	}
	if len(kernel) != 1 && len(kernel) != rank {
		panic(wrong(layer, fmt.Sprintf("the kernel has %d sizes %v; it needs one for all %d dimensions, or one for each", len(kernel), kernel, rank)))
	}
	dims := []int{dim0, channels1 / groups}
	for i := range rank {
		n := kernel[min(i, len(kernel)-1)]
		if n < 1 {
			panic(wrong(layer, fmt.Sprintf("a size of the kernel %v is not positive", kernel)))
		}
		dims = append(dims, n)
	}
	return dims
}

// padded pads the input of a convolution in the given padding mode. It returns the padded input y,
// and o without the padding. In mode "zeros" the convolution itself pads, so padded returns x and o
// unchanged. Only the convolution may use y. The caller calls free after the convolution.
func padded(x, weight *tensor.Tensor, o tensor.ConvOptions, mode string, rank int) (y *tensor.Tensor, rest tensor.ConvOptions, free func()) {
	pad := map[string]func(*tensor.Tensor, ...int) *tensor.Tensor{
		"reflect": (*tensor.Tensor).PadReflect, "replicate": (*tensor.Tensor).PadReplicate, "circular": (*tensor.Tensor).PadCircular,
	}[mode]
	at := func(list []int, i, otherwise int) int {
		if len(list) == 0 {
			return otherwise
		}
		return list[min(i, len(list)-1)]
	}
	wrong := func(list []int) bool { return len(list) > 1 && len(list) != rank }
	switch {
	case mode == "" || mode == "zeros":
		return x, o, nothing
	case pad == nil:
		misuse("conv", tensor.ErrValue, fmt.Sprintf("there is no PaddingMode %q; there are %s", mode, strings.Join(paddingModes, ", ")), x)
	case x == nil || weight == nil || weight.Rank() != rank+2 || wrong(o.Padding) || wrong(o.Dilation) || o.Same && (len(o.Padding) > 0 || slices.ContainsFunc(o.Stride, func(n int) bool { return n != 1 })):
		return x, o, nothing // the convolution reports the error
	}
	var sizes []int // padding before and after the input for each dimension, the last dimension first
	all := 0
	for i := rank - 1; i >= 0; i-- {
		before := at(o.Padding, i, 0)
		behind := before
		if o.Same {
			all := at(o.Dilation, i, 1) * (weight.Dim(2+i) - 1)
			before, behind = all/2, all-all/2
		}
		sizes, all = append(sizes, before, behind), all+before+behind
	}
	if o.Padding, o.Same = nil, false; all == 0 {
		return x, o, nothing
	}
	y = pad(x, sizes...)
	return y, o, y.Free
}

// Conv1d is a convolution over length; see [tensor.Tensor.Conv1d].
type Conv1d struct {
	Base
	Weight  *tensor.Tensor `nn:"weight"` // [out, in/groups, kernel]
	Bias    *tensor.Tensor `nn:"bias"`   // [out], nil for none
	Options tensor.ConvOptions

	PaddingMode string // "" means zeros; the option PaddingMode lists the modes

	lazy *lazy
}

// NewConv1d returns a layer with the given numbers of input and output channels. It has the options
// and initial values of [NewConv2d].
func NewConv1d[K Sizes](in, out int, kernel K, opts ...Option) *Conv1d {
	o := options("Conv1d", opts, convolution...)
	l := &Conv1d{Options: o.convolution(), PaddingMode: o.paddingMode}
	l.fill(in, &lazy{o: o, out: out, kernel: sizes(kernel)})
	return l
}

// NewLazyConv1d returns a layer with the given number of output channels. Its first input
// determines the number of input channels: see [NewLazyLinear]. NewLazyConv1d accepts the options
// of [NewConv1d].
func NewLazyConv1d[K Sizes](out int, kernel K, opts ...Option) *Conv1d {
	o := options("LazyConv1d", opts, convolution...)
	return &Conv1d{Options: o.convolution(), PaddingMode: o.paddingMode, lazy: &lazy{o: o, out: out, kernel: sizes(kernel)}}
}

func (l *Conv1d) waiting() **lazy { return &l.lazy }

func (l *Conv1d) empty() { l.Weight, l.Bias = nil, nil }

func (l *Conv1d) inputsOf(z *lazy) (names []string, dim, by int) {
	return []string{"weight"}, 1, max(1, z.o.groups)
}

func (l *Conv1d) fill(in int, z *lazy) {
	l.Weight, l.Bias = filter(z.out, dimensions(z.o, z.out, in, 1, z.kernel), z.o)
}

// Forward convolves x of shape [n, in, length], or [in, length].
func (l *Conv1d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	readyAt(l, x, 1)
	x, o, free := padded(x, l.Weight, l.Options, l.PaddingMode, 1)
	defer free()
	return x.Conv1d(l.Weight, l.Bias, o)
}

// Conv2d is a convolution over height and width; see [tensor.Tensor.Conv2d].
type Conv2d struct {
	Base
	Weight  *tensor.Tensor `nn:"weight"` // [out, in/groups, kernel height, kernel width]
	Bias    *tensor.Tensor `nn:"bias"`   // [out], nil for none
	Options tensor.ConvOptions

	PaddingMode string // "" means zeros; the option PaddingMode lists the modes

	lazy *lazy
}

// NewConv2d returns a layer with the given numbers of input and output channels. The kernel is a
// size for all dimensions, such as 3, or one size for each, such as []int{3, 5}. As in torch,
// weight and bias are uniform in ±1/√fan, where fan is the number of kernel elements times
// in/groups. NewConv2d accepts the options [Stride], [Padding], [SamePadding], [PaddingMode],
// [Dilation], [Groups], [NoBias], [In] and [Typed].
func NewConv2d[K Sizes](in, out int, kernel K, opts ...Option) *Conv2d {
	o := options("Conv2d", opts, convolution...)
	l := &Conv2d{Options: o.convolution(), PaddingMode: o.paddingMode}
	l.fill(in, &lazy{o: o, out: out, kernel: sizes(kernel)})
	return l
}

// NewLazyConv2d returns a layer with the given number of output channels. Its first input
// determines the number of input channels: see [NewLazyLinear]. NewLazyConv2d accepts the options
// of [NewConv2d].
func NewLazyConv2d[K Sizes](out int, kernel K, opts ...Option) *Conv2d {
	o := options("LazyConv2d", opts, convolution...)
	return &Conv2d{Options: o.convolution(), PaddingMode: o.paddingMode, lazy: &lazy{o: o, out: out, kernel: sizes(kernel)}}
}

func (l *Conv2d) waiting() **lazy { return &l.lazy }

func (l *Conv2d) empty() { l.Weight, l.Bias = nil, nil }

func (l *Conv2d) inputsOf(z *lazy) (names []string, dim, by int) {
	return []string{"weight"}, 1, max(1, z.o.groups)
}

func (l *Conv2d) fill(in int, z *lazy) {
	l.Weight, l.Bias = filter(z.out, dimensions(z.o, z.out, in, 2, z.kernel), z.o)
}

// Forward convolves x of shape [n, in, height, width], or [in, height, width].
func (l *Conv2d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	readyAt(l, x, 2)
	x, o, free := padded(x, l.Weight, l.Options, l.PaddingMode, 2)
	defer free()
	return x.Conv2d(l.Weight, l.Bias, o)
}

// Conv3d is a convolution over depth, height and width; see [tensor.Tensor.Conv3d].
type Conv3d struct {
	Base
	Weight  *tensor.Tensor `nn:"weight"` // [out, in/groups, kernel depth, kernel height, kernel width]
	Bias    *tensor.Tensor `nn:"bias"`   // [out], nil for none
	Options tensor.ConvOptions

	PaddingMode string // "" means zeros; the option PaddingMode lists the modes

	lazy *lazy
}

// NewConv3d returns a layer with the given numbers of input and output channels. It has the options
// and initial values of [NewConv2d].
func NewConv3d[K Sizes](in, out int, kernel K, opts ...Option) *Conv3d {
	o := options("Conv3d", opts, convolution...)
	l := &Conv3d{Options: o.convolution(), PaddingMode: o.paddingMode}
	l.fill(in, &lazy{o: o, out: out, kernel: sizes(kernel)})
	return l
}

// NewLazyConv3d returns a layer with the given number of output channels. Its first input
// determines the number of input channels: see [NewLazyLinear]. NewLazyConv3d accepts the options
// of [NewConv3d].
func NewLazyConv3d[K Sizes](out int, kernel K, opts ...Option) *Conv3d {
	o := options("LazyConv3d", opts, convolution...)
	return &Conv3d{Options: o.convolution(), PaddingMode: o.paddingMode, lazy: &lazy{o: o, out: out, kernel: sizes(kernel)}}
}

func (l *Conv3d) waiting() **lazy { return &l.lazy }

func (l *Conv3d) empty() { l.Weight, l.Bias = nil, nil }

func (l *Conv3d) inputsOf(z *lazy) (names []string, dim, by int) {
	return []string{"weight"}, 1, max(1, z.o.groups)
}

func (l *Conv3d) fill(in int, z *lazy) {
	l.Weight, l.Bias = filter(z.out, dimensions(z.o, z.out, in, 3, z.kernel), z.o)
}

// Forward convolves x of shape [n, in, depth, height, width], or [in, depth, height, width].
func (l *Conv3d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	readyAt(l, x, 3)
	x, o, free := padded(x, l.Weight, l.Options, l.PaddingMode, 3)
	defer free()
	return x.Conv3d(l.Weight, l.Bias, o)
}

// ConvTranspose1d is a transposed convolution over length; see [tensor.Tensor.ConvTranspose1d].
type ConvTranspose1d struct {
	Base
	Weight  *tensor.Tensor `nn:"weight"` // [in, out/groups, kernel]
	Bias    *tensor.Tensor `nn:"bias"`   // [out], nil for none
	Options tensor.ConvTransposeOptions

	lazy *lazy
}

// NewConvTranspose1d returns a layer with the given numbers of input and output channels. It has
// the options and initial values of [NewConvTranspose2d].
func NewConvTranspose1d[K Sizes](in, out int, kernel K, opts ...Option) *ConvTranspose1d {
	o := options("ConvTranspose1d", opts, transposed...)
	l := &ConvTranspose1d{Options: o.transposed()}
	l.fill(in, &lazy{o: o, out: out, kernel: sizes(kernel)})
	return l
}

// NewLazyConvTranspose1d returns a layer with the given number of output channels. Its first input
// determines the number of input channels: see [NewLazyLinear]. NewLazyConvTranspose1d accepts the
// options of [NewConvTranspose1d].
func NewLazyConvTranspose1d[K Sizes](out int, kernel K, opts ...Option) *ConvTranspose1d {
	o := options("LazyConvTranspose1d", opts, transposed...)
	return &ConvTranspose1d{Options: o.transposed(), lazy: &lazy{o: o, out: out, kernel: sizes(kernel)}}
}

func (l *ConvTranspose1d) waiting() **lazy { return &l.lazy }

func (l *ConvTranspose1d) empty() { l.Weight, l.Bias = nil, nil }

func (l *ConvTranspose1d) inputsOf(z *lazy) (names []string, dim, by int) {
	return []string{"weight"}, 0, 1
}

func (l *ConvTranspose1d) fill(in int, z *lazy) {
	l.Weight, l.Bias = filter(z.out, dimensions(z.o, in, z.out, 1, z.kernel), z.o)
}

// Forward applies the layer to x of shape [n, in, length], or [in, length].
func (l *ConvTranspose1d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	readyAt(l, x, 1)
	return x.ConvTranspose1d(l.Weight, l.Bias, l.Options)
}

// ConvTranspose2d is a transposed convolution over height and width; see
// [tensor.Tensor.ConvTranspose2d].
type ConvTranspose2d struct {
	Base
	Weight  *tensor.Tensor `nn:"weight"` // [in, out/groups, kernel height, kernel width]
	Bias    *tensor.Tensor `nn:"bias"`   // [out], nil for none
	Options tensor.ConvTransposeOptions

	lazy *lazy
}

// NewConvTranspose2d returns a layer with the given numbers of input and output channels. The
// kernel is one size for all dimensions, or a size for each dimension. As in torch, weight and bias
// are uniform in ±1/√fan, where fan is the number of kernel elements times out/groups.
// NewConvTranspose2d accepts the options [Stride], [Padding], [OutputPadding], [Dilation],
// [Groups], [NoBias], [In] and [Typed].
func NewConvTranspose2d[K Sizes](in, out int, kernel K, opts ...Option) *ConvTranspose2d {
	o := options("ConvTranspose2d", opts, transposed...)
	l := &ConvTranspose2d{Options: o.transposed()}
	l.fill(in, &lazy{o: o, out: out, kernel: sizes(kernel)})
	return l
}

// NewLazyConvTranspose2d returns a layer with the given number of output channels. Its first input
// determines the number of input channels: see [NewLazyLinear]. NewLazyConvTranspose2d accepts the
// options of [NewConvTranspose2d].
func NewLazyConvTranspose2d[K Sizes](out int, kernel K, opts ...Option) *ConvTranspose2d {
	o := options("LazyConvTranspose2d", opts, transposed...)
	return &ConvTranspose2d{Options: o.transposed(), lazy: &lazy{o: o, out: out, kernel: sizes(kernel)}}
}

func (l *ConvTranspose2d) waiting() **lazy { return &l.lazy }

func (l *ConvTranspose2d) empty() { l.Weight, l.Bias = nil, nil }

func (l *ConvTranspose2d) inputsOf(z *lazy) (names []string, dim, by int) {
	return []string{"weight"}, 0, 1
}

func (l *ConvTranspose2d) fill(in int, z *lazy) {
	l.Weight, l.Bias = filter(z.out, dimensions(z.o, in, z.out, 2, z.kernel), z.o)
}

// Forward applies the layer to x of shape [n, in, height, width], or [in, height, width].
func (l *ConvTranspose2d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	readyAt(l, x, 2)
	return x.ConvTranspose2d(l.Weight, l.Bias, l.Options)
}

// ConvTranspose3d is a transposed convolution over depth, height and width; see
// [tensor.Tensor.ConvTranspose3d].
type ConvTranspose3d struct {
	Base
	Weight  *tensor.Tensor `nn:"weight"` // [in, out/groups, kernel depth, kernel height, kernel width]
	Bias    *tensor.Tensor `nn:"bias"`   // [out], nil for none
	Options tensor.ConvTransposeOptions

	lazy *lazy
}

// NewConvTranspose3d returns a layer with the given numbers of input and output channels. It has
// the options and initial values of [NewConvTranspose2d].
func NewConvTranspose3d[K Sizes](in, out int, kernel K, opts ...Option) *ConvTranspose3d {
	o := options("ConvTranspose3d", opts, transposed...)
	l := &ConvTranspose3d{Options: o.transposed()}
	l.fill(in, &lazy{o: o, out: out, kernel: sizes(kernel)})
	return l
}

// NewLazyConvTranspose3d returns a layer with the given number of output channels. Its first input
// determines the number of input channels: see [NewLazyLinear]. NewLazyConvTranspose3d accepts the
// options of [NewConvTranspose3d].
func NewLazyConvTranspose3d[K Sizes](out int, kernel K, opts ...Option) *ConvTranspose3d {
	o := options("LazyConvTranspose3d", opts, transposed...)
	return &ConvTranspose3d{Options: o.transposed(), lazy: &lazy{o: o, out: out, kernel: sizes(kernel)}}
}

func (l *ConvTranspose3d) waiting() **lazy { return &l.lazy }

func (l *ConvTranspose3d) empty() { l.Weight, l.Bias = nil, nil }

func (l *ConvTranspose3d) inputsOf(z *lazy) (names []string, dim, by int) {
	return []string{"weight"}, 0, 1
}

func (l *ConvTranspose3d) fill(in int, z *lazy) {
	l.Weight, l.Bias = filter(z.out, dimensions(z.o, in, z.out, 3, z.kernel), z.o)
}

// Forward applies the layer to x of shape [n, in, depth, height, width], or [in, depth, height,
// width].
func (l *ConvTranspose3d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	readyAt(l, x, 3)
	return x.ConvTranspose3d(l.Weight, l.Bias, l.Options)
}
