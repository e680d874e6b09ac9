package vision

import (
	"math"
	"math/rand/v2"
)

// crop returns the rectangle r of m, which must lie within m.
func (m *Image) crop(r rect) *Image {
	if r.top == 0 && r.left == 0 && r.h == m.H && r.w == m.W {
		return m
	}
	out := m.blank(r.h, r.w)
	for c := range m.C {
		for y := range r.h {
			from, to := (c*m.H+r.top+y)*m.W+r.left, (c*r.h+y)*r.w
			if m.F32 != nil {
				copy(out.F32[to:to+r.w], m.F32[from:])
			} else {
				copy(out.U8[to:to+r.w], m.U8[from:])
			}
		}
	}
	return out
}

// CenterCrop cuts size×size pixels out of the middle of the image. If the image is smaller, it is
// padded with 0.
func CenterCrop(size int) Transform {
	return func(m *Image, _ *rand.Rand) (*Image, error) {
		if !sizeOK(size, size) {
			return nil, failf("", "CenterCrop: %d pixels", size)
		}
		if lackH, lackW := max(size-m.H, 0), max(size-m.W, 0); lackH+lackW > 0 {
			var err error
			if m, err = m.pad(lackW/2, lackH/2, (lackW+1)/2, (lackH+1)/2, Constant, 0); err != nil {
				return nil, err
			}
		}
		middle := func(n int) int { return int(math.RoundToEven(float64(n-size) / 2)) }
		return m.crop(rect{middle(m.H), middle(m.W), size, size}), nil
	}
}

// A PadMode chooses the values of pixels that padding adds.
type PadMode int

// These are the modes of torchvision's Pad.
const (
	Constant  PadMode = iota // added pixels have the fill value
	Edge                     // added pixels equal the nearest pixel
	Reflect                  // mirrored without the border pixel: dcb|abcd|cba
	Symmetric                // mirrored with the border pixel: cba|abcd|dcb
)

// pad adds pixels on each side of m. fill is in the range of m's values, 0 … 255 or 0 … 1.
func (m *Image) pad(left, top, right, bottom int, mode PadMode, fill float32) (*Image, error) {
	h, w := m.H+top+bottom, m.W+left+right
	if min(left, top, right, bottom) < 0 || !sizeOK(h, w) {
		return nil, failf("", "Pad: %d, %d, %d and %d pixels on the left, top, right and bottom of %d×%d", left, top, right, bottom, m.H, m.W)
	}
	reach := map[PadMode]int{Constant: maxSide, Edge: maxSide, Reflect: -1}[mode]
	if reach < maxSide && (max(left, right) > m.W+reach || max(top, bottom) > m.H+reach) {
		return nil, failf("", "Pad: an image of %d×%d cannot be mirrored for %d, %d, %d and %d pixels", m.H, m.W, left, top, right, bottom)
	}
	if m.U8 != nil && (fill < 0 || fill > 255) {
		return nil, failf("", "Pad: fill value %v for bytes", fill)
	}
	source := func(i, n int) int {
		switch {
		case i >= 0 && i < n:
			return i
		case mode == Constant:
			return -1
		case mode == Edge:
			return min(max(i, 0), n-1)
		case mode == Reflect && i < 0:
			return -i
		case mode == Reflect:
			return 2*n - 2 - i
		case i < 0:
			return -1 - i
		}
		return 2*n - 1 - i
	}
	cols := make([]int, w)
	for x := range cols {
		cols[x] = source(x-left, m.W)
	}
	out := m.blank(h, w)
	for c := range m.C {
		for y := range h {
			from := source(y-top, m.H)
			to := (c*h + y) * w
			for x, sx := range cols {
				switch {
				case from >= 0 && sx >= 0 && m.F32 != nil:
					out.F32[to+x] = m.F32[(c*m.H+from)*m.W+sx]
				case from >= 0 && sx >= 0:
					out.U8[to+x] = m.U8[(c*m.H+from)*m.W+sx]
				case m.F32 != nil:
					out.F32[to+x] = fill
				default:
					out.U8[to+x] = uint8(fill)
				}
			}
		}
	}
	return out, nil
}

// Pad adds pixels on the four sides of the image. In the mode Constant their value is fill, which
// is 0 … 255 for bytes.
func Pad(left, top, right, bottom int, mode PadMode, fill float32) Transform {
	return func(m *Image, _ *rand.Rand) (*Image, error) { return m.pad(left, top, right, bottom, mode, fill) }
}

// A Crop configures [RandomCrop].
type Crop struct {
	H, W    int // size of the result in pixels; a W of 0 means W = H
	Padding int // number of pixels added on each side before cropping
	// IfNeeded pads an image that is smaller than H×W. It pads opposite sides equally. Without
	// IfNeeded, such an image is an error.
	IfNeeded bool
	Mode     PadMode // selects the values of added pixels
	Fill     float32
}

// RandomCrop cuts c.H×c.W pixels at a random position. All positions have the same probability.
func RandomCrop(c Crop) Transform {
	if c.W == 0 {
		c.W = c.H
	}
	return func(m *Image, rng *rand.Rand) (*Image, error) {
		var err error
		if c.Padding != 0 {
			if m, err = m.pad(c.Padding, c.Padding, c.Padding, c.Padding, c.Mode, c.Fill); err != nil {
				return nil, err
			}
		}
		if lack := c.W - m.W; c.IfNeeded && lack > 0 {
			if m, err = m.pad(lack, 0, lack, 0, c.Mode, c.Fill); err != nil {
				return nil, err
			}
		}
		if lack := c.H - m.H; c.IfNeeded && lack > 0 {
			if m, err = m.pad(0, lack, 0, lack, c.Mode, c.Fill); err != nil {
				return nil, err
			}
		}
		if !sizeOK(c.H, c.W) || c.H > m.H || c.W > m.W {
			return nil, failf("", "RandomCrop: %d×%d pixels of an image of %d×%d", c.H, c.W, m.H, m.W)
		}
		return m.crop(rect{rng.IntN(m.H - c.H + 1), rng.IntN(m.W - c.W + 1), c.H, c.W}), nil
	}
}

// uniform draws a number from [a, b).
func uniform(rng *rand.Rand, a, b float64) float64 { return a + (b-a)*rng.Float64() }

// areaParams draws a rectangle in an image of h×w pixels, as torchvision's RandomResizedCrop does.
// scale has the bounds of the rectangle's area as a fraction of the image's area. ratio has the
// bounds of the rectangle's width divided by its height. The logarithm of this quotient is uniform.
// If ten successive rectangles do not fit into the image, areaParams returns the largest centred
// rectangle with an allowed ratio.
func areaParams(rng *rand.Rand, h, w int, scale, ratio [2]float64) rect {
	for range 10 {
		area := float64(h*w) * uniform(rng, scale[0], scale[1])
		aspect := math.Exp(uniform(rng, math.Log(ratio[0]), math.Log(ratio[1])))
		cw, ch := int(math.RoundToEven(math.Sqrt(area*aspect))), int(math.RoundToEven(math.Sqrt(area/aspect)))
		if cw > 0 && cw <= w && ch > 0 && ch <= h {
			return rect{rng.IntN(h - ch + 1), rng.IntN(w - cw + 1), ch, cw}
		}
	}
	ch, cw := h, w
	if in := float64(w) / float64(h); in < ratio[0] {
		ch = min(max(int(math.RoundToEven(float64(w)/ratio[0])), 1), h)
	} else if in > ratio[1] {
		cw = min(max(int(math.RoundToEven(float64(h)*ratio[1])), 1), w)
	}
	return rect{(h - ch) / 2, (w - cw) / 2, ch, cw}
}

// An Area configures [RandomResizedCrop]. Zero fields mean torchvision's defaults.
type Area struct {
	// bounds of the part's area as a fraction of the image's; default 0.08 and 1
	Scale [2]float64
	Ratio [2]float64    // bounds of width divided by height; default 3/4 and 4/3
	How   Interpolation // interpolation of the resized part; default Bilinear
}

func (a *Area) defaults(scale, ratio [2]float64) bool {
	if a.Scale == [2]float64{} {
		a.Scale = scale
	}
	if a.Ratio == [2]float64{} {
		a.Ratio = ratio
	}
	return a.Scale[0] >= 0 && a.Scale[1] >= a.Scale[0] && a.Ratio[0] > 0 && a.Ratio[1] >= a.Ratio[0] && a.Ratio[1] < math.MaxFloat32
}

// RandomResizedCrop resizes a random part of the image to size×size. Networks for ImageNet are
// usually trained with it.
func RandomResizedCrop(size int, area ...Area) Transform {
	var a Area
	if len(area) > 0 {
		a = area[0]
	}
	ok := a.defaults([2]float64{0.08, 1}, [2]float64{3.0 / 4, 4.0 / 3}) && sizeOK(size, size)
	return func(m *Image, rng *rand.Rand) (*Image, error) {
		if !ok {
			return nil, failf("", "RandomResizedCrop: %d pixels, scale %v, ratio %v", size, a.Scale, a.Ratio)
		}
		return m.resample(areaParams(rng, m.H, m.W, a.Scale, a.Ratio), size, size, a.How), nil
	}
}

// An Erase configures [RandomErasing]. Zero fields mean torchvision's defaults.
type Erase struct {
	// Scale has the bounds of the erased area as a fraction of the image's area. The default is
	// 0.02 and 0.33.
	Scale  [2]float64
	Ratio  [2]float64 // bounds of height divided by width; default 0.3 and 3.3
	Value  float32    // value of the erased pixels
	Random bool       // gives the erased pixels normally distributed values instead of Value
}

// RandomErasing writes a value over a random part of an image of numbers (after [ToTensor]), with
// probability p (Zhong et al., https://arxiv.org/abs/1708.04896). If ten successive random parts do
// not fit into the image, it erases nothing.
func RandomErasing(p float64, erase ...Erase) Transform {
	var e Erase
	if len(erase) > 0 {
		e = erase[0]
	}
	a := Area{Scale: e.Scale, Ratio: e.Ratio}
	ok := a.defaults([2]float64{0.02, 0.33}, [2]float64{0.3, 3.3}) && p >= 0 && p <= 1
	return func(m *Image, rng *rand.Rand) (*Image, error) {
		if !ok || m.F32 == nil {
			return nil, failf("", "RandomErasing: probability %v, scale %v, ratio %v; the image is to hold numbers, after ToTensor", p, a.Scale, a.Ratio)
		}
		if rng.Float64() >= p {
			return m, nil
		}
		r, fits := erased(rng, m.H, m.W, a.Scale, a.Ratio)
		for c := 0; fits && c < m.C; c++ {
			for y := range r.h {
				row := m.F32[(c*m.H+r.top+y)*m.W+r.left:][:r.w]
				for x := range row {
					row[x] = e.Value
					if e.Random {
						row[x] = float32(rng.NormFloat64())
					}
				}
			}
		}
		return m, nil
	}
}

// erased draws the rectangle to erase. It returns false if ten successive rectangles do not fit
// into the image.
func erased(rng *rand.Rand, h, w int, scale, ratio [2]float64) (rect, bool) {
	for range 10 {
		area := float64(h*w) * uniform(rng, scale[0], scale[1])
		aspect := math.Exp(uniform(rng, math.Log(ratio[0]), math.Log(ratio[1])))
		eh, ew := int(math.RoundToEven(math.Sqrt(area*aspect))), int(math.RoundToEven(math.Sqrt(area/aspect)))
		if eh < h && ew < w {
			return rect{rng.IntN(h - eh + 1), rng.IntN(w - ew + 1), eh, ew}, true
		}
	}
	return rect{}, false
}
