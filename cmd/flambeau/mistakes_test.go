package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/internal/glyphs"
)

// tableFile writes a CSV file with two columns of numbers and a last column c, whose value in row i
// is lastColumn(i).
func tableFile(t *testing.T, path string, rows int, lastColumn func(i int) string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("x,y,c\n")
	for i := range rows {
		fmt.Fprintf(&b, "%d.5,%d,%s\n", i%7, i%3, lastColumn(i))
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func letters(i int) string { return string(rune('a' + i%2)) }

// fails runs a command, which must fail with a message that contains the given text.
func fails(t *testing.T, want string, args ...string) {
	t.Helper()
	status, out, errOut := command(t, append(args, "--device", "cpu")...)
	if status != 1 || !strings.Contains(errOut, want) {
		t.Errorf("flambeau %s: status %d, want %q\n%s%s", strings.Join(args, " "), status, want, out, errOut)
	}
}

// A table is refused if a classifier cannot learn anything from it.
func TestTablesWithoutClasses(t *testing.T) {
	dir := t.TempDir()
	fails(t, `all samples are of one class, "a"`, "train", "--data", tableFile(t, filepath.Join(dir, "one.csv"), 20, func(int) string { return "a" }))
	fails(t, `these are numbers and no classes`, "train", "--no-regression", "--data", tableFile(t, filepath.Join(dir, "numbers.csv"), 20, func(i int) string { return fmt.Sprint(float64(i) + 0.25) }))
	fails(t, `fill it in or leave the row out`, "train", "--data", tableFile(t, filepath.Join(dir, "gap.csv"), 20, func(i int) string { return letters(i)[i/19:] }))
}

// A loss that is NaN or infinite becomes null in JSON. A measured zero is not left out. A
// prediction of NaN is an error.
func TestNumbersInJSON(t *testing.T) {
	dir := t.TempDir()
	csv, weights := tableFile(t, filepath.Join(dir, "t.csv"), 40, letters), filepath.Join(dir, "w.safetensors")
	out, _ := must(t, "train", "--data", csv, "--steps", "1", "--lr", "1e30", "--json", "--out", weights, "--device", "cpu")
	var r map[string]any
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if v, ok := r["test_loss"]; !ok || v != nil || r["train_loss"] == nil || r["test_accuracy"] == nil {
		t.Error(out)
	}
	out, _ = must(t, "eval", weights, "--data", csv, "--json", "--device", "cpu")
	clear(r)
	if err := json.Unmarshal([]byte(out), &r); err != nil || r["loss"] != nil || r["accuracy"] == nil {
		t.Error(out, err)
	}
	fails(t, "the model gives NaN for sample 0", "predict", weights, csv)
	if b, err := json.Marshal(struct {
		A *number `json:"a,omitempty"`
		B *number `json:"b,omitempty"`
	}{measured(map[string]float64{"accuracy": 0}, "accuracy"), measured(nil, "accuracy")}); err != nil || string(b) != `{"a":0}` {
		t.Error(string(b), err)
	}
}

// Resuming with other settings is an error that names these settings.
func TestResumeWithOtherSettings(t *testing.T) {
	dir := t.TempDir()
	csv, keep := tableFile(t, filepath.Join(dir, "t.csv"), 40, letters), filepath.Join(dir, "keep")
	begun := []string{"train", "--data", csv, "--epochs", "2", "--checkpoint", keep}
	must(t, append(begun, "--device", "cpu")...)
	again := append(begun, "--resume")
	fails(t, `"hidden" was 128 and is 64`, append(again, "--hidden", "64")...)
	fails(t, `"model" was "mlp" and is "cnn"`, "train", "--checkpoint", keep, "--resume", "--data", pictures(t, filepath.Join(dir, "pictures")))
	fails(t, "optimizer: ", append(again, "--optim", "sgd")...)
	fails(t, "wants the data and the --optim", append(again, "--optim", "sgd")...)
	fails(t, "schedule: ", append(again, "--sched", "constant")...)
	fails(t, "loader: ", append(again, "--batch", "3")...)
	if _, errOut := must(t, append(again, "--device", "cpu")...); !strings.Contains(errOut, "no steps are left") {
		t.Error(errOut)
	}
}

// The command predict classifies the intact images among broken ones. The exit status is 1, because
// there is a broken image.
func TestPredictAmongBrokenPictures(t *testing.T) {
	dir := t.TempDir()
	set, weights := pictures(t, filepath.Join(dir, "set")), filepath.Join(dir, "w.safetensors")
	must(t, "train", "--data", set, "--steps", "1", "--out", weights, "--device", "cpu")
	some, err := filepath.Glob(filepath.Join(set, "*", "*.png"))
	if err != nil || len(some) != 30 {
		t.Fatal(some, err)
	}
	if err := os.WriteFile(some[3], []byte("no picture"), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errOut := command(t, "predict", weights, set, "--device", "cpu")
	if status != 1 || strings.Count(out, "\n") != 29 || !strings.Contains(errOut, "1 of 30 pictures could not be used") || !strings.Contains(errOut, some[3]+": not a picture") {
		t.Errorf("status %d\n%s%s", status, out, errOut)
	}
	fails(t, "not a picture", "predict", weights, some[3])
}

// A first line of numbers still counts as column names, with a warning.
func TestTableWithoutNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.csv")
	if err := os.WriteFile(path, []byte(strings.Repeat("0.5,1,a\n1.5,2,b\n", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, errOut := must(t, "train", "--data", path, "--steps", "1", "--device", "cpu"); !strings.Contains(errOut, `taken for the names of the columns, though they are ["0.5" "1"]`) {
		t.Error(errOut)
	}
}

// A last batch of one image is dropped, because batch normalisation cannot work with one image.
func TestLastBatchOfOne(t *testing.T) {
	set := pictures(t, filepath.Join(t.TempDir(), "set")) // 24 of the 30 images are for training
	must(t, "train", "--data", set, "--model", "resnet18", "--size", "16", "--batch", "23", "--epochs", "1", "--device", "cpu")
}

// An output file must have the ending of its format. If it cannot be written, the command fails
// before the training.
func TestOutFile(t *testing.T) {
	dir := t.TempDir()
	fails(t, "what is written is a safetensors file", "train", "--steps", "1", "--out", filepath.Join(dir, "w.pt"))
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Error(files, err)
	}
}

// The error about a wrong flag refers to the help of the command.
func TestHelpIsNamed(t *testing.T) {
	if _, _, errOut := command(t, "eval"); !strings.Contains(errOut, "See: flambeau eval --help") {
		t.Error(errOut)
	}
	if _, _, errOut := command(t, "evil"); !strings.Contains(errOut, "See: flambeau --help") {
		t.Error(errOut)
	}
}

func pictures(t *testing.T, dir string) string {
	t.Helper()
	if err := glyphs.Folder(dir, 3, 9); err != nil {
		t.Fatal(err)
	}
	return dir
}
