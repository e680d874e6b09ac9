package nn

import "github.com/flambeau-go/flambeau/tensor"

// This file has the methods of pools that also return the positions of the maxima (torch's
// return_indices=True). It also has the layers that undo pooling.

// ForwardIndices does the same as Forward, and also returns the positions of the maxima, as int64,
// for [MaxUnpool1d].
func (l MaxPool1d) ForwardIndices(x *tensor.Tensor) (values, indices *tensor.Tensor) {
	defer l.Enter(&x, &values)()
	return x.MaxPool1dIndices(l.Options)
}

// ForwardIndices does the same as Forward, and also returns the positions of the maxima, as int64,
// for [MaxUnpool2d].
func (l MaxPool2d) ForwardIndices(x *tensor.Tensor) (values, indices *tensor.Tensor) {
	defer l.Enter(&x, &values)()
	return x.MaxPool2dIndices(l.Options)
}

// ForwardIndices does the same as Forward, and also returns the positions of the maxima, as int64,
// for [MaxUnpool3d].
func (l MaxPool3d) ForwardIndices(x *tensor.Tensor) (values, indices *tensor.Tensor) {
	defer l.Enter(&x, &values)()
	return x.MaxPool3dIndices(l.Options)
}

// ForwardIndices does the same as Forward, and also returns the positions of the maxima, as int64,
// for [MaxUnpool1d].
func (l AdaptiveMaxPool1d) ForwardIndices(x *tensor.Tensor) (values, indices *tensor.Tensor) {
	defer l.Enter(&x, &values)()
	return x.AdaptiveMaxPool1d(l.Size)
}

// ForwardIndices does the same as Forward, and also returns the positions of the maxima, as int64,
// for [MaxUnpool2d].
func (l AdaptiveMaxPool2d) ForwardIndices(x *tensor.Tensor) (values, indices *tensor.Tensor) {
	defer l.Enter(&x, &values)()
	return x.AdaptiveMaxPool2d(l.Size...)
}

// ForwardIndices does the same as Forward, and also returns the positions of the maxima, as int64,
// for [MaxUnpool3d].
func (l AdaptiveMaxPool3d) ForwardIndices(x *tensor.Tensor) (values, indices *tensor.Tensor) {
	defer l.Enter(&x, &values)()
	return x.AdaptiveMaxPool3d(l.Size...)
}

// MaxUnpool1d writes the maxima of a pool to their original positions, and zeros elsewhere; see
// [tensor.Tensor.MaxUnpool1d].
type MaxUnpool1d struct {
	Options tensor.MaxPoolOptions // the options of the pool
}

// NewMaxUnpool1d returns a layer that undoes a pool with the given windows. NewMaxUnpool1d accepts
// the options of [NewMaxPool1d].
func NewMaxUnpool1d[K Sizes](kernel K, opts ...Option) MaxUnpool1d {
	return MaxUnpool1d{Options: maxPool("MaxUnpool1d", kernel, opts)}
}

// Forward unpools the values x at the positions indices, both from [MaxPool1d.ForwardIndices]. size
// is the size of the result. If it is omitted, Forward computes it from the options.
func (l MaxUnpool1d) Forward(x, indices *tensor.Tensor, size ...int) *tensor.Tensor {
	return x.MaxUnpool1d(indices, l.Options, size...)
}

// MaxUnpool2d writes the maxima of a pool to their original positions, and zeros elsewhere; see
// [tensor.Tensor.MaxUnpool2d].
type MaxUnpool2d struct {
	Options tensor.MaxPoolOptions // the options of the pool
}

// NewMaxUnpool2d returns a layer that undoes a pool with the given windows. NewMaxUnpool2d accepts
// the options of [NewMaxPool2d].
func NewMaxUnpool2d[K Sizes](kernel K, opts ...Option) MaxUnpool2d {
	return MaxUnpool2d{Options: maxPool("MaxUnpool2d", kernel, opts)}
}

// Forward unpools the values x at the positions indices, both from [MaxPool2d.ForwardIndices]. size
// is the size of the result. If it is omitted, Forward computes it from the options.
func (l MaxUnpool2d) Forward(x, indices *tensor.Tensor, size ...int) *tensor.Tensor {
	return x.MaxUnpool2d(indices, l.Options, size...)
}

// MaxUnpool3d writes the maxima of a pool to their original positions, and zeros elsewhere; see
// [tensor.Tensor.MaxUnpool3d].
type MaxUnpool3d struct {
	Options tensor.MaxPoolOptions // the options of the pool
}

// NewMaxUnpool3d returns a layer that undoes a pool with the given windows. NewMaxUnpool3d accepts
// the options of [NewMaxPool3d].
func NewMaxUnpool3d[K Sizes](kernel K, opts ...Option) MaxUnpool3d {
	return MaxUnpool3d{Options: maxPool("MaxUnpool3d", kernel, opts)}
}

// Forward unpools the values x at the positions indices, both from [MaxPool3d.ForwardIndices]. size
// is the size of the result. If it is omitted, Forward computes it from the options.
func (l MaxUnpool3d) Forward(x, indices *tensor.Tensor, size ...int) *tensor.Tensor {
	return x.MaxUnpool3d(indices, l.Options, size...)
}

// FractionalMaxPool2d returns the maximum of each window. The distances between windows are random;
// see [tensor.Tensor.FractionalMaxPool2d].
type FractionalMaxPool2d struct {
	Base
	Options tensor.FractionalPoolOptions
}

// NewFractionalMaxPool2d returns a layer whose windows have one size for all dimensions, or a size
// for each. One of the options [OutputSize] and [OutputRatio] is required.
func NewFractionalMaxPool2d[K Sizes](kernel K, opts ...Option) FractionalMaxPool2d {
	return FractionalMaxPool2d{Options: fractionalPool("FractionalMaxPool2d", kernel, opts)}
}

// Forward applies the layer.
func (l FractionalMaxPool2d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	y, at := x.FractionalMaxPool2d(l.Options)
	at.Free()
	return y
}

// ForwardIndices does the same as Forward, and also returns the positions of the maxima, as int64,
// for [MaxUnpool2d].
func (l FractionalMaxPool2d) ForwardIndices(x *tensor.Tensor) (values, indices *tensor.Tensor) {
	defer l.Enter(&x, &values)()
	return x.FractionalMaxPool2d(l.Options)
}

// FractionalMaxPool3d returns the maximum of each window. The distances between windows are random;
// see [tensor.Tensor.FractionalMaxPool3d].
type FractionalMaxPool3d struct {
	Base
	Options tensor.FractionalPoolOptions
}

// NewFractionalMaxPool3d returns a layer whose windows have one size for all dimensions, or a size
// for each. One of the options [OutputSize] and [OutputRatio] is required.
func NewFractionalMaxPool3d[K Sizes](kernel K, opts ...Option) FractionalMaxPool3d {
	return FractionalMaxPool3d{Options: fractionalPool("FractionalMaxPool3d", kernel, opts)}
}

// Forward applies the layer.
func (l FractionalMaxPool3d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	y, at := x.FractionalMaxPool3d(l.Options)
	at.Free()
	return y
}

// ForwardIndices does the same as Forward, and also returns the positions of the maxima, as int64,
// for [MaxUnpool3d].
func (l FractionalMaxPool3d) ForwardIndices(x *tensor.Tensor) (values, indices *tensor.Tensor) {
	defer l.Enter(&x, &values)()
	return x.FractionalMaxPool3d(l.Options)
}

// LPPool3d returns the norm of order P of each window; see [tensor.Tensor.LPPool3d].
type LPPool3d struct {
	Base
	P       float64
	Options tensor.AvgPoolOptions
}

// NewLPPool3d returns a layer whose windows have one size for all dimensions, or a size for each.
// NewLPPool3d accepts the options [Stride] and [CeilMode].
func NewLPPool3d[K Sizes](p float64, kernel K, opts ...Option) LPPool3d {
	return LPPool3d{P: p, Options: avgPool("LPPool3d", kernel, opts, power)}
}

// Forward applies the layer.
func (l LPPool3d) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.LPPool3d(l.P, l.Options)
}
