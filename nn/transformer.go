package nn

import (
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// TransformerOptions are the settings of a transformer's layers. The zero value is torch's default,
// except for Dropout, which is 0.1 in torch.
type TransformerOptions struct {
	// FeedForward is the number of features between the two linear layers; 0 means 2048.
	FeedForward int
	// Dropout is the probability of dropping an attention weight, or an element of the result of
	// the attention or of the linear layers.
	Dropout float64
	// Activation is the function between the linear layers, such as (*tensor.Tensor).Gelu. Nil
	// means relu.
	Activation func(x *tensor.Tensor) *tensor.Tensor
	Eps        float64 // Eps of the norms; 0 means 1e-5
	// BatchFirst means that sequences are [n, length, features] instead of [length, n, features].
	BatchFirst bool
	// NormFirst applies each norm before the attention or the linear layers, instead of after the
	// residual connection.
	NormFirst bool
}

func (o TransformerOptions) norm(features int, opts []Option) *LayerNorm {
	l := NewLayerNorm([]int{features}, opts...)
	if o.Eps != 0 {
		l.Eps = o.Eps
	}
	return l
}

func (o TransformerOptions) feedForward() int {
	if o.FeedForward == 0 {
		return 2048
	}
	return o.FeedForward
}

func (o TransformerOptions) attention(features, heads int, opts []Option) *MultiheadAttention {
	return NewMultiheadAttention(features, heads, MultiheadOptions{Dropout: o.Dropout, BatchFirst: o.BatchFirst}, opts...)
}

// feed applies the linear layers first and second, with the activation and drop between them.
func (o TransformerOptions) feed(x *tensor.Tensor, first *Linear, drop *Dropout, second *Linear) *tensor.Tensor {
	act := o.Activation
	switch {
	case act != nil:
	case drop.takesRelu():
		return second.Forward(drop.forwardRelu(first.Forward(x)))
	default:
		act = (*tensor.Tensor).Relu
	}
	return second.Forward(drop.Forward(first.ForwardAct(x, act)))
}

// runInChild runs f in a child of s, and moves the result into s.
func runInChild(s *tensor.Scope, f func(c *tensor.Scope) *tensor.Tensor) (y *tensor.Tensor) {
	s.Do(func(c *tensor.Scope) {
		y = f(c)
		c.Close(y)
	})
	return y
}

// residual returns x + drop(f(norm(x))) with NormFirst, and norm(x + drop(f(x))) without it. The
// result is in x's scope. With NormFirst, f gets the result of norm.ForwardLow, so only one linear
// layer may read it.
func (o TransformerOptions) residual(x *tensor.Tensor, norm *LayerNorm, drop *Dropout, f func(x *tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
	return runInChild(x.Scope(), func(c *tensor.Scope) *tensor.Tensor {
		x := x.In(c)
		if o.NormFirst {
			return drop.Add(x, f(norm.ForwardLow(x)))
		}
		return norm.Forward(drop.Add(x, f(x)))
	})
}

// stacked applies layers one after another. It frees the result of each layer after the next layer
// has run.
func stacked[L any](x *tensor.Tensor, layers []L, f func(l L, x *tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
	for _, l := range layers {
		y := f(l, x)
		x.Free()
		x = y
	}
	return x
}

// TransformerEncoderLayer is self-attention and two linear layers, each with a norm and a residual
// connection (A. Vaswani et al., arXiv:1706.03762). NormFirst is due to R. Xiong et al.,
// arXiv:2002.04745. The layer's parameters have torch's names. The results of its inner layers are
// freed when Forward returns. A hook keeps such a result y with s.From(y.Detach()), where s is an
// outer scope.
type TransformerEncoderLayer struct {
	Base
	Checkpointing
	SelfAttn *MultiheadAttention
	Linear1  *Linear
	Dropout  *Dropout
	Linear2  *Linear
	Norm1    *LayerNorm
	Norm2    *LayerNorm
	Dropout1 *Dropout
	Dropout2 *Dropout
	Options  TransformerOptions
}

// NewTransformerEncoderLayer returns a layer for the given numbers of features and heads. [NoBias]
// leaves out all biases.
func NewTransformerEncoderLayer(features, heads int, o TransformerOptions, opts ...Option) *TransformerEncoderLayer {
	return &TransformerEncoderLayer{
		SelfAttn: o.attention(features, heads, opts), Linear1: NewLinear(features, o.feedForward(), opts...), Dropout: NewDropout(o.Dropout),
		Linear2: NewLinear(o.feedForward(), features, opts...), Norm1: o.norm(features, opts), Norm2: o.norm(features, opts),
		Dropout1: NewDropout(o.Dropout), Dropout2: NewDropout(o.Dropout), Options: o,
	}
}

// Forward returns the result for x of shape [length, n, features], without masks. The result has
// the shape of x. n may be absent, and with BatchFirst it is the first dimension.
func (l *TransformerEncoderLayer) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return l.forward(x, Masks{})
}

// ForwardMasked returns the result for x with masks for the attention. x and the result are
// [length, n, features], or [n, length, features] with BatchFirst, or [length, features].
func (l *TransformerEncoderLayer) ForwardMasked(x *tensor.Tensor, m Masks) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return l.forward(x, m)
}

func (l *TransformerEncoderLayer) forward(x *tensor.Tensor, m Masks) *tensor.Tensor {
	requireUsable("transformer_encoder_layer", x)
	return l.Checkpoint(func(x ...*tensor.Tensor) *tensor.Tensor { return l.compute(x[0], m.replaced(x[1], x[2])) }, x, m.Mask, m.KeyPadding)
}

func (l *TransformerEncoderLayer) compute(x *tensor.Tensor, m Masks) *tensor.Tensor {
	return runInChild(x.Scope(), func(c *tensor.Scope) *tensor.Tensor {
		x := l.Options.residual(x.In(c), l.Norm1, l.Dropout1, func(x *tensor.Tensor) *tensor.Tensor {
			r, _ := l.SelfAttn.Forward(x, x, x, AttendOptions{Masks: m})
			return r
		})
		return l.Options.residual(x, l.Norm2, l.Dropout2, func(x *tensor.Tensor) *tensor.Tensor {
			return l.Options.feed(x, l.Linear1, l.Dropout, l.Linear2)
		})
	})
}

// TransformerDecoderLayer is self-attention, attention to the result of an encoder, and two linear
// layers, each with a norm and a residual connection. Its parameters have torch's names.
type TransformerDecoderLayer struct {
	Base
	Checkpointing
	SelfAttn      *MultiheadAttention
	MultiheadAttn *MultiheadAttention
	Linear1       *Linear
	Dropout       *Dropout
	Linear2       *Linear
	Norm1         *LayerNorm
	Norm2         *LayerNorm
	Norm3         *LayerNorm
	Dropout1      *Dropout
	Dropout2      *Dropout
	Dropout3      *Dropout
	Options       TransformerOptions
}

// NewTransformerDecoderLayer returns a layer for the given numbers of features and heads. [NoBias]
// leaves out all biases.
func NewTransformerDecoderLayer(features, heads int, o TransformerOptions, opts ...Option) *TransformerDecoderLayer {
	return &TransformerDecoderLayer{
		SelfAttn: o.attention(features, heads, opts), MultiheadAttn: o.attention(features, heads, opts),
		Linear1: NewLinear(features, o.feedForward(), opts...), Dropout: NewDropout(o.Dropout), Linear2: NewLinear(o.feedForward(), features, opts...),
		Norm1: o.norm(features, opts), Norm2: o.norm(features, opts), Norm3: o.norm(features, opts),
		Dropout1: NewDropout(o.Dropout), Dropout2: NewDropout(o.Dropout), Dropout3: NewDropout(o.Dropout), Options: o,
	}
}

// Forward returns the result for x of shape [length, n, features], with the shape of x. memory,
// [keys, n, features], is the result of an encoder. With BatchFirst n is the first dimension. All
// tensors may omit n. The masks self are for the attention of x to itself, and the masks cross for
// the attention of x to memory. Hooks see x and the result.
func (l *TransformerDecoderLayer) Forward(x, memory *tensor.Tensor, self, cross Masks) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	requireUsable("transformer_decoder_layer", x, memory)
	return l.Checkpoint(func(x ...*tensor.Tensor) *tensor.Tensor {
		return l.compute(x[0], x[1], self.replaced(x[2], x[3]), cross.replaced(x[4], x[5]))
	}, x, memory, self.Mask, self.KeyPadding, cross.Mask, cross.KeyPadding)
}

func (l *TransformerDecoderLayer) compute(x, memory *tensor.Tensor, self, cross Masks) *tensor.Tensor {
	return runInChild(tensor.Youngest(x, memory), func(c *tensor.Scope) *tensor.Tensor {
		x := l.Options.residual(x.In(c), l.Norm1, l.Dropout1, func(x *tensor.Tensor) *tensor.Tensor {
			r, _ := l.SelfAttn.Forward(x, x, x, AttendOptions{Masks: self})
			return r
		})
		x = l.Options.residual(x, l.Norm2, l.Dropout2, func(x *tensor.Tensor) *tensor.Tensor {
			r, _ := l.MultiheadAttn.Forward(x, memory, memory, AttendOptions{Masks: cross})
			return r
		})
		return l.Options.residual(x, l.Norm3, l.Dropout3, func(x *tensor.Tensor) *tensor.Tensor {
			return l.Options.feed(x, l.Linear1, l.Dropout, l.Linear2)
		})
	})
}

// TransformerEncoder is a stack of encoder layers, followed by an optional norm.
type TransformerEncoder struct {
	Base
	Layers []*TransformerEncoderLayer
	Norm   Module // norm of the last layer's result; Identity for none
}

// NewTransformerEncoder returns an encoder with the given number of layers and without a norm at
// the end. Each layer has its own initial weights, while torch's layers start as copies of one
// layer.
func NewTransformerEncoder(features, heads, layers int, o TransformerOptions, opts ...Option) *TransformerEncoder {
	e := &TransformerEncoder{Norm: Identity{}}
	for range layers {
		e.Layers = append(e.Layers, NewTransformerEncoderLayer(features, heads, o, opts...))
	}
	return e
}

// Forward applies the encoder to x of shape [length, n, features], without masks. n may be absent,
// and with BatchFirst it is the first dimension.
func (e *TransformerEncoder) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer e.Enter(&x, &y)()
	return e.forward(x, Masks{})
}

// ForwardMasked applies the encoder to x with the same masks in all layers. x and the result are
// [length, n, features], or [n, length, features] with BatchFirst, or [length, features].
func (e *TransformerEncoder) ForwardMasked(x *tensor.Tensor, m Masks) (y *tensor.Tensor) {
	defer e.Enter(&x, &y)()
	return e.forward(x, m)
}

func (e *TransformerEncoder) forward(x *tensor.Tensor, m Masks) *tensor.Tensor {
	requireUsable("transformer_encoder", x)
	return runInChild(x.Scope(), func(c *tensor.Scope) *tensor.Tensor {
		return e.Norm.Forward(stacked(x.In(c), e.Layers, func(l *TransformerEncoderLayer, x *tensor.Tensor) *tensor.Tensor { return l.ForwardMasked(x, m) }))
	})
}

// TransformerDecoder is a stack of decoder layers, followed by an optional norm.
type TransformerDecoder struct {
	Base
	Layers []*TransformerDecoderLayer
	Norm   Module // norm of the last layer's result; Identity for none
}

// NewTransformerDecoder returns a decoder with the given number of layers and without a norm at the
// end. Each layer has its own initial weights, while torch's layers start as copies of one layer.
func NewTransformerDecoder(features, heads, layers int, o TransformerOptions, opts ...Option) *TransformerDecoder {
	d := &TransformerDecoder{Norm: Identity{}}
	for range layers {
		d.Layers = append(d.Layers, NewTransformerDecoderLayer(features, heads, o, opts...))
	}
	return d
}

// Forward applies the decoder to x. All layers get the same memory, the result of an encoder, and
// the same masks. [TransformerDecoderLayer.Forward] gives the shapes.
func (d *TransformerDecoder) Forward(x, memory *tensor.Tensor, self, cross Masks) (y *tensor.Tensor) {
	defer d.Enter(&x, &y)()
	requireUsable("transformer_decoder", x, memory)
	return runInChild(tensor.Youngest(x, memory), func(c *tensor.Scope) *tensor.Tensor {
		return d.Norm.Forward(stacked(x.In(c), d.Layers, func(l *TransformerDecoderLayer, x *tensor.Tensor) *tensor.Tensor {
			return l.Forward(x, memory, self, cross)
		}))
	})
}

// Transformer is an encoder and a decoder. Each has a norm at its end.
type Transformer struct {
	Base
	Encoder *TransformerEncoder
	Decoder *TransformerDecoder
}

// NewTransformer returns a model with the given numbers of encoder and decoder layers. torch's
// defaults are 512 features, 8 heads, 6 encoder layers and 6 decoder layers. All matrices are
// uniform in ±√(6/(in + out)).
func NewTransformer(features, heads, encoders, decoders int, o TransformerOptions, opts ...Option) *Transformer {
	t := &Transformer{Encoder: NewTransformerEncoder(features, heads, encoders, o, opts...), Decoder: NewTransformerDecoder(features, heads, decoders, o, opts...)}
	t.Encoder.Norm, t.Decoder.Norm = o.norm(features, opts), o.norm(features, opts)
	for _, p := range Parameters(t) {
		if p.Rank() > 1 {
			initial.XavierUniform(p, 1)
		}
	}
	return t
}

// Forward encodes x, [length, n, features], and decodes y, [steps, n, features], with the encoded x
// as memory. The result is [steps, n, features]. With BatchFirst n is the first dimension. All
// tensors may omit n. The masks encoder are for the attention of x to itself, self for the
// attention of y to itself, and cross for the attention of y to the encoded x. Hooks see x and the
// result.
func (t *Transformer) Forward(x, y *tensor.Tensor, encoder, self, cross Masks) (out *tensor.Tensor) {
	defer t.Enter(&x, &out)()
	requireUsable("transformer", x, y)
	return runInChild(tensor.Youngest(x, y), func(c *tensor.Scope) *tensor.Tensor {
		return t.Decoder.Forward(y.In(c), t.Encoder.ForwardMasked(x.In(c), encoder), self, cross)
	})
}
