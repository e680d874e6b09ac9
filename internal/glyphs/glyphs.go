// Package glyphs draws digits that look handwritten, for tests that train on images. An image shows
// the strokes of a pen in 28×28 pixels, white on black. The package rotates, scales, slants, shifts
// and bends the strokes at random, and adds noise. The same seed gives the same pixels.
package glyphs

import (
	"fmt"
	"image"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/tensor"
)

// These are the size of an image, and the number of classes.
const (
	Size    = 28
	Classes = 10
)

type point struct{ x, y float64 }

// arc returns points on an ellipse with center (cx, cy) and radii rx and ry, from angle start to
// angle end. Angles are in degrees: 0 is right and 90 is down.
func arc(cx, cy, rx, ry, start, end float64) (line []point) {
	n := int(math.Abs(end-start)/22) + 1
	for i := range n + 1 {
		a := (start + (end-start)*float64(i)/float64(n)) * math.Pi / 180
		line = append(line, point{cx + rx*math.Cos(a), cy + ry*math.Sin(a)})
	}
	return line
}

// strokes holds the paths of the pen for each digit, in a square from -1 to 1 with the y axis
// pointing down.
var strokes = [Classes][][]point{
	{arc(0, 0, 0.6, 0.95, -90, 270)},
	{{{-0.35, -0.6}, {0.1, -0.95}, {0.1, 0.95}}},
	{append(arc(0, -0.45, 0.55, 0.5, 190, 390), point{-0.6, 0.95}, point{0.65, 0.95})},
	{arc(-0.05, -0.48, 0.5, 0.47, 200, 440), arc(-0.05, 0.45, 0.6, 0.5, -90, 160)},
	{{{0.3, 0.95}, {0.3, -0.95}, {-0.65, 0.35}, {0.7, 0.35}}},
	{append([]point{{0.5, -0.95}, {-0.4, -0.95}, {-0.5, -0.1}}, arc(-0.05, 0.4, 0.6, 0.55, -140, 150)...)},
	{append([]point{{0.35, -0.95}, {-0.25, -0.4}}, arc(0, 0.4, 0.55, 0.55, 200, 560)...)},
	{{{-0.6, -0.9}, {0.6, -0.9}, {-0.15, 0.95}}},
	{arc(0, -0.48, 0.45, 0.45, 90, 450), arc(0, 0.45, 0.55, 0.5, -90, 270)},
	{append(arc(0, -0.4, 0.5, 0.5, 20, 380), point{0.45, 0.2}, point{0.2, 0.95})},
}

// Draw returns the pixels of one image of a digit, row by row.
func Draw(digit int, rng *rand.Rand) []uint8 {
	between := func(a, b float64) float64 { return a + (b-a)*rng.Float64() }
	angle, slant := between(-0.2, 0.2), between(-0.15, 0.15)
	sx, sy := between(7.5, 10.5), between(8.5, 10.5)
	dx, dy := between(-1.8, 1.8), between(-1.8, 1.8)
	pen, ink := between(0.8, 1.4), between(190, 255)
	sin, cos := math.Sincos(angle)
	type segment struct{ a, b point }
	var list []segment
	for _, line := range strokes[digit] {
		var last point
		for i, p := range line {
			x, y := p.x+between(-0.06, 0.06)+slant*p.y, p.y+between(-0.06, 0.06)
			x, y = x*sx, y*sy
			p = point{(Size-1)/2.0 + dx + cos*x - sin*y, (Size-1)/2.0 + dy + sin*x + cos*y}
			if i > 0 {
				list = append(list, segment{last, p})
			}
			last = p
		}
	}
	out := make([]uint8, Size*Size)
	for i := range out {
		x, y := float64(i%Size), float64(i/Size)
		near := math.Inf(1) // squared distance to the nearest stroke
		for _, s := range list {
			ux, uy, vx, vy := s.b.x-s.a.x, s.b.y-s.a.y, x-s.a.x, y-s.a.y
			t := 0.0
			if l := ux*ux + uy*uy; l > 0 {
				t = min(max((ux*vx+uy*vy)/l, 0), 1)
			}
			ex, ey := vx-t*ux, vy-t*uy
			near = min(near, ex*ex+ey*ey)
		}
		v := ink*min(max(pen+0.5-math.Sqrt(near), 0), 1) + 8*rng.NormFloat64()
		out[i] = uint8(min(max(v, 0), 255))
	}
	return out
}

// Images returns the pixels of n images, one after the other, and their classes. The classes are 0,
// 1, … 9, and then start again.
func Images(n int, seed uint64) (pixels, labels []uint8) {
	rng := rand.New(rand.NewPCG(seed, 0x67))
	for i := range n {
		pixels = append(pixels, Draw(i%Classes, rng)...)
		labels = append(labels, uint8(i%Classes))
	}
	return pixels, labels
}

// Folder writes perClass images of each digit in the layout that vision.ImageFolder reads:
// dir/0/0000.png, … dir/9/….png.
func Folder(dir string, perClass int, seed uint64) error {
	pixels, labels := Images(perClass*Classes, seed)
	for i, l := range labels {
		class := filepath.Join(dir, fmt.Sprint(l))
		if err := os.MkdirAll(class, 0o755); err != nil {
			return err
		}
		if err := save(filepath.Join(class, fmt.Sprintf("%04d.png", i/Classes)), pixels[i*Size*Size:(i+1)*Size*Size]); err != nil {
			return err
		}
	}
	return nil
}

func save(path string, pixels []uint8) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := encoder.Encode(f, &image.Gray{Pix: pixels, Stride: Size, Rect: image.Rect(0, 0, Size, Size)}); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// IDX writes a data set to dir in the format of MNIST: four gzipped files. train and test are the
// numbers of images.
func IDX(dir string, train, test int, seed uint64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, part := range []string{"train", "t10k"} {
		n := []int{train, test}[i]
		pixels, labels := Images(n, seed+uint64(i)<<32)
		if err := vision.SaveIDX(filepath.Join(dir, part+"-images-idx3-ubyte.gz"), tensor.From(pixels, n, Size, Size)); err != nil {
			return err
		}
		if err := vision.SaveIDX(filepath.Join(dir, part+"-labels-idx1-ubyte.gz"), tensor.From(labels, n)); err != nil {
			return err
		}
	}
	return nil
}
