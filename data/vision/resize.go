package vision

import (
	"math"
	"math/rand/v2"
)

// Interpolation chooses how a pixel is computed from the source pixels around it.
type Interpolation int

// Bilinear and Bicubic widen their filters when they make an image smaller, so that every source
// pixel contributes. Pillow does the same, and so does torchvision with antialias=True, its
// default. The constants that end in Plain do not widen the filters. They are torchvision's
// antialias=False.
const (
	Bilinear Interpolation = iota
	Bicubic                // cubic kernel with a = -0.5
	Nearest                // torch's "nearest"
	BilinearPlain
	BicubicPlain // cubic kernel with a = -0.75
)

// maxSide is the largest side, in pixels, of an image that a transform makes.
const maxSide = 1 << 16

func sizeOK(h, w int) bool {
	return h >= 1 && w >= 1 && h <= maxSide && w <= maxSide && h*w <= 1<<28
}

// Resize scales the image and keeps its proportions, as torchvision's Resize(size) does. The
// shorter side becomes size pixels long. The length of the longer side is rounded down. The
// default interpolation is Bilinear. For bytes the results are rounded to the nearest byte, ties
// to even.
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

// ResizeTo resizes the image to h rows of w pixels, as torchvision's Resize((h, w)).
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

// A rect is a rectangle of an image's pixels.
type rect struct{ top, left, h, w int }

// blank returns a zero image of h×w with m's channels and type.
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

// resample returns the rectangle r of m, resized to h×w pixels.
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
		filter(out.F32, m.F32, m, r, rows, cols, column, func(dst, src []float32) { copy(dst, src) })
	} else {
		acc := make([]int32, r.w)
		filter(out.U8, m.U8, m, r, rows, cols, func(sum []float32, src []uint8, stride int, k kernel) {
			columnBytes(sum, src, stride, k, acc)
		}, bytesOf)
	}
	return out
}

// bytesOf rounds each number to a byte, ties to even. It adds 1.5·2²³ to a float32 below 2²². This
// addition rounds to a whole number, which is then in the low bits of the sum.
func bytesOf(dst []uint8, src []float32) {
	const magic = 3 << 22
	dst = dst[:len(src)]
	for i, v := range src {
		n := int32(math.Float32bits(v+magic)) - 0x4b400000
		dst[i] = uint8(min(max(n, 0), 255))
	}
}

// nearest returns, for each of the n pixels of a resized row, the index of its source pixel. The
// source row has size pixels. The function computes in float32, as torch does.
func nearest(size, n int) []int {
	at := make([]int, n)
	scale := float32(size) / float32(n)
	for i := range at {
		at[i] = min(int(float32(i)*scale), size-1)
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

// A kernel has the weights of the source pixels that contribute to one result pixel. The first of
// these pixels has the index start. The weights of all kernels are in one slice.
type kernel struct {
	start  int
	weight []float32
}

// taps returns the kernels that resize a row of pixels from length size to length n. The
// antialiased kernels are those of Pillow (Resample.c, precompute_coeffs), and the plain kernels
// those of torch (UpSample.h).
func taps(size, n int, how Interpolation) []kernel {
	list := make([]kernel, n)
	scale := float64(size) / float64(n)
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
			list[i] = clamped(from, w, size)
		}
		return list
	}
	stretch := max(scale, 1)
	support := width * stretch
	all := make([]float32, 0, n*(2*int(support)+3))
	for i := range list {
		center := scale * (float64(i) + 0.5)
		start := max(int(center-support+0.5), 0)
		end := min(int(center+support+0.5), size)
		sum, from := 0.0, len(all)
		for k := start; k < end; k++ {
			v := f((float64(k) - center + 0.5) / stretch)
			sum += v
			all = append(all, float32(v))
		}
		w := all[from:]
		for k, v := range w {
			w[k] = float32(float64(v) / sum)
		}
		list[i] = kernel{start, w}
	}
	return list
}

// clamped returns a kernel whose source pixels are all in 0 … size-1. It adds the weights of pixels
// outside of this range to the pixel at the nearest edge.
func clamped(start int, w []float64, size int) kernel {
	from, to := max(start, 0), min(start+len(w), size)
	from = min(from, size-1)
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

// cubic is the convolution kernel of R. Keys, "Cubic convolution interpolation for digital image
// processing", 1981.
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

// filter resamples the rectangle r of src into dst. For each result row, the function vertical
// combines the source rows of the row's kernel. Then the combined row is resampled horizontally.
// Four rows are processed at a time.
func filter[T pixel](dst, src []T, m *Image, r rect, rows, cols []kernel, vertical func(sum []float32, src []T, stride int, k kernel), store func(dst []T, src []float32)) {
	w := len(cols)
	sum, out := make([]float32, r.w), make([]float32, 4*w)
	quad := make([][4]float32, r.w) // four interleaved rows
	for c := range m.C {
		plane := src[(c*m.H+r.top)*m.W+r.left:]
		for y := 0; y < len(rows); y += 4 {
			n := min(4, len(rows)-y)
			for i := range n {
				vertical(sum, plane, m.W, rows[y+i])
				for x, v := range sum {
					quad[x][i] = v
				}
			}
			for x := range cols {
				k := &cols[x]
				var s0, s1, s2, s3 float32
				in := quad[k.start:][:len(k.weight)]
				for i, v := range k.weight {
					q := &in[i]
					s0 += float32(v * q[0])
					s1 += float32(v * q[1])
					s2 += float32(v * q[2])
					s3 += float32(v * q[3])
				}
				out[x], out[w+x], out[2*w+x], out[3*w+x] = s0, s1, s2, s3
			}
			store(dst[:n*w], out[:n*w])
			dst = dst[n*w:]
		}
	}
}

// column computes one result row from the source rows of a kernel.
func column(sum []float32, src []float32, stride int, k kernel) {
	clear(sum)
	for i, w := range k.weight {
		in := src[(k.start+i)*stride:][:len(sum)]
		for x := range sum {
			sum[x] += float32(w * in[x])
		}
	}
}

// columnBytes does what column does for bytes, in integer arithmetic. Weights are rounded to
// multiples of 2⁻²¹, which changes the result by less than a thousandth of a level. The sum of the
// absolute weights is below 2, so nothing overflows.
func columnBytes(sum []float32, src []uint8, stride int, k kernel, acc []int32) {
	const one = 1 << 21
	n := len(sum)
	acc = acc[:n]
	clear(acc)
	for i := 0; i < len(k.weight); i += 2 {
		a := src[(k.start+i)*stride:][:n]
		v := int32(math.RoundToEven(float64(k.weight[i]) * one))
		if i+1 == len(k.weight) {
			for x := range acc {
				acc[x] += v * int32(a[x])
			}
			break
		}
		b := src[(k.start+i+1)*stride:][:n]
		w := int32(math.RoundToEven(float64(k.weight[i+1]) * one))
		for x := range acc {
			acc[x] += v*int32(a[x]) + w*int32(b[x])
		}
	}
	for x, v := range acc {
		sum[x] = float32(v) * (1.0 / one)
	}
}
