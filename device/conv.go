package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A Convolution says how windows move over an input, for [Convolver]: of one to three spatial dimensions, of which the lists hold one number
// each. Sizes of input, kernel and result are those of the views.
type Convolution struct {
	Rank, Groups             int
	Stride, Dilation, Before [3]int // Before is the padding with zeros before; that behind is what the result's size needs
}

// Convolver is satisfied by devices with convolutions of float32 that make no columns. All views are contiguous float32: x and dx are
// [n, channels, in…], w and dw [outputs, channels/groups, kernel…], y and g [n, outputs, out…]. With o·stride + k·dilation - before for a
// place in the input, which is zero where that lies outside:
//
//	y[n, o, p] = Σ x[n, c, p·stride + k·dilation - before] · w[o, c, k]
type Convolver interface {
	// Convolve sets y.
	Convolve(s Stream, y, x, w View, c Convolution) error
	// ConvolveData sets dx, the gradient of x, from g, that of y. Zeros around the input have no gradient: an infinite weight reaches the
	// elements that it has been multiplied with.
	ConvolveData(s Stream, dx, g, w View, c Convolution) error
	// ConvolveWeight sets dw, the gradient of w, from g.
	ConvolveWeight(s Stream, dw, x, g View, c Convolution) error
}

// Check says what is wrong with the views of a call beside their memory, "" for nothing.
func (c Convolution) Check(x, w, y View) string {
	for _, v := range []View{x, w, y} {
		if v.Type != dtype.F32 || !v.Contiguous() {
			return fmt.Sprintf("%v of %v with strides %v, want contiguous float32", v.Shape, v.Type, v.Strides)
		}
	}
	if c.Rank < 1 || c.Rank > 3 || x.Shape.Rank() != c.Rank+2 || w.Shape.Rank() != c.Rank+2 || y.Shape.Rank() != c.Rank+2 {
		return fmt.Sprintf("shapes %v, %v, %v for %d spatial dimensions", x.Shape, w.Shape, y.Shape, c.Rank)
	}
	if c.Groups < 1 || x.Shape.At(1) != w.Shape.At(1)*c.Groups || w.Shape.At(0)%c.Groups != 0 || y.Shape.At(1) != w.Shape.At(0) || x.Shape.At(0) != y.Shape.At(0) {
		return fmt.Sprintf("shapes %v, %v, %v do not fit %d groups", x.Shape, w.Shape, y.Shape, c.Groups)
	}
	for i := range c.Rank {
		in, kernel, out := x.Shape.At(2+i), w.Shape.At(2+i), y.Shape.At(2+i)
		if c.Stride[i] < 1 || c.Dilation[i] < 1 || c.Before[i] < 0 || kernel < 1 || in < 0 || out < 0 {
			return fmt.Sprintf("stride %v, dilation %v, padding %v, kernel %v", c.Stride, c.Dilation, c.Before, w.Shape)
		}
	}
	return ""
}

// ConvolutionWork is the work of the methods of [Convolver], which take the same products: two operations for each element of y, channel of
// its group and element of the kernel, those with the padding too.
func ConvolutionWork(x, w, y View) Work {
	per := 1
	for i := 1; i < w.Shape.Rank(); i++ {
		per *= w.Shape.At(i)
	}
	return Work{2 * y.Size() * per, bytesOf(x, w, y)}
}

// Spatial returns the sizes of a view's spatial dimensions as three, the first ones 1 where it has fewer.
func (c Convolution) Spatial(s shape.Dims) (v [3]int) {
	v = [3]int{1, 1, 1}
	for i := range c.Rank {
		v[3-c.Rank+i] = s.At(2 + i)
	}
	return v
}
