package vision_test

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/internal/glyphs"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
)

// The batches depend only on the seed, the epoch and the index, not on the number of workers. They
// differ from epoch to epoch.
func TestWorkers(t *testing.T) {
	pixels, labels := glyphs.Images(40, 3)
	classes := make([]int64, len(labels))
	for i, l := range labels {
		classes[i] = int64(l)
	}
	set, err := vision.NewSet(1, glyphs.Size, glyphs.Size, pixels, classes, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(pixels)
	ds := vision.Apply(set, vision.Pad(2, 2, 2, 2, vision.Reflect, 0), vision.RandomRotation(vision.Rotation{From: -10, To: 10, How: vision.Bilinear}),
		vision.RandomResizedCrop(24), vision.ColorJitter(vision.Jitter{Brightness: 0.3, Contrast: 0.3}), vision.RandomHorizontalFlip(0.5),
		vision.RandomVerticalFlip(0.5), vision.ToTensor(), vision.RandomErasing(0.5, vision.Erase{Random: true}))
	run := func(workers int, seed uint64) (epochs [2][]byte) {
		loader, err := data.NewLoader(ds, data.Config{Batch: 7, Shuffle: true, Seed: seed, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		for e := range epochs {
			for b, err := range loader.Batches() {
				if err != nil {
					t.Fatal(err)
				}
				if b.X.Shape() != shape.Of(b.X.Dim(0), 1, 24, 24) {
					t.Fatal(b.X.Shape())
				}
				epochs[e] = append(append(epochs[e], b.X.Bytes()...), b.Y.Bytes()...)
				b.Free()
			}
		}
		return epochs
	}
	one, four, other := run(1, 5), run(4, 5), run(4, 6)
	if !bytes.Equal(one[0], four[0]) || !bytes.Equal(one[1], four[1]) {
		t.Error("results depend on the number of workers")
	}
	if bytes.Equal(one[0], one[1]) || bytes.Equal(one[0], other[0]) {
		t.Error("two epochs, or two seeds, are the same")
	}
	if !bytes.Equal(pixels, before) {
		t.Error("a transform changed the dataset")
	}
	// Without ToTensor the samples stay bytes.
	s, err := vision.Apply(set).Get(3)
	if err != nil || !bytes.Equal(tensor.Data[uint8](s.X.(*tensor.Tensor)), pixels[3*784:4*784]) || s.Y != int64(3) {
		t.Error(s, err)
	}
}

// A damaged image ends the loop with an error that names the file. With Skip the image is left out.
func TestBadPicture(t *testing.T) {
	dir := t.TempDir()
	if err := glyphs.Folder(dir, 2, 1); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, "4", "0001.png")
	b, err := os.ReadFile(bad)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bad, b[:len(b)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := vision.ImageFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, ds := range []data.Dataset{f, vision.Apply(f, vision.Resize(14), vision.ToTensor())} {
		loader, err := data.NewLoader(ds, data.Config{Batch: 4, Workers: 2})
		if err != nil {
			t.Fatal(err)
		}
		var last error
		for b, err := range loader.Batches() {
			last = err
			b.Free()
		}
		var se *data.SampleError
		var ve *vision.Error
		if !errors.As(last, &se) || se.Index != 9 || !errors.As(last, &ve) || ve.Path != bad {
			t.Errorf("%v", last)
		}
	}
}

// In a PNG, the orientation is in a chunk of its own. With Upright, decoding applies it.
func TestOrientationElsewhere(t *testing.T) {
	tiff := exif(6, true)[10:]
	m := encodePNG(t, picture(4, 3, false))
	at := 33 // the chunk follows the header
	file := slices.Concat(m[:at], []byte{0, 0, 0, byte(len(tiff))}, []byte("eXIf"), tiff, crc(append([]byte("eXIf"), tiff...)), m[at:])
	got, err := vision.Decode{Upright: true}.Read(bytes.NewReader(file))
	// The rotation moves the bottom left pixel to the top left.
	if err != nil || got.W != 3 || got.H != 4 || got.U8[0] != 80 {
		t.Fatal(got, err)
	}
	// If the EXIF directory is missing or points past the end, the image is not rotated.
	for _, broken := range [][]byte{tiff[:6], append([]byte("MM\x00*\xff\xff\xff\xff"), tiff[8:]...), []byte("XX\x00*\x00\x00\x00\x08\x00\x01"), tiff[:12]} {
		file := slices.Concat(m[:at], []byte{0, 0, 0, byte(len(broken))}, []byte("eXIf"), broken, crc(append([]byte("eXIf"), broken...)), m[at:])
		if got, err := (vision.Decode{Upright: true}).Read(bytes.NewReader(file)); err != nil || got.W != 4 {
			t.Fatal(got, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	var t testing.T
	f.Add(encodePNG(&t, picture(4, 3, false)), true)
	for _, encode := range []func(io.Writer, image.Image) error{bmp.Encode, ppm, func(w io.Writer, m image.Image) error { return tiff.Encode(w, m, nil) }} {
		var text bytes.Buffer
		if err := encode(&text, colours(3, 2)); err != nil {
			f.Fatal(err)
		}
		f.Add(text.Bytes(), false)
	}
	f.Add([]byte("P2 2 2 100 0 50 100 1"), true)
	f.Add(encodePNG(&t, image.NewPaletted(image.Rect(0, 0, 2, 2), color.Palette{color.Black, color.White})), false)
	f.Add(slices.Concat([]byte{0xff, 0xd8}, exif(6, false)), true)
	f.Fuzz(func(t *testing.T, file []byte, gray bool) {
		m, err := vision.Decode{Gray: gray, Upright: true, MaxPixels: 1 << 14}.Read(bytes.NewReader(file))
		var e *vision.Error
		if err != nil {
			if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "vision: ") {
				t.Fatalf("%T", err)
			}
			return
		}
		if m.C*m.H*m.W != len(m.U8) || m.H*m.W > 1<<14 || (m.C == 1) != gray {
			t.Fatalf("%d×%d×%d, %d bytes", m.C, m.H, m.W, len(m.U8))
		}
	})
}
