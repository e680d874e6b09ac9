package models

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// ViTConfig is the configuration of a [ViT]. The names in brackets are torchvision's.
type ViTConfig struct {
	Image            int     // height and width of images, a multiple of Patch [image_size]
	Patch            int     // height and width of a patch, which becomes a token [patch_size]
	Layers           int     // number of blocks [num_layers]
	Heads            int     // attention heads, a divisor of Width [num_heads]
	Width            int     // number of features of a token [hidden_dim]
	Hidden           int     // number of features inside a block's MLP; 0 means 4·Width [mlp_dim]
	Classes          int     // number of classes; 0 means 1000 [num_classes]
	Dropout          float64 // probability of dropping features of tokens and MLPs [dropout]
	AttentionDropout float64 // probability of dropping attention weights [attention_dropout]
}

// ViT is a vision transformer (A. Dosovitskiy et al., arXiv:2010.11929), with torchvision's names
// and layouts of weights ("encoder.layers.encoder_layer_0.self_attention.in_proj_weight"). Memory
// is freed, and hooks work, as [ResNet] describes.
type ViT struct {
	nn.Base
	ClassToken *tensor.Tensor `nn:"class_token"` // [1, 1, width]
	ConvProj   *nn.Conv2d     // convolution that maps patches to tokens
	Encoder    *vitEncoder
	Heads      *nn.ModuleMap[nn.Module] // a linear layer named "head"
	Config     ViTConfig                `nn:"-"` // configuration with defaults filled in
}

type vitEncoder struct {
	nn.Base
	// PosEmbedding is [1, tokens, width].
	PosEmbedding *tensor.Tensor `nn:"pos_embedding"`
	Drop         *nn.Dropout
	Layers       *nn.ModuleMap[*vitBlock]
	Ln           *nn.LayerNorm
}

// vitBlock has attention and an MLP. Each has a norm before it and a residual connection.
type vitBlock struct {
	nn.Base
	nn.Checkpointing
	Ln1           *nn.LayerNorm `nn:"ln_1"`
	SelfAttention *nn.MultiheadAttention
	Drop          *nn.Dropout
	Ln2           *nn.LayerNorm  `nn:"ln_2"`
	MLP           *nn.Sequential `nn:"mlp"`
}

// ViTB16 returns the configuration of ViT-B/16 for images of 224×224. With 1000 classes the model
// has 86.6 million parameters.
func ViTB16() ViTConfig {
	return ViTConfig{Image: 224, Patch: 16, Layers: 12, Heads: 12, Width: 768, Hidden: 3072, Classes: 1000}
}

// NewViT returns a model with torchvision's initial weights. The weights of the head are zeros, so
// all logits are 0 until the head is trained. Images have three channels. NewViT panics with an
// *[Error] if the configuration is invalid.
func NewViT(c ViTConfig, opts ...nn.Option) *ViT {
	if c.Hidden == 0 {
		c.Hidden = 4 * c.Width
	}
	if c.Classes == 0 {
		c.Classes = 1000
	}
	switch {
	case min(c.Image, c.Patch, c.Layers, c.Heads, c.Width, c.Hidden, c.Classes) < 1:
		panic(wrong("vit", "a size of %+v is not positive", c))
	case c.Image%c.Patch != 0:
		panic(wrong("vit", "images of %d×%d are not made of patches of %d×%d", c.Image, c.Image, c.Patch, c.Patch))
	case c.Width%c.Heads != 0:
		panic(wrong("vit", "%d features cannot be shared by %d heads", c.Width, c.Heads))
	case !(c.Dropout >= 0 && c.Dropout <= 1 && c.AttentionDropout >= 0 && c.AttentionDropout <= 1):
		panic(wrong("vit", "%v and %v are not probabilities of dropout", c.Dropout, c.AttentionDropout))
	}
	norm := func() *nn.LayerNorm {
		l := nn.NewLayerNorm([]int{c.Width}, opts...)
		l.Eps = 1e-6
		return l
	}
	tokens := 1 + (c.Image/c.Patch)*(c.Image/c.Patch)
	m := &ViT{Config: c, ConvProj: nn.NewConv2d(3, c.Width, c.Patch, appendOptions(opts, nn.Stride(c.Patch))...)}
	maker := m.ConvProj.Weight.Scope().On(m.ConvProj.Weight.Device()).Typed(m.ConvProj.Weight.Type())
	initial.TruncNormal(m.ConvProj.Weight, 0, math.Sqrt(1/float64(3*c.Patch*c.Patch)), -2, 2)
	initial.Zeros(m.ConvProj.Bias)
	m.ClassToken = maker.Zeros(1, 1, c.Width).RequiresGrad()
	positions := maker.Empty(1, tokens, c.Width)
	initial.Normal(positions, 0, 0.02)
	m.Encoder = &vitEncoder{PosEmbedding: positions.RequiresGrad(), Drop: nn.NewDropout(c.Dropout), Layers: nn.NewModuleMap[*vitBlock](), Ln: norm()}
	for i := range c.Layers {
		b := &vitBlock{
			Ln1:           norm(),
			SelfAttention: nn.NewMultiheadAttention(c.Width, c.Heads, nn.MultiheadOptions{Dropout: c.AttentionDropout, BatchFirst: true}, opts...),
			Drop:          nn.NewDropout(c.Dropout),
			Ln2:           norm(),
			MLP: nn.NewSequential(nn.NewLinear(c.Width, c.Hidden, opts...), &nn.GELU{}, nn.NewDropout(c.Dropout),
				nn.NewLinear(c.Hidden, c.Width, opts...), nn.NewDropout(c.Dropout)),
		}
		for _, k := range []int{0, 3} {
			l := b.MLP.Layers[k].(*nn.Linear)
			initial.XavierUniform(l.Weight, 1)
			initial.Normal(l.Bias, 0, 1e-6)
		}
		m.Encoder.Layers.Set(fmt.Sprintf("encoder_layer_%d", i), b)
	}
	head := nn.NewLinear(c.Width, c.Classes, opts...)
	initial.Zeros(head.Weight)
	initial.Zeros(head.Bias)
	m.Heads = nn.NewModuleMap[nn.Module]().Set("head", head)
	return m
}

// Forward maps images [n, 3, size, size] to logits [n, classes].
func (m *ViT) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&x, &y)()
	return m.Heads.At("head").Forward(m.Features(x))
}

// Features maps images to the features of the class token, [n, width]. They are the input of the
// last layer.
func (m *ViT) Features(x *tensor.Tensor) *tensor.Tensor {
	if c := m.Config; x == nil || x.Rank() != 4 || x.Dim(1) != 3 || x.Dim(2) != c.Image || x.Dim(3) != c.Image {
		var in []*tensor.Tensor
		got := "nil"
		if x != nil {
			in, got = append(in, x), x.Shape().String()
		}
		misuse("vit", tensor.ErrShape, fmt.Sprintf("images are [n, 3, %d, %d], not %s", c.Image, c.Image, got), in...)
	}
	t := inChildScope(x, m.ClassToken, func(x *tensor.Tensor) *tensor.Tensor {
		// The patches are [n, patches, width].
		patches := m.ConvProj.Forward(x).Flatten(2, -1).Transpose(1, 2)
		return tensor.Cat(1, m.ClassToken.In(x.Scope()).Expand(x.Dim(0), 1, m.Config.Width), patches)
	})
	return m.Encoder.Forward(t).Select(1, 0)
}

// Forward maps tokens [n, tokens, width] to features of the same shape.
func (e *vitEncoder) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer e.Enter(&x, &y)()
	x = inChildScope(x, e.PosEmbedding, func(x *tensor.Tensor) *tensor.Tensor { return e.Drop.Forward(x.Add(e.PosEmbedding)) })
	for _, b := range e.Layers.All() {
		x = b.Forward(x)
	}
	return e.Ln.Forward(x)
}

func (b *vitBlock) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer b.Enter(&x, &y)()
	return b.Checkpoint(func(x ...*tensor.Tensor) *tensor.Tensor { return b.compute(x[0]) }, x)
}

func (b *vitBlock) compute(x *tensor.Tensor) *tensor.Tensor {
	return inChildScope(x, b.Ln1.Weight, func(x *tensor.Tensor) *tensor.Tensor {
		// Queries, keys and values are all h, so one matrix product computes their projections.
		h := b.Ln1.ForwardLow(x)
		h, _ = b.SelfAttention.Forward(h, h, h, nn.AttendOptions{})
		x = b.Drop.Add(x, h)
		return x.Add(b.MLP.Forward(b.Ln2.ForwardLow(x)))
	})
}
