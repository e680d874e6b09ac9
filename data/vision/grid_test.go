package vision_test

import (
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// gridOf computes the expected grid pixel by pixel.
func gridOf(x *tensor.Tensor, columns, padding int, value float64) []float64 {
	n, c, h, w := x.Dim(0), x.Dim(1), x.Dim(2), x.Dim(3)
	columns = min(columns, n)
	rows := (n + columns - 1) / columns
	height, width := rows*(h+padding)+padding, columns*(w+padding)+padding
	out, from := slices.Repeat([]float64{value}, 3*height*width), x.Floats()
	for i := range n {
		for p := range 3 {
			for y := range h {
				for z := range w {
					to := (p*height+(i/columns)*(h+padding)+padding+y)*width + (i%columns)*(w+padding) + padding + z
					out[to] = from[((i*c+p%c)*h+y)*w+z]
				}
			}
		}
	}
	return out
}

func TestMakeGrid(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for _, c := range []struct {
			dims    []int
			how     vision.Grid
			columns int
			padding int
			shape   []int
		}{
			{[]int{10, 1, 3, 4}, vision.Grid{}, 8, 2, []int{3, 12, 50}},
			{[]int{10, 3, 3, 4}, vision.Grid{Columns: 4, Padding: 1, PadValue: 0.5}, 4, 1, []int{3, 13, 21}},
			{[]int{2, 3, 1, 1}, vision.Grid{Columns: 4, Padding: -1}, 4, 0, []int{3, 1, 2}},
			{[]int{3, 1, 2, 2}, vision.Grid{Columns: 1}, 1, 2, []int{3, 14, 6}},
		} {
			x := s.Rand(c.dims...)
			got := vision.MakeGrid(x, c.how)
			if got.Shape() != shape.Of(c.shape...) || !slices.Equal(got.Floats(), gridOf(x, c.columns, c.padding, c.how.PadValue)) {
				t.Errorf("%v %+v: %v", c.dims, c.how, got)
			}
		}
		// A single image gets no padding, and bytes stay bytes.
		x := tensor.FromBytes(dtype.U8, []byte{1, 2, 3, 4}, 2, 2).In(s)
		if got := vision.MakeGrid(x); got.Type() != dtype.U8 || !slices.Equal(got.Floats(), []float64{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}) {
			t.Error(got)
		}
		pictures := tensor.From([]float32{-1, 3, 10, 10}, 2, 1, 1, 2).In(s)
		for _, c := range []struct {
			how  vision.Grid
			want []float64 // torchvision's result, without the padding
		}{
			{vision.Grid{Normalize: true}, []float64{0, 4. / 11, 1, 1}},
			{vision.Grid{Normalize: true, Each: true}, []float64{0, 1, 0, 0}},
			{vision.Grid{Normalize: true, Range: [2]float64{0, 4}}, []float64{0, 0.75, 1, 1}},
		} {
			c.how.Padding, c.how.Columns = -1, 2
			got := vision.MakeGrid(pictures, c.how).Select(0, 0).Floats()
			for i := range got {
				if math.Abs(got[i]-c.want[i]) > 1e-6 {
					t.Errorf("%+v: %v, want %v", c.how, got, c.want)
					break
				}
			}
		}
	})
}

func TestMakeGridMistakes(t *testing.T) {
	for want, f := range map[string]func(s *tensor.Scope){
		"1 or 3 channels": func(s *tensor.Scope) { vision.MakeGrid(s.Zeros(2, 4, 5, 5)) },
		"at least one":    func(s *tensor.Scope) { vision.MakeGrid(s.Zeros(0, 3, 5, 5)) },
		"[H,W]":           func(s *tensor.Scope) { vision.MakeGrid(s.Zeros(5)) },
		"-1 columns":      func(s *tensor.Scope) { vision.MakeGrid(s.Zeros(2, 3, 5, 5), vision.Grid{Columns: -1}) },
		"padding of 6148914691236517206 pixels": func(s *tensor.Scope) {
			vision.MakeGrid(s.Zeros(9, 3, 5, 5), vision.Grid{Padding: 6148914691236517206})
		},
		"more than one":     func(s *tensor.Scope) { vision.MakeGrid(s.Zeros(2, 2), vision.Grid{}, vision.Grid{}) },
		"two rising values": func(s *tensor.Scope) { vision.MakeGrid(s.Zeros(2, 2), vision.Grid{Range: [2]float64{0, 1}}) },
		"can be normalised": func(s *tensor.Scope) { vision.MakeGrid(s.Zeros(2, 2).Long(), vision.Grid{Normalize: true}) },
	} {
		err := tensor.Try(func() { tensor.Do(f) })
		var e *tensor.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A written file can be read back. For a PNG, the pixels do not change.
func TestSaveImage(t *testing.T) {
	dir := t.TempDir()
	x := tensor.Root().Rand(5, 3, 6, 7)
	defer x.Free()
	for _, name := range []string{"a.png", "a.JPG", "a.jpeg"} {
		path := filepath.Join(dir, name)
		if err := vision.SaveImage(path, x, vision.Grid{Columns: 2}); err != nil {
			t.Fatal(err)
		}
		m, err := vision.Decode{}.Load(path)
		if err != nil || m.C != 3 || m.H != 26 || m.W != 20 {
			t.Fatalf("%s: %+v, %v", name, m, err)
		}
		if name != "a.png" {
			continue
		}
		for i, v := range gridOf(x, 2, 2, 0) {
			if want := uint8(v*255 + 0.5); m.U8[i] != want {
				t.Fatalf("byte %d is %d, want %d", i, m.U8[i], want)
			}
		}
	}
	// Bytes are written unchanged. Numbers outside of 0 … 1 are clamped, and NaN becomes black.
	for _, c := range []struct {
		x    *tensor.Tensor
		want []uint8
	}{
		{tensor.FromBytes(dtype.U8, []byte{0, 7, 255}, 1, 3), []uint8{0, 7, 255}},
		{tensor.From([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -3, 2, 0.5}, 1, 6), []uint8{0, 255, 0, 0, 255, 128}},
	} {
		path := filepath.Join(dir, "b.png")
		if err := vision.SaveImage(path, c.x); err != nil {
			t.Fatal(err)
		}
		if m, err := (vision.Decode{Gray: true}).Load(path); err != nil || !slices.Equal(m.U8, c.want) {
			t.Errorf("%v, %v, want %v", m, err, c.want)
		}
	}
}

// After an error there is no new file, and an old file is unchanged.
func TestSaveImageFails(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old.png")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	good, long := tensor.From([]float64{rng.Float64()}, 1, 1), tensor.From([]int64{1}, 1, 1)
	var file *vision.Error
	var op *tensor.Error
	for _, c := range []struct {
		path string
		x    *tensor.Tensor
		as   any
		want string
	}{
		{filepath.Join(dir, "a.bmp"), good, &file, ".png, .jpg"},
		{filepath.Join(dir, "a"), good, &file, ".png, .jpg"},
		{filepath.Join(dir, "none", "a.png"), good, &file, "none"},
		{old, long, &op, "uint8"},
		{old, tensor.Zeros(2, 3, 0, 4), &op, "pixels"},
	} {
		err := vision.SaveImage(c.path, c.x, vision.Grid{Padding: -1})
		if !errors.As(err, c.as) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.path, err, c.want)
		}
	}
	if err := vision.SaveImage(filepath.Join(dir, "none", "a.png"), good); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	files, err := os.ReadDir(dir)
	text, err2 := os.ReadFile(old)
	if err != nil || err2 != nil || len(files) != 1 || string(text) != "old" {
		t.Errorf("%v, %v, %v, %q", files, err, err2, text)
	}
}

// Mixup, CutMix and MakeGrid accept batches in the scope of a step, and their results belong to
// that scope.
func TestBatchesOfAStep(t *testing.T) {
	err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			x, y, rng := s.Rand(3, 1, 4, 4), s.Typed(dtype.I64).Zeros(3), rand.New(rand.NewPCG(1, 2))
			mixed, _ := vision.Mixup(x, y, 2, 1, rng)
			cut, target := vision.CutMix(mixed, y, 2, 1, rng)
			if grid := vision.MakeGrid(cut); grid.Scope() != s || target.Scope() != s {
				t.Error("the results belong to another scope")
			}
		})
	})
	if err != nil {
		t.Error(err)
	}
}
