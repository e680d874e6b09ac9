package models_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// The known configurations have as many parameters as Hugging Face's originals.
func TestGPTSizes(t *testing.T) {
	count := func(c models.GPTConfig) int {
		w, h := c.Width, 4*c.Width
		block := 4*w + w*3*w + 3*w + w*w + w + w*h + h + h*w + w
		return c.Vocab*w + c.Context*w + c.Layers*block + 2*w
	}
	for _, r := range []struct {
		c    models.GPTConfig
		want int
	}{{models.GPT2(), 124439808}, {models.GPT2Medium(), 354823168}, {models.GPT2Large(), 774030080}, {models.GPT2XL(), 1557611200}} {
		if n := count(r.c); n != r.want || r.c.Check() != nil {
			t.Errorf("%+v: %d parameters, want %d; %v", r.c, n, r.want, r.c.Check())
		}
	}
	c := smallGPT(67)
	if n := nn.Count(models.NewGPT(c)); n != count(c) {
		t.Errorf("the small model has %d parameters, the formula %d", n, count(c))
	}
}

// The initial weights have GPT-2's distributions.
func TestGPTInit(t *testing.T) {
	c := models.GPTConfig{Vocab: 200, Context: 64, Layers: 3, Heads: 4, Width: 64}
	tensor.Do(func(s *tensor.Scope) {
		for _, p := range nn.Named(models.NewGPT(c, nn.In(s), nn.Typed(dtype.F64))) {
			x := p.Tensor.Detach()
			mean, want, std := 0.0, 0.02, x.Std(1).Item()
			switch {
			case strings.Contains(p.Name, "ln_") && strings.HasSuffix(p.Name, "weight"):
				mean, want = 1, 0
			case strings.HasSuffix(p.Name, "bias"):
				want = 0
			case strings.HasSuffix(p.Name, "c_proj.weight"):
				want /= math.Sqrt(6)
			}
			if m := x.Mean().Item(); math.Abs(m-mean) > want/10 || math.Abs(std-want) > want/10 || !p.Tensor.NeedsGrad() || x.Type() != dtype.F64 {
				t.Errorf("%s: mean %.4f, standard deviation %.4f, want %v and %.4f", p.Name, m, std, mean, want)
			}
		}
	}, tensor.Seed(3))
}

func TestGPTMisuse(t *testing.T) {
	for _, c := range []models.GPTConfig{{}, {Vocab: 2, Context: 2, Layers: 1, Heads: 3, Width: 4}, {Vocab: 2, Context: 2, Layers: 1, Heads: 1, Width: 4, Dropout: 2},
		{Vocab: 2, Context: 2, Layers: 1, Heads: 1, Width: 4, Eps: math.NaN()}} {
		func() {
			defer func() {
				if e, ok := recover().(*models.Error); !ok {
					t.Errorf("%+v: %v", c, e)
				}
			}()
			models.NewGPT(c)
		}()
	}
	m := models.NewGPT(smallGPT(67))
	for _, r := range []struct {
		kind error
		f    func()
	}{
		{tensor.ErrShape, func() { m.Forward(tensor.From([]int64{1, 2})) }},
		{tensor.ErrShape, func() { m.Forward(tensor.From(make([]int64, 17), 1, 17)) }},
		{tensor.ErrType, func() { m.Forward(tensor.Zeros(1, 3)) }},
		{tensor.ErrIndex, func() { m.Forward(tensor.From([]int64{1, 67}, 1, 2)) }},
		{tensor.ErrShape, func() { m.Loss(tensor.From([]int64{1, 6}, 1, 2), tensor.From([]int64{1}, 1, 1)) }},
		{tensor.ErrValue, func() { m.Decode(tensor.From([]int64{1, 6}, 1, 2), nil) }},
		{tensor.ErrShape, func() { m.Decode(tensor.From([]int64{1, 6}, 1, 2), m.NewCache(tensor.Root(), 2)) }},
		{tensor.ErrValue, func() { m.NewCache(tensor.Root(), 1).Truncate(1) }},
	} {
		if err := tensor.Try(r.f); !errors.Is(err, r.kind) {
			t.Errorf("got %v, want %v", err, r.kind)
		}
	}
}

// State dicts load with and without a prefix. They may contain the masks of old files, and the last
// layer's weight, which is tied to the token table.
func TestGPTLoadStateDict(t *testing.T) {
	a := models.NewGPT(smallGPT(67))
	plain, lm := map[string]*tt{}, map[string]*tt{}
	for _, p := range nn.Named(a) {
		plain[p.Name], lm["transformer."+p.Name] = p.Tensor, p.Tensor
	}
	lm["transformer.h.0.attn.bias"] = tensor.Ones(1, 1, 16, 16)
	lm["transformer.h.0.attn.masked_bias"] = tensor.Ones()
	lm["lm_head.weight"] = plain["wte.weight"].Detach().Clone()
	ids := tensor.From([]int64{5, 6, 7}, 1, 3)
	want := a.Forward(ids).Floats()
	for _, sd := range []map[string]*tt{plain, lm} {
		b := models.NewGPT(smallGPT(67))
		if err := b.LoadStateDict(sd); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(b.Forward(ids).Floats(), want) {
			t.Error("another model came out")
		}
	}
	b := models.NewGPT(smallGPT(67))
	before := b.Forward(ids).Floats()
	bad := func(want string, change func(sd map[string]*tt)) {
		sd := map[string]*tt{}
		maps.Copy(sd, lm)
		change(sd)
		if err := b.LoadStateDict(sd); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if !slices.Equal(b.Forward(ids).Floats(), before) {
			t.Errorf("%s: a part was loaded", want)
		}
	}
	bad("lm_head.weight differs", func(sd map[string]*tt) { sd["lm_head.weight"] = tensor.Zeros(67, 32) })
	bad("ln_f.bias", func(sd map[string]*tt) { delete(sd, "transformer.ln_f.bias") })
	bad("h.2.extra", func(sd map[string]*tt) { sd["transformer.h.2.extra"] = tensor.Zeros(1) })
	bad("[3]", func(sd map[string]*tt) { sd["transformer.ln_f.bias"] = tensor.Zeros(3) })
	bad("twice", func(sd map[string]*tt) { sd["wte.weight"] = tensor.Zeros(67, 32) })
}

// generator returns a model whose generated tokens vary.
func generator(s *tensor.Scope) *models.GPT {
	m := models.NewGPT(smallGPT(31), nn.In(s))
	fill(m, "", 0.25)
	return m
}

// Generation chooses the same tokens with and without the cache: greedily or at random, alone and
// in a batch, within the context and beyond it.
func TestCacheChangesNothing(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := generator(s)
		prompts := [][]int{{1, 2, 3}, {9, 8, 7}, {30, 0, 15}}
		for _, o := range []models.GenerateOptions{
			{},
			{MaxTokens: 5},
			{MaxTokens: 60, Slide: true},
			{Temperature: 1, Seed: 4},
			{Temperature: 0.7, TopK: 5, Seed: 5, MaxTokens: 40, Slide: true},
			{Temperature: 1.5, TopP: 0.8, Seed: 6},
			{Temperature: 1, TopK: 7, TopP: 0.9, Seed: 7},
		} {
			o.NoCache = true
			want, err := m.Generate(prompts, o)
			if err != nil {
				t.Fatal(err)
			}
			o.NoCache = false
			got, err := m.Generate(prompts, o)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%+v: %v, without cache %v; %v", o, got, want, err)
			}
			n := o.MaxTokens
			if n == 0 {
				n = 16 - 3 + 1
			}
			if len(got) != 3 || len(got[0]) != n || fmt.Sprint(got[0]) == fmt.Sprint(got[1]) {
				t.Errorf("%+v: %v", o, got)
			}
			// Each sequence of the batch must equal the sequence generated alone.
			if o.Temperature == 0 {
				var one []int
				for id, err := range m.Stream(prompts[1], o) {
					if err != nil {
						t.Fatal(err)
					}
					one = append(one, id)
				}
				if !slices.Equal(one, want[1]) {
					t.Errorf("alone %v, in a batch %v", one, want[1])
				}
			} else {
				o.Seed++
				if other, _ := m.Generate(prompts, o); fmt.Sprint(other) == fmt.Sprint(got) {
					t.Errorf("%+v: another seed gives the same tokens", o)
				}
			}
		}
	})
}

// Decode returns Forward's logits when a sequence is passed to it in pieces of any length.
func TestDecodeInPieces(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := models.NewGPT(smallGPT(31), nn.In(s), nn.Typed(dtype.F64))
		fill(m, "", 0.25)
		ids := s.From([]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 1}).Reshape(1, 12)
		want := m.Forward(ids)
		c := m.NewCache(s, 1)
		at := 0
		for _, n := range []int{4, 1, 3, 1, 2, 1} {
			y := m.Decode(ids.Narrow(1, at, n), c)
			at += n
			if d := y.Sub(want.Select(1, at-1)).Abs().Amax().Item(); d > 1e-13 || c.Len() != at {
				t.Errorf("after %d tokens, %d in the cache, logits differ by %v", at, c.Len(), d)
			}
		}
		if err := tensor.Try(func() { m.Decode(ids.Narrow(1, 0, 5), c) }); !errors.Is(err, tensor.ErrShape) || c.Len() != 12 {
			t.Errorf("17 tokens in a context of 16: %v", err)
		}
		c.Truncate(2)
		if d := m.Decode(ids.Narrow(1, 2, 2), c).Sub(want.Select(1, 3)).Abs().Amax().Item(); d > 1e-13 {
			t.Errorf("after Truncate logits differ by %v", d)
		}
	})
}

// With TopK or TopP, only the most probable tokens are drawn, each about as often as its
// probability says.
func TestDraws(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := generator(s)
		logits := m.Forward(s.From([]int64{3}, 1, 1)).Select(1, -1).Select(0, 0).Floats()
		order := make([]int, len(logits))
		p := make([]float64, len(logits))
		sum := 0.0
		for i, v := range logits {
			order[i], p[i] = i, math.Exp(v)
			sum += p[i]
		}
		slices.SortFunc(order, func(a, b int) int { return int(math.Copysign(1, logits[b]-logits[a])) })
		const n = 2000
		prompts := make([][]int, n)
		for i := range prompts {
			prompts[i] = []int{3}
		}
		for _, k := range []int{1, 3, len(logits)} {
			mass := 0.0
			for _, i := range order[:k] {
				mass += p[i]
			}
			// A TopP just below the total probability of the k most probable tokens selects exactly
			// these tokens.
			for _, o := range []models.GenerateOptions{{TopK: k}, {TopP: (mass - p[order[k-1]]/2) / sum}} {
				o.MaxTokens, o.Temperature, o.Seed = 1, 1, 11
				out, err := m.Generate(prompts, o)
				if err != nil {
					t.Fatal(err)
				}
				seen := make([]int, len(logits))
				for _, ids := range out {
					seen[ids[0]]++
				}
				for rank, i := range order {
					want := 0.0
					if rank < k {
						want = p[i] / mass * n
					}
					if math.Abs(float64(seen[i])-want) > 5*math.Sqrt(want) {
						t.Errorf("%+v: token %d came %d times, want about %.0f", o, i, seen[i], want)
					}
				}
			}
		}
	})
}

func TestGenerateEndsAndRefuses(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		m := generator(s)
		all, err := m.Generate([][]int{{1, 2}}, models.GenerateOptions{})
		if err != nil || len(all[0]) != 15 {
			t.Fatal(all, err)
		}
		stop := all[0][4]
		at := slices.Index(all[0], stop)
		cut, err := m.Generate([][]int{{1, 2}}, models.GenerateOptions{Stop: []int{stop}})
		if err != nil || !slices.Equal(cut[0], all[0][:at]) {
			t.Errorf("%v stopped at %d: %v, %v", all[0], stop, cut, err)
		}
		n := 0
		for range m.Stream([]int{1, 2}, models.GenerateOptions{}) {
			if n++; n == 3 {
				break
			}
		}
		if n != 3 {
			t.Errorf("left after %d tokens", n)
		}
		var long *models.ContextError
		if _, err := m.Generate([][]int{{1, 2}}, models.GenerateOptions{MaxTokens: 16}); !errors.As(err, &long) || long.New != 16 {
			t.Errorf("17 tokens with one to look at no more: %v", err)
		}
		if _, err := m.Generate([][]int{make([]int, 17)}, models.GenerateOptions{}); !errors.As(err, &long) {
			t.Errorf("a prompt of 17 tokens: %v", err)
		}
		for _, r := range []struct {
			prompts [][]int
			o       models.GenerateOptions
		}{
			{nil, models.GenerateOptions{}}, {[][]int{{}}, models.GenerateOptions{}}, {[][]int{{1}, {1, 2}}, models.GenerateOptions{}}, {[][]int{{31}}, models.GenerateOptions{}},
			{[][]int{{-1}}, models.GenerateOptions{}}, {[][]int{{1}}, models.GenerateOptions{MaxTokens: -1}}, {[][]int{{1}}, models.GenerateOptions{Slide: true}},
			{[][]int{{1}}, models.GenerateOptions{Temperature: math.NaN()}}, {[][]int{{1}}, models.GenerateOptions{TopP: 1.5}}, {[][]int{{1}}, models.GenerateOptions{TopK: -1}},
		} {
			var e *models.Error
			if _, err := m.Generate(r.prompts, r.o); !errors.As(err, &e) {
				t.Errorf("%v %+v: %v", r.prompts, r.o, err)
			}
		}
		m.WTE.Weight.Free()
		var broken *tensor.Error
		if _, err := m.Generate([][]int{{1}}, models.GenerateOptions{}); !errors.As(err, &broken) {
			t.Errorf("a model without its table: %v", err)
		}
	})
}

// Dropout acts only in training. Generation applies no dropout, and does not change the mode.
func TestGPTDropout(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		c := smallGPT(31)
		c.Dropout = 0.3
		m := models.NewGPT(c, nn.In(s))
		fill(m, "", 0.25)
		ids := s.From([]int64{1, 2, 3}, 1, 3)
		a, b := m.Forward(ids).Floats(), m.Forward(ids).Floats()
		if slices.Equal(a, b) {
			t.Error("two passes in training are the same")
		}
		one, err := m.Generate([][]int{{1, 2, 3}}, models.GenerateOptions{})
		two, err2 := m.Generate([][]int{{1, 2, 3}}, models.GenerateOptions{NoCache: true})
		if err != nil || err2 != nil || fmt.Sprint(one) != fmt.Sprint(two) || !m.Training() {
			t.Errorf("%v %v, %v %v", one, two, err, err2)
		}
		nn.Eval(m)
		if a, b := m.Forward(ids).Floats(), m.Forward(ids).Floats(); !slices.Equal(a, b) {
			t.Error("two passes in evaluation differ")
		}
	})
}
