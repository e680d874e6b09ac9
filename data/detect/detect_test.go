package detect_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data/detect"
	"github.com/flambeau-go/flambeau/data/table"
	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/internal/glyphs"
)

func put(t *testing.T, text string, elem ...string) string {
	t.Helper()
	path := filepath.Join(elem...)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func try(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Path finds data sets of each kind, and opens them as datasets with the right contents.
func TestImages(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	try(t, glyphs.IDX(at("idx"), 20, 10, 1))
	try(t, glyphs.IDX(at("torch/MNIST/raw"), 20, 10, 1))
	try(t, glyphs.Folder(at("flat"), 2, 1))
	try(t, glyphs.Folder(at("parts/train"), 2, 1))
	try(t, glyphs.Folder(at("parts/val"), 1, 2))
	try(t, glyphs.Folder(at("only/train"), 2, 1))
	for i := 1; i <= 5; i++ {
		put(t, strings.Repeat("\x01", 2*3073*2), at("c10"), "cifar-10-batches-bin", fmt.Sprintf("data_batch_%d.bin", i))
	}
	put(t, strings.Repeat("\x01", 10*3073), at("c10"), "cifar-10-batches-bin", "test_batch.bin")
	put(t, strings.Repeat("\x02", 20*3074), at("c100"), "train.bin")
	put(t, strings.Repeat("\x02", 10*3074), at("c100"), "test.bin")
	put(t, "a b c", at("c100"), "fine_label_names.txt")
	for name, kind := range map[string]detect.Kind{
		"idx": detect.IDX, "torch": detect.IDX, "flat": detect.Pictures, "parts": detect.Pictures, "only": detect.Pictures,
		"c10": detect.CIFAR10, "c100": detect.CIFAR100,
	} {
		f, err := detect.Path(at(name))
		if err != nil || f.Kind != kind {
			t.Errorf("%s: %+v, %v", name, f, err)
			continue
		}
		train, err := f.Images(true, vision.Decode{Gray: true})
		if err != nil || train.Len() != 20 {
			t.Errorf("%s: %v, %v", name, train, err)
			continue
		}
		test, err := f.Images(false)
		if name == "flat" || name == "only" {
			var e *detect.Error
			if f.Test != "" || test != nil || !errors.As(err, &e) || !strings.Contains(err.Error(), "split the training part") {
				t.Errorf("%s: %v, %v", name, test, err)
			}
		} else if err != nil || test.Len() != 10 {
			t.Errorf("%s: %v, %v", name, test, err)
		}
		if _, err := f.Table(true, table.Config{}); err == nil {
			t.Errorf("%s: a table", name)
		}
	}
	f, err := detect.Path(put(t, "x", dir, "cifar-100-binary.tar.gz"))
	if err != nil || f.Kind != detect.CIFAR100 {
		t.Error(f, err)
	}
	if images, err := f.Images(true); err == nil || images != nil {
		t.Error(images, err)
	}
	if f, err = detect.Path(put(t, "x", dir, "cifar-10-binary.tar.gz")); err != nil || f.Kind != detect.CIFAR10 {
		t.Error(f, err)
	}
}

func TestTables(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text  string
		comma rune
	}{
		"a.csv": {"x,\"y;;;;\"\n1,2\n", ','}, "b.csv": {"x;y\n1;2\n", ';'}, "c.tsv": {"x\ty\n1\t2\n", '\t'}, "D.CSV": {"x,y", ','},
	} {
		f, err := detect.Path(put(t, c.text, dir, name))
		if err != nil || f.Kind != detect.CSV || f.Comma != c.comma {
			t.Fatalf("%s: %+v, %v", name, f, err)
		}
		if x, err := f.Table(true, table.Config{}); err != nil || x.X.Dim(1) != 2 {
			t.Fatal(x, err)
		}
		if _, err := f.Table(false, table.Config{}); err == nil {
			t.Fatal("a test part")
		}
	}
	put(t, "x,y\n1,2\n", dir, "both", "train.csv")
	put(t, "x,y\n1,2\n3,4\n", dir, "both", "test.csv")
	f, err := detect.Path(filepath.Join(dir, "both"))
	if err != nil || f.Kind != detect.CSV {
		t.Fatal(f, err)
	}
	if x, err := f.Table(false, table.Config{}); err != nil || x.X.Dim(0) != 2 {
		t.Fatal(x, err)
	}
	put(t, "x;y\n1;2\n", dir, "semicolons", "train.csv")
	put(t, "x\ty\n1\t2\n", dir, "semicolons", "train.tsv")
	if f, err = detect.Path(filepath.Join(dir, "semicolons")); err != nil || f.Comma != ';' || filepath.Ext(f.Train) != ".csv" {
		t.Fatal(f, err)
	}
	put(t, "", dir, "nothing", "train.csv")
	if _, err = detect.Path(filepath.Join(dir, "nothing")); err == nil || !strings.Contains(err.Error(), "train.csv: an empty file") {
		t.Fatal(err)
	}
}

func TestText(t *testing.T) {
	dir := t.TempDir()
	// Each character has three bytes. The text begins with 0, 1 or 2 other bytes, so that the
	// examined part of the file ends at each possible place within a character.
	for shift := range 3 {
		f, err := detect.Path(put(t, strings.Repeat("x", shift)+strings.Repeat("火", 30000), dir, "novel"))
		if err != nil || f.Kind != detect.Text {
			t.Fatal(f, err)
		}
		if _, err := f.Images(true); err == nil {
			t.Fatal("images")
		}
	}
}

func TestUnknown(t *testing.T) {
	dir := t.TempDir()
	try(t, glyphs.IDX(filepath.Join(dir, "idx"), 1, 1, 1))
	put(t, "", dir, "several", "a-train-images-idx3-ubyte")
	put(t, "", dir, "several", "b-train-images-idx3-ubyte")
	os.Mkdir(filepath.Join(dir, "empty"), 0o755)
	for want, path := range map[string]string{
		"an empty directory":                    filepath.Join(dir, "empty"),
		"a, b":                                  filepath.Join(dir, "several"),
		"one IDX file":                          filepath.Join(dir, "idx", "train-labels-idx1-ubyte.gz"),
		"one picture":                           put(t, "x", dir, "x.png"),
		"an empty file":                         put(t, "", dir, "nothing.csv"),
		"not text in UTF-8 (it begins with 50 ": put(t, "PK\x03\x04\x00\x01", dir, "model.pt"),
		"a directory of notes":                  filepath.Dir(put(t, "x", dir, "other", "notes")),
		"no such file":                          filepath.Join(dir, "missing"),
	} {
		_, err := detect.Path(path)
		var e *detect.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
