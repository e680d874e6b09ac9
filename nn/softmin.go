package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
)

// Softmin is softmax of -x along dimension Dim.
type Softmin struct {
	Base
	Dim int
}

// NewSoftmin returns a layer.
func NewSoftmin(dim int) Softmin { return Softmin{Dim: dim} }

// Forward applies the layer.
func (l Softmin) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return x.Softmin(l.Dim)
}

// Softmax2d is softmax over the channels of images, [n, channels, height, width] or [channels, height, width].
type Softmax2d struct{ Base }

// Forward applies the layer.
func (l Softmax2d) Forward(x *tensor.Tensor) (out *tensor.Tensor) {
	defer l.Enter(&x, &out)()
	given("softmax2d", x)
	if x.Rank() != 3 && x.Rank() != 4 {
		misuse("softmax2d", tensor.ErrShape, fmt.Sprintf("images have 3 or 4 dimensions, the input has shape %v", x.Shape()), x)
	}
	return x.Softmax(-3)
}
