package models_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

func read(t *testing.T, path ...string) map[string]*tt {
	t.Helper()
	sd, _, err := safetensors.Load(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return sd
}

// readPT reads a state dict from a file that PyTorch wrote.
func readPT(t *testing.T, path ...string) map[string]*tt {
	t.Helper()
	tree, err := torchfile.Load(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	sd, err := torchfile.StateDict(tree)
	if err != nil {
		t.Fatal(err)
	}
	return sd
}

// Files can be exchanged with transformers in both directions. A small model is saved under
// transformers' names and loads again. If FLAMBEAU_EXCHANGE names a directory, the test saves the
// model there, and the script _golden/exchange_language.py loads it with transformers. If
// FLAMBEAU_INTEROP names the directory that _golden/interop_language.py fills, the test loads the
// whole GPT-2 and BERT that transformers saved. Their results must be the same as in transformers.
func TestInteropLanguage(t *testing.T) {
	small := models.NewGPT(smallGPT(67))
	out := map[string]*tt{}
	for name, x := range nn.StateDict(small) {
		out["transformer."+name] = x
	}
	dir := t.TempDir()
	if exchange := os.Getenv("FLAMBEAU_EXCHANGE"); exchange != "" {
		dir = exchange
	}
	path := filepath.Join(dir, "gpt.safetensors")
	if err := safetensors.Save(path, out, map[string]string{"format": "pt"}); err != nil {
		t.Fatal(err)
	}
	again := models.NewGPT(smallGPT(67))
	if err := again.LoadStateDict(read(t, path)); err != nil {
		t.Fatal(err)
	}
	ids := tensor.From([]int64{3, 1, 4}, 1, 3)
	if !slices.Equal(again.Forward(ids).Floats(), small.Forward(ids).Floats()) {
		t.Error("another model came back")
	}
	answers := map[string]*tt{"ids": ids, "logits": small.Forward(ids).Detach()}
	if err := safetensors.Save(filepath.Join(dir, "gpt_answers.safetensors"), answers, nil); err != nil {
		t.Fatal(err)
	}
	folder := os.Getenv("FLAMBEAU_INTEROP")
	if folder == "" {
		return
	}
	agree := func(what string, got, want *tt) {
		t.Helper()
		d := got.Sub(want).Abs().Amax().Item()
		t.Logf("%s: differs by at most %.2g of %.3g", what, d, want.Abs().Amax().Item())
		if !(d <= 1e-4) {
			t.Errorf("%s differ by %v", what, d)
		}
	}
	tensor.Do(func(s *tensor.Scope) {
		m := nn.Eval(models.NewGPT(models.GPT2()))
		if err := m.LoadStateDict(read(t, folder, "gpt2", "model.safetensors")); err != nil {
			t.Fatal(err)
		}
		want := read(t, folder, "gpt2", "answers.safetensors")
		start := time.Now()
		y := m.Forward(want["ids"].In(s))
		t.Logf("GPT-2: %d tokens in %v", want["ids"].Size(), time.Since(start))
		var some []*tt
		for i := 0; i < y.Dim(1); i += 19 {
			some = append(some, y.Select(1, i))
		}
		agree("logits of GPT-2", tensor.Stack(1, some...), want["logits"])
		if err := m.LoadStateDict(readPT(t, folder, "gpt2", "state.pt")); err != nil {
			t.Fatal(err)
		}
		agree("logits of GPT-2 from the .pt file", m.Forward(want["ids"].In(s)).Select(1, 0), want["logits"].Select(1, 0))
		start = time.Now()
		prompt := want["ids"].Narrow(1, 0, 20).Narrow(0, 0, 1).Floats()
		ints := make([]int, len(prompt))
		for i, v := range prompt {
			ints[i] = int(v)
		}
		got, err := m.Generate([][]int{ints}, models.GenerateOptions{MaxTokens: 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("GPT-2: a prompt of 20 and 20 new tokens in %v", time.Since(start))
		for i, v := range want["generated"].Floats() {
			if got[0][i] != int(v) {
				t.Errorf("new token %d is %d, want %v", i, got[0][i], v)
			}
		}
	}, tensor.NoGrad())
	tensor.Do(func(s *tensor.Scope) {
		m := nn.Eval(models.NewBERT(models.BERTBase()))
		if err := m.LoadStateDict(read(t, folder, "bert", "model.safetensors")); err != nil {
			t.Fatal(err)
		}
		want := read(t, folder, "bert", "answers.safetensors")
		ids := want["ids"].In(s)
		types := s.Arange(ids.Dim(1)).GtScalar(40).Long().Expand(2, ids.Dim(1))
		x := m.Features(ids, models.BERTInput{Mask: want["mask"], Types: types})
		agree("features of BERT", x, want["hidden"])
		agree("pooled features of BERT", m.Pool(x), want["pooled"])
		if err := m.LoadStateDict(readPT(t, folder, "bert", "state.pt")); err != nil {
			t.Fatal(err)
		}
		agree("pooled features of BERT from the .pt file", m.Pooled(ids, models.BERTInput{Mask: want["mask"], Types: types}), want["pooled"])
	}, tensor.NoGrad())
}
