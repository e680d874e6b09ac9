package models

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// GenerateOptions select how tokens are chosen. The zero value chooses the most probable token each
// time, until the context is full.
type GenerateOptions struct {
	MaxTokens int // greatest number of new tokens; 0 means as many as fit into the context
	// Temperature divides the logits before a token is drawn. 0 means that the most probable token
	// is chosen.
	Temperature float64
	TopK        int // draws among the TopK most probable tokens; 0 means all tokens
	// TopP limits the draw to the most probable tokens: the smallest set whose total probability is
	// at least TopP. 0 means all tokens.
	TopP float64
	Seed uint64 // seed of the random draws
	Stop []int  // tokens that end a sequence and are not part of the result
	// Slide makes generation continue when the context is full. It drops the older half of the
	// tokens. It computes the newer half again, because a token's features depend on its position.
	// Without Slide, a request for more tokens than fit is a [ContextError], which is returned
	// before any work is done.
	Slide bool
	// NoCache computes all positions again for each token, which is slower. Tests compare its
	// results with those of the cache.
	NoCache bool
}

// A ContextError reports a sequence that is too long for a model.
type ContextError struct {
	// Context is the number of positions of the model, Prompt the number of tokens in the prompt,
	// and New the number of requested tokens.
	Context, Prompt, New int
}

func (e *ContextError) Error() string {
	return fmt.Sprintf("models: gpt: %d tokens and %d new ones do not fit the context of %d; ask for fewer, shorten the prompt or set Slide", e.Prompt, e.New, e.Context)
}

func (o GenerateOptions) check(m *GPT, prompts [][]int) error {
	bad := func(format string, a ...any) error { return wrong("gpt", "generate: "+format, a...) }
	switch {
	case len(prompts) == 0 || len(prompts[0]) == 0:
		return bad("the prompt is empty; it needs at least one token")
	case o.MaxTokens < 0:
		return bad("%d new tokens", o.MaxTokens)
	case o.MaxTokens == 0 && o.Slide:
		return bad("Slide without MaxTokens would not end")
	case !(o.Temperature >= 0) || math.IsInf(o.Temperature, 1):
		return bad("the temperature %v is not a number from 0 on", o.Temperature)
	case o.TopK < 0 || !(o.TopP >= 0 && o.TopP <= 1):
		return bad("TopK %d and TopP %v: a number of tokens, and a probability", o.TopK, o.TopP)
	}
	for i, p := range prompts {
		if len(p) != len(prompts[0]) {
			return bad("prompt %d has %d tokens, the first %d; a batch has one length", i, len(p), len(prompts[0]))
		}
		for k, id := range p {
			if id < 0 || id >= m.Config.Vocab {
				return bad("token %d of prompt %d is %d; the model knows 0 to %d", k, i, id, m.Config.Vocab-1)
			}
		}
	}
	// The last new token is not an input, so it needs no position.
	if n := len(prompts[0]); n > m.Config.Context || !o.Slide && o.MaxTokens > m.Config.Context-n+1 {
		return &ContextError{m.Config.Context, n, o.MaxTokens}
	}
	return nil
}

// Generate returns the new tokens for each prompt, without the prompts. All prompts have the same
// length. The error is an *[Error], a *[ContextError], or a *tensor.Error of the device.
func (m *GPT) Generate(prompts [][]int, o GenerateOptions) ([][]int, error) {
	out := make([][]int, len(prompts))
	done := make([]bool, len(prompts))
	for ids, err := range m.steps(prompts, o) {
		if err != nil {
			return nil, err
		}
		for i, id := range ids {
			if done[i] = done[i] || slices.Contains(o.Stop, id); !done[i] {
				out[i] = append(out[i], id)
			}
		}
		if !slices.Contains(done, false) {
			break
		}
	}
	return out, nil
}

// Stream yields each new token after a prompt as soon as it is chosen. An error ends the iteration.
// The errors are those of [GPT.Generate]. Leaving the loop ends the work.
func (m *GPT) Stream(prompt []int, o GenerateOptions) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for ids, err := range m.steps([][]int{prompt}, o) {
			if err != nil {
				yield(0, err)
				return
			}
			if slices.Contains(o.Stop, ids[0]) || !yield(ids[0], nil) {
				return
			}
		}
	}
}

// steps yields the next token of every sequence, until the iteration ends.
func (m *GPT) steps(prompts [][]int, o GenerateOptions) iter.Seq2[[]int, error] {
	return func(yield func([]int, error) bool) {
		if err := o.check(m, prompts); err != nil {
			yield(nil, err)
			return
		}
		limit := o.MaxTokens
		if limit == 0 {
			limit = m.Config.Context - len(prompts[0]) + 1
		}
		s := m.WTE.Weight.Scope().New(tensor.NoGrad(), tensor.Seed(o.Seed), tensor.On(m.WTE.Weight.Device()))
		g := &generation{m: m, o: o, s: s}
		defer s.Close()
		if err := tensor.Try(func() { g.begin(prompts) }); err != nil {
			yield(nil, err)
			return
		}
		for range limit {
			var ids []int
			if err := tensor.Try(func() { ids = g.step() }); err != nil {
				yield(nil, err)
				return
			}
			if !yield(ids, nil) {
				return
			}
		}
	}
}

// generation is the state of one call of Generate or Stream.
type generation struct {
	m     *GPT
	o     GenerateOptions
	s     *tensor.Scope
	seen  *tensor.Tensor // tokens of the context, [batch, context]; the first n are set
	n     int
	cache *Cache // keys and values of these tokens; nil with NoCache
}

func (g *generation) begin(prompts [][]int) {
	flat := make([]int64, 0, len(prompts)*len(prompts[0]))
	for _, p := range prompts {
		for _, id := range p {
			flat = append(flat, int64(id))
		}
	}
	g.n = len(prompts[0])
	g.s.Do(func(c *tensor.Scope) {
		ids := c.From(flat, len(prompts), g.n)
		g.seen = g.s.On(ids.Device()).Typed(ids.Type()).Zeros(len(prompts), g.m.Config.Context)
		g.seen.Narrow(1, 0, g.n).Copy(ids)
	})
	if !g.o.NoCache {
		g.cache = g.m.NewCache(g.s, len(prompts))
	}
}

// step chooses the next token of each sequence, appends it to seen, and returns the tokens. It
// copies nothing else from the device.
func (g *generation) step() (ids []int) {
	g.s.Do(func(c *tensor.Scope) {
		seen := g.seen.In(c)
		var logits *tensor.Tensor
		if g.cache != nil {
			at := g.cache.Len()
			logits = g.m.Decode(seen.Narrow(1, at, g.n-at), g.cache)
		} else {
			logits = g.m.head(g.m.features(seen.Narrow(1, 0, g.n), pass{}).Select(1, -1))
		}
		next := pick(logits, g.o)
		if g.n == g.m.Config.Context && g.o.Slide {
			keep := g.n / 2
			if keep > 0 {
				seen.Narrow(1, 0, keep).Copy(seen.Narrow(1, g.n-keep, keep).Clone())
			}
			g.n = keep
			if g.cache != nil {
				g.cache.Truncate(0)
			}
		}
		if g.n < g.m.Config.Context {
			seen.Narrow(1, g.n, 1).Copy(next.Unsqueeze(1))
		}
		g.n++
		for _, id := range tensor.Data[int64](next) {
			ids = append(ids, int(id))
		}
	})
	return ids
}

// pick chooses a token for each row of logits [batch, vocab].
func pick(logits *tensor.Tensor, o GenerateOptions) *tensor.Tensor {
	if o.Temperature == 0 {
		return logits.Argmax(-1)
	}
	x := logits
	if x.Type().Size() < 4 {
		x = x.Float()
	}
	if o.Temperature < 1e-6 { // a smaller divisor could make the logits overflow float32
		x = x.Sub(x.Amax(-1, tensor.KeepDim))
	}
	x = x.DivScalar(max(o.Temperature, 1e-37))
	var index *tensor.Tensor // tokens of the columns of x; nil if column i is token i
	switch {
	case o.TopK > 0 && o.TopK < x.Dim(-1):
		x, index = x.TopK(o.TopK, -1, true, true)
	case o.TopP > 0 && o.TopP < 1:
		x, index = x.Sort(-1, true)
	}
	p := x.Softmax(-1)
	if o.TopP > 0 && o.TopP < 1 {
		if index == nil {
			p, index = p.Sort(-1, true)
		}
		before := p.CumSum(-1).Sub(p) // 0 for the most probable token, which is always kept
		p = p.MaskedFill(before.GeScalar(o.TopP), 0)
	}
	drawn := p.Multinomial(1, true)
	if index != nil {
		drawn = index.Gather(-1, drawn)
	}
	return drawn.Squeeze(-1)
}
