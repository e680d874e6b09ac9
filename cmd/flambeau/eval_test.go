package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/internal/glyphs"
	"github.com/flambeau-go/flambeau/safetensors"
)

// measures runs the command eval. The output must say which samples were measured, in the words of
// the argument want.
func measures(t *testing.T, want string, args ...string) {
	t.Helper()
	args = append([]string{"eval", "--device", "cpu"}, args...)
	if out, _ := must(t, args...); !strings.HasPrefix(out, "measured on "+want+"\n") || !strings.Contains(out, "\nloss ") {
		t.Errorf("flambeau %s: want %q\n%s", strings.Join(args, " "), want, out)
	}
	out, errOut := must(t, append(args, "--json")...)
	var r evalReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Measured != want || !strings.Contains(errOut, want) {
		t.Errorf("flambeau %s --json: want %q\n%s%s", strings.Join(args, " "), want, out, errOut)
	}
}

// The command eval measures all images if none was used in training. If the images are the training
// data, it measures only the part that was held out. This also holds after images were moved,
// renamed or added.
func TestEvalMeasuresAllOfIt(t *testing.T) {
	dir := t.TempDir()
	set, other, weights := filepath.Join(dir, "set"), filepath.Join(dir, "other"), filepath.Join(dir, "w.safetensors")
	for path, seed := range map[string]uint64{set: 1, other: 2} {
		if err := glyphs.Folder(path, 5, seed); err != nil {
			t.Fatal(err)
		}
	}
	out, _ := must(t, "train", "--data", set, "--steps", "2", "--out", weights, "--device", "cpu", "--json")
	trained := lastLine(t, out)
	measures(t, "10 of 50 pictures, held out: the other 40 were trained on", weights, "--data", set)
	out, _ = must(t, "eval", weights, "--data", set, "--device", "cpu", "--json")
	var r evalReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || *r.Accuracy != *trained.TestAccuracy || r.Samples != 10 {
		t.Errorf("%s, training said %v", out, *trained.TestAccuracy)
	}
	measures(t, "all 50 pictures, 40 of which were trained on", weights, "--data", set, "--all")
	measures(t, "all 50 pictures, none of which was trained on", weights, "--data", other)
	// Classes keep their numbers in the model, even if the folder has only some of the classes.
	some := filepath.Join(dir, "some")
	if err := os.MkdirAll(some, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, class := range []string{"7", "4"} {
		if err := os.CopyFS(filepath.Join(some, class), os.DirFS(filepath.Join(other, class))); err != nil {
			t.Fatal(err)
		}
	}
	measures(t, "all 10 pictures, none of which was trained on", weights, "--data", some)
	out, _ = must(t, "eval", weights, "--data", some, "--device", "cpu", "--json")
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Classes[4].Samples != 5 || r.Classes[7].Samples != 5 || r.Classes[0].Samples != 0 {
		t.Error(out, err)
	}
	moved := filepath.Join(dir, "moved")
	if err := os.Rename(set, moved); err != nil {
		t.Fatal(err)
	}
	list, err := filepath.Glob(filepath.Join(other, "3", "*.png"))
	if err != nil || len(list) != 5 {
		t.Fatal(list, err)
	}
	for i, p := range list {
		if err := os.Rename(p, filepath.Join(moved, "3", fmt.Sprintf("a%d.png", i))); err != nil {
			t.Fatal(err)
		}
	}
	measures(t, "15 of 55 pictures, held out: the other 40 were trained on", weights, "--data", moved)
	// The weights of earlier versions do not say which samples the model was trained on.
	bare := filepath.Join(dir, "bare.safetensors")
	must(t, "train", "--data", moved, "--steps", "1", "--out", bare, "--device", "cpu", "--no-fingerprint")
	if _, meta, err := safetensors.Load(bare); err != nil || strings.Contains(meta[cardKey], "trained") {
		t.Error(meta, err)
	}
	measures(t, "all 55 pictures; whether some of them were trained on is not known: the weights do not say what they were trained on", bare, "--data", moved)
}

// The command eval identifies rows by their content and counts equal rows. A table is not taken for
// the training data if only a few rows are equal.
func TestEvalOfTables(t *testing.T) {
	dir := t.TempDir()
	// Every row occurs at least two times.
	set, weights := tableFile(t, filepath.Join(dir, "set.csv"), 100, letters), filepath.Join(dir, "w.safetensors")
	must(t, "train", "--data", set, "--steps", "2", "--out", weights, "--device", "cpu")
	measures(t, "20 of 100 rows, held out: the other 80 were trained on", weights, "--data", set)
	measures(t, "50 of 130 rows, held out: the other 80 were trained on", weights, "--data", tableFile(t, filepath.Join(dir, "longer.csv"), 130, letters))
	measures(t, "all 9 rows, 9 of which are equal to some that were trained on", weights, "--data", tableFile(t, filepath.Join(dir, "few.csv"), 9, letters))
	measures(t, "all 3 rows, none of which was trained on", weights, "--data", write(t, filepath.Join(dir, "new.csv"), "x,y,c\n100,1,a\n101,2,b\n102,3,a\n"))
	parts := filepath.Join(dir, "parts")
	for i, part := range []string{"train.csv", "test.csv"} {
		if err := os.MkdirAll(parts, 0o700); err != nil {
			t.Fatal(err)
		}
		tableFile(t, filepath.Join(parts, part), 30-20*i, letters)
	}
	must(t, "train", "--data", parts, "--steps", "2", "--out", weights, "--device", "cpu")
	measures(t, "10 of 40 rows, the part for testing", weights, "--data", parts)
	measures(t, "all 30 rows, each of which was trained on", weights, "--data", filepath.Join(parts, "train.csv"))
	keep := filepath.Join(dir, "keep")
	must(t, "train", "--data", set, "--epochs", "1", "--checkpoint", keep, "--device", "cpu")
	measures(t, "20 of 100 rows, held out: the other 80 were trained on", keep, "--data", set)
	if _, errOut := must(t, "train", "--data", set, "--epochs", "2", "--checkpoint", keep, "--resume", "--no-fingerprint", "--device", "cpu"); !strings.Contains(errOut, "going on from") {
		t.Error(errOut)
	}
}

// The command eval identifies a text by its beginning, and measures the text after the training
// part.
func TestEvalOfText(t *testing.T) {
	dir := t.TempDir()
	book := strings.ReplaceAll(sentences(8000), "a dog", "ä dog")
	path, weights := write(t, filepath.Join(dir, "book.txt"), book), filepath.Join(dir, "w.safetensors")
	must(t, "train", "--data", path, "--steps", "1", "--hidden", "16", "--batch", "2", "--out", weights, "--device", "cpu")
	n := len([]rune(book))
	cut := n - n/10
	measures(t, fmt.Sprintf("%d of %d characters, held out: the first %d were trained on", n-cut, n, cut), weights, "--data", path)
	measures(t, fmt.Sprintf("all %d characters, the first %d of which were trained on", n, cut), weights, "--data", path, "--all")
	measures(t, fmt.Sprintf("%d of %d characters, held out: the first %d were trained on", 2*n-cut, 2*n, cut), weights, "--data", write(t, filepath.Join(dir, "longer.txt"), book+book))
	measures(t, fmt.Sprintf("all %d characters; it does not begin with the text that was trained on", n-1), weights, "--data", write(t, filepath.Join(dir, "other.txt"), book[1:]))
	table := write(t, filepath.Join(dir, "set.csv"), "color,price\nred,1\nblue,2\n")
	fails(t, "the model was trained on a text; "+table+" holds a table", "eval", weights, "--data", table)
	short := write(t, filepath.Join(dir, "short.txt"), "a")
	fails(t, "flambeau: "+short+": 1 characters are too few", "train", "--data", short)
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
