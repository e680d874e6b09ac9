package glyphs

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/flambeau-go/flambeau/data/vision"
)

// TestDigits checks that a nearest-neighbour classifier recognises most digits. No two images of a
// digit may be equal.
func TestDigits(t *testing.T) {
	train, labels := Images(1500, 1)
	test, want := Images(200, 2)
	again, _ := Images(200, 2)
	if !bytes.Equal(test, again) {
		t.Fatal("the same seed, other pixels")
	}
	right, n := 0, Size*Size
	for i := range want {
		best, class := 1<<62, uint8(0)
		for k := range labels {
			d := 0
			for p := range n {
				e := int(test[i*n+p]) - int(train[k*n+p])
				d += e * e
			}
			if d < best {
				best, class = d, labels[k]
			}
		}
		if best == 0 {
			t.Fatal("two images are the same")
		}
		if class == want[i] {
			right++
		}
	}
	if right < 180 {
		t.Fatalf("%d of %d", right, len(want))
	}
}

func TestWritten(t *testing.T) {
	dir := t.TempDir()
	if err := Folder(filepath.Join(dir, "png"), 3, 5); err != nil {
		t.Fatal(err)
	}
	if err := IDX(filepath.Join(dir, "idx"), 30, 20, 5); err != nil {
		t.Fatal(err)
	}
	f, err := vision.ImageFolder(filepath.Join(dir, "png"), vision.Decode{Gray: true})
	if err != nil || f.Len() != 30 {
		t.Fatal(f, err)
	}
	s, err := vision.MNIST(filepath.Join(dir, "idx"), true)
	if err != nil || s.Len() != 30 {
		t.Fatal(s, err)
	}
	for i := range 30 { // sample 10·k + d of the IDX files is image k of digit d in the folder
		a, class, err := s.Image(i)
		if err != nil || class != int64(i%10) {
			t.Fatal(class, err)
		}
		b, class, err := f.Image(i%10*3 + i/10)
		if err != nil || class != int64(i%10) || !bytes.Equal(a.U8, b.U8) {
			t.Fatal(i, class, err)
		}
	}
	if test, err := vision.MNIST(filepath.Join(dir, "idx"), false); err != nil || test.Len() != 20 {
		t.Fatal(test, err)
	}
	if err := Folder(filepath.Join(dir, "idx", "t10k-labels-idx1-ubyte.gz"), 1, 1); err == nil {
		t.Fatal("a folder in a file")
	}
	if list, err := os.ReadDir(filepath.Join(dir, "idx")); err != nil || len(list) != 4 {
		t.Fatal(list, err)
	}
}
