package vision_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"

	"github.com/flambeau-go/flambeau/data/vision"
)

// colours returns an image in which all pixels are different.
func colours(w, h int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.Set(x, y, color.RGBA{uint8(50 * x), uint8(60 * y), uint8(255 - 40*x - y), 255})
		}
	}
	return m
}

func ppm(w io.Writer, m image.Image) error {
	b := m.Bounds()
	fmt.Fprintf(w, "P6\n%d %d\n255\n", b.Dx(), b.Dy())
	for i := range b.Dx() * b.Dy() {
		r, g, bl, _ := m.At(i%b.Dx(), i/b.Dx()).RGBA()
		if _, err := w.Write([]byte{byte(r >> 8), byte(g >> 8), byte(bl >> 8)}); err != nil {
			return err
		}
	}
	return nil
}

// ImageFolder accepts images in BMP, TIFF and PPM. Their pixels equal those of the same image in
// PNG.
func TestFolderOfBMPAndTIFFAndPPM(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "class")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m := colours(5, 4)
	names := []string{"a.png", "b.bmp", "c.tiff", "d.TIF", "e.ppm"}
	for i, encode := range []func(io.Writer, image.Image) error{png.Encode, bmp.Encode,
		func(w io.Writer, m image.Image) error { return tiff.Encode(w, m, nil) },
		func(w io.Writer, m image.Image) error {
			return tiff.Encode(w, m, &tiff.Options{Compression: tiff.Deflate, Predictor: true})
		}, ppm} {
		var text bytes.Buffer
		if err := encode(&text, m); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, names[i]), text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := vision.ImageFolder(filepath.Dir(dir))
	if err != nil || f.Len() != len(names) {
		t.Fatal(f, err)
	}
	want, _, err := f.Image(0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range names {
		got, _, err := f.Image(i)
		if err != nil || got.C != 3 || got.H != 4 || got.W != 5 || !slices.Equal(got.U8, want.U8) {
			t.Errorf("%s: %v, %v", names[i], got, err)
		}
		if h, w, err := f.Size(i); h != 4 || w != 5 || err != nil {
			t.Errorf("%s: %d, %d, %v", names[i], h, w, err)
		}
	}
}

// Decoding accepts the four formats of netpbm, with comments and with several values for full
// brightness. Damaged files are errors.
func TestNetpbm(t *testing.T) {
	for text, want := range map[string][]uint8{
		"P2\n# made by hand\n3 1 # columns, rows\n255\n0 7\t255\n": {0, 7, 255},
		// Scaled exactly, the third value is 127.5, which rounds to an even number, and the last is
		// 2.55.
		"P2 2 2 100 0 50 100 1":   {0, 128, 255, 3},
		"P5 2 1 255\n\x01\xfe":    {1, 254},
		"P5 3 1 15\n\x00\x07\x0f": {0, 119, 255},
		// Scaled exactly, the first value is 127.502.
		"P5 2 1 65535\n\x80\x00\xff\xff": {128, 255},
		"P5#c\r2#c\n1\n255 #\n":          {'#', '\n'},
		"P3\n2 1\n255\n1 2 3\n4 5 6\n":   {1, 4, 2, 5, 3, 6},
		// Bytes after the image are ignored.
		"P3 1 1 255 9 8 7 6 5":                      {9, 8, 7},
		"P6\n1 2\n255\n\x01\x02\x03\x04\x05\x06":    {1, 4, 2, 5, 3, 6},
		"P6 1 1 1023\n\x03\xff\x00\x00\x01\xff":     {255, 0, 127},
		"P6 1 1 255\n#\n#and another one's picture": {'#', '\n', '#'},
	} {
		m, err := vision.Decode{Gray: text[1] == '2' || text[1] == '5'}.Read(strings.NewReader(text))
		if err != nil || !slices.Equal(m.U8, want) {
			t.Errorf("%q: %v, %v, want %v", text, m, err, want)
		}
	}
	for text, want := range map[string]string{
		"P5 2 2 255\n\x01\x02\x03":    "ends before its last pixel",
		"P2 2 2 255 1 2 3":            "ends before its last pixel",
		"P6 2":                        "ends before its last pixel",
		"P5 2 x 255\n":                `'x' where a number belongs`,
		"P5 1 1 65536\n\x00\x00":      "65536 as the largest value",
		"P5 1 1 0\n\x00":              "0 as the largest value",
		"P5 0 1 255\n":                "0×1 pixels",
		"P2 1 1 100 101":              "a value of 101, where 100 is the largest",
		"P5 1 1 100\n\xff":            "a value of 255, where 100 is the largest",
		"P5 8000 8000 255\n\x01":      "ends before its last pixel",
		"P5 99999 99999 255\n\x01":    "99999×99999 pixels, at most 67108864",
		"P5 99999999999 1 255\n\x01":  "value out of range",
		"P5 999999999999999 1 255\n ": "value out of range",
	} {
		var e *vision.Error
		if m, err := (vision.Decode{}).Read(strings.NewReader(text)); !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", text, m, err, want)
		}
	}
}

// A small file that claims many pixels is an error before memory is allocated. The error names the
// file, the size and the limit. Below the limit, the memory is proportional to the number of
// pixels.
func TestPixelLimit(t *testing.T) {
	ihdr := binary.BigEndian.AppendUint32([]byte("IHDR"), 9000)
	ihdr = append(binary.BigEndian.AppendUint32(ihdr, 9000), 8, 0, 0, 0, 0)
	text := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), ihdr...)
	text = binary.BigEndian.AppendUint32(text, crc32.ChecksumIEEE(ihdr))
	path := filepath.Join(t.TempDir(), "bomb.png")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := vision.Decode{}.Load(path)
	var e *vision.Error
	var p *vision.PixelsError
	if !errors.As(err, &e) || e.Path != path || !errors.As(err, &p) || *p != (vision.PixelsError{Width: 9000, Height: 9000, Max: 1 << 26}) ||
		!strings.Contains(err.Error(), "9000×9000 pixels, at most 67108864") || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
	if _, err := (vision.Decode{MaxPixels: 9000 * 9000}).Load(path); err == nil || errors.As(err, &p) {
		t.Errorf("with a higher limit it is a file that ends early: %v", err)
	}
	const n = 2000
	for _, c := range []struct {
		m     image.Image
		bytes uint64 // expected memory per pixel
	}{{image.NewGray(image.Rect(0, 0, n, n)), 2}, {image.NewRGBA(image.Rect(0, 0, n, n)), 7}, {image.NewNRGBA64(image.Rect(0, 0, n, n)), 11}} {
		var file bytes.Buffer
		if err := png.Encode(&file, c.m); err != nil {
			t.Fatal(err)
		}
		_, gray := c.m.(*image.Gray)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := vision.Decode{Gray: gray}.Read(&file)
		runtime.ReadMemStats(&after)
		if err != nil || m.H != n {
			t.Fatal(m, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > (c.bytes+1)*n*n {
			t.Errorf("%T: %d bytes a pixel", c.m, took/n/n)
		}
	}
}
