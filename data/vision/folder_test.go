package vision_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/internal/glyphs"
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// picture returns an image of w×h pixels of different colours, or of different greys.
func picture(w, h int, grey bool) image.Image {
	if grey {
		m := image.NewGray(image.Rect(0, 0, w, h))
		for i := range m.Pix {
			m.Pix[i] = uint8(i * 7)
		}
		return m
	}
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for i := range w * h {
		m.SetNRGBA(i%w, i/w, color.NRGBA{uint8(10 * i), uint8(255 - 9*i), uint8(3 * i), 255})
	}
	return m
}

func encodePNG(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// webp2x2 is a lossless WebP of 2×2 pixels. The first row is red and green, the second row blue and
// white.
const webp2x2 = "UklGRiwAAABXRUJQVlA4TB8AAAAvAUAAAB8gEEjeHzqN+RcQFPwf3fxHZA/gBgwR/Q8BAA=="

func TestDecode(t *testing.T) {
	m := picture(4, 3, false)
	var jpg, gf bytes.Buffer
	jpeg.Encode(&jpg, picture(16, 8, true), &jpeg.Options{Quality: 100})
	palette := image.NewPaletted(image.Rect(0, 0, 2, 1), color.Palette{color.NRGBA{1, 2, 3, 255}, color.NRGBA{200, 100, 50, 255}})
	palette.Pix[1] = 1
	// The frame begins at (1, 1) in a screen of 4×3 pixels.
	palette.Rect = palette.Rect.Add(image.Pt(1, 1))
	gif.EncodeAll(&gf, &gif.GIF{Image: []*image.Paletted{palette}, Delay: []int{0}, Config: image.Config{Width: 4, Height: 3}})
	transparent := image.NewNRGBA(image.Rect(0, 0, 1, 1))
	transparent.SetNRGBA(0, 0, color.NRGBA{10, 20, 30, 0})
	wp, err := base64.StdEncoding.DecodeString(webp2x2)
	if err != nil {
		t.Fatal(err)
	}
	var d vision.Decode
	read := func(d vision.Decode, b []byte) *vision.Image {
		t.Helper()
		got, err := d.Read(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if got.C*got.H*got.W != len(got.U8) || got.F32 != nil {
			t.Fatalf("%d×%d×%d, %d bytes", got.C, got.H, got.W, len(got.U8))
		}
		return got
	}
	got := read(d, encodePNG(t, m))
	if got.C != 3 || got.H != 3 || got.W != 4 || got.U8[5] != 50 || got.U8[12+5] != 255-45 || got.U8[24+5] != 15 {
		t.Fatal(got)
	}
	if g := read(vision.Decode{Gray: true}, encodePNG(t, m)); g.C != 1 || g.U8[5] != uint8((50*19595+210*38470+15*7471+0x8000)>>16) {
		t.Fatal(g)
	}
	if g := read(d, encodePNG(t, picture(5, 2, true))); g.C != 3 || g.U8[9] != 63 || g.U8[19] != 63 || g.U8[29] != 63 {
		t.Fatal(g)
	}
	if g := read(d, encodePNG(t, transparent)); !slices.Equal(g.U8, []uint8{10, 20, 30}) {
		t.Fatal(g)
	}
	for i, v := range read(vision.Decode{Gray: true}, jpg.Bytes()).U8 {
		if e := int(v) - int(uint8(i*7)); e < -4 || e > 4 {
			t.Fatalf("JPEG: pixel %d is %d", i, v)
		}
	}
	if g := read(d, gf.Bytes()); g.H != 3 || g.W != 4 || !slices.Equal(g.U8[4:8], []uint8{0, 1, 200, 0}) || g.U8[12+6] != 100 {
		t.Fatal(g)
	}
	if g := read(d, wp); !slices.Equal(g.U8, []uint8{255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255}) {
		t.Fatal(g)
	}
	gray16 := image.NewGray16(image.Rect(0, 0, 1, 1))
	gray16.SetGray16(0, 0, color.Gray16{0x1234})
	if g := read(d, encodePNG(t, gray16)); g.U8[0] != 0x12 {
		t.Fatal(g)
	}
}

// A PNG of a few bytes claims 30,000 × 30,000 pixels. Read must return an error before it allocates
// memory for the pixels.
func TestBomb(t *testing.T) {
	b := encodePNG(t, picture(4, 3, false))
	copy(b[16:], []byte{0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30})
	copy(b[29:], crc(b[12:29]))
	_, err := vision.Decode{}.Read(bytes.NewReader(b))
	var e *vision.Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "30000×30000 pixels, at most") {
		t.Fatal(err)
	}
	if _, err := (vision.Decode{MaxPixels: 11}).Read(bytes.NewReader(encodePNG(t, picture(4, 3, false)))); err == nil || !strings.Contains(err.Error(), "at most 11") {
		t.Fatal(err)
	}
}

// exif returns an APP1 segment that holds the orientation o. If big is true, it is big-endian.
func exif(o byte, big bool) []byte {
	tiff := []byte("II*\x00\x08\x00\x00\x00\x01\x00\x12\x01\x03\x00\x01\x00\x00\x00" + string(o) + "\x00\x00\x00\x00\x00\x00\x00")
	if big {
		tiff = []byte("MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00" + string(o) + "\x00\x00\x00\x00\x00\x00")
	}
	return append([]byte{0xff, 0xe1, 0, byte(len(tiff) + 8), 'E', 'x', 'i', 'f', 0, 0}, tiff...)
}

func TestOrientation(t *testing.T) {
	// The image has 16×8 pixels. It is dark at the left, brighter to the right, and bright at the
	// top, so that the eight orientations differ.
	m := image.NewGray(image.Rect(0, 0, 16, 8))
	for i := range m.Pix {
		m.Pix[i] = uint8(i%16*8 + (7-i/16)*16)
	}
	var b bytes.Buffer
	jpeg.Encode(&b, m, &jpeg.Options{Quality: 100})
	at := func(x, y int) int { return x*8 + (7-y)*16 }
	// The entries follow EXIF's table of orientations. Each has three points. The first is the
	// position, in the stored image, of the pixel that is displayed at the top left. The second is
	// the position of the pixel that is displayed to the right of it. The third is the size of the
	// displayed image.
	for o, c := range map[byte][3]image.Point{
		1: {{0, 0}, {1, 0}, {16, 8}}, 2: {{15, 0}, {14, 0}, {16, 8}}, 3: {{15, 7}, {14, 7}, {16, 8}}, 4: {{0, 7}, {1, 7}, {16, 8}},
		5: {{0, 0}, {0, 1}, {8, 16}}, 6: {{0, 7}, {0, 6}, {8, 16}}, 7: {{15, 7}, {15, 6}, {8, 16}}, 8: {{15, 0}, {15, 1}, {8, 16}},
	} {
		for _, big := range []bool{false, true} {
			file := slices.Concat(b.Bytes()[:2], exif(o, big), b.Bytes()[2:])
			got, err := vision.Decode{Gray: true, Upright: true}.Read(bytes.NewReader(file))
			if err != nil || got.W != c[2].X || got.H != c[2].Y {
				t.Fatal(o, got, err)
			}
			for k := range 2 {
				if e := int(got.U8[k]) - at(c[k].X, c[k].Y); e < -3 || e > 3 {
					t.Errorf("orientation %d: pixel %d is %d, want %d", o, k, got.U8[k], at(c[k].X, c[k].Y))
				}
			}
			stored, err := vision.Decode{Gray: true}.Read(bytes.NewReader(file))
			if err != nil || stored.W != 16 {
				t.Fatal("turned without being asked", err)
			}
		}
	}
}

func TestImageFolder(t *testing.T) {
	dir := t.TempDir()
	put := func(name string, b []byte) {
		t.Helper()
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := vision.ImageFolder(dir); err == nil || !strings.Contains(err.Error(), "no directory in it") {
		t.Fatal(err)
	}
	p := encodePNG(t, picture(4, 3, false))
	put("dog/b.PNG", p)
	put("dog/a/z.png", p)
	put("dog/.hidden.png", p)
	put("dog/notes.txt", nil)
	put("cat/1.jpg", []byte("not a picture"))
	put(".cache/x.png", p)
	put("readme.md", nil)
	f, err := vision.ImageFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if f.Len() != 3 || !slices.Equal(f.Classes(), []string{"cat", "dog"}) || !slices.Equal(f.Labels(), []int64{0, 1, 1}) ||
		f.Path(1) != filepath.Join(dir, "dog", "a", "z.png") {
		t.Fatal(f)
	}
	s, err := f.Get(2)
	if err != nil || s.Y != int64(1) || s.X.(*tensor.Tensor).Shape() != shape.Of(3, 3, 4) {
		t.Fatal(s, err)
	}
	var e *vision.Error
	if _, err = f.Get(0); !errors.As(err, &e) || e.Path != filepath.Join(dir, "cat", "1.jpg") {
		t.Fatal(err)
	}
	put("fish/none.txt", nil)
	if _, err = vision.ImageFolder(dir); !errors.As(err, &e) || e.Path != filepath.Join(dir, "fish") {
		t.Fatal(err)
	}
}

func TestCIFAR(t *testing.T) {
	for labels, load := range map[int]func(string, bool) (*vision.Set, error){1: vision.CIFAR10, 2: vision.CIFAR100} {
		record := func(class, seed byte) []byte {
			b := make([]byte, labels+3072)
			for i := range b {
				b[i] = byte(i) * seed
			}
			b[0], b[labels-1] = 1, class
			return b
		}
		names, meta, sub := []string{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"}, "batches.meta.txt", "cifar-10-batches-bin"
		test, n := "test_batch.bin", 10
		if labels == 2 {
			names, meta, sub, test, n = []string{"train.bin"}, "fine_label_names.txt", "cifar-100-binary", "test.bin", 100
		}
		dir := t.TempDir()
		os.Mkdir(filepath.Join(dir, sub), 0o755)
		archive := &bytes.Buffer{}
		z := gzip.NewWriter(archive)
		tw := tar.NewWriter(z)
		put := func(name string, b []byte) {
			os.WriteFile(filepath.Join(dir, sub, name), b, 0o644)
			tw.WriteHeader(&tar.Header{Name: sub + "/" + name, Typeflag: tar.TypeReg, Size: int64(len(b)), Mode: 0o644})
			tw.Write(b)
		}
		for i, name := range names {
			put(name, append(record(byte(i), 3), record(9, 5)...))
		}
		put(test, record(7, 7))
		var classes []string
		for i := range n {
			classes = append(classes, fmt.Sprintf("kind%d", i))
		}
		put(meta, []byte(strings.Join(classes, "\n")+"\n\n"))
		tw.Close()
		z.Close()
		file := filepath.Join(t.TempDir(), "set.tar.gz")
		os.WriteFile(file, archive.Bytes(), 0o644)
		for _, path := range []string{dir, filepath.Join(dir, sub), file} {
			s, err := load(path, true)
			if err != nil {
				t.Fatal(err)
			}
			if s.Len() != 2*len(names) || s.Classes()[9] != "kind9" || s.Labels()[1] != 9 {
				t.Fatal(s.Len(), s.Classes(), s.Labels())
			}
			m, _, _ := s.Image(0)
			if m.C != 3 || m.H != 32 || m.W != 32 || m.U8[5] != byte((5+labels)*3) {
				t.Fatal(m)
			}
			if s, err = load(path, false); err != nil || s.Len() != 1 || s.Labels()[0] != 7 {
				t.Fatal(s, err)
			}
		}
		os.WriteFile(filepath.Join(dir, sub, test), record(byte(n), 1), 0o644)
		if _, err := load(dir, false); err == nil || !strings.Contains(err.Error(), "label of image 0") {
			t.Fatal(err)
		}
		os.WriteFile(filepath.Join(dir, sub, test), record(1, 1)[:3000], 0o644)
		if _, err := load(dir, false); err == nil || !strings.Contains(err.Error(), "3000 bytes are not records") {
			t.Fatal(err)
		}
		os.Remove(filepath.Join(dir, sub, test))
		if _, err := load(dir, false); !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		os.WriteFile(file, archive.Bytes()[:len(archive.Bytes())/2], 0o644)
		var e *vision.Error
		if _, err := load(file, false); !errors.As(err, &e) || e.Path != file {
			t.Fatal(err)
		}
	}
}

// crc is the checksum of a PNG chunk's name and data.
func crc(b []byte) []byte {
	sum := crc32.ChecksumIEEE(b)
	return []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}
}

// Size returns the size of an image without decoding its pixels.
func TestFolderSize(t *testing.T) {
	dir := t.TempDir()
	if err := glyphs.Folder(dir, 1, 3); err != nil {
		t.Fatal(err)
	}
	f, err := vision.ImageFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := f.Image(4)
	if err != nil {
		t.Fatal(err)
	}
	if h, w, err := f.Size(4); err != nil || h != m.H || w != m.W {
		t.Errorf("%d×%d, %v; the picture has %d×%d", h, w, err, m.H, m.W)
	}
	if _, _, err := f.Size(f.Len()); err == nil {
		t.Error("a picture that is not there has a size")
	}
	if err := os.WriteFile(f.Path(2), []byte("no picture"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Size(2); err == nil || !strings.Contains(err.Error(), f.Path(2)+": not a picture") {
		t.Error(err)
	}
}
