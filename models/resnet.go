package models

import (
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// ResNetConfig is the configuration of a [ResNet].
type ResNetConfig struct {
	Blocks [4]int // number of blocks in each stage
	// Bottleneck gives each block three convolutions instead of two. The result of a block then has
	// four times as many channels.
	Bottleneck bool
	Classes    int // number of classes; 0 means 1000
	Channels   int // channels of the images; 0 means 3
	// number of channels of the first stage, doubled in each further stage; 0 means 64
	Width int
}

// ResNet is a residual network (K. He et al., arXiv:1512.03385), with torchvision's names and
// layouts of weights. As in torchvision, the stride of a bottleneck is in its middle
// convolution. Tensors inside a block are freed when the block returns, unless a gradient needs
// them. Results of blocks belong to the scope of the images. Until that scope is closed, a hook
// on a block or a stage (m.Layer3) may use the tensors that it receives.
type ResNet struct {
	nn.Base
	Conv1   *nn.Conv2d
	BN1     *nn.BatchNorm2d `nn:"bn1"`
	MaxPool *nn.MaxPool2d
	Layer1  *nn.Sequential
	Layer2  *nn.Sequential
	Layer3  *nn.Sequential
	Layer4  *nn.Sequential
	AvgPool *nn.AdaptiveAvgPool2d
	Fc      *nn.Linear
	Config  ResNetConfig `nn:"-"` // configuration with defaults filled in
}

// ResNet18 returns the model with 18 layers, for images with the given number of channels. With
// 1000 classes it has 11.7 million parameters.
func ResNet18(classes, channels int, opts ...nn.Option) *ResNet {
	return NewResNet(ResNetConfig{Blocks: [4]int{2, 2, 2, 2}, Classes: classes, Channels: channels}, opts...)
}

// ResNet34 returns the model with 34 layers. With 1000 classes it has 21.8 million parameters.
func ResNet34(classes, channels int, opts ...nn.Option) *ResNet {
	return NewResNet(ResNetConfig{Blocks: [4]int{3, 4, 6, 3}, Classes: classes, Channels: channels}, opts...)
}

// ResNet50 returns the model with 50 layers. With 1000 classes it has 25.6 million parameters.
func ResNet50(classes, channels int, opts ...nn.Option) *ResNet {
	return NewResNet(ResNetConfig{Blocks: [4]int{3, 4, 6, 3}, Bottleneck: true, Classes: classes, Channels: channels}, opts...)
}

// NewResNet returns a model with torchvision's initial weights. Weights of convolutions are normal
// with the variance 2/fan out. Norms have weight 1 and bias 0. NewResNet panics with an *[Error] if
// a size is negative or a stage has no block.
func NewResNet(c ResNetConfig, opts ...nn.Option) *ResNet {
	orElse := func(n, standard int) int {
		if n == 0 {
			return standard
		}
		return n
	}
	c.Classes, c.Channels, c.Width = orElse(c.Classes, 1000), orElse(c.Channels, 3), orElse(c.Width, 64)
	if c.Classes < 0 || c.Channels < 0 || c.Width < 0 || min(c.Blocks[0], c.Blocks[1], c.Blocks[2], c.Blocks[3]) < 1 {
		panic(wrong("resnet", "%d classes, %d channels, a width of %d and %v blocks are not all positive", c.Classes, c.Channels, c.Width, c.Blocks))
	}
	pool, mean := nn.NewMaxPool2d(3, nn.Stride(2), nn.Padding(1)), nn.NewAdaptiveAvgPool2d(1)
	m := &ResNet{Config: c, Conv1: convOf(c.Channels, c.Width, 7, 2, opts), BN1: nn.NewBatchNorm2d(c.Width, opts...), MaxPool: &pool, AvgPool: &mean}
	in := c.Width
	for i, stage := range []**nn.Sequential{&m.Layer1, &m.Layer2, &m.Layer3, &m.Layer4} {
		*stage = nn.NewSequential()
		for k := range c.Blocks[i] {
			stride := 1
			if i > 0 && k == 0 {
				stride = 2
			}
			var block nn.Module
			if c.Bottleneck {
				block, in = newBottleneck(in, c.Width<<i, stride, opts)
			} else {
				block, in = newBasicBlock(in, c.Width<<i, stride, opts)
			}
			(*stage).Layers = append((*stage).Layers, block)
		}
	}
	m.Fc = nn.NewLinear(in, c.Classes, opts...)
	return m
}

// convOf returns a convolution without bias. With stride 1 the result is as large as the image.
func convOf(in, out, kernel, stride int, opts []nn.Option) *nn.Conv2d {
	l := nn.NewConv2d(in, out, kernel, appendOptions(opts, nn.Stride(stride), nn.Padding(kernel/2), nn.NoBias())...)
	initial.KaimingNormal(l.Weight, initial.Gain(initial.ReLU), initial.FanOut)
	return l
}

// Forward maps images [n, channels, height, width] to logits [n, classes].
func (m *ResNet) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	return m.Fc.Forward(m.Features(x))
}

// Features maps images to the input of the last layer, [n, channels of the last stage].
func (m *ResNet) Features(x *tensor.Tensor) *tensor.Tensor {
	x = inChildScope(x, m.Conv1.Weight, func(x *tensor.Tensor) *tensor.Tensor {
		return m.MaxPool.Forward(m.BN1.Forward(m.Conv1.Forward(x)).Relu())
	})
	for _, stage := range []*nn.Sequential{m.Layer1, m.Layer2, m.Layer3, m.Layer4} {
		x = stage.Forward(x)
	}
	return m.AvgPool.Forward(x).Flatten(1, -1)
}

// inChildScope runs f with x in a child of the scope of x or of the parameter w, whichever is
// younger, and moves f's result out of the child. Closing the child frees the other tensors that f
// allocates, unless a gradient needs them.
func inChildScope(x, w *tensor.Tensor, f func(x *tensor.Tensor) *tensor.Tensor) (y *tensor.Tensor) {
	tensor.Youngest(x, w).Do(func(c *tensor.Scope) {
		y = f(x.In(c))
		c.Close(y)
	})
	return y
}

// basicBlock has two convolutions of 3×3, and a shortcut.
type basicBlock struct {
	nn.Base
	nn.Checkpointing
	Conv1 *nn.Conv2d
	BN1   *nn.BatchNorm2d `nn:"bn1"`
	Conv2 *nn.Conv2d
	BN2   *nn.BatchNorm2d `nn:"bn2"`
	// Downsample has the layers on the shortcut. It is nil if the block changes no size.
	Downsample *nn.Sequential `nn:"downsample,optional"`
}

func newBasicBlock(in, width, stride int, opts []nn.Option) (*basicBlock, int) {
	return &basicBlock{
		Conv1: convOf(in, width, 3, stride, opts), BN1: nn.NewBatchNorm2d(width, opts...),
		Conv2: convOf(width, width, 3, 1, opts), BN2: nn.NewBatchNorm2d(width, opts...),
		Downsample: shortcut(in, width, stride, opts),
	}, width
}

// shortcut returns the layers on a block's shortcut, or nil if the block does not change the sizes.
func shortcut(in, out, stride int, opts []nn.Option) *nn.Sequential {
	if in == out && stride == 1 {
		return nil
	}
	return nn.NewSequential(convOf(in, out, 1, stride, opts), nn.NewBatchNorm2d(out, opts...))
}

func (b *basicBlock) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer b.Enter(&x, &y)()
	return b.Checkpoint(func(x ...*tensor.Tensor) *tensor.Tensor { return b.compute(x[0]) }, x)
}

func (b *basicBlock) compute(x *tensor.Tensor) *tensor.Tensor {
	return inChildScope(x, b.Conv1.Weight, func(x *tensor.Tensor) *tensor.Tensor {
		h := b.BN1.Forward(b.Conv1.Forward(x)).Relu()
		return afterShortcut(b.BN2.Forward(b.Conv2.Forward(h)), x, b.Downsample)
	})
}

// afterShortcut adds the shortcut of x to h, and applies ReLU.
func afterShortcut(h, x *tensor.Tensor, downsample *nn.Sequential) *tensor.Tensor {
	if downsample != nil {
		x = downsample.Forward(x)
	}
	return h.Add(x).Relu()
}

// bottleneck has convolutions of 1×1, 3×3 and 1×1, and a shortcut.
type bottleneck struct {
	nn.Base
	nn.Checkpointing
	Conv1 *nn.Conv2d
	BN1   *nn.BatchNorm2d `nn:"bn1"`
	Conv2 *nn.Conv2d
	BN2   *nn.BatchNorm2d `nn:"bn2"`
	Conv3 *nn.Conv2d
	BN3   *nn.BatchNorm2d `nn:"bn3"`
	// Downsample has the layers on the shortcut. It is nil if the block changes no size.
	Downsample *nn.Sequential `nn:"downsample,optional"`
}

func newBottleneck(in, width, stride int, opts []nn.Option) (*bottleneck, int) {
	out := 4 * width
	return &bottleneck{
		Conv1: convOf(in, width, 1, 1, opts), BN1: nn.NewBatchNorm2d(width, opts...),
		Conv2: convOf(width, width, 3, stride, opts), BN2: nn.NewBatchNorm2d(width, opts...),
		Conv3: convOf(width, out, 1, 1, opts), BN3: nn.NewBatchNorm2d(out, opts...),
		Downsample: shortcut(in, out, stride, opts),
	}, out
}

func (b *bottleneck) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer b.Enter(&x, &y)()
	return b.Checkpoint(func(x ...*tensor.Tensor) *tensor.Tensor { return b.compute(x[0]) }, x)
}

func (b *bottleneck) compute(x *tensor.Tensor) *tensor.Tensor {
	return inChildScope(x, b.Conv1.Weight, func(x *tensor.Tensor) *tensor.Tensor {
		h := b.BN1.Forward(b.Conv1.Forward(x)).Relu()
		h = b.BN2.Forward(b.Conv2.Forward(h)).Relu()
		return afterShortcut(b.BN3.Forward(b.Conv3.Forward(h)), x, b.Downsample)
	})
}
