package nn

import "github.com/flambeau-go/flambeau/tensor"

// Unflatten splits dimension Dim into dimensions of the given sizes: see [tensor.Tensor.Unflatten].
type Unflatten struct {
	Base
	Dim   int
	Sizes []int
}

// NewUnflatten returns a layer that splits dimension dim into dimensions of the given sizes. One of
// the sizes may be -1. Forward then computes it from the other sizes.
func NewUnflatten(dim int, sizes ...int) *Unflatten { return &Unflatten{Dim: dim, Sizes: sizes} }

// Forward applies the layer.
func (l *Unflatten) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Unflatten(l.Dim, l.Sizes...)
}

// Unfold returns the windows of images as columns; see [tensor.Tensor.Unfold2d].
type Unfold struct {
	Base
	Options tensor.FoldOptions
}

// NewUnfold returns a layer whose windows have one size for both dimensions, or a size for each.
// NewUnfold accepts the options [Stride], [Padding] and [Dilation].
func NewUnfold[K Sizes](kernel K, opts ...Option) *Unfold {
	return &Unfold{Options: windows("Unfold", kernel, opts)}
}

// Forward maps images [n, channels, height, width] to columns [n, channels·size of a window, number
// of windows]. Images and columns may omit n.
func (l *Unfold) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Unfold2d(l.Options)
}

// Fold makes images from columns. It adds up the columns where windows overlap; see
// [tensor.Tensor.Fold].
type Fold struct {
	Base
	Height, Width int
	Options       tensor.FoldOptions
}

// NewFold returns a layer whose results are images of the given size. Its windows and options are
// those of [NewUnfold].
func NewFold[K Sizes](height, width int, kernel K, opts ...Option) *Fold {
	return &Fold{Height: height, Width: width, Options: windows("Fold", kernel, opts)}
}

// Forward maps columns [n, channels·size of a window, number of windows] to images. The columns
// and the images may omit n.
func (l *Fold) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Fold(l.Height, l.Width, l.Options)
}

// Flatten merges dimensions into one. The zero value merges all dimensions except the first.
type Flatten struct {
	Base
	Start, End *int // first and last of the merged dimensions; nil means torch's defaults, 1 and -1
}

// NewFlatten returns a layer that merges the dimensions from start to end, inclusive. A negative
// dimension counts from the last.
func NewFlatten(start, end int) Flatten { return Flatten{Start: &start, End: &end} }

// Forward applies the layer.
func (l Flatten) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	start, end := 1, -1
	if l.Start != nil {
		start = *l.Start
	}
	if l.End != nil {
		end = *l.End
	}
	return x.Flatten(start, end)
}
