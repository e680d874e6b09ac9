package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/internal/glyphs"
)

func must(t *testing.T, args ...string) (out, errOut string) {
	t.Helper()
	status, out, errOut := command(t, args...)
	if status != 0 {
		t.Fatalf("flambeau %s: status %d\n%s", strings.Join(args, " "), status, errOut)
	}
	return out, errOut
}

// The commands train, eval and predict accept a directory of IDX files. With FLAMBEAU_SOAK=1 there
// are 8,000 images.
func TestImagesFromIDXFiles(t *testing.T) {
	dir, images, held, want := t.TempDir(), 800, 200, 0.9
	args := []string{"--epochs", "2"}
	if soak() {
		images, held, want, args = 8000, 1000, 0.97, nil
	}
	set, weights, keep, events := filepath.Join(dir, "set"), filepath.Join(dir, "w.safetensors"), filepath.Join(dir, "keep"), filepath.Join(dir, "events")
	if err := glyphs.IDX(set, images, held, 1); err != nil {
		t.Fatal(err)
	}
	out, _ := must(t, append([]string{"train", "--model", "cnn", "--data", set, "--device", "cpu", "--json", "--out", weights, "--checkpoint", keep, "--keep", "2",
		"--tensorboard", events, "--keep-best"}, args...)...)
	r := lastLine(t, out)
	if r.Data != "idx" || r.Model != "cnn" || float64(*r.TestAccuracy) < want || r.Epochs == 0 || float64(*r.TestLoss) <= 0 {
		t.Fatalf("%+v", r)
	}
	t.Logf("%.1f s, accuracy %.4f", r.Seconds, float64(*r.TestAccuracy))
	if list, err := checkpoint.List(keep); err != nil || len(list) < 2 || list[len(list)-1].Info.Step != r.Steps {
		t.Error(list, err)
	}
	if files, err := os.ReadDir(events); err != nil || len(files) != 1 {
		t.Error(files, err)
	}
	// The command eval needs no flags for the model: a weights file describes it, and so does a
	// directory of checkpoints.
	for _, w := range []string{weights, keep} {
		out, errOut := must(t, "eval", w, "--data", set, "--device", "cpu", "--json")
		var e evalReport
		if err := json.Unmarshal([]byte(out), &e); err != nil || float64(*e.Accuracy) != float64(*r.TestAccuracy) || e.Samples != held || len(e.Confusion) != 10 {
			t.Errorf("%+v, %v\n%s", e, err, errOut)
		}
	}
	// The command predict accepts image files and IDX files.
	pictures := filepath.Join(dir, "pictures")
	if err := glyphs.Folder(pictures, 3, 9); err != nil {
		t.Fatal(err)
	}
	out, _ = must(t, "predict", weights, pictures, filepath.Join(set, "t10k-images-idx3-ubyte.gz"), "--device", "cpu", "--top", "2")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 30+held {
		t.Fatalf("%d lines", len(lines))
	}
	right := 0
	for _, l := range lines {
		var p prediction
		if err := json.Unmarshal([]byte(l), &p); err != nil || len(p.Guesses) != 2 || p.Class != p.Guesses[0].Class || p.Guesses[0].Probability < p.Guesses[1].Probability {
			t.Fatal(l, err)
		}
		want := filepath.Base(filepath.Dir(p.Path))
		if strings.HasSuffix(p.Path, ".gz") {
			want = fmt.Sprint(p.Index % 10)
		}
		if p.Class == want {
			right++
		}
	}
	if part := float64(right) / float64(len(lines)); part < want-0.03 {
		t.Errorf("%.4f of the predictions are right", part)
	}
	// Each of the other image models trains for one step, also on resized images.
	others := []string{"vit --size 16", "mlp --size 8"}
	if soak() {
		others = append(others, "resnet18", "resnet34", "resnet50")
	}
	for _, m := range others {
		w := filepath.Join(dir, "other")
		must(t, append([]string{"train", "--data", pictures, "--device", "cpu", "--steps", "1", "--batch", "4", "--out", w, "--model"}, strings.Fields(m)...)...)
		if out, _ := must(t, "predict", w, filepath.Join(pictures, "4"), "--device", "cpu"); strings.Count(out, "\n") != 3 {
			t.Errorf("%s: %s", m, out)
		}
		if out, _ := must(t, "eval", w, "--data", pictures, "--device", "cpu", "--json"); !strings.Contains(out, `"samples":6`) {
			t.Errorf("%s: %s", m, out)
		}
	}
	// One training continues from checkpoints, and another begins with given weights.
	out, _ = must(t, "train", "--model", "cnn", "--data", set, "--device", "cpu", "--json", "--checkpoint", keep, "--resume", "--epochs", fmt.Sprint(r.Epochs+1), "--steps", fmt.Sprint(r.Steps+2))
	if m := lastLine(t, out); m.Steps != r.Steps+2 || !strings.HasPrefix(m.Resumed, keep) {
		t.Errorf("%+v", m)
	}
	out, _ = must(t, "train", "--data", set, "--device", "cpu", "--json", "--init", weights, "--steps", "1", "--lr", "1e-9", "--optim", "sgd", "--sched", "constant")
	if m := lastLine(t, out); float64(*m.TestAccuracy) != float64(*r.TestAccuracy) {
		t.Errorf("%+v", m)
	}
	// Each error names the argument that does not fit.
	for args, want := range map[string]string{
		"eval " + weights: "the model is a cnn for samples of shape [1 28 28] and 10 classes, the data (digits) has samples of shape [1 8 8]",
		"train --device cpu --data " + set + " --model mlp --checkpoint " + keep + " --resume": `"model" was "cnn" and is "mlp"`,
		"train --device cpu --data " + set + " --checkpoint " + keep:                           "add --resume to go on from it",
		"train --device cpu --data " + set + " --model gpt":                                    "--model gpt does not go with idx",
		"train --device cpu --hidden 32 --model mlp --data " + set + " --init " + weights:      "does not fit the model, nothing was loaded",
		"generate " + weights: "a cnn writes no text",
		"predict " + weights + " " + filepath.Join(dir, "none.png"): "none.png",
	} {
		if status, _, errOut := command(t, strings.Fields(args)...); status != 1 || !strings.Contains(errOut, want) {
			t.Errorf("flambeau %s: status %d\n%s", args, status, errOut)
		}
	}
}

// Training accepts directories of images, with and without a test part.
func TestFolderOfPictures(t *testing.T) {
	dir, perClass, want, args := filepath.Join(t.TempDir(), "set"), 30, 0.7, []string{"--epochs", "5", "--batch", "16"}
	if soak() {
		perClass, want, args = 300, 0.95, nil
	}
	if err := glyphs.Folder(dir, perClass, 1); err != nil {
		t.Fatal(err)
	}
	out, _ := must(t, append([]string{"train", "--data", dir, "--device", "cpu", "--json"}, args...)...)
	if r := lastLine(t, out); r.Data != "pictures" || r.Model != "cnn" || float64(*r.TestAccuracy) < want {
		t.Errorf("%+v", r)
	}
}

// Training accepts a table whose class depends on two of its columns.
func TestTable(t *testing.T) {
	dir := t.TempDir()
	path, weights := filepath.Join(dir, "points.csv"), filepath.Join(dir, "w.safetensors")
	rng := rand.New(rand.NewPCG(1, 1))
	var b bytes.Buffer
	b.WriteString("x,noise,y,side\n")
	for range 600 {
		x, y := rng.NormFloat64(), 100+20*rng.NormFloat64()
		side := "left"
		if x+(y-100)/20 > 0 {
			side = "right"
		}
		fmt.Fprintf(&b, "%g,%g,%g,%s\n", x, rng.NormFloat64(), y, side)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := must(t, "train", "--data", path, "--device", "cpu", "--json", "--out", weights)
	if r := lastLine(t, out); r.Data != "csv" || r.Model != "mlp" || float64(*r.TestAccuracy) < 0.95 {
		t.Fatalf("%+v", r)
	}
	more := filepath.Join(dir, "more.csv") // table with more columns, in another order
	if err := os.WriteFile(more, []byte("y,name,x,noise\n140,a,1,0\n60,b,-1,0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ = must(t, "predict", weights, more, "--device", "cpu")
	if !strings.Contains(out, `"index":0,"class":"right"`) || !strings.Contains(out, `"index":1,"class":"left"`) {
		t.Error(out)
	}
	out, _ = must(t, "eval", weights, "--data", path, "--all", "--json", "--device", "cpu")
	if !strings.Contains(out, `"samples":600`) {
		t.Error(out)
	}
	if status, _, errOut := command(t, "train", "--data", path, "--target", "nothing", "--device", "cpu"); status != 1 || !strings.Contains(errOut, "nothing") {
		t.Errorf("%d %s", status, errOut)
	}
}

// sentences returns a text that follows a small grammar.
func sentences(size int) string {
	rng := rand.New(rand.NewPCG(5, 5))
	parts := [][]string{
		{"the cat", "a dog", "my friend", "the old man", "every child", "our teacher"},
		{" sees", " follows", " remembers", " paints", " forgets", " hears"},
		{" the moon", " a letter", " the green hill", " a long song", " some bread", " a story"},
		{" at dawn.\n", " in the rain.\n", " again and again.\n", " near the sea.\n", " after supper.\n"},
	}
	var b strings.Builder
	for b.Len() < size {
		for _, p := range parts {
			b.WriteString(p[rng.IntN(len(p))])
		}
	}
	return b.String()
}

// A model trained on a text learns more than the frequencies of letters, and generates text. With
// FLAMBEAU_SOAK=1 the text has half a megabyte.
func TestText(t *testing.T) {
	dir, size, args, below := t.TempDir(), 40_000, []string{"--steps", "60", "--hidden", "32", "--lr", "0.01", "--batch", "8"}, 0.3
	if soak() {
		size, args, below = 500_000, nil, 1.0
	}
	path, weights := filepath.Join(dir, "book.txt"), filepath.Join(dir, "w.safetensors")
	if err := os.WriteFile(path, []byte(sentences(size)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errOut := must(t, append([]string{"train", "--data", path, "--device", "cpu", "--json", "--out", weights}, args...)...)
	r := lastLine(t, out)
	var unigram float64
	at := strings.Index(errOut, "alone costs ")
	if at < 0 {
		t.Fatal(errOut)
	}
	if _, err := fmt.Sscanf(errOut[at:], "alone costs %g nats", &unigram); err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f s, %.3f nats, a letter alone costs %.3f", r.Seconds, float64(*r.TestLoss), unigram)
	if r.Model != "gpt" || float64(*r.TestLoss) > unigram-below || float64(*r.TestLoss) <= 0 {
		t.Errorf("%+v; a letter alone costs %v", r, unigram)
	}
	one, _ := must(t, "generate", weights, "--prompt", "the ", "--tokens", "70", "--device", "cpu", "--seed", "4", "--top-k", "5")
	two, _ := must(t, "generate", weights, "--prompt", "the ", "--tokens", "70", "--device", "cpu", "--seed", "4", "--top-k", "5")
	other, _ := must(t, "generate", weights, "--prompt", "the ", "--tokens", "70", "--device", "cpu", "--seed", "5", "--top-k", "5")
	if one != two || one == other || !strings.HasPrefix(one, "the ") || len(one) != 4+70+1 {
		t.Errorf("%q\n%q\n%q", one, two, other)
	}
	if e, _ := must(t, "eval", weights, "--data", path, "--device", "cpu", "--json"); !strings.Contains(e, `"perplexity"`) {
		t.Error(e)
	}
	for args, want := range map[string]string{
		"generate " + weights + " --prompt Ω":   "--prompt: ",
		"generate " + path:                      "is neither",
		"predict " + weights + " " + path:       "a gpt classifies nothing",
		"generate " + filepath.Join(dir, "no"):  "no such file",
		"train --data " + path + " --model cnn": "--model cnn does not go with text",
	} {
		if status, _, errOut := command(t, strings.Fields(args)...); status != 1 || !strings.Contains(errOut, want) {
			t.Errorf("flambeau %s: status %d\n%s", args, status, errOut)
		}
	}
}

// All commands treat the embedded digits as images if the model needs images.
func TestDigitsAsPictures(t *testing.T) {
	weights := filepath.Join(t.TempDir(), "w.safetensors")
	must(t, "train", "--model", "cnn", "--steps", "92", "--out", weights, "--device", "cpu")
	out, _ := must(t, "eval", weights, "--device", "cpu")
	var loss, accuracy float64
	_, numbers, _ := strings.Cut(out, "loss ")
	if n, err := fmt.Sscanf(numbers, "%g, accuracy %g,", &loss, &accuracy); n != 2 || accuracy < 0.5 || !strings.Contains(out, "measured on 355 of 1797 digits, the part for testing\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
