package vision_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// ReadIDX reads a file of every element type. The bytes were written by hand from the description
// of the format.
func TestIDXTypes(t *testing.T) {
	want := []float64{1, -2, 3, -100, 5, 6}
	for code, c := range map[byte]struct {
		t dtype.Type
		v any
	}{
		0x08: {dtype.U8, []uint8{1, 254, 3, 156, 5, 6}},
		0x09: {dtype.I8, []int8{1, -2, 3, -100, 5, 6}},
		0x0b: {dtype.I16, []int16{1, -2, 3, -100, 5, 6}},
		0x0c: {dtype.I32, []int32{1, -2, 3, -100, 5, 6}},
		0x0d: {dtype.F32, []float32{1, -2, 3, -100, 5, 6}},
		0x0e: {dtype.F64, []float64{1, -2, 3, -100, 5, 6}},
	} {
		var b bytes.Buffer
		b.Write([]byte{0, 0, code, 2, 0, 0, 0, 2, 0, 0, 0, 3})
		binary.Write(&b, binary.BigEndian, c.v)
		file := bytes.Clone(b.Bytes())
		x, err := vision.ReadIDX(&b)
		if err != nil {
			t.Fatal(err)
		}
		if x.Type() != c.t || x.Shape() != shape.Of(2, 3) {
			t.Fatalf("%v %v", x.Type(), x.Shape())
		}
		for i, v := range x.Floats() {
			if c.t == dtype.U8 && want[i] < 0 {
				v -= 256
			}
			if v != want[i] {
				t.Fatalf("%v: %v", c.t, x.Floats())
			}
		}
		var again bytes.Buffer
		if err := vision.WriteIDX(&again, x); err != nil || !bytes.Equal(again.Bytes(), file) {
			t.Fatalf("%v: % x, %v", c.t, again.Bytes(), err)
		}
	}
	if err := vision.WriteIDX(&bytes.Buffer{}, tensor.From([]int64{1})); err == nil || !strings.Contains(err.Error(), "cannot hold i64") && !strings.Contains(err.Error(), "int64") {
		t.Fatal(err)
	}
}

func TestIDXErrors(t *testing.T) {
	zip := func(b []byte) []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		z.Write(b)
		z.Close()
		return out.Bytes()
	}
	good := []byte{0, 0, 8, 1, 0, 0, 0, 2, 7, 9}
	for _, c := range []struct {
		file []byte
		want string
	}{
		{nil, "header is cut"},
		{[]byte{0, 0, 8}, "header is cut"},
		{[]byte{1, 0, 8, 1, 0, 0, 0, 1, 1}, "begins with 01 00 08 01"},
		{[]byte{0, 0, 10, 1, 0, 0, 0, 1, 1}, "not an IDX file"},
		{[]byte{0, 0, 8, 9, 0, 0}, "9 dimensions"},
		{[]byte{0, 0, 8, 2, 0, 0, 0, 1, 0}, "header of the IDX file is cut"},
		{[]byte{0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}, "at most"},
		{[]byte{0, 0, 14, 1, 64, 0, 0, 0}, "at most"},
		// The header claims 4 GiB, but 3 bytes follow.
		{[]byte{0, 0, 8, 2, 255, 255, 255, 255, 0, 0, 0, 1, 1, 2, 3}, "3 bytes of elements"},
		{good[:9], "1 bytes of elements"},
		{append(bytes.Clone(good), 1), "more than the 2 bytes"},
		{zip(good)[:20], "EOF"},
		{[]byte{0x1f, 0x8b, 1, 2}, "not a gzip file"},
	} {
		_, err := vision.ReadIDX(bytes.NewReader(c.file))
		var e *vision.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("% x: %v, want %q", c.file, err, c.want)
		}
	}
	x, err := vision.ReadIDX(bytes.NewReader(zip(good)))
	if err != nil || x.Floats()[1] != 9 {
		t.Fatal(x, err)
	}
	path := filepath.Join(t.TempDir(), "a.idx")
	os.WriteFile(path, good[:9], 0o644)
	if _, err := vision.LoadIDX(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Fatal(err)
	}
	if _, err := vision.LoadIDX(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func saveIDX(t *testing.T, path string, v any, dims ...int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := vision.SaveIDX(path, tensor.From(v, dims...)); err != nil {
		t.Fatal(err)
	}
}

func TestMNIST(t *testing.T) {
	for _, names := range [][4]string{
		{"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"},
		{"train-images.idx3-ubyte", "train-labels.idx1-ubyte", "t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte"},
		{"raw/train-images-idx3-ubyte", "raw/train-labels-idx1-ubyte.gz", "raw/t10k-images-idx3-ubyte", "raw/t10k-labels-idx1-ubyte"},
		{"MNIST/raw/train-images-idx3-ubyte", "MNIST/raw/train-labels-idx1-ubyte", "MNIST/raw/t10k-images-idx3-ubyte", "MNIST/raw/t10k-labels-idx1-ubyte"},
	} {
		dir := t.TempDir()
		saveIDX(t, filepath.Join(dir, names[0]), []uint8{0, 51, 102, 153, 204, 255, 1, 2, 3, 4, 5, 6}, 2, 2, 3)
		saveIDX(t, filepath.Join(dir, names[1]), []uint8{3, 1})
		saveIDX(t, filepath.Join(dir, names[2]), []uint8{1, 2, 3, 4, 5, 6}, 1, 2, 3)
		saveIDX(t, filepath.Join(dir, names[3]), []int16{0})
		s, err := vision.MNIST(dir, true)
		if err != nil {
			t.Fatal(err)
		}
		if c, h, w := s.Size(); s.Len() != 2 || c != 1 || h != 2 || w != 3 || len(s.Classes()) != 4 {
			t.Fatal(s.Len(), c, h, w, s.Classes())
		}
		one, err := s.Get(0)
		if err != nil || one.Y != int64(3) {
			t.Fatal(one.Y, err)
		}
		x, y, err := s.GetBatch([]int{1, 0})
		if err != nil || x.Shape() != shape.Of(2, 1, 2, 3) || tensor.Data[int64](y)[0] != 1 {
			t.Fatal(x, y, err)
		}
		if a, b := one.X.(*tensor.Tensor), x.Select(0, 1); a.Shape() != shape.Of(1, 2, 3) || !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatal(a, b)
		}
		if v := tensor.Data[float32](one.X.(*tensor.Tensor)); v[1] != float32(51)/255 || v[5] != 1 {
			t.Fatal(v)
		}
		if test, err := vision.MNIST(dir, false); err != nil || test.Len() != 1 {
			t.Fatal(test, err)
		}
		if _, err := s.Get(2); err == nil {
			t.Fatal("sample 2 of 2")
		}
		if _, _, err := s.GetBatch([]int{-1}); err == nil {
			t.Fatal("sample -1")
		}
	}
}

func TestMNISTErrors(t *testing.T) {
	dir := t.TempDir()
	fails := func(want string, name ...string) {
		t.Helper()
		_, err := vision.MNIST(dir, true, name...)
		var e *vision.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Fatalf("%v, want %q", err, want)
		}
	}
	fails("there are no files such as")
	images, labels := filepath.Join(dir, "a-train-images-idx3-ubyte"), filepath.Join(dir, "a-train-labels-idx1-ubyte")
	saveIDX(t, images, make([]uint8, 12), 2, 2, 3)
	fails("the labels of the train set are missing")
	saveIDX(t, labels, []uint8{1, 2, 3})
	fails("3 labels for the 2 images")
	saveIDX(t, labels, []int32{1, -2})
	fails("label of image 1 is -2")
	saveIDX(t, labels, []float32{1, 2})
	fails("labels are one dimension of integers")
	saveIDX(t, labels, []int32{1, 2})
	saveIDX(t, images, make([]float32, 12), 2, 2, 3)
	fails("images are uint8")
	saveIDX(t, images, make([]uint8, 12), 2, 6)
	fails("images are [N,H,W]")
	saveIDX(t, images, make([]uint8, 12), 2, 1, 2, 3)
	if s, err := vision.MNIST(dir, true); err != nil || s.Len() != 2 {
		t.Fatal(err)
	}
	saveIDX(t, filepath.Join(dir, "b-train-images-idx3-ubyte"), make([]uint8, 12), 2, 2, 3)
	fails("several sets: a, b")
	fails("no set \"c\"", "c")
	if s, err := vision.MNIST(dir, true, "a"); err != nil || s.Len() != 2 {
		t.Fatal(err)
	}
	if _, err := vision.MNIST(filepath.Join(dir, "none"), true); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

func FuzzIDX(f *testing.F) {
	f.Add([]byte{0, 0, 8, 1, 0, 0, 0, 2, 7, 9})
	f.Add([]byte{0, 0, 13, 2, 0, 0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4})
	f.Add([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255})
	f.Fuzz(func(t *testing.T, file []byte) {
		x, err := vision.ReadIDX(bytes.NewReader(file))
		if err != nil {
			var e *vision.Error
			if !errors.As(err, &e) {
				t.Fatalf("%T", err)
			}
			return
		}
		var b bytes.Buffer
		if err := vision.WriteIDX(&b, x); err != nil {
			t.Fatal(err)
		}
		if file[0] != 0x1f && !bytes.Equal(b.Bytes(), file) {
			t.Fatalf("% x came back as % x", file, b.Bytes())
		}
	})
}
