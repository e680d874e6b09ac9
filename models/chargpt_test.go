package models_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/tensor"
)

// story generates a text of at least n characters with a random grammar. The text is about people
// and things in a harbour. Sentences agree in number and tense, numbers add up, and quotations are
// closed. The entropy of the words' spelling is about three bits for each character. A model needs
// more than one character of context to predict the words.
func story(seed uint64, n int) string {
	rng := rand.New(rand.NewPCG(seed, 1))
	pick := func(list string) string { w := strings.Fields(list); return w[rng.IntN(len(w))] }
	noun := func() (string, bool) {
		w := pick("keeper lamp ship wave gull harbour sailor rope lantern storm captain window stair clock island anchor fisherman tide cliff bell")
		if rng.IntN(3) == 0 {
			return pick("many few all three some old") + " " + w + "s", true
		}
		return pick("the a every this that her his") + " " + w, false
	}
	verb := func(many, past bool) string {
		w := pick("watch follow want answer pass reach light open climb pull clean turn")
		es := strings.HasSuffix(w, "ch") || strings.HasSuffix(w, "ss")
		switch {
		case past && w == "light":
			return "lit"
		case past:
			return w + "ed"
		case many:
			return w
		case es:
			return w + "es"
		}
		return w + "s"
	}
	clause := func(past bool) string {
		a, many := noun()
		b, _ := noun()
		s := a + " " + verb(many, past) + " " + b
		if rng.IntN(3) == 0 {
			s += " " + pick("before after near beyond behind under") + " " + pick("dawn dusk noon midnight winter Easter")
		}
		return s
	}
	var b strings.Builder
	for b.Len() < n {
		past := rng.IntN(2) == 0
		switch rng.IntN(5) {
		case 0:
			x, y := rng.IntN(20), rng.IntN(20)
			fmt.Fprintf(&b, "%d %ss and %d more make %d. ", x+2, pick("ship gull wave rope bell"), y+2, x+y+4)
		case 1:
			fmt.Fprintf(&b, "\"%s,\" said %s, \"but %s.\" ", clause(past), pick("Anna Jonas Mira Tom Edda"), clause(!past))
		case 2:
			fmt.Fprintf(&b, "When %s, %s. ", clause(past), clause(past))
		default:
			s := clause(past)
			b.WriteString(strings.ToUpper(s[:1]) + s[1:] + ". ")
		}
		if rng.IntN(9) == 0 {
			b.WriteString("\n\n")
		}
	}
	return b.String()
}

// unigram returns the entropy of the token frequencies in ids, in nats.
func unigram(ids []int) float64 {
	count := map[int]float64{}
	for _, id := range ids {
		count[id]++
	}
	h := 0.0
	for _, n := range count {
		p := n / float64(len(ids))
		h -= p * math.Log(p)
	}
	return h
}

// trainChars trains a model by recipe r. It returns the loss on the held-out text, and the entropy
// of that text's token frequencies.
func trainChars(t *testing.T, corpus string, r models.CharGPTRecipe) (loss, entropy float64) {
	t.Helper()
	tensor.Do(func(s *tensor.Scope) {
		m, chars, err := models.NewCharGPT(corpus, r.Config, nn.In(s))
		if err != nil {
			t.Fatal(err)
		}
		ids, err := chars.Encode(corpus)
		if err != nil {
			t.Fatal(err)
		}
		cut := len(ids) - int(float64(len(ids))*r.HeldOut)
		entropy = unigram(ids[cut:])
		train, err := text.NewBlocks(ids[:cut], r.Config.Context, 1)
		if err != nil {
			t.Fatal(err)
		}
		held, err := text.NewBlocks(ids[cut:], r.Config.Context, 0)
		if err != nil {
			t.Fatal(err)
		}
		opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: r.LR, Beta1: r.Beta1, Beta2: r.Beta2, WeightDecay: r.WeightDecay})
		schedule := sched.NewWarmUp(opt, sched.WarmUpConfig{Steps: r.Warmup}, sched.NewCosineAnnealing(opt, r.Steps-r.Warmup, r.MinLR))
		rng := rand.New(rand.NewPCG(7, 7))
		validate := func() float64 {
			sum, n := 0.0, 0
			for at := 0; at < held.Len() && at < 512; at += 64 {
				var index []int
				for i := at; i < min(at+64, held.Len()); i++ {
					index = append(index, i)
				}
				x, y, err := held.GetBatch(index)
				if err != nil {
					t.Fatal(err)
				}
				s.Do(func(c *tensor.Scope) { sum += m.Loss(c.From(x), c.From(y)).Item() * float64(len(index)) }, tensor.NoGrad())
				n += len(index)
			}
			return sum / float64(n)
		}
		start := time.Now()
		for step := range r.Steps {
			index := make([]int, r.Batch)
			for i := range index {
				index[i] = rng.IntN(train.Len())
			}
			x, y, err := train.GetBatch(index)
			if err != nil {
				t.Fatal(err)
			}
			s.Do(func(c *tensor.Scope) {
				m.Loss(c.From(x), c.From(y)).Backward()
				optim.ClipGradNorm(opt.Params(), r.Clip)
				opt.Step()
				opt.ZeroGrad()
				schedule.Step()
			})
			if (step+1)%100 == 0 {
				t.Logf("step %d: %.3f on held-out text after %v", step+1, validate(), time.Since(start).Round(time.Second))
			}
		}
		loss = validate()
	}, tensor.Seed(1))
	return loss, entropy
}

// A model trained by the recipe predicts better than the frequencies of characters. With
// FLAMBEAU_SOAK the test follows the whole recipe on half a megabyte of text. Otherwise it uses a
// smaller model, a shorter text and fewer steps.
func TestCharGPTLearns(t *testing.T) {
	r, n, less := models.CharGPTDefaults(), 20_000, 0.3
	r.Config.Layers, r.Config.Heads, r.Config.Width, r.Config.Context, r.Batch, r.Steps, r.Warmup = 2, 2, 32, 32, 16, 120, 10
	if os.Getenv("FLAMBEAU_SOAK") != "" {
		r, n, less = models.CharGPTDefaults(), 500_000, 1
	}
	corpus := story(3, n)
	start := time.Now()
	loss, entropy := trainChars(t, corpus, r)
	t.Logf("%d characters, %d steps in %v: a loss of %.3f, an entropy of %.3f", len(corpus), r.Steps, time.Since(start).Round(time.Second/10), loss, entropy)
	if !(loss < entropy-less) {
		t.Errorf("the loss %.3f is not %v below the entropy of single characters, %.3f", loss, less, entropy)
	}
}
