package vision

import (
	"math"
	"math/rand/v2"
)

// Interpolation is how pixels between pixels are computed.
type Interpolation int

// Bilinear and Bicubic widen their filters when they make an image smaller, so that nothing is left out: torchvision's
// antialias=True, which is its default, and Pillow's way. The forms ending in Plain do not: antialias=False.
const (
	Bilinear      Interpolation = iota
	Bicubic                     // a = -0.5
	Nearest                     // torch's "nearest"
	BilinearPlain               //
	BicubicPlain                // a = -0.75
)

// maxSide bounds the images that transforms make.
const maxSide = 1 << 16

func sizeOK(h, w int) bool {
	return h >= 1 && w >= 1 && h <= maxSide && w <= maxSide && h*w <= 1<<28
}

// Resize makes the shorter side size pixels long and keeps the proportions, as torchvision's Resize(size): the longer side is cut off to a
// whole number. how is Bilinear unless given. Bytes are rounded to the nearest, ties to even.
func Resize(size int, how ...Interpolation) Transform {
	return func(m *Image, _ *rand.Rand) (*Image, error) {
		h, w := size, size
		if m.W <= m.H {
			h = int(float64(size*m.H) / float64(m.W))
		} else {
			w = int(float64(size*m.W) / float64(m.H))
		}
		return resized(m, h, w, how)
	}
}

// ResizeTo makes the image h rows of w pixels, as torchvision's Resize((h, w)).
func ResizeTo(h, w int, how ...Interpolation) Transform {
	return func(m *Image, _ *rand.Rand) (*Image, error) { return resized(m, h, w, how) }
}

func resized(m *Image, h, w int, how []Interpolation) (*Image, error) {
	if !sizeOK(h, w) {
		return nil, failf("", "Resize: an image of %d×%d cannot be made %d×%d", m.H, m.W, h, w)
	}
	if h == m.H && w == m.W {
		return m, nil
	}
	return m.resample(rect{0, 0, m.H, m.W}, h, w, one(how)), nil
}

func one(how []Interpolation) Interpolation {
	if len(how) > 0 {
		return how[0]
	}
	return Bilinear
}

// A rect is a part of an image.
type rect struct{ top, left, h, w int }

// blank returns an image of m's channels and type.
func (m *Image) blank(h, w int) *Image {
	out := &Image{C: m.C, H: h, W: w}
	if m.F32 != nil {
		out.F32 = make([]float32, m.C*h*w)
	} else {
		out.U8 = make([]uint8, m.C*h*w)
	}
	return out
}

type pixel interface{ uint8 | float32 }

// resample returns the part r of m as an image of h×w.
func (m *Image) resample(r rect, h, w int, how Interpolation) *Image {
	out := m.blank(h, w)
	if how == Nearest {
		rows, cols := nearest(r.h, h), nearest(r.w, w)
		if m.F32 != nil {
			pick(out.F32, m.F32, m, r, rows, cols)
		} else {
			pick(out.U8, m.U8, m, r, rows, cols)
		}
		return out
	}
	rows, cols := taps(r.h, h, how), taps(r.w, w, how)
	if m.F32 != nil {
		filter(out.F32, m.F32, m, r, rows, cols, func(dst, src []float32) { copy(dst, src) })
	} else {
		filter(out.U8, m.U8, m, r, rows, cols, bytesOf)
	}
	return out
}

// bytesOf rounds to bytes. Adding and taking away 1.5·2²³ leaves a float32 below 2²² rounded to the nearest, ties to even.
func bytesOf(dst []uint8, src []float32) {
	const magic = 3 << 22
	dst = dst[:len(src)]
	for i, v := range src {
		v = min(max(v, 0), 255)
		dst[i] = uint8(int32(math.Float32bits(v+magic)) & 0xff)
	}
}

// nearest returns the source of each of n pixels, of in, by float32 as torch computes it.
func nearest(in, n int) []int {
	at := make([]int, n)
	scale := float32(in) / float32(n)
	for i := range at {
		at[i] = min(int(float32(i)*scale), in-1)
	}
	return at
}

func pick[T pixel](dst, src []T, m *Image, r rect, rows, cols []int) {
	for c := range m.C {
		for _, y := range rows {
			row := src[(c*m.H+r.top+y)*m.W+r.left:][:r.w]
			for i, x := range cols {
				dst[i] = row[x]
			}
			dst = dst[len(cols):]
		}
	}
}

// A kernel is what one pixel is computed from: neighbours from start on, by weight. The weights of all lie behind one another.
type kernel struct {
	start  int
	weight []float32
}

// taps returns the kernels that make n pixels of in. The antialiased forms are those of Pillow (Resample.c, precompute_coeffs), the
// plain ones those of torch (UpSample.h).
func taps(in, n int, how Interpolation) []kernel {
	list := make([]kernel, n)
	scale := float64(in) / float64(n)
	width, f := 1.0, triangle
	if how == Bicubic || how == BicubicPlain {
		width, f = 2, func(x float64) float64 { return cubic(x, -0.5) }
	}
	if how == BilinearPlain || how == BicubicPlain {
		for i := range list {
			at := (float64(i)+0.5)*scale - 0.5
			if how == BilinearPlain {
				at = max(at, 0)
			}
			first := int(math.Floor(at))
			t := at - float64(first)
			w, from := []float64{1 - t, t}, first
			if how == BicubicPlain {
				w, from = []float64{cubic(1+t, -0.75), cubic(t, -0.75), cubic(1-t, -0.75), cubic(2-t, -0.75)}, first-1
			}
			list[i] = clamped(from, w, in)
		}
		return list
	}
	stretch := max(scale, 1)
	support := width * stretch
	for i := range list {
		center := scale * (float64(i) + 0.5)
		start := max(int(center-support+0.5), 0)
		end := min(int(center+support+0.5), in)
		w, sum := make([]float64, end-start), 0.0
		for k := range w {
			w[k] = f((float64(start+k) - center + 0.5) / stretch)
			sum += w[k]
		}
		for k := range w {
			w[k] /= sum
		}
		list[i] = clamped(start, w, in)
	}
	return list
}

// clamped moves what lies outside of 0 … in-1 to the edge.
func clamped(start int, w []float64, in int) kernel {
	from, to := max(start, 0), min(start+len(w), in)
	from = min(from, in-1)
	to = max(to, from+1)
	k := kernel{from, make([]float32, to-from)}
	sum := make([]float64, to-from)
	for i, v := range w {
		sum[min(max(start+i, from), to-1)-from] += v
	}
	for i, v := range sum {
		k.weight[i] = float32(v)
	}
	return k
}

func triangle(x float64) float64 { return max(1-math.Abs(x), 0) }

// cubic is the convolution kernel of R. Keys, "Cubic convolution interpolation for digital image processing", 1981.
func cubic(x, a float64) float64 {
	x = math.Abs(x)
	switch {
	case x < 1:
		return ((a+2)*x-(a+3))*x*x + 1
	case x < 2:
		return (((x-5)*x+8)*x - 4) * a
	}
	return 0
}

// filter computes each pixel along its row, then down its column.
func filter[T pixel](dst, src []T, m *Image, r rect, rows, cols []kernel, store func(dst []T, src []float32)) {
	w := len(cols)
	last := rows[len(rows)-1]
	low, high := rows[0].start, last.start+len(last.weight)
	wide := make([]float32, (high-low)*w)
	line, sum := make([]float32, r.w), make([]float32, w)
	for c := range m.C {
		for y := low; y < high; y++ {
			row := src[(c*m.H+r.top+y)*m.W+r.left:][:r.w]
			for i, v := range row {
				line[i] = float32(v)
			}
			to := wide[(y-low)*w:][:w]
			for x := range cols {
				k := &cols[x]
				s := float32(0)
				in := line[k.start:][:len(k.weight)]
				for i, v := range k.weight {
					s += float32(v * in[i])
				}
				to[x] = s
			}
		}
		for _, k := range rows {
			clear(sum)
			for i, v := range k.weight {
				in := wide[(k.start-low+i)*w:][:len(sum)]
				for x := range sum {
					sum[x] += float32(v * in[x])
				}
			}
			store(dst[:w], sum)
			dst = dst[w:]
		}
	}
}
