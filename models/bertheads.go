package models

import (
	"strings"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// MaskedLM is a BERT that guesses the tokens that were masked: Hugging Face's BertForMaskedLM. The
// token table is the last layer's weight.
type MaskedLM struct {
	nn.Base
	Bert *bertBody `nn:"bert"` // without a pooler
	Cls  *bertCls  `nn:"cls"`
}

type bertCls struct {
	Predictions *bertGuess `nn:"predictions"`
}

type bertGuess struct {
	Transform *bertOutput    `nn:"transform"`
	Bias      *tensor.Tensor `nn:"bias"` // [vocab]
}

// NewMaskedLM returns a model with BERT's initial weights. It panics with an *[Error] if the
// configuration is wrong.
func NewMaskedLM(c BERTConfig, opts ...nn.Option) *MaskedLM {
	c = c.full()
	h := homeOf(opts)
	body := h.bert(c)
	return &MaskedLM{Bert: &body, Cls: &bertCls{&bertGuess{
		&bertOutput{Dense: h.linear(c.Width, c.Width, bertStd), Norm: h.norm(c.Width, c.Eps)}, h.zeros(c.Vocab)}}}
}

// Forward returns the logits of every token, [batch, length, vocab], for tokens ids [batch,
// length].
func (m *MaskedLM) Forward(ids *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&ids, &y)()
	return m.Logits(ids, BERTInput{})
}

// Logits is Forward with a mask and types.
func (m *MaskedLM) Logits(ids *tensor.Tensor, in BERTInput) *tensor.Tensor {
	return within(ids, func(ids *tensor.Tensor) *tensor.Tensor {
		t := m.Cls.Predictions.Transform
		x := t.Norm.Forward(t.Dense.ForwardAct(m.Bert.Features(ids, in), (*tensor.Tensor).Gelu))
		return x.Linear(m.Bert.Embeddings.Words.Weight, m.Cls.Predictions.Bias)
	})
}

// Loss returns the mean cross entropy of the labels [batch, length], tokens where one was masked
// and -100 elsewhere.
func (m *MaskedLM) Loss(ids, labels *tensor.Tensor, in BERTInput) *tensor.Tensor {
	return within(ids, func(ids *tensor.Tensor) *tensor.Tensor {
		return nn.CrossEntropy(m.Logits(ids, in).Flatten(0, 1), labels.Flatten(0, 1))
	})
}

// TiedNames tells [nn.LoadStateDict] that the table of tokens is the last layer's weight too, and
// that files hold the last layer's bias twice.
func (m *MaskedLM) TiedNames() map[string]string {
	return map[string]string{
		"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
		"cls.predictions.decoder.bias":   "cls.predictions.bias",
	}
}

// LoadStateDict is [BERT.LoadStateDict] for Hugging Face's BertForMaskedLM and BertForPreTraining.
// Of the latter it leaves out the pooler and the guess whether one text follows the other.
// cls.predictions.decoder must be the token table and the bias, or absent.
func (m *MaskedLM) LoadStateDict(sd map[string]*tensor.Tensor, opts ...nn.LoadOption) error {
	plain, err := bertNames(sd, func(name string) string {
		if strings.HasPrefix(name, "cls.seq_relationship.") || strings.HasPrefix(name, "bert.pooler.") {
			return ""
		}
		return name
	})
	if err != nil {
		return err
	}
	return nn.LoadStateDict(m, plain, opts...)
}

// SequenceClassifier is a BERT that tells texts apart: Hugging Face's
// BertForSequenceClassification. To begin with the weights of a BERT that was trained for something
// else, call m.Bert.LoadStateDict.
type SequenceClassifier struct {
	nn.Base
	Bert       *BERT      `nn:"bert"`
	Classifier *nn.Linear `nn:"classifier"`
}

// NewSequenceClassifier returns a model for texts of so many classes. It panics with an *[Error] if
// the configuration is wrong.
func NewSequenceClassifier(c BERTConfig, classes int, opts ...nn.Option) *SequenceClassifier {
	if classes < 1 {
		panic(wrong("bert", "%d classes", classes))
	}
	return &SequenceClassifier{Bert: NewBERT(c, opts...), Classifier: homeOf(opts).linear(c.Width, classes, bertStd)}
}

// Forward returns the logits of the classes, [batch, classes], for tokens ids [batch, length].
func (m *SequenceClassifier) Forward(ids *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&ids, &y)()
	return m.Logits(ids, BERTInput{})
}

// Logits is Forward with a mask and types. nn.CrossEntropy of them and classes [batch] is the loss.
func (m *SequenceClassifier) Logits(ids *tensor.Tensor, in BERTInput) *tensor.Tensor {
	return within(ids, func(ids *tensor.Tensor) *tensor.Tensor {
		return m.Classifier.Forward(drop(m.Bert.Pooled(ids, in), m.Bert.Config.rate(&m.Base)))
	})
}

// LoadStateDict is that of [BERT.LoadStateDict] for Hugging Face's BertForSequenceClassification,
// head and all.
func (m *SequenceClassifier) LoadStateDict(sd map[string]*tensor.Tensor, opts ...nn.LoadOption) error {
	plain, err := bertNames(sd, func(name string) string { return name })
	if err != nil {
		return err
	}
	return nn.LoadStateDict(m, plain, opts...)
}
