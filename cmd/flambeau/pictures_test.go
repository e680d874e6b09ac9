package main

import (
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mixedPictures writes images of several sizes and two classes, dark and light.
func mixedPictures(t *testing.T, dir string) string {
	t.Helper()
	for i := range 30 {
		class := []string{"dark", "light"}[i%2]
		m := image.NewGray(image.Rect(0, 0, 16+2*(i%5), 12+4*(i%3)))
		for k := range m.Pix {
			m.Pix[k] = uint8(200*(i%2) + (k*7+i)%50)
		}
		m.SetGray(0, 0, color.Gray{Y: uint8(i)})
		if err := os.MkdirAll(filepath.Join(dir, class), 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Create(filepath.Join(dir, class, string(rune('a'+i))+".png"))
		if err != nil {
			t.Fatal(err)
		}
		if err := png.Encode(f, m); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Images of several sizes are resized to one size, and a message says so. The other commands use
// the same size.
func TestPicturesOfMixedSizes(t *testing.T) {
	dir := t.TempDir()
	set, weights := mixedPictures(t, filepath.Join(dir, "set")), filepath.Join(dir, "w.safetensors")
	_, errOut := must(t, "train", "--data", set, "--steps", "3", "--device", "cpu", "--out", weights)
	if !strings.Contains(errOut, "the pictures have 15 sizes, from 16×12 to 24×20 pixels: they are resized to 16×16, the median of their shorter sides; --size N chooses another\n") {
		t.Error(errOut)
	}
	measures(t, "6 of 30 pictures, held out: the other 24 were trained on", weights, "--data", set)
	if out, _ := must(t, "predict", weights, set, "--device", "cpu"); strings.Count(out, "\n") != 30 {
		t.Error(out)
	}
	if _, errOut := must(t, "train", "--data", set, "--steps", "1", "--device", "cpu", "--size", "12"); strings.Contains(errOut, "sizes") {
		t.Error(errOut)
	}
	if _, errOut := must(t, "train", "--data", set, "--steps", "1", "--device", "cpu", "--model", "vit"); !strings.Contains(errOut, "resized to 16×16") {
		t.Error(errOut)
	}
	// The command eval refuses images of a class that the model does not have.
	fixed := filepath.Join(dir, "fixed.safetensors")
	must(t, "train", "--data", pictures(t, filepath.Join(dir, "glyphs")), "--steps", "1", "--device", "cpu", "--out", fixed)
	fails(t, `the class "dark" of the pictures is none of the 10 that the model knows`, "eval", fixed, "--data", set)
}
