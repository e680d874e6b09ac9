package nn

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// An Option changes how a layer is made. The doc comment of each constructor lists its options. Any
// other option panics with an *[Error] that names the layer and the option. [In], [Typed] and
// [SkipInit] work with every layer that has parameters. If an option occurs twice, the last
// occurrence counts.
type Option struct {
	name  string
	apply func(*layerOptions)
}

// Sizes is the type of an argument for the sizes of a window. A number, such as 3, is the size
// for all dimensions. A slice, such as []int{3, 5}, has a size for each dimension. For a norm,
// the argument is the shape over which it normalises, and a number is the size of the last
// dimension alone.
type Sizes interface{ int | []int }

func sizes[S Sizes](s S) []int {
	if n, ok := any(s).(int); ok {
		return []int{n}
	}
	return slices.Clone(any(s).([]int))
}

type layerOptions struct {
	layer    string // the layer's type, for errors
	scope    *tensor.Scope
	dev      device.Device // nil means the scope's device
	t        dtype.Type
	noBias   bool
	noAffine bool
	stats    bool
	row      *int // index of the row for padding, nil for none

	stride, padding, dilation, outputPadding []int

	groups, divisor                int
	same, ceilMode, excludePadding bool
	bare                           bool // set by SkipInit: parameters have no memory

	paddingMode string
	outputSize  []int
	outputRatio []float64
	div         float64
	headBias    bool
}

// These are the names of the options that each kind of layer accepts.
var (
	placing     = []string{"In", "Typed", "SkipInit"}
	biased      = []string{"NoBias"}
	channelwise = []string{"NoBias", "NoAffine", "Affine", "NoStats", "Stats"}
	convolution = []string{"Stride", "Padding", "SamePadding", "PaddingMode", "Dilation", "Groups", "NoBias"}
	transposed  = []string{"Stride", "Padding", "OutputPadding", "Dilation", "Groups", "NoBias"}
	maximum     = []string{"Stride", "Padding", "Dilation", "CeilMode"}
	average     = []string{"Stride", "Padding", "CeilMode", "ExcludePadding", "Divisor"}
	power       = []string{"Stride", "CeilMode"}
	sliding     = []string{"Stride", "Padding", "Dilation"}
	lookup      = []string{"PaddingIndex"}
	fractional  = []string{"OutputSize", "OutputRatio"}
	adaptive    = []string{"DivValue", "HeadBias"}
)

// options applies opts for a layer with parameters. The layer accepts the options named in takes,
// and also [In], [Typed] and [SkipInit].
func options(layer string, opts []Option, takes ...string) layerOptions {
	return accept(layer, opts, slices.Concat(takes, placing))
}

// accept applies opts for a layer that accepts exactly the options named in takes.
func accept(layer string, opts []Option, takes []string) layerOptions {
	o := layerOptions{layer: layer, scope: tensor.Root(), t: dtype.F32}
	for _, opt := range opts {
		switch {
		case opt.apply == nil:
			panic(wrong(layer, "an Option{} says nothing; options come from functions such as nn.NoBias()"))
		case !slices.Contains(takes, opt.name):
			panic(wrong(layer, "the option "+opt.name+" means nothing to this layer, which takes "+strings.Join(takes, ", ")))
		}
		opt.apply(&o)
	}
	return o
}

// NoBias makes a layer without a bias.
func NoBias() Option { return Option{"NoBias", func(o *layerOptions) { o.noBias = true }} }

// In makes a layer's parameters in scope s instead of the root scope. The parameters are on the
// scope's device, and the scope's generator draws their values.
func In(s *tensor.Scope) Option {
	return Option{"In", func(o *layerOptions) {
		if s == nil {
			panic(wrong(o.layer, "the scope of In is nil; tensor.Root() is the one without an end"))
		}
		o.scope = s
	}}
}

// Typed makes a layer's parameters with the floating point type t instead of float32.
func Typed(t dtype.Type) Option { return Option{"Typed", func(o *layerOptions) { o.t = t }} }

// SkipInit makes a layer's parameters without memory and without values. Use it for a model whose
// weights will be loaded. It is torch's nn.utils.skip_init, or torch's device "meta".
// [LoadStateDict] gives each parameter its memory. Until then every use of a parameter's values
// raises [tensor.ErrDevice] or [device.ErrNoValues]. Buffers are made as usual, and no random
// number is drawn.
func SkipInit() Option { return Option{"SkipInit", func(o *layerOptions) { o.bare = true }} }

// noMemory returns the device that holds parameters without memory.
var noMemory = sync.OnceValues(func() (device.Device, error) {
	return device.OpenMeta("cpu", device.MetaConfig{})
})

// buffers returns the maker of a layer's buffers, with the right device.
func (o *layerOptions) buffers() tensor.Maker {
	if o.dev != nil {
		return o.scope.On(o.dev).Typed(o.t)
	}
	return o.scope.Typed(o.t)
}

// parameters returns the maker of a layer's parameters, with the right device and type.
func (o *layerOptions) parameters() tensor.Maker {
	m := o.buffers()
	if o.bare && o.dev == nil {
		d, err := noMemory()
		if err != nil {
			// This cannot happen: the CPU's driver is linked in and supports devices without
			// memory.
			panic(err)
		}
		m = m.On(d)
	}
	return m
}

// forInner returns the options that a layer passes to the constructors of its inner layers: the
// scope, the type and SkipInit.
func (o *layerOptions) forInner() []Option {
	opts := []Option{In(o.scope), Typed(o.t)}
	if o.bare {
		opts = append(opts, SkipInit())
	}
	return opts
}

// NoAffine makes a normalisation without weight and bias: torch's elementwise_affine=False.
func NoAffine() Option { return Option{"NoAffine", func(o *layerOptions) { o.noAffine = true }} }

// Affine makes an instance normalisation with weight and bias.
func Affine() Option { return Option{"Affine", func(o *layerOptions) { o.noAffine = false }} }

// NoStats makes a normalisation without running statistics: torch's track_running_stats=False. Such
// a layer uses the statistics of its input in evaluation too.
func NoStats() Option { return Option{"NoStats", func(o *layerOptions) { o.stats = false }} }

// Stats makes an instance normalisation with running statistics: torch's track_running_stats=True.
func Stats() Option { return Option{"Stats", func(o *layerOptions) { o.stats = true }} }

// PaddingIndex makes row i of an embedding the padding. The row starts as zeros, gets no gradient,
// and is ignored in bags. A negative i counts from the end.
func PaddingIndex(i int) Option {
	return Option{"PaddingIndex", func(o *layerOptions) { o.row = &i }}
}

// Stride sets the distance between the windows of a convolution, a pool or [NewUnfold]. It is one
// distance for all dimensions, or a distance for each. The default for a pool is the size of its
// window. For a convolution and for NewUnfold the default is 1.
func Stride(distance ...int) Option {
	return Option{"Stride", func(o *layerOptions) { o.stride = slices.Clone(distance) }}
}

// Padding adds this number of zeros on both sides of the input of a convolution, an average pool or
// [NewUnfold]. It is one number for all dimensions, or a number for each. A maximum pool adds
// elements that are never the maximum. A transposed convolution cuts this number of elements off
// both sides of its result.
func Padding(size ...int) Option {
	return Option{"Padding", func(o *layerOptions) { o.padding = slices.Clone(size) }}
}

// SamePadding pads the input of a convolution with stride 1 so that the result is as large as the
// input: torch's padding="same". If the total padding is odd, the extra element is at the end.
func SamePadding() Option { return Option{"SamePadding", func(o *layerOptions) { o.same = true }} }

// PaddingMode selects the elements with which a convolution pads its input. The mode "zeros" pads
// with zeros. The modes "reflect", "replicate" and "circular" pad with elements of the input, as
// [tensor.Tensor.PadReflect], PadReplicate and PadCircular do.
func PaddingMode(mode string) Option {
	return Option{"PaddingMode", func(o *layerOptions) {
		if !slices.Contains(paddingModes, mode) {
			panic(wrong(o.layer, fmt.Sprintf("there is no PaddingMode %q; there are %s", mode, strings.Join(paddingModes, ", "))))
		}
		if o.paddingMode = mode; mode == "zeros" {
			o.paddingMode = ""
		}
	}}
}

var paddingModes = []string{"zeros", "reflect", "replicate", "circular"}

// OutputPadding sets how many elements a transposed convolution appends to its result in each
// dimension. This number must be less than the stride or the dilation.
func OutputPadding(size ...int) Option {
	return Option{"OutputPadding", func(o *layerOptions) { o.outputPadding = slices.Clone(size) }}
}

// Dilation sets the distance between the elements of the window of a convolution or a pool. It is
// one distance for all dimensions, or a distance for each.
func Dilation(distance ...int) Option {
	return Option{"Dilation", func(o *layerOptions) { o.dilation = slices.Clone(distance) }}
}

// Groups divides the channels of a convolution into n groups. The outputs of a group depend only on
// the inputs of that group.
func Groups(n int) Option {
	return Option{"Groups", func(o *layerOptions) {
		if n < 1 {
			panic(wrong(o.layer, "the number of Groups is not positive"))
		}
		o.groups = n
	}}
}

// CeilMode lets the windows of a pool extend beyond the end of the input, if they begin in the
// input or in the padding before it: torch's ceil_mode=True.
func CeilMode() Option { return Option{"CeilMode", func(o *layerOptions) { o.ceilMode = true }} }

// ExcludePadding makes an average pool average over elements of the input only: torch's
// count_include_pad=False.
func ExcludePadding() Option {
	return Option{"ExcludePadding", func(o *layerOptions) { o.excludePadding = true }}
}

// Divisor makes an average pool divide the sum of every window by n, however many elements the
// window has: torch's divisor_override.
func Divisor(n int) Option {
	return Option{"Divisor", func(o *layerOptions) {
		if n == 0 {
			panic(wrong(o.layer, "the Divisor is 0"))
		}
		o.divisor = n
	}}
}

// OutputSize sets the size of a fractional pool's result. It is one size for all dimensions, or a
// size for each.
func OutputSize(size ...int) Option {
	return Option{"OutputSize", func(o *layerOptions) { o.outputSize = slices.Clone(size) }}
}

// OutputRatio sets the size of a fractional pool's result as a fraction of the size of its input.
// It is one number between 0 and 1 for all dimensions, or a number for each.
func OutputRatio(ratio ...float64) Option {
	return Option{"OutputRatio", func(o *layerOptions) { o.outputRatio = slices.Clone(ratio) }}
}

// DivValue sets the factor v by which the number of features decreases from one cluster of an
// [AdaptiveLogSoftmaxWithLoss] to the next. The default is 4, as in torch.
func DivValue(v float64) Option { return Option{"DivValue", func(o *layerOptions) { o.div = v }} }

// HeadBias gives the head of an [AdaptiveLogSoftmaxWithLoss] a bias.
func HeadBias() Option { return Option{"HeadBias", func(o *layerOptions) { o.headBias = true }} }

func (o *layerOptions) convolution() tensor.ConvOptions {
	return tensor.ConvOptions{Stride: o.stride, Padding: o.padding, Dilation: o.dilation, Groups: o.groups, Same: o.same}
}

func (o *layerOptions) transposed() tensor.ConvTransposeOptions {
	return tensor.ConvTransposeOptions{
		Stride: o.stride, Padding: o.padding, OutputPadding: o.outputPadding, Dilation: o.dilation, Groups: o.groups,
	}
}

func maxPool[K Sizes](layer string, kernel K, opts []Option) tensor.MaxPoolOptions {
	o := accept(layer, opts, maximum)
	return tensor.MaxPoolOptions{Kernel: sizes(kernel), Stride: o.stride, Padding: o.padding, Dilation: o.dilation, CeilMode: o.ceilMode}
}

// avgPool returns the options of an average pool or an LP pool, which accepts the options named in
// takes.
func avgPool[K Sizes](layer string, kernel K, opts []Option, takes []string) tensor.AvgPoolOptions {
	o := accept(layer, opts, takes)
	return tensor.AvgPoolOptions{
		Kernel: sizes(kernel), Stride: o.stride, Padding: o.padding, CeilMode: o.ceilMode,
		ExcludePadding: o.excludePadding, Divisor: o.divisor,
	}
}

// fractionalPool returns the options of a fractional pool. Either OutputSize or OutputRatio must be
// among opts.
func fractionalPool[K Sizes](layer string, kernel K, opts []Option) tensor.FractionalPoolOptions {
	o := accept(layer, opts, fractional)
	if (len(o.outputSize) == 0) == (len(o.outputRatio) == 0) {
		panic(wrong(layer, "needs one of the options OutputSize and OutputRatio"))
	}
	return tensor.FractionalPoolOptions{Kernel: sizes(kernel), Size: o.outputSize, Ratio: o.outputRatio}
}

func windows[K Sizes](layer string, kernel K, opts []Option) tensor.FoldOptions {
	o := accept(layer, opts, sliding)
	return tensor.FoldOptions{Kernel: sizes(kernel), Stride: o.stride, Padding: o.padding, Dilation: o.dilation}
}
