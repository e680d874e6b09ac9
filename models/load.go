package models

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// assign copies tensors into a model's by name, converting type and device, or changes nothing and says what does not fit.
func assign(model string, m any, sd map[string]*tensor.Tensor) error {
	var missing, unexpected, shapes []string
	known := map[string]bool{}
	list := nn.Named(m)
	for _, p := range list {
		known[p.Name] = true
		switch t := sd[p.Name]; {
		case t == nil:
			missing = append(missing, p.Name)
		case t.Shape() != p.Tensor.Shape():
			shapes = append(shapes, fmt.Sprintf("%s is %v, the model's %v", p.Name, t.Shape(), p.Tensor.Shape()))
		}
	}
	for name := range sd {
		if !known[name] {
			unexpected = append(unexpected, name)
		}
	}
	slices.Sort(unexpected)
	var what []string
	for _, w := range []struct {
		title string
		names []string
	}{{"missing: ", missing}, {"unexpected: ", unexpected}, {"shapes: ", shapes}} {
		if n := len(w.names); n > 6 {
			w.names = append(w.names[:6:6], fmt.Sprintf("and %d more", n-6))
		}
		if len(w.names) > 0 {
			what = append(what, w.title+strings.Join(w.names, ", "))
		}
	}
	if len(what) > 0 {
		return wrong(model, "the weights do not fit; %s", strings.Join(what, "; "))
	}
	return tensor.Try(func() {
		for _, p := range list {
			p.Tensor.Scope().Do(func(s *tensor.Scope) { p.Tensor.In(s).Copy(sd[p.Name].In(s)) }, tensor.NoGrad())
		}
	})
}

// tied reports whether two tensors hold the same numbers.
func tied(a, b *tensor.Tensor) (same bool) {
	if a == b {
		return true
	}
	if a.Shape() != b.Shape() || a.Type() != b.Type() || a.Device() != b.Device() {
		return false
	}
	tensor.Do(func(s *tensor.Scope) { same = a.In(s).Eq(b.In(s)).All().Item() != 0 }, tensor.NoGrad())
	return same
}

// LoadStateDict copies weights into the model, converting type and device, or changes nothing and returns an *[Error] that lists what is
// missing, unexpected or of another shape. Names are those of Hugging Face's GPT2Model or, with the prefix "transformer.", its
// GPT2LMHeadModel, whose lm_head.weight must be equal to wte.weight or may be absent. The masks that old files hold among the weights
// (attn.bias, attn.masked_bias) are left out.
func (m *GPT) LoadStateDict(sd map[string]*tensor.Tensor) error {
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
	return assign("gpt", m, plain)
}
