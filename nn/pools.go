package nn

import "github.com/flambeau-go/flambeau/tensor"

// MaxPool1d returns the maximum of each window over the length; see [tensor.Tensor.MaxPool1d].
type MaxPool1d struct {
	Base
	Options tensor.MaxPoolOptions
}

// NewMaxPool1d returns a layer whose windows have the given size. NewMaxPool1d accepts the options
// [Stride], [Padding], [Dilation] and [CeilMode].
func NewMaxPool1d[K Sizes](kernel K, opts ...Option) MaxPool1d {
	return MaxPool1d{Options: maxPool("MaxPool1d", kernel, opts)}
}

// Forward applies the layer.
func (l MaxPool1d) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.MaxPool1d(l.Options)
}

// MaxPool2d returns the maximum of each window; see [tensor.Tensor.MaxPool2d].
type MaxPool2d struct {
	Base
	Options tensor.MaxPoolOptions
}

// NewMaxPool2d returns a layer whose windows have one size for all dimensions, or a size for each.
// NewMaxPool2d accepts the options [Stride], [Padding], [Dilation] and [CeilMode].
func NewMaxPool2d[K Sizes](kernel K, opts ...Option) MaxPool2d {
	return MaxPool2d{Options: maxPool("MaxPool2d", kernel, opts)}
}

// Forward applies the layer.
func (l MaxPool2d) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.MaxPool2d(l.Options)
}

// MaxPool3d returns the maximum of each window; see [tensor.Tensor.MaxPool3d].
type MaxPool3d struct {
	Base
	Options tensor.MaxPoolOptions
}

// NewMaxPool3d returns a layer whose windows have one size for all dimensions, or a size for each.
// NewMaxPool3d accepts the options [Stride], [Padding], [Dilation] and [CeilMode].
func NewMaxPool3d[K Sizes](kernel K, opts ...Option) MaxPool3d {
	return MaxPool3d{Options: maxPool("MaxPool3d", kernel, opts)}
}

// Forward applies the layer.
func (l MaxPool3d) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.MaxPool3d(l.Options)
}

// AvgPool1d returns the mean of each window; see [tensor.Tensor.AvgPool1d].
type AvgPool1d struct {
	Base
	Options tensor.AvgPoolOptions
}

// NewAvgPool1d returns a layer whose windows have the given size. NewAvgPool1d accepts the options
// [Stride], [Padding], [CeilMode], [ExcludePadding] and [Divisor].
func NewAvgPool1d[K Sizes](kernel K, opts ...Option) AvgPool1d {
	return AvgPool1d{Options: avgPool("AvgPool1d", kernel, opts, average)}
}

// Forward applies the layer.
func (l AvgPool1d) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.AvgPool1d(l.Options)
}

// AvgPool2d returns the mean of each window; see [tensor.Tensor.AvgPool2d].
type AvgPool2d struct {
	Base
	Options tensor.AvgPoolOptions
}

// NewAvgPool2d returns a layer whose windows have one size for all dimensions, or a size for each.
// NewAvgPool2d accepts the options [Stride], [Padding], [CeilMode], [ExcludePadding] and [Divisor].
func NewAvgPool2d[K Sizes](kernel K, opts ...Option) AvgPool2d {
	return AvgPool2d{Options: avgPool("AvgPool2d", kernel, opts, average)}
}

// Forward applies the layer.
func (l AvgPool2d) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.AvgPool2d(l.Options)
}

// AvgPool3d returns the mean of each window; see [tensor.Tensor.AvgPool3d].
type AvgPool3d struct {
	Base
	Options tensor.AvgPoolOptions
}

// NewAvgPool3d returns a layer whose windows have one size for all dimensions, or a size for each.
// NewAvgPool3d accepts the options [Stride], [Padding], [CeilMode], [ExcludePadding] and [Divisor].
func NewAvgPool3d[K Sizes](kernel K, opts ...Option) AvgPool3d {
	return AvgPool3d{Options: avgPool("AvgPool3d", kernel, opts, average)}
}

// Forward applies the layer.
func (l AvgPool3d) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.AvgPool3d(l.Options)
}

// AdaptiveAvgPool1d divides the length of its input into Size windows and returns their means; see
// [tensor.Tensor.AdaptiveAvgPool1d].
type AdaptiveAvgPool1d struct {
	Base
	Size int
}

// NewAdaptiveAvgPool1d returns a layer whose results have the given size.
func NewAdaptiveAvgPool1d(size int) AdaptiveAvgPool1d { return AdaptiveAvgPool1d{Size: size} }

// Forward applies the layer.
func (l AdaptiveAvgPool1d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.AdaptiveAvgPool1d(l.Size)
}

// AdaptiveAvgPool2d divides its input into windows and returns their means. Size has the number of
// windows in each dimension; see [tensor.Tensor.AdaptiveAvgPool2d].
type AdaptiveAvgPool2d struct {
	Base
	Size []int
}

// NewAdaptiveAvgPool2d returns a layer whose results have the given size: one number for all
// dimensions, or a number for each.
func NewAdaptiveAvgPool2d(size ...int) AdaptiveAvgPool2d { return AdaptiveAvgPool2d{Size: size} }

// Forward applies the layer.
func (l AdaptiveAvgPool2d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.AdaptiveAvgPool2d(l.Size...)
}

// AdaptiveAvgPool3d divides its input into windows and returns their means. Size has the number of
// windows in each dimension; see [tensor.Tensor.AdaptiveAvgPool3d].
type AdaptiveAvgPool3d struct {
	Base
	Size []int
}

// NewAdaptiveAvgPool3d returns a layer whose results have the given size: one number for all
// dimensions, or a number for each.
func NewAdaptiveAvgPool3d(size ...int) AdaptiveAvgPool3d { return AdaptiveAvgPool3d{Size: size} }

// Forward applies the layer.
func (l AdaptiveAvgPool3d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	return x.AdaptiveAvgPool3d(l.Size...)
}

// AdaptiveMaxPool1d divides the length of its input into Size windows and returns their maxima; see
// [tensor.Tensor.AdaptiveMaxPool1d].
type AdaptiveMaxPool1d struct {
	Base
	Size int
}

// NewAdaptiveMaxPool1d returns a layer whose results have the given size.
func NewAdaptiveMaxPool1d(size int) AdaptiveMaxPool1d { return AdaptiveMaxPool1d{Size: size} }

// Forward applies the layer.
func (l AdaptiveMaxPool1d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	y, at := x.AdaptiveMaxPool1d(l.Size)
	at.Free()
	return y
}

// AdaptiveMaxPool2d divides its input into windows and returns their maxima. Size has the number of
// windows in each dimension; see [tensor.Tensor.AdaptiveMaxPool2d].
type AdaptiveMaxPool2d struct {
	Base
	Size []int
}

// NewAdaptiveMaxPool2d returns a layer whose results have the given size: one number for all
// dimensions, or a number for each.
func NewAdaptiveMaxPool2d(size ...int) AdaptiveMaxPool2d { return AdaptiveMaxPool2d{Size: size} }

// Forward applies the layer.
func (l AdaptiveMaxPool2d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	y, at := x.AdaptiveMaxPool2d(l.Size...)
	at.Free()
	return y
}

// AdaptiveMaxPool3d divides its input into windows and returns their maxima. Size has the number of
// windows in each dimension; see [tensor.Tensor.AdaptiveMaxPool3d].
type AdaptiveMaxPool3d struct {
	Base
	Size []int
}

// NewAdaptiveMaxPool3d returns a layer whose results have the given size: one number for all
// dimensions, or a number for each.
func NewAdaptiveMaxPool3d(size ...int) AdaptiveMaxPool3d { return AdaptiveMaxPool3d{Size: size} }

// Forward applies the layer.
func (l AdaptiveMaxPool3d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	y, at := x.AdaptiveMaxPool3d(l.Size...)
	at.Free()
	return y
}

// Upsample resizes its input to a given size, or by a given scale; see [tensor.Tensor.Interpolate].
type Upsample struct {
	Base
	Options tensor.InterpolateOptions
}

// NewUpsample returns a layer that interpolates with the given options.
func NewUpsample(o tensor.InterpolateOptions) Upsample { return Upsample{Options: o} }

// Forward applies the layer.
func (l Upsample) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Interpolate(l.Options)
}

// PixelShuffle rearranges channels into height and width; see [tensor.Tensor.PixelShuffle].
type PixelShuffle struct {
	Base
	Factor int
}

// NewPixelShuffle returns a layer that multiplies height and width by a factor.
func NewPixelShuffle(factor int) PixelShuffle { return PixelShuffle{Factor: factor} }

// Forward applies the layer.
func (l PixelShuffle) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.PixelShuffle(l.Factor)
}

// PixelUnshuffle rearranges height and width into channels; see [tensor.Tensor.PixelUnshuffle].
type PixelUnshuffle struct {
	Base
	Factor int
}

// NewPixelUnshuffle returns a layer that divides height and width by a factor.
func NewPixelUnshuffle(factor int) PixelUnshuffle { return PixelUnshuffle{Factor: factor} }

// Forward applies the layer.
func (l PixelUnshuffle) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.PixelUnshuffle(l.Factor)
}

// LPPool1d returns the norm of order P of each window; see [tensor.Tensor.LPPool1d].
type LPPool1d struct {
	Base
	P       float64
	Options tensor.AvgPoolOptions
}

// NewLPPool1d returns a layer whose windows have the given size. NewLPPool1d accepts the options
// [Stride] and [CeilMode].
func NewLPPool1d[K Sizes](p float64, kernel K, opts ...Option) LPPool1d {
	return LPPool1d{P: p, Options: avgPool("LPPool1d", kernel, opts, power)}
}

// Forward applies the layer.
func (l LPPool1d) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.LPPool1d(l.P, l.Options)
}

// LPPool2d returns the norm of order P of each window; see [tensor.Tensor.LPPool2d].
type LPPool2d struct {
	Base
	P       float64
	Options tensor.AvgPoolOptions
}

// NewLPPool2d returns a layer whose windows have one size for all dimensions, or a size for each.
// NewLPPool2d accepts the options [Stride] and [CeilMode].
func NewLPPool2d[K Sizes](p float64, kernel K, opts ...Option) LPPool2d {
	return LPPool2d{P: p, Options: avgPool("LPPool2d", kernel, opts, power)}
}

// Forward applies the layer.
func (l LPPool2d) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.LPPool2d(l.P, l.Options)
}

// ChannelShuffle interleaves the channels of Groups groups; see [tensor.Tensor.ChannelShuffle].
type ChannelShuffle struct {
	Base
	Groups int
}

// NewChannelShuffle returns a layer for this number of groups.
func NewChannelShuffle(groups int) ChannelShuffle { return ChannelShuffle{Groups: groups} }

// Forward applies the layer.
func (l ChannelShuffle) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.ChannelShuffle(l.Groups)
}
