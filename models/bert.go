package models

import (
	"fmt"
	"math"
	"strings"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// BERTConfig is the configuration of a [BERT]. The names in brackets are Hugging Face's.
type BERTConfig struct {
	Vocab   int // number of tokens [vocab_size]
	Context int // maximum length of a sequence [max_position_embeddings]
	// Types is the number of token types [type_vocab_size]. 0 means 2, for the first and the second
	// text.
	Types  int
	Layers int     // number of blocks [num_hidden_layers]
	Heads  int     // attention heads, a divisor of Width [num_attention_heads]
	Width  int     // number of features of a token [hidden_size]
	Hidden int     // number of features inside a block's MLP; 0 means 4·Width [intermediate_size]
	Pad    int     // padding token, whose embedding is not trained [pad_token_id]
	Eps    float64 // epsilon of the layer norms; 0 means 1e-12 [layer_norm_eps]
	// Dropout is the probability of dropping features and attention weights [hidden_dropout_prob,
	// attention_probs_dropout_prob].
	Dropout float64
}

// BERTBase returns the configuration of bert-base-uncased, with 110 million parameters (J. Devlin
// et al., arXiv:1810.04805).
func BERTBase() BERTConfig {
	return BERTConfig{Vocab: 30522, Context: 512, Layers: 12, Heads: 12, Width: 768, Dropout: 0.1}
}

// BERTLarge returns the configuration of bert-large-uncased, 335 million parameters.
func BERTLarge() BERTConfig {
	return BERTConfig{Vocab: 30522, Context: 512, Layers: 24, Heads: 16, Width: 1024, Dropout: 0.1}
}

// Check returns an *[Error] if the configuration is invalid, or nil.
func (c BERTConfig) Check() error {
	switch {
	case c.Vocab < 1 || c.Context < 1 || c.Layers < 1 || c.Heads < 1 || c.Width < 1 || c.Hidden < 0 || c.Types < 0:
		return wrong("bert", "sizes of %d tokens, %d positions, %d layers, %d heads and %d features are not all positive", c.Vocab, c.Context, c.Layers, c.Heads, c.Width)
	case c.Width%c.Heads != 0:
		return wrong("bert", "%d features cannot be shared by %d heads", c.Width, c.Heads)
	case c.Pad < 0 || c.Pad >= c.Vocab:
		return wrong("bert", "the token %d that fills up is none of %d", c.Pad, c.Vocab)
	case !(c.Dropout >= 0 && c.Dropout <= 1):
		return wrong("bert", "%v is not a probability of dropout", c.Dropout)
	case !(c.Eps >= 0) || math.IsInf(c.Eps, 1):
		return wrong("bert", "%v cannot be added to a variance", c.Eps)
	}
	return nil
}

func (c BERTConfig) full() BERTConfig {
	if err := c.Check(); err != nil {
		panic(err)
	}
	if c.Types == 0 {
		c.Types = 2
	}
	if c.Hidden == 0 {
		c.Hidden = 4 * c.Width
	}
	if c.Eps == 0 {
		c.Eps = 1e-12
	}
	return c
}

// BERTInput has the optional inputs of a BERT. The zero value means that each sequence is one text
// without padding.
type BERTInput struct {
	// Mask is [batch, length], bool or integers. It is 0 for padding, and not 0 for other tokens.
	// text.Pad makes such a mask. Nil means no padding.
	Mask *tensor.Tensor
	// Types is [batch, length], integers: 0 for tokens of the first text and 1 for the second. Nil
	// means 0.
	Types *tensor.Tensor
}

// BERT is the encoder with its pooler. It is Hugging Face's BertModel, with the same names and
// layouts of weights.
type BERT struct {
	bertBody
	Pooler *bertPooler `nn:"pooler"`
}

// bertBody has the embeddings and the blocks, which BERT and its variants share.
type bertBody struct {
	nn.Base
	Embeddings *bertEmbeddings `nn:"embeddings"`
	Encoder    *bertEncoder    `nn:"encoder"`
	Config     BERTConfig      `nn:"-"` // configuration with defaults filled in
}

type bertEmbeddings struct {
	nn.Base
	Words     *table        `nn:"word_embeddings"`
	Positions *table        `nn:"position_embeddings"`
	Types     *table        `nn:"token_type_embeddings"`
	Norm      *nn.LayerNorm `nn:"LayerNorm"`
}

type bertEncoder struct {
	Layer []*bertLayer `nn:"layer"`
}

type bertLayer struct {
	nn.Base
	nn.Checkpointing
	Attention    *bertAttention `nn:"attention"`
	Intermediate *bertDense     `nn:"intermediate"`
	Output       *bertOutput    `nn:"output"`
}

type bertAttention struct {
	nn.Base
	Self   *bertSelf   `nn:"self"`
	Output *bertOutput `nn:"output"`
}

type bertSelf struct {
	Query *nn.Linear `nn:"query"`
	Key   *nn.Linear `nn:"key"`
	Value *nn.Linear `nn:"value"`
}

type bertDense struct {
	Dense *nn.Linear `nn:"dense"`
}

// bertOutput is the end of a residual branch: a linear layer, dropout, the sum with the branch's
// input, and a layer norm.
type bertOutput struct {
	nn.Base
	Dense *nn.Linear    `nn:"dense"`
	Norm  *nn.LayerNorm `nn:"LayerNorm"`
}

type bertPooler struct {
	nn.Base
	Dense *nn.Linear `nn:"dense"`
}

const bertStd = 0.02 // standard deviation of initial weights

// NewBERT returns a model with BERT's initial weights. Weights are normal with standard deviation
// 0.02, and biases are 0. NewBERT panics with an *[Error] if the configuration is invalid. The
// options are those of a layer: [nn.In], [nn.Typed].
func NewBERT(c BERTConfig, opts ...nn.Option) *BERT {
	c = c.full()
	h := placementOf(opts)
	return &BERT{h.bert(c), &bertPooler{Dense: h.linear(c.Width, c.Width, bertStd)}}
}

func (h placement) bert(c BERTConfig) bertBody {
	m := bertBody{Config: c, Encoder: &bertEncoder{}, Embeddings: &bertEmbeddings{
		Words:     &table{h.normal(bertStd, c.Vocab, c.Width)},
		Positions: &table{h.normal(bertStd, c.Context, c.Width)},
		Types:     &table{h.normal(bertStd, c.Types, c.Width)},
		Norm:      h.norm(c.Width, c.Eps),
	}}
	w := m.Embeddings.Words.Weight
	w.Scope().Do(func(s *tensor.Scope) { w.In(s).Select(0, c.Pad).Zero() }, tensor.NoGrad())
	out := func(in int) *bertOutput {
		return &bertOutput{Dense: h.linear(in, c.Width, bertStd), Norm: h.norm(c.Width, c.Eps)}
	}
	for range c.Layers {
		m.Encoder.Layer = append(m.Encoder.Layer, &bertLayer{
			Attention:    &bertAttention{Output: out(c.Width), Self: &bertSelf{h.linear(c.Width, c.Width, bertStd), h.linear(c.Width, c.Width, bertStd), h.linear(c.Width, c.Width, bertStd)}},
			Intermediate: &bertDense{h.linear(c.Width, c.Hidden, bertStd)},
			Output:       out(c.Hidden),
		})
	}
	return m
}

// Forward returns the features of every token, [batch, length, width], for token ids [batch,
// length].
func (m *BERT) Forward(ids *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&ids, &y)()
	return m.Features(ids, BERTInput{})
}

// Pooled returns the pooler's result tanh(W·x + b), [batch, width], where x is the features of each
// sequence's first token.
func (m *BERT) Pooled(ids *tensor.Tensor, in BERTInput) *tensor.Tensor {
	return inChild(ids, func(ids *tensor.Tensor) *tensor.Tensor { return m.Pool(m.Features(ids, in)) })
}

// Pool returns the pooler's result, [batch, width], for features [batch, length, width]. It uses
// only the features of the first token.
func (m *BERT) Pool(features *tensor.Tensor) *tensor.Tensor {
	return inChild(features, func(x *tensor.Tensor) *tensor.Tensor {
		return m.Pooler.Dense.ForwardAct(x.Select(1, 0), (*tensor.Tensor).Tanh)
	})
}

// Features returns the features of every token, [batch, length, width], for token ids [batch,
// length]. A sequence may have at most Context tokens.
func (m *bertBody) Features(ids *tensor.Tensor, in BERTInput) *tensor.Tensor {
	checkTokens("bert", ids, 0, m.Config.Context)
	for _, t := range []*tensor.Tensor{in.Mask, in.Types} {
		switch {
		case t == nil:
		case t.Shape() != ids.Shape():
			misuse("bert", tensor.ErrShape, fmt.Sprintf("masks and types have the shape of the tokens, %v, not %v", ids.Shape(), t.Shape()), ids, t)
		case t.Type().IsFloat() || t == in.Types && t.Type() == dtype.Bool:
			misuse("bert", tensor.ErrType, fmt.Sprintf("masks are of bool or integers, types of integers, not %v", t.Type()), ids, t)
		}
	}
	return inChild(ids, func(ids *tensor.Tensor) *tensor.Tensor {
		s := ids.Scope()
		var mask *tensor.Tensor
		if in.Mask != nil {
			// The mask is the same for all heads and queries.
			mask = in.Mask.In(s).NeScalar(0).Unsqueeze(1).Unsqueeze(1)
		}
		x := m.embed(ids, in.Types)
		for _, l := range m.Encoder.Layer {
			x = l.run(x, mask, m.Config)
		}
		return x
	})
}

// rate returns the dropout probability for a layer with Base b. It is 0 in evaluation mode.
func (c BERTConfig) rate(b *nn.Base) float64 {
	if !b.Training() {
		return 0
	}
	return c.Dropout
}

func (m *bertBody) embed(ids, types *tensor.Tensor) *tensor.Tensor {
	e := m.Embeddings
	return inChild(ids, func(ids *tensor.Tensor) *tensor.Tensor {
		s := ids.Scope()
		x := e.Words.Weight.In(s).EmbeddingPadded(ids, m.Config.Pad)
		if types != nil {
			x = x.Add(e.Types.Weight.In(s).Embedding(types.In(s)))
		} else {
			x = x.Add(e.Types.Weight.In(s).Narrow(0, 0, 1))
		}
		x = x.Add(e.Positions.Weight.In(s).Narrow(0, 0, ids.Dim(1)))
		return drop(e.Norm.Forward(x), m.Config.rate(&e.Base))
	})
}

func (l *bertLayer) run(x, mask *tensor.Tensor, c BERTConfig) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return l.Checkpoint(func(x ...*tensor.Tensor) *tensor.Tensor { return l.compute(x[0], x[1], c) }, x, mask)
}

func (l *bertLayer) compute(x, mask *tensor.Tensor, c BERTConfig) *tensor.Tensor {
	x = inChild(x, func(x *tensor.Tensor) *tensor.Tensor { return l.Attention.run(x, mask, c) })
	return inChild(x, func(x *tensor.Tensor) *tensor.Tensor {
		return l.Output.run(l.Intermediate.Dense.ForwardAct(x, (*tensor.Tensor).Gelu), x, c)
	})
}

func (a *bertAttention) run(x, mask *tensor.Tensor, c BERTConfig) (y *tensor.Tensor) {
	defer a.Enter(&x, &y)()
	project := func(l *nn.Linear) *tensor.Tensor { return heads(l.Forward(x), c.Heads) }
	o := tensor.AttentionOptions{Mask: mask, Dropout: c.rate(&a.Base)}
	return a.Output.run(joined(tensor.ScaledDotProductAttention(project(a.Self.Query), project(a.Self.Key), project(a.Self.Value), o)), x, c)
}

func (l *bertOutput) run(x, before *tensor.Tensor, c BERTConfig) (y *tensor.Tensor) {
	defer l.Enter(&x, &y)()
	return l.Norm.Forward(l.Dense.Forward(x).DropoutAdd(before, c.rate(&l.Base)))
}

// LoadStateDict does the same as [nn.LoadStateDict] and accepts several kinds of names. The names
// may be those of Hugging Face's BertModel or, with the prefix "bert.", of a BERT with a head.
// LoadStateDict ignores the head and position_ids. In old files, the weight and the bias of a norm
// are named gamma and beta. The error is a *[nn.StateError], or an *[Error] if two names in the
// file mean one tensor of the model. After an error, nothing was loaded.
func (m *BERT) LoadStateDict(sd map[string]*tensor.Tensor, opts ...nn.LoadOption) error {
	plain, err := bertNames(sd, func(name string) string {
		if strings.HasPrefix(name, "cls.") || strings.HasPrefix(name, "classifier.") {
			return ""
		}
		return strings.TrimPrefix(name, "bert.")
	})
	if err != nil {
		return err
	}
	return nn.LoadStateDict(m, plain, opts...)
}

// bertNames converts the names of a state dict to this package's names. rename returns "" for a
// name that is to be ignored.
func bertNames(sd map[string]*tensor.Tensor, rename func(string) string) (map[string]*tensor.Tensor, error) {
	return renamed("bert", sd, func(name string) string {
		if name = rename(name); strings.HasSuffix(name, "embeddings.position_ids") {
			return ""
		}
		if old, ok := strings.CutSuffix(name, "LayerNorm.gamma"); ok {
			return old + "LayerNorm.weight"
		}
		if old, ok := strings.CutSuffix(name, "LayerNorm.beta"); ok {
			return old + "LayerNorm.bias"
		}
		return name
	})
}
