package models

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// GPTConfig is the configuration of a [GPT]. The names in brackets are Hugging Face's.
type GPTConfig struct {
	Vocab   int     // number of tokens [vocab_size]
	Context int     // maximum length of a sequence [n_positions]
	Layers  int     // number of blocks [n_layer]
	Heads   int     // attention heads, a divisor of Width [n_head]
	Width   int     // number of features of a token [n_embd]
	Hidden  int     // number of features inside a block's MLP [n_inner]; 0 means 4·Width
	Eps     float64 // epsilon of the layer norms [layer_norm_epsilon]; 0 means 1e-5
	// Dropout is the probability of dropping embeddings, attention weights and results of blocks
	// [embd_pdrop, attn_pdrop, resid_pdrop].
	Dropout float64
}

// GPT2 returns the configuration of OpenAI's GPT-2 with 124 million parameters (A. Radford et al.,
// "Language Models are Unsupervised Multitask Learners", 2019).
func GPT2() GPTConfig {
	return GPTConfig{Vocab: 50257, Context: 1024, Layers: 12, Heads: 12, Width: 768, Dropout: 0.1}
}

// GPT2Medium returns the configuration of GPT-2 with 355 million parameters.
func GPT2Medium() GPTConfig {
	return GPTConfig{Vocab: 50257, Context: 1024, Layers: 24, Heads: 16, Width: 1024, Dropout: 0.1}
}

// GPT2Large returns the configuration of GPT-2 with 774 million parameters.
func GPT2Large() GPTConfig {
	return GPTConfig{Vocab: 50257, Context: 1024, Layers: 36, Heads: 20, Width: 1280, Dropout: 0.1}
}

// GPT2XL returns the configuration of GPT-2 with 1.5 billion parameters.
func GPT2XL() GPTConfig {
	return GPTConfig{Vocab: 50257, Context: 1024, Layers: 48, Heads: 25, Width: 1600, Dropout: 0.1}
}

// Check returns an *[Error] if the configuration is invalid, or nil.
func (c GPTConfig) Check() error {
	switch {
	case c.Vocab < 1 || c.Context < 1 || c.Layers < 1 || c.Heads < 1 || c.Width < 1 || c.Hidden < 0:
		return wrong("gpt", "sizes of %d tokens, %d positions, %d layers, %d heads and %d features are not all positive", c.Vocab, c.Context, c.Layers, c.Heads, c.Width)
	case c.Width%c.Heads != 0:
		return wrong("gpt", "%d features cannot be shared by %d heads", c.Width, c.Heads)
	case !(c.Dropout >= 0 && c.Dropout <= 1):
		return wrong("gpt", "%v is not a probability of dropout", c.Dropout)
	case !(c.Eps >= 0) || math.IsInf(c.Eps, 1):
		return wrong("gpt", "%v cannot be added to a variance", c.Eps)
	}
	return nil
}

// GPT is GPT-2: a transformer decoder with learned positions and with layer norms before attention
// and MLP. The token table is also the last layer's weight. Names and layouts of weights are those
// of Hugging Face's GPT2Model. For example, "h.0.attn.c_attn.weight" is [in, out].
// [GPT.LoadStateDict] accepts further names.
type GPT struct {
	nn.Base
	// WTE is the token table, [vocab, width], which is also the weight of the last layer.
	WTE    *table        `nn:"wte"`
	WPE    *table        `nn:"wpe"`  // position table, [context, width]
	H      []*gptBlock   `nn:"h"`    // the blocks
	LnF    *nn.LayerNorm `nn:"ln_f"` // layer norm after the blocks
	Config GPTConfig     `nn:"-"`    // configuration with defaults filled in
}

// gptBlock is one layer of the decoder: attention and an MLP, each with a residual connection.
type gptBlock struct {
	nn.Base
	nn.Checkpointing
	Ln1  *nn.LayerNorm `nn:"ln_1"`
	Attn *gptAttention `nn:"attn"`
	Ln2  *nn.LayerNorm `nn:"ln_2"`
	MLP  *gptMLP       `nn:"mlp"`
	drop float64
}

// gptAttention is causal attention with several heads.
type gptAttention struct {
	nn.Base
	CAttn *conv1D `nn:"c_attn"` // computes queries, keys and values
	CProj *conv1D `nn:"c_proj"`
	heads int
	drop  float64
}

// gptMLP is two linear layers with a tanh GELU between them.
type gptMLP struct {
	nn.Base
	CFc   *conv1D `nn:"c_fc"`
	CProj *conv1D `nn:"c_proj"`
}

// NewGPT returns a model with GPT-2's initial weights. Weights are normal with standard deviation
// 0.02, and all biases are zero. In layers that end a residual branch, the standard deviation is
// 0.02/√(2·layers). NewGPT panics with an *[Error] if the configuration is invalid. The options are
// those of a layer: [nn.In], [nn.Typed].
func NewGPT(c GPTConfig, opts ...nn.Option) *GPT {
	if err := c.Check(); err != nil {
		panic(err)
	}
	if c.Hidden == 0 {
		c.Hidden = 4 * c.Width
	}
	if c.Eps == 0 {
		c.Eps = 1e-5
	}
	h := placementOf(opts)
	const std = 0.02
	residual := std / math.Sqrt(float64(2*c.Layers))
	m := &GPT{Config: c, WTE: &table{h.normal(std, c.Vocab, c.Width)}, WPE: &table{h.normal(std, c.Context, c.Width)}}
	for range c.Layers {
		m.H = append(m.H, &gptBlock{
			Ln1:  h.norm(c.Width, c.Eps),
			Attn: &gptAttention{CAttn: h.conv1D(c.Width, 3*c.Width, std), CProj: h.conv1D(c.Width, c.Width, residual), heads: c.Heads, drop: c.Dropout},
			Ln2:  h.norm(c.Width, c.Eps),
			MLP:  &gptMLP{CFc: h.conv1D(c.Width, c.Hidden, std), CProj: h.conv1D(c.Hidden, c.Width, residual)},
			drop: c.Dropout,
		})
	}
	m.LnF = h.norm(c.Width, c.Eps)
	return m
}

// Forward returns logits [batch, length, vocab] for token ids [batch, length]: at each position,
// the logits of the next token. There may be at most Context positions.
func (m *GPT) Forward(ids *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&ids, &y)()
	return inChild(ids, func(ids *tensor.Tensor) *tensor.Tensor { return m.head(m.features(ids, pass{train: true})) })
}

// Loss runs the model on ids and returns the mean cross entropy of its logits and targets. ids and
// targets have the shape [batch, length]. A target of -100 does not count. The target of a token is
// the next token: for the tokens x of a text, ids are x[:len(x)-1] and targets are x[1:]. The data
// set text.Blocks returns such pairs. Hugging Face's models, in contrast, shift the labels
// themselves.
func (m *GPT) Loss(ids, targets *tensor.Tensor) *tensor.Tensor {
	requireNonNil("gpt.loss", ids, targets)
	if targets.Shape() != ids.Shape() {
		misuse("gpt.loss", tensor.ErrShape, fmt.Sprintf("targets %v are not as many as tokens %v", targets.Shape(), ids.Shape()), ids, targets)
	}
	return inChild(ids, func(ids *tensor.Tensor) *tensor.Tensor {
		return nn.CrossEntropy(m.Forward(ids).Flatten(0, 1), targets.Flatten(0, 1))
	})
}

// head maps features to logits.
func (m *GPT) head(x *tensor.Tensor) *tensor.Tensor {
	return x.Linear(m.WTE.Weight, nil)
}

// A pass is one forward pass through the embeddings and blocks.
type pass struct {
	cache *Cache // the tokens before ids; nil if there are none
	train bool   // applies dropout if the layers are in training mode
	layer int    // index of the current block
}

// features applies the embeddings, the blocks and the last layer norm.
func (m *GPT) features(ids *tensor.Tensor, p pass) *tensor.Tensor {
	start := p.cache.Len()
	checkTokens("gpt", ids, start, m.Config.Context)
	s := ids.Scope()
	x := m.WTE.Weight.In(s).Embedding(ids).Add(m.WPE.Weight.In(s).Narrow(0, start, ids.Dim(1)))
	if m.Training() && p.train {
		x = drop(x, m.Config.Dropout)
	}
	for i, b := range m.H {
		p.layer = i
		x = b.run(x, p)
	}
	return m.LnF.ForwardLow(x)
}

func drop(x *tensor.Tensor, p float64) *tensor.Tensor {
	if p == 0 {
		return x
	}
	return x.Dropout(p)
}

// Forward applies the block to x [batch, length, width].
func (b *gptBlock) Forward(x *tensor.Tensor) *tensor.Tensor { return b.run(x, pass{train: true}) }

func (b *gptBlock) run(x *tensor.Tensor, p pass) (y *tensor.Tensor) {
	defer b.Enter(&x, &y)()
	if p.cache != nil {
		return b.compute(x, p)
	}
	return b.Checkpoint(func(x ...*tensor.Tensor) *tensor.Tensor { return b.compute(x[0], p) }, x)
}

func (b *gptBlock) compute(x *tensor.Tensor, p pass) *tensor.Tensor {
	rate := b.drop
	if !b.Training() || !p.train {
		rate = 0
	}
	x = inChild(x, func(x *tensor.Tensor) *tensor.Tensor {
		return b.Attn.run(b.Ln1.ForwardLow(x), p).DropoutAdd(x, rate)
	})
	return inChild(x, func(x *tensor.Tensor) *tensor.Tensor { return b.MLP.Forward(b.Ln2.ForwardLow(x)).DropoutAdd(x, rate) })
}

// Forward applies attention to x [batch, length, width].
func (a *gptAttention) Forward(x *tensor.Tensor) *tensor.Tensor { return a.run(x, pass{train: true}) }

func (a *gptAttention) run(x *tensor.Tensor, p pass) (y *tensor.Tensor) {
	defer a.Enter(&x, &y)()
	qkv := a.CAttn.Forward(x).Chunk(3, -1)
	q, k, v := heads(qkv[0], a.heads), heads(qkv[1], a.heads), heads(qkv[2], a.heads)
	o := tensor.AttentionOptions{Causal: true}
	if p.cache != nil {
		k, v, o = p.cache.extend(p.layer, k, v)
	}
	if a.Training() && p.train {
		o.Dropout = a.drop
	}
	return a.CProj.Forward(joined(tensor.ScaledDotProductAttention(q, k, v, o)))
}

// Forward applies the MLP to x [..., width].
func (l *gptMLP) Forward(x *tensor.Tensor) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return inChild(x, func(x *tensor.Tensor) *tensor.Tensor {
		return l.CProj.Forward(l.CFc.forwardAct(x, (*tensor.Tensor).GeluTanh))
	})
}
