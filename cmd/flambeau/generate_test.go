package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

// Text is generated from the published files of a GPT-2: weights with Hugging Face's names, as
// safetensors or .pt, and the two files of the tokenizer.
func TestGenerateFromGPT2Files(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	corpus := sentences(4000)
	bpe, err := text.TrainBPE([]string{corpus}, text.TrainOptions{Vocab: 300})
	if err != nil {
		t.Fatal(err)
	}
	if err := bpe.Save(in("vocab.json"), in("merges.txt")); err != nil {
		t.Fatal(err)
	}
	tensor.ManualSeed(3)
	m := models.NewGPT(models.GPTConfig{Vocab: bpe.Vocab(), Context: 32, Layers: 2, Heads: 2, Width: 32})
	sd, tree := map[string]*tensor.Tensor{}, map[string]any{}
	for name, x := range nn.StateDict(m) {
		sd["transformer."+name], tree[name] = x, x
	}
	if err := safetensors.Save(in("model.safetensors"), sd, nil); err != nil {
		t.Fatal(err)
	}
	if err := torchfile.Save(in("model.pt"), tree); err != nil {
		t.Fatal(err)
	}
	prompt, err := bpe.Encode("the cat")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := nn.Eval(m).Generate([][]int{prompt}, models.GenerateOptions{MaxTokens: 12, Temperature: 0.9, TopK: 20, TopP: 0.9, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	more, err := bpe.Decode(ids[0])
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--device", "cpu", "--heads", "2", "--tokens", "12", "--temperature", "0.9", "--top-k", "20", "--top-p", "0.9", "--seed", "5", "--prompt", "the cat"}
	for _, file := range []string{"model.safetensors", "model.pt"} {
		if out, _ := must(t, append([]string{"generate", in(file)}, args...)...); out != "the cat"+more+"\n" {
			t.Errorf("%s: %q, want %q", file, out, "the cat"+more)
		}
	}
	// More tokens than the context holds are generated, each the most likely one.
	out, _ := must(t, "generate", in("model.pt"), "--device", "cpu", "--tokens", "60", "--temperature", "0", "--prompt", "the cat", "--vocab", in("vocab.json"), "--merges", in("merges.txt"))
	if len(out) < 60 {
		t.Errorf("%q", out)
	}
	if err := os.Remove(in("merges.txt")); err != nil {
		t.Fatal(err)
	}
	if status, _, errOut := command(t, "generate", in("model.pt"), "--device", "cpu"); status != 1 || !strings.Contains(errOut, "name them with --vocab and --merges") {
		t.Errorf("%d %s", status, errOut)
	}
	if status, _, errOut := command(t, "eval", in("model.pt"), "--device", "cpu"); status != 1 || !strings.Contains(errOut, "does not say what model") {
		t.Errorf("%d %s", status, errOut)
	}
}
