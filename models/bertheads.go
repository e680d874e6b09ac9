package models

import (
	"strings"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// MaskedLM is a BERT that predicts masked tokens: Hugging Face's BertForMaskedLM. The token table
// is also the last layer's weight.
type MaskedLM struct {
	nn.Base
	Bert *bertBody `nn:"bert"` // the encoder, without a pooler
	Cls  *bertCls  `nn:"cls"`
}

type bertCls struct {
	Predictions *bertGuess `nn:"predictions"`
}

type bertGuess struct {
	Transform *bertOutput    `nn:"transform"`
	Bias      *tensor.Tensor `nn:"bias"` // bias of the last layer, [vocab]
}

// NewMaskedLM returns a model with BERT's initial weights. It panics with an *[Error] if the
// configuration is invalid.
func NewMaskedLM(c BERTConfig, opts ...nn.Option) *MaskedLM {
	c = c.full()
	h := placementOf(opts)
	body := h.bert(c)
	return &MaskedLM{Bert: &body, Cls: &bertCls{&bertGuess{
		&bertOutput{Dense: h.linear(c.Width, c.Width, bertStd), Norm: h.norm(c.Width, c.Eps)}, h.zeros(c.Vocab)}}}
}

// Forward returns the logits for every token, [batch, length, vocab], for token ids [batch,
// length].
func (m *MaskedLM) Forward(ids *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&ids, &y)()
	return m.Logits(ids, BERTInput{})
}

// Logits is Forward with a mask and token types.
func (m *MaskedLM) Logits(ids *tensor.Tensor, in BERTInput) *tensor.Tensor {
	return inChild(ids, func(ids *tensor.Tensor) *tensor.Tensor {
		t := m.Cls.Predictions.Transform
		x := t.Norm.Forward(t.Dense.ForwardAct(m.Bert.Features(ids, in), (*tensor.Tensor).Gelu))
		return x.Linear(m.Bert.Embeddings.Words.Weight, m.Cls.Predictions.Bias)
	})
}

// Loss returns the mean cross entropy of the labels [batch, length]. The label of a masked token is
// the original token, and all other labels are -100.
func (m *MaskedLM) Loss(ids, labels *tensor.Tensor, in BERTInput) *tensor.Tensor {
	return inChild(ids, func(ids *tensor.Tensor) *tensor.Tensor {
		return nn.CrossEntropy(m.Logits(ids, in).Flatten(0, 1), labels.Flatten(0, 1))
	})
}

// TiedNames says that the token table is also the last layer's weight, and that files contain the
// last layer's bias twice. [nn.LoadStateDict] uses it.
func (m *MaskedLM) TiedNames() map[string]string {
	return map[string]string{
		"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
		"cls.predictions.decoder.bias":   "cls.predictions.bias",
	}
}

// LoadStateDict loads the state dicts of Hugging Face's BertForMaskedLM and BertForPreTraining,
// with the variants of names that [BERT.LoadStateDict] accepts. It ignores the pooler and the
// next-sentence head. The layer cls.predictions.decoder may be absent. If present, its weight must
// equal the token table, and its bias the model's bias.
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

// SequenceClassifier is a BERT that classifies texts: Hugging Face's BertForSequenceClassification.
// To start from the weights of a pretrained BERT, call m.Bert.LoadStateDict.
type SequenceClassifier struct {
	nn.Base
	Bert       *BERT      `nn:"bert"`
	Classifier *nn.Linear `nn:"classifier"`
}

// NewSequenceClassifier returns a model for the given number of classes. It panics with an *[Error]
// if the configuration is invalid.
func NewSequenceClassifier(c BERTConfig, classes int, opts ...nn.Option) *SequenceClassifier {
	if classes < 1 {
		panic(wrong("bert", "%d classes", classes))
	}
	return &SequenceClassifier{Bert: NewBERT(c, opts...), Classifier: placementOf(opts).linear(c.Width, classes, bertStd)}
}

// Forward returns the logits of the classes, [batch, classes], for token ids [batch, length].
func (m *SequenceClassifier) Forward(ids *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&ids, &y)()
	return m.Logits(ids, BERTInput{})
}

// Logits is Forward with a mask and token types. The loss is nn.CrossEntropy of the logits and the
// classes [batch].
func (m *SequenceClassifier) Logits(ids *tensor.Tensor, in BERTInput) *tensor.Tensor {
	return inChild(ids, func(ids *tensor.Tensor) *tensor.Tensor {
		return m.Classifier.Forward(drop(m.Bert.Pooled(ids, in), m.Bert.Config.rate(&m.Base)))
	})
}

// LoadStateDict loads the state dict of Hugging Face's BertForSequenceClassification, including its
// head, with the variants of names that [BERT.LoadStateDict] accepts.
func (m *SequenceClassifier) LoadStateDict(sd map[string]*tensor.Tensor, opts ...nn.LoadOption) error {
	plain, err := bertNames(sd, func(name string) string { return name })
	if err != nil {
		return err
	}
	return nn.LoadStateDict(m, plain, opts...)
}
