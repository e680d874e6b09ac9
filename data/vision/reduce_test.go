package vision

import (
	"bytes"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Decoding with Size reduces every kind of image to the means of blocks of pixels. Folder.Size
// returns the reduced size.
func TestDecodeToSize(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	r := image.Rect(0, 0, 37, 52)
	rgba, grey, deep := image.NewNRGBA(r), image.NewGray(r), image.NewNRGBA64(r)
	paletted := image.NewPaletted(r, color.Palette{color.Black, color.White, color.RGBA{200, 30, 90, 255}})
	for y := range 52 {
		for x := range 37 {
			v := uint8(128 + 90*math.Sin(float64(x)/5)*math.Cos(float64(y)/7) + 20*rng.Float64())
			rgba.Set(x, y, color.NRGBA{v, 255 - v, v / 2, 255})
			deep.Set(x, y, color.NRGBA64{uint16(v) << 8, 0x1234, uint16(v) << 7, 0xffff})
			grey.Set(x, y, color.Gray{v})
			paletted.SetColorIndex(x, y, v%3)
		}
	}
	dir := t.TempDir()
	for name, write := range map[string]func(b *bytes.Buffer) error{
		"rgb.png":      func(b *bytes.Buffer) error { return png.Encode(b, rgba) },
		"16bits.png":   func(b *bytes.Buffer) error { return png.Encode(b, deep) },
		"grey.png":     func(b *bytes.Buffer) error { return png.Encode(b, grey) },
		"paletted.png": func(b *bytes.Buffer) error { return png.Encode(b, paletted) },
		"paletted.gif": func(b *bytes.Buffer) error { return gif.Encode(b, paletted, nil) },
		"colours.jpg":  func(b *bytes.Buffer) error { return jpeg.Encode(b, rgba, nil) },
	} {
		var file bytes.Buffer
		if err := write(&file); err != nil {
			t.Fatal(err)
		}
		whole, err := Decode{}.bytes(file.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for size, k := range map[int]int{0: 1, 18: 1, 10: 1, 9: 2, 6: 3, 4: 4, 1: 18} {
			m, err := Decode{Size: size}.bytes(file.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			if m.H != (52+k-1)/k || m.W != (37+k-1)/k {
				t.Fatalf("%s for %d: %d×%d", name, size, m.H, m.W)
			}
			most := 0.0
			if name == "colours.jpg" && k > 1 {
				// Colours are interpolated only within a band of rows, so the results differ at the
				// border of two bands.
				most = 6
			}
			for i, v := range m.U8 {
				c, y, x := i/m.W/m.H, i/m.W%m.H*k, i%m.W*k
				sum, n := 0.0, 0.0
				for yy := y; yy < min(y+k, 52); yy++ {
					for xx := x; xx < min(x+k, 37); xx++ {
						sum += float64(whole.U8[(c*52+yy)*37+xx])
						n++
					}
				}
				if math.Abs(float64(v)-sum/n) > 0.5+most {
					t.Fatalf("%s for %d: pixel %d,%d of channel %d is %d, the mean is %v", name, size, y/k, x/k, c, v, sum/n)
				}
			}
		}
		if err := os.MkdirAll(filepath.Join(dir, "a"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a", name), file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []Decode{{Size: 6}, {Size: 6, Upright: true}} {
		folder, err := ImageFolder(dir, d)
		if err != nil {
			t.Fatal(err)
		}
		for i := range folder.Len() {
			if h, w, err := folder.Size(i); err != nil || h != 18 || w != 13 {
				t.Errorf("%s: %d×%d, %v", folder.Path(i), h, w, err)
			}
		}
	}
}

// Decoding a large image to a small size needs little more memory than Go's decoder allocates.
func TestDecodeToSizeTakesLittle(t *testing.T) {
	const side = 2048
	var file bytes.Buffer
	if err := png.Encode(&file, image.NewGray(image.Rect(0, 0, side, side))); err != nil {
		t.Fatal(err)
	}
	taken := func(d Decode) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := d.bytes(file.Bytes()); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if whole, small := taken(Decode{}), taken(Decode{Size: 100}); small > whole/2 || small < side*side {
		t.Errorf("%d bytes in full, %d reduced", whole, small)
	}
}
