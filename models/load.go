package models

import (
	"strings"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// tied reports whether two tensors hold the same numbers; one that was freed holds none.
func tied(a, b *tensor.Tensor) (same bool) {
	if a == b {
		return true
	}
	if a.Shape() != b.Shape() || a.Type() != b.Type() || a.Device() != b.Device() {
		return false
	}
	err := tensor.Try(func() {
		tensor.Youngest(a, b).Do(func(s *tensor.Scope) { same = a.In(s).Eq(b.In(s)).All().Item() != 0 }, tensor.NoGrad())
	})
	return same && err == nil
}

// LoadStateDict is [nn.LoadStateDict] with the names of several kinds of files: those of Hugging Face's GPT2Model or, with the prefix
// "transformer.", its GPT2LMHeadModel, whose lm_head.weight must be equal to wte.weight or may be absent. The masks that old files hold among
// the weights (attn.bias, attn.masked_bias) are left out. Errors are a *[nn.StateError], or an *[Error] for weights that contradict each other; then
// nothing was loaded.
func (m *GPT) LoadStateDict(sd map[string]*tensor.Tensor, opts ...nn.LoadOption) error {
	plain := map[string]*tensor.Tensor{}
	for name, t := range sd {
		name = strings.TrimPrefix(name, "transformer.")
		if strings.HasSuffix(name, ".attn.bias") || strings.HasSuffix(name, ".attn.masked_bias") {
			continue
		}
		if plain[name] != nil {
			return wrong("gpt", "the weights hold %s twice, with and without the prefix transformer.", name)
		}
		plain[name] = t
	}
	if head, first := plain["lm_head.weight"], plain["wte.weight"]; head != nil {
		if first == nil {
			plain["wte.weight"] = head
		} else if !tied(head, first) {
			return wrong("gpt", "lm_head.weight differs from wte.weight; this model has one table for both")
		}
		delete(plain, "lm_head.weight")
	}
	return nn.LoadStateDict(m, plain, opts...)
}
