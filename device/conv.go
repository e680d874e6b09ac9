package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// ConvKind says what a [Convolution] computes: its result, or one of its two gradients.
type ConvKind uint8

// These are the kinds of convolutions. ConvForward computes Y from X and W. ConvData computes the
// gradient of X from W and the gradient of Y. ConvWeight computes the gradient of W from X and the
// gradient of Y.
const (
	ConvForward ConvKind = iota
	ConvData
	ConvWeight
)

// Convolution is a convolution with one to three spatial dimensions, or one of its gradients.
// Stride, Dilation and Before hold one number for each spatial dimension. All views are contiguous
// float32. Their shapes are X [n, channels, in…], W [outputs, channels/groups, kernel…] and Y [n,
// outputs, out…]. For output position p, kernel element k reads the input at p·stride + k·dilation
// - before. Input elements outside the borders are zero. With output channel o and input channel c:
//
//	Y[n, o, p] = Σ X[n, c, p·stride + k·dilation - before] · W[o, c, k]
//
// Kind says which of the three views is the result; the other two are operands. ConvData sets X to
// the gradient of X, and ConvWeight sets W to the gradient of W. For both kinds, Y holds the
// gradient of Y. No gradient is computed for the zeros of the padding. An infinite weight affects
// the gradients only of those elements of X that it was multiplied with.
type Convolution struct {
	Kind         ConvKind
	X, W, Y      View
	Rank, Groups int
	// Before is the number of zeros before the first element; Y's shape determines the number of
	// zeros after the last element
	Stride, Dilation, Before [3]int
}

// Name returns "convolution", "convolution data gradient" or "convolution weight gradient".
func (c *Convolution) Name() string {
	if c.Kind > ConvWeight {
		return "convolution"
	}
	return [...]string{"convolution", "convolution data gradient", "convolution weight gradient"}[c.Kind]
}

// Operand returns operand i: the result comes first, then the inputs.
func (c *Convolution) Operand(i int) Operand {
	x, w, y := Operand{"x", &c.X, c.Kind == ConvData}, Operand{"w", &c.W, c.Kind == ConvWeight},
		Operand{"y", &c.Y, c.Kind == ConvForward}
	switch c.Kind {
	case ConvData:
		return nth(i, x, y, w)
	case ConvWeight:
		return nth(i, w, x, y)
	}
	return nth(i, y, x, w)
}

// Check checks the shapes and types of the operands.
func (c *Convolution) Check() (arg, reason string) {
	if c.Kind > ConvWeight {
		return "kind", fmt.Sprintf("there is no kind %d", c.Kind)
	}
	x, w, y := &c.X.Shape, &c.W.Shape, &c.Y.Shape
	if c.Rank < 1 || c.Rank > 3 || x.Rank() != c.Rank+2 || w.Rank() != c.Rank+2 || y.Rank() != c.Rank+2 {
		return "y", fmt.Sprintf("shapes %v, %v, %v for %d spatial dimensions", *x, *w, *y, c.Rank)
	}
	for i := range 3 {
		if o := c.Operand(i); o.View.Type != dtype.F32 || !o.View.Contiguous() {
			return o.Name, sparse(o.View, dtype.F32, o.View.Shape)
		}
	}
	if c.Groups < 1 || x.At(1) != w.At(1)*c.Groups || w.At(0)%c.Groups != 0 || y.At(1) != w.At(0) || x.At(0) != y.At(0) {
		return "y", fmt.Sprintf("shapes %v, %v, %v do not fit %d groups", *x, *w, *y, c.Groups)
	}
	for i := range c.Rank {
		in, kernel, out := x.At(2+i), w.At(2+i), y.At(2+i)
		if c.Stride[i] < 1 || c.Dilation[i] < 1 || c.Before[i] < 0 || kernel < 1 || in < 0 || out < 0 {
			return "w", fmt.Sprintf("stride %v, dilation %v, padding %v, kernel %v",
				c.Stride, c.Dilation, c.Before, *w)
		}
	}
	return "", ""
}

// Work counts two operations for each product. The number of products is the size of Y, times the
// channels in a group, times the size of the kernel. Products with the zeros of the padding are
// counted too. All three kinds need the same number of products.
func (c *Convolution) Work() Work {
	if c.Operand(0).View.Size() == 0 {
		return Work{}
	}
	per := 1
	for i := 1; i < c.W.Shape.Rank(); i++ {
		per *= c.W.Shape.At(i)
	}
	return Work{2 * c.Y.Size() * per, bytesOf(c.X, c.W, c.Y)}
}

// Clone copies the op.
func (c *Convolution) Clone() Op { d := *c; return &d }

// Spatial returns the sizes of the spatial dimensions of shape s. The result has three numbers. If
// s has fewer spatial dimensions, the leading numbers are 1.
func (c *Convolution) Spatial(s shape.Dims) (v [3]int) {
	v = [3]int{1, 1, 1}
	for i := range c.Rank {
		v[3-c.Rank+i] = s.At(2 + i)
	}
	return v
}
