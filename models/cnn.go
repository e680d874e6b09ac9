package models

import (
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// relu returns x.Relu() and frees x.
func relu(x *tensor.Tensor) *tensor.Tensor {
	defer x.Free()
	return x.Relu()
}

// LeNet is LeNet-5 (Y. LeCun et al., 1998) in its usual modern form with ReLU and max pooling. It
// has two convolutions and three linear layers, for images of 28×28, such as MNIST's, or 32×32. As
// in PyTorch's tutorials, the layers are named conv1, conv2, fc1, fc2, fc3. Forward frees the
// results of inner layers when it returns.
type LeNet struct {
	nn.Base
	Conv1, Conv2  *nn.Conv2d
	Fc1, Fc2, Fc3 *nn.Linear
	Pool          *nn.MaxPool2d
}

// NewLeNet returns a model for images of size×size pixels with the given number of channels. A size
// other than 28 and 32 panics with an *[Error].
func NewLeNet(size, channels, classes int, opts ...nn.Option) *LeNet {
	if size != 28 && size != 32 || channels < 1 || classes < 1 {
		panic(wrong("lenet", "images of %d×%d with %d channels and %d classes; the size is 28 or 32, the others are positive", size, size, channels, classes))
	}
	pool := nn.NewMaxPool2d(2)
	return &LeNet{
		Conv1: nn.NewConv2d(channels, 6, 5, appendOptions(opts, nn.Padding((32-size)/2))...),
		Conv2: nn.NewConv2d(6, 16, 5, opts...),
		Fc1:   nn.NewLinear(16*5*5, 120, opts...),
		Fc2:   nn.NewLinear(120, 84, opts...),
		Fc3:   nn.NewLinear(84, classes, opts...),
		Pool:  &pool,
	}
}

// Forward maps images [n, channels, size, size] to logits [n, classes].
func (m *LeNet) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	return inChild(x, func(x *tensor.Tensor) *tensor.Tensor {
		for _, c := range []*nn.Conv2d{m.Conv1, m.Conv2} {
			x = inChild(x, func(x *tensor.Tensor) *tensor.Tensor { return m.Pool.Forward(relu(c.Forward(x))) })
		}
		x = x.Flatten(1, -1)
		for _, l := range []*nn.Linear{m.Fc1, m.Fc2} {
			x = inChild(x, func(x *tensor.Tensor) *tensor.Tensor { return l.ForwardAct(x, (*tensor.Tensor).Relu) })
		}
		return m.Fc3.Forward(x)
	})
}

// CNN is a small convolutional network for digits and similar images, with batch normalisation and
// dropout. It has two blocks of convolution, norm, ReLU and pooling, and two linear layers.
type CNN struct {
	nn.Base
	Features   *nn.Sequential
	Classifier *nn.Sequential
}

// NewCNN returns a model for images with the given number of channels, of any size from 4×4 up.
// NewCNN panics with an *[Error] if channels or classes are not positive.
func NewCNN(channels, classes int, opts ...nn.Option) *CNN {
	if channels < 1 || classes < 1 {
		panic(wrong("cnn", "%d channels and %d classes; both are positive", channels, classes))
	}
	conv := func(in, out int) *nn.Conv2d {
		return nn.NewConv2d(in, out, 3, appendOptions(opts, nn.Padding(1), nn.NoBias())...)
	}
	pool := nn.NewMaxPool2d(2)
	mean := nn.NewAdaptiveAvgPool2d(2)
	return &CNN{
		Features: nn.NewSequential(
			conv(channels, 32), nn.NewBatchNorm2d(32, opts...), &nn.ReLU{}, &pool,
			conv(32, 64), nn.NewBatchNorm2d(64, opts...), &nn.ReLU{}, &mean),
		Classifier: nn.NewSequential(
			&nn.Flatten{}, nn.NewDropout(0.25), nn.NewLinear(64*2*2, 128, opts...), &nn.ReLU{}, nn.NewDropout(0.5), nn.NewLinear(128, classes, opts...)),
	}
}

// Forward maps images [n, channels, height, width] to logits [n, classes].
func (m *CNN) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	return m.Classifier.Forward(m.Features.Forward(x))
}
