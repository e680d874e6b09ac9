package vision_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"image"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/tensor"
)

// Mixup and CutMix accept a batch without samples. For images without pixels they return a typed
// error.
func TestMixOfNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, mix := range map[string]func(x, y *tensor.Tensor, classes int, alpha float64, rng *rand.Rand) (*tensor.Tensor, *tensor.Tensor){"Mixup": vision.Mixup, "CutMix": vision.CutMix} {
		x, y := mix(tensor.Zeros(0, 3, 2, 2), tensor.From([]int64{}), 5, 1, rng)
		if x.Size() != 0 || y.Dim(1) != 5 {
			t.Errorf("%s of no samples: %v %v", name, x.Shape(), y.Shape())
		}
	}
	if err := tensor.Try(func() { vision.CutMix(tensor.Zeros(2, 3, 0, 2), tensor.From([]int64{0, 1}), 5, 1, rng) }); !errors.Is(err, tensor.ErrShape) {
		t.Errorf("CutMix of images without pixels: %v", err)
	}
}

// A link to a directory is a class, and a cycle of links below a class is harmless.
func TestLinkedFolders(t *testing.T) {
	dir := t.TempDir()
	var m bytes.Buffer
	if err := png.Encode(&m, image.NewGray(image.Rect(0, 0, 3, 2))); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "1.png"), m.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"b": "a", "a/ring": "."} {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := vision.ImageFolder(dir)
	if err != nil || strings.Join(f.Classes(), " ") != "a b" || f.Len() != 2 {
		t.Fatal(f, err)
	}
}

func TestLabelsFromZero(t *testing.T) {
	if _, err := vision.NewSet(1, 1, 1, []uint8{1}, []int64{-1}, nil); err == nil || !strings.Contains(err.Error(), "label of image 0 is -1; classes are numbered from 0") {
		t.Error(err)
	}
	if _, err := vision.NewSet(1, 1, 1, []uint8{1}, []int64{2}, []string{"x"}); err == nil || !strings.Contains(err.Error(), "there are 1 classes") {
		t.Error(err)
	}
	if _, err := vision.ReadIDX(bytes.NewReader(nil)); err == nil {
		t.Error("an empty file is no IDX file")
	}
}

// This package reads CIFAR's binary version. PyTorch downloads the Python version. The error for
// the Python version names the binary version.
func TestPythonCIFAR(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "data_batch_1"), []byte("\x80\x02"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := vision.CIFAR10(dir, true); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "binary version") {
		t.Error(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "cifar-100-python/train", Typeflag: tar.TypeReg, Size: 2, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	w.Write([]byte{0x80, 2})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "cifar-100-python.tar")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	var e *vision.Error
	if _, err := vision.CIFAR100(path, true); !errors.As(err, &e) || e.Path != path || !strings.Contains(err.Error(), "binary version") {
		t.Error(err)
	}
}
