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

// An Option changes how a layer is made. Each constructor says which options it takes; another one
// is an *[Error] that names the layer and the option. [In], [Typed] and [SkipInit] go with every
// layer that has parameters. Of an option that is given twice, the last counts.
type Option struct {
	name  string
	apply func(*layerOptions)
}

// Sizes are those of a window: one size for all its dimensions, as in 3, or one for each, as in
// []int{3, 5}.
type Sizes interface{ int | []int }

// sizes returns a slice of its own.
func sizes[S Sizes](s S) []int {
	if n, ok := any(s).(int); ok {
		return []int{n}
	}
	return slices.Clone(any(s).([]int))
}

type layerOptions struct {
	layer    string // that is made
	scope    *tensor.Scope
	dev      device.Device // nil: the scope's
	t        dtype.Type
	noBias   bool
	noAffine bool
	stats    bool
	row      *int // that fills up sequences

	stride, padding, dilation, outputPadding []int

	groups, divisor                int
	same, ceilMode, excludePadding bool
	bare                           bool // parameters have no memory

	paddingMode string
	outputSize  []int
	outputRatio []float64
	div         float64
	headBias    bool
}

// The options that several kinds of layers take.
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

// options returns what opts say of a layer with parameters, which takes those of the given names
// beside [In], [Typed] and [SkipInit].
func options(layer string, opts []Option, takes ...string) layerOptions {
	return only(layer, opts, slices.Concat(takes, placing))
}

// only returns what opts say of a layer that takes those of the given names and no others.
func only(layer string, opts []Option, takes []string) layerOptions {
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

// NoBias leaves a layer's bias out.
func NoBias() Option { return Option{"NoBias", func(o *layerOptions) { o.noBias = true }} }

// In makes a layer's parameters in scope s instead of the root scope: on its device, from its
// generator.
func In(s *tensor.Scope) Option {
	return Option{"In", func(o *layerOptions) {
		if s == nil {
			panic(wrong(o.layer, "the scope of In is nil; tensor.Root() is the one without an end"))
		}
		o.scope = s
	}}
}

// Typed makes a layer's parameters of floating point type t instead of float32.
func Typed(t dtype.Type) Option { return Option{"Typed", func(o *layerOptions) { o.t = t }} }

// SkipInit makes a layer's parameters without memory and without first values, for a model that is
// loaded at once: torch's nn.utils.skip_init, or a model made on the device "meta". [LoadStateDict]
// gives each its memory. Until then whatever needs a value of it is the error [tensor.ErrDevice] or
// [device.ErrNoValues], so that a part that was not loaded cannot be used. Buffers are made as
// without it, and no random number is drawn.
func SkipInit() Option { return Option{"SkipInit", func(o *layerOptions) { o.bare = true }} }

// noMemory is where parameters without memory are.
var noMemory = sync.OnceValues(func() (device.Device, error) {
	return device.OpenMeta("cpu", device.MetaConfig{})
})

// buffers makes what a layer holds beside its parameters.
func (o *layerOptions) buffers() tensor.Maker {
	if o.dev != nil {
		return o.scope.On(o.dev).Typed(o.t)
	}
	return o.scope.Typed(o.t)
}

// parameters makes a layer's parameters.
func (o *layerOptions) parameters() tensor.Maker {
	m := o.buffers()
	if o.bare && o.dev == nil {
		d, err := noMemory()
		if err != nil {
			panic(err) // the CPU's driver is linked in, and has such devices
		}
		m = m.On(d)
	}
	return m
}

// inside returns the options that a layer hands on to those it is made of: where and how their
// parameters are made.
func (o *layerOptions) inside() []Option {
	opts := []Option{In(o.scope), Typed(o.t)}
	if o.bare {
		opts = append(opts, SkipInit())
	}
	return opts
}

// NoAffine leaves out the weight and the bias of a normalisation: torch's elementwise_affine=False.
func NoAffine() Option { return Option{"NoAffine", func(o *layerOptions) { o.noAffine = true }} }

// Affine gives an instance normalisation a weight and a bias.
func Affine() Option { return Option{"Affine", func(o *layerOptions) { o.noAffine = false }} }

// NoStats leaves out the running statistics of a normalisation, which then uses its input's in
// evaluation too: torch's track_running_stats=False.
func NoStats() Option { return Option{"NoStats", func(o *layerOptions) { o.stats = false }} }

// Stats gives an instance normalisation running statistics: torch's track_running_stats=True.
func Stats() Option { return Option{"Stats", func(o *layerOptions) { o.stats = true }} }

// PaddingIndex names the row of an embedding that fills up sequences: it is made of zeros and gets
// no gradient, and bags leave it out. A negative one counts from the last row.
func PaddingIndex(i int) Option {
	return Option{"PaddingIndex", func(o *layerOptions) { o.row = &i }}
}

// Stride is the distance between the windows of a convolution, of a pool or of [NewUnfold]: one for
// all dimensions, or one for each. Without it a pool's windows do not overlap, and others move by
// 1.
func Stride(distance ...int) Option {
	return Option{"Stride", func(o *layerOptions) { o.stride = slices.Clone(distance) }}
}

// Padding adds so many zeros on both sides of the input of a convolution, of an average pool or of
// [NewUnfold]: one number for all dimensions, or one for each. For a maximum pool they are never a
// maximum. A transposed convolution cuts so many elements off its result.
func Padding(size ...int) Option {
	return Option{"Padding", func(o *layerOptions) { o.padding = slices.Clone(size) }}
}

// SamePadding pads the input of a convolution of stride 1 so that the result has its size: torch's
// padding="same". Where the padding is odd, the larger part is behind.
func SamePadding() Option { return Option{"SamePadding", func(o *layerOptions) { o.same = true }} }

// PaddingMode says what a convolution pads its input with: "zeros", or itself by "reflect",
// "replicate" or "circular". For these see [tensor.Tensor.PadReflect] and its neighbours.
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

// OutputPadding adds so many elements behind the result of a transposed convolution, fewer than its
// stride or dilation.
func OutputPadding(size ...int) Option {
	return Option{"OutputPadding", func(o *layerOptions) { o.outputPadding = slices.Clone(size) }}
}

// Dilation is the distance between the elements of a window: one for all dimensions, or one for
// each.
func Dilation(distance ...int) Option {
	return Option{"Dilation", func(o *layerOptions) { o.dilation = slices.Clone(distance) }}
}

// Groups divides the channels of a convolution: the outputs of one group see its inputs alone.
func Groups(n int) Option {
	return Option{"Groups", func(o *layerOptions) {
		if n < 1 {
			panic(wrong(o.layer, "the number of Groups is not positive"))
		}
		o.groups = n
	}}
}

// CeilMode lets a pool's windows that begin inside of the input, or of the padding before it, go
// beyond the end: torch's ceil_mode=True.
func CeilMode() Option { return Option{"CeilMode", func(o *layerOptions) { o.ceilMode = true }} }

// ExcludePadding makes an average pool take averages over elements of the input alone: torch's
// count_include_pad=False.
func ExcludePadding() Option {
	return Option{"ExcludePadding", func(o *layerOptions) { o.excludePadding = true }}
}

// Divisor is what an average pool divides its sums by, whatever the windows contain: torch's
// divisor_override.
func Divisor(n int) Option {
	return Option{"Divisor", func(o *layerOptions) {
		if n == 0 {
			panic(wrong(o.layer, "the Divisor is 0"))
		}
		o.divisor = n
	}}
}

// OutputSize is the size of a fractional pool's result: one for all dimensions, or one for each.
func OutputSize(size ...int) Option {
	return Option{"OutputSize", func(o *layerOptions) { o.outputSize = slices.Clone(size) }}
}

// OutputRatio is the size of a fractional pool's result by that of its input, between 0 and 1: one
// for all dimensions, or one for each.
func OutputRatio(ratio ...float64) Option {
	return Option{"OutputRatio", func(o *layerOptions) { o.outputRatio = slices.Clone(ratio) }}
}

// DivValue is by what each cluster of an [AdaptiveLogSoftmaxWithLoss] divides the features of the
// one before: 4 as in torch, if it is not given.
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

// maxPool returns the windows of a maximum pool.
func maxPool[K Sizes](layer string, kernel K, opts []Option) tensor.MaxPoolOptions {
	o := only(layer, opts, maximum)
	return tensor.MaxPoolOptions{Kernel: sizes(kernel), Stride: o.stride, Padding: o.padding, Dilation: o.dilation, CeilMode: o.ceilMode}
}

// avgPool returns the windows of an average pool, or of another that takes these options.
func avgPool[K Sizes](layer string, kernel K, opts []Option, takes []string) tensor.AvgPoolOptions {
	o := only(layer, opts, takes)
	return tensor.AvgPoolOptions{
		Kernel: sizes(kernel), Stride: o.stride, Padding: o.padding, CeilMode: o.ceilMode,
		ExcludePadding: o.excludePadding, Divisor: o.divisor,
	}
}

// fractionalPool returns the windows of a fractional pool, whose size must be known.
func fractionalPool[K Sizes](layer string, kernel K, opts []Option) tensor.FractionalPoolOptions {
	o := only(layer, opts, fractional)
	if (len(o.outputSize) == 0) == (len(o.outputRatio) == 0) {
		panic(wrong(layer, "needs one of the options OutputSize and OutputRatio"))
	}
	return tensor.FractionalPoolOptions{Kernel: sizes(kernel), Size: o.outputSize, Ratio: o.outputRatio}
}

// windows returns those of [NewUnfold] and [NewFold].
func windows[K Sizes](layer string, kernel K, opts []Option) tensor.FoldOptions {
	o := only(layer, opts, sliding)
	return tensor.FoldOptions{Kernel: sizes(kernel), Stride: o.stride, Padding: o.padding, Dilation: o.dilation}
}
