package nn

import "github.com/flambeau-go/flambeau/tensor"

// Unflatten makes dimension Dim into several of the given sizes; see [tensor.Tensor.Unflatten].
type Unflatten struct {
	Base
	Dim   int
	Sizes []int
}

// NewUnflatten returns a layer; one of the sizes may be -1.
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

// NewUnfold returns a layer with windows of one size for both dimensions, or of one for each. It
// takes the options [Stride], [Padding] and [Dilation].
func NewUnfold[K Sizes](kernel K, opts ...Option) *Unfold {
	return &Unfold{Options: windows("Unfold", kernel, opts)}
}

// Forward maps images [n, channels, height, width], or without n, to columns [n, channels·size of
// the windows, number of windows].
func (l *Unfold) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Unfold2d(l.Options)
}

// Fold adds columns up to images; see [tensor.Tensor.Fold].
type Fold struct {
	Base
	Height, Width int
	Options       tensor.FoldOptions
}

// NewFold returns a layer whose results are images of the given size, from windows as
// [NewUnfold]'s.
func NewFold[K Sizes](height, width int, kernel K, opts ...Option) *Fold {
	return &Fold{Height: height, Width: width, Options: windows("Fold", kernel, opts)}
}

// Forward maps columns [n, channels·size of the windows, number of windows], or without n, to
// images.
func (l *Fold) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Fold(l.Height, l.Width, l.Options)
}

// Flatten merges dimensions into one: all but the first, unless it is made by [NewFlatten].
type Flatten struct {
	Base
	Start, End *int // the first and the last of them; nil: 1 and -1, torch's defaults
}

// NewFlatten returns a layer that merges dimensions start to end, both included; negative ones
// count from the last.
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
