package models

import (
	"strings"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// TiedNames says that the token table is also the last layer's weight. [nn.LoadStateDict] uses it.
func (m *GPT) TiedNames() map[string]string {
	return map[string]string{"lm_head.weight": "wte.weight"}
}

// LoadStateDict does the same as [nn.LoadStateDict] and accepts several kinds of names. The names
// may be those of Hugging Face's GPT2Model or, with the prefix "transformer.", of its
// GPT2LMHeadModel. lm_head.weight of a GPT2LMHeadModel must equal wte.weight, or be absent.
// LoadStateDict ignores the masks that old files contain (attn.bias, attn.masked_bias). The error
// is a *[nn.StateError], or an *[Error] if two names in the file mean one tensor of the model.
// After an error, nothing was loaded.
func (m *GPT) LoadStateDict(sd map[string]*tensor.Tensor, opts ...nn.LoadOption) error {
	plain, err := renamed("gpt", sd, func(name string) string {
		if strings.HasSuffix(name, ".attn.bias") || strings.HasSuffix(name, ".attn.masked_bias") {
			return ""
		}
		return strings.TrimPrefix(name, "transformer.")
	})
	if err != nil {
		return err
	}
	return nn.LoadStateDict(m, plain, opts...)
}

// renamed converts the names of a state dict to a model's names. name returns "" for a name that is
// to be ignored.
func renamed(op string, sd map[string]*tensor.Tensor, name func(string) string) (map[string]*tensor.Tensor, error) {
	plain, origin := map[string]*tensor.Tensor{}, map[string]string{}
	for from, t := range sd {
		to := name(from)
		if to == "" {
			continue
		}
		if other, twice := origin[to]; twice {
			return nil, wrong(op, "the weights hold %s twice, as %s and as %s; keep one of them", to, min(from, other), max(from, other))
		}
		plain[to], origin[to] = t, from
	}
	return plain, nil
}
