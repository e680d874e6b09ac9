package models_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func smallBERT() models.BERTConfig {
	return models.BERTConfig{Vocab: 61, Context: 16, Layers: 2, Heads: 4, Width: 32, Hidden: 48}
}

// Features, logits, losses and gradients equal those of BertModel and its variants with heads in
// Hugging Face's transformers.
func TestBERTEqualsTransformers(t *testing.T) {
	everywhere(t, "bert", func(r goldenRun, s *tensor.Scope) {
		m := models.NewBERT(smallBERT(), nn.In(s), nn.Typed(r.ty))
		fill(m, "", 0.125)
		in := models.BERTInput{Mask: tokens(t, s, r.f, "bert/mask"), Types: tokens(t, s, r.f, "bert/types")}
		x := m.Features(tokens(t, s, r.f, "bert/ids"), in)
		p := m.Pool(x)
		weighted := func(seed int, y *tt) *tt {
			return y.Mul(s.From(uniform(seed, y.Size(), 1)).Cast(r.ty).Reshape(y.Shape().Slice()...)).Mean()
		}
		r.check(m, "", weighted(3000, x).Add(weighted(3001, p)), map[string]*tt{"hidden": x, "pooled": p})
	})
	everywhere(t, "bert_masked", func(r goldenRun, s *tensor.Scope) {
		m := models.NewMaskedLM(smallBERT(), nn.In(s), nn.Typed(r.ty))
		fill(m, "", 0.125)
		in := models.BERTInput{Mask: tokens(t, s, r.f, "bert/mask").NeScalar(0), Types: tokens(t, s, r.f, "bert/types")}
		ids := tokens(t, s, r.f, "bert/ids")
		r.check(m, "", m.Loss(ids, tokens(t, s, r.f, "bert/labels"), in), map[string]*tt{"logits": m.Logits(ids, in)})
	})
	everywhere(t, "bert_classes", func(r goldenRun, s *tensor.Scope) {
		m := models.NewSequenceClassifier(smallBERT(), 3, nn.In(s), nn.Typed(r.ty))
		fill(m, "", 0.125)
		y := m.Logits(tokens(t, s, r.f, "bert/ids"), models.BERTInput{Mask: tokens(t, s, r.f, "bert/mask")})
		r.check(m, "", nn.CrossEntropy(y, tokens(t, s, r.f, "bert/classes")), map[string]*tt{"logits": y})
	})
}

// Padding does not change the results. The published configurations have as many parameters as the
// original models.
func TestBERTMaskAndSizes(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := nn.Eval(models.NewBERT(smallBERT(), nn.In(s)))
		fill(m, "", 0.125)
		ids := s.From([]int64{5, 6, 7, 8, 0, 0}, 1, 6)
		mask := s.From([]int64{1, 1, 1, 1, 0, 0}, 1, 6)
		a := m.Features(ids, models.BERTInput{Mask: mask}).Narrow(1, 0, 4)
		b := m.Forward(ids.Narrow(1, 0, 4))
		if d := a.Sub(b).Abs().Amax().Item(); d > 1e-6 {
			t.Errorf("filling changes features by %v", d)
		}
		if d := m.Forward(ids).Narrow(1, 0, 4).Sub(b).Abs().Amax().Item(); d < 1e-3 {
			t.Errorf("without a mask it changes nothing: %v", d)
		}
	})
	count := func(c models.BERTConfig) int {
		w, h := c.Width, 4*c.Width
		return (c.Vocab+c.Context+2)*w + 2*w + c.Layers*(4*(w*w+w)+2*w+w*h+h+h*w+w+2*w) + w*w + w
	}
	for c, want := range map[models.BERTConfig]int{models.BERTBase(): 109482240, models.BERTLarge(): 335141888} {
		if n := count(c); n != want || c.Check() != nil {
			t.Errorf("%+v: %d parameters, want %d; %v", c, n, want, c.Check())
		}
	}
	c := smallBERT()
	c.Hidden = 0
	if n := nn.Count(models.NewBERT(c)); n != count(c) {
		t.Errorf("the small model has %d parameters, the formula %d", n, count(c))
	}
}

func TestBERTMisuse(t *testing.T) {
	m := models.NewBERT(smallBERT())
	ids := tensor.From([]int64{1, 2}, 1, 2)
	for _, r := range []struct {
		kind error
		f    func()
	}{
		{tensor.ErrShape, func() { m.Forward(tensor.From(make([]int64, 17), 1, 17)) }},
		{tensor.ErrShape, func() { m.Features(ids, models.BERTInput{Mask: tensor.From([]int64{1}, 1, 1)}) }},
		{tensor.ErrType, func() { m.Features(ids, models.BERTInput{Mask: tensor.Ones(1, 2)}) }},
		{tensor.ErrType, func() { m.Features(ids, models.BERTInput{Types: ids.NeScalar(0)}) }},
		{tensor.ErrIndex, func() { m.Features(ids, models.BERTInput{Types: ids}) }},
	} {
		if err := tensor.Try(r.f); !errors.Is(err, r.kind) {
			t.Errorf("got %v, want %v", err, r.kind)
		}
	}
	for _, c := range []models.BERTConfig{{}, {Vocab: 2, Context: 2, Layers: 1, Heads: 3, Width: 4}, {Vocab: 2, Context: 2, Layers: 1, Heads: 1, Width: 4, Pad: 2},
		{Vocab: 2, Context: 2, Layers: 1, Heads: 1, Width: 4, Dropout: -1}, {Vocab: 2, Context: 2, Layers: 1, Heads: 1, Width: 4, Eps: -1}} {
		func() {
			defer func() {
				if e, ok := recover().(*models.Error); !ok {
					t.Errorf("%+v: %v", c, e)
				}
			}()
			models.NewMaskedLM(c)
		}()
	}
}

// Dropout acts only in training.
func TestBERTDropout(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		c := smallBERT()
		c.Dropout = 0.3
		m := models.NewSequenceClassifier(c, 2, nn.In(s))
		fill(m, "", 0.25)
		ids := s.From([]int64{1, 2, 3}, 1, 3)
		if slices.Equal(m.Forward(ids).Floats(), m.Forward(ids).Floats()) {
			t.Error("two passes in training are the same")
		}
		nn.Eval(m)
		if !slices.Equal(m.Forward(ids).Floats(), m.Forward(ids).Floats()) {
			t.Error("two passes in evaluation differ")
		}
	})
}

// State dicts load with and without heads, with and without prefixes, with old names, and with
// tensors under two names.
func TestBERTLoadStateDict(t *testing.T) {
	full := models.NewSequenceClassifier(smallBERT(), 3)
	sd := map[string]*tt{}
	for _, p := range nn.Named(full) {
		name := strings.Replace(p.Name, "LayerNorm.weight", "LayerNorm.gamma", 1)
		sd[strings.Replace(name, "LayerNorm.bias", "LayerNorm.beta", 1)] = p.Tensor
	}
	sd["bert.embeddings.position_ids"] = tensor.From([]int64{0, 1}, 1, 2)
	ids := tensor.From([]int64{5, 6, 7}, 1, 3)
	again, base := models.NewSequenceClassifier(smallBERT(), 3), models.NewBERT(smallBERT())
	if err := errors.Join(again.LoadStateDict(sd), base.LoadStateDict(sd)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again.Forward(ids).Floats(), full.Forward(ids).Floats()) || !slices.Equal(base.Forward(ids).Floats(), full.Bert.Forward(ids).Floats()) {
		t.Error("another model came out")
	}
	masked, pre := models.NewMaskedLM(smallBERT()), map[string]*tt{}
	for _, p := range nn.Named(masked) {
		pre[p.Name] = p.Tensor
	}
	pre["cls.predictions.decoder.weight"] = pre["bert.embeddings.word_embeddings.weight"]
	pre["cls.predictions.decoder.bias"] = pre["cls.predictions.bias"].Detach().Clone()
	pre["cls.seq_relationship.weight"], pre["bert.pooler.dense.bias"] = tensor.Ones(2, 32), tensor.Ones(32)
	if err := masked.LoadStateDict(pre); err != nil {
		t.Error(err)
	}
	pre["cls.predictions.decoder.bias"] = tensor.Ones(61)
	if err := masked.LoadStateDict(pre); err == nil || !strings.Contains(err.Error(), "differs") {
		t.Error(err)
	}
	if err := base.LoadStateDict(map[string]*tt{}); err == nil || !strings.Contains(err.Error(), "embeddings.word_embeddings.weight") || !strings.Contains(err.Error(), "more") {
		t.Error(err)
	}
}
