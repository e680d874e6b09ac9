package vision

import (
	"math/rand/v2"
	"slices"
)

// ToTensor converts an image of bytes 0 … 255 to floating-point numbers 0 … 1. It leaves an image
// of floating-point numbers as it is.
func ToTensor() Transform {
	return func(m *Image, _ *rand.Rand) (*Image, error) {
		if m.F32 != nil {
			return m, nil
		}
		x := make([]float32, len(m.U8))
		scaled(x, m.U8)
		return &Image{C: m.C, H: m.H, W: m.W, F32: x}, nil
	}
}

// Networks for ImageNet are trained on images that are normalised with these means and standard
// deviations of the channels.
var (
	ImageNetMean = []float64{0.485, 0.456, 0.406}
	ImageNetStd  = []float64{0.229, 0.224, 0.225}
)

// Normalize computes (x − mean[c]) / std[c] for each channel c of an image of floating-point
// numbers. Apply it after [ToTensor].
func Normalize(mean, std []float64) Transform {
	mean, std = slices.Clone(mean), slices.Clone(std)
	return func(m *Image, _ *rand.Rand) (*Image, error) {
		if m.F32 == nil || len(mean) != m.C || len(std) != m.C || slices.Contains(std, 0) {
			return nil, failf("", "Normalize: mean %v and deviation %v for %d channels; the image is to hold numbers, after ToTensor", mean, std, m.C)
		}
		n := m.H * m.W
		for c := range m.C {
			a, b := float32(mean[c]), float32(std[c])
			for i, v := range m.F32[c*n : (c+1)*n] {
				m.F32[c*n+i] = (v - a) / b
			}
		}
		return m, nil
	}
}

// Grayscale makes 1 or 3 equal channels of brightness, 0.2989 R + 0.587 G + 0.114 B. For bytes the
// result is truncated, as torchvision does for tensors.
func Grayscale(channels int) Transform {
	return func(m *Image, _ *rand.Rand) (*Image, error) {
		if channels != 1 && channels != 3 || m.C != 1 && m.C != 3 {
			return nil, failf("", "Grayscale: %d channels of %d", channels, m.C)
		}
		g := m.luma()
		if channels == 1 {
			return g, nil
		}
		return &Image{C: 3, H: m.H, W: m.W, U8: slices.Concat(g.U8, g.U8, g.U8), F32: slices.Concat(g.F32, g.F32, g.F32)}, nil
	}
}

// RandomGrayscale sets all channels to the brightness, with probability p.
func RandomGrayscale(p float64) Transform {
	return RandomApply(p, func(m *Image, rng *rand.Rand) (*Image, error) { return Grayscale(m.C)(m, rng) })
}

// luma returns the brightness of the image, as one channel.
func (m *Image) luma() *Image {
	if m.C == 1 {
		return m
	}
	n := m.H * m.W
	out := &Image{C: 1, H: m.H, W: m.W}
	if m.F32 != nil {
		out.F32 = make([]float32, n)
		brightness(out.F32, m.F32)
	} else {
		out.U8 = make([]uint8, n)
		brightness(out.U8, m.U8)
	}
	return out
}

func brightness[T pixel](dst, src []T) {
	n := len(dst)
	red, green, blue := src[:n], src[n:2*n], src[2*n:3*n]
	for i := range dst {
		dst[i] = T(float32(0.2989*float32(red[i])) + float32(0.587*float32(green[i])) + float32(0.114*float32(blue[i])))
	}
}

// A Jitter says how much [ColorJitter] changes an image. Brightness, contrast and saturation are
// each multiplied by a random factor between 1−v and 1+v, where v is the value of the field. A
// negative factor is replaced by 0. The hue is rotated in either direction by up to Hue full turns.
// Hue is at most 0.5. A field of 0 changes nothing.
type Jitter struct{ Brightness, Contrast, Saturation, Hue float64 }

// ColorJitter changes brightness, contrast, saturation and hue in random order. In images with one
// channel it changes only brightness and contrast.
func ColorJitter(j Jitter) Transform {
	return func(m *Image, rng *rand.Rand) (*Image, error) {
		if !(min(j.Brightness, j.Contrast, j.Saturation, j.Hue) >= 0 && j.Hue <= 0.5) || m.C != 1 && m.C != 3 {
			return nil, failf("", "ColorJitter: %+v for an image of %d channels", j, m.C)
		}
		for _, k := range rng.Perm(4) {
			amount := [4]float64{j.Brightness, j.Contrast, j.Saturation, j.Hue}[k]
			if amount == 0 {
				continue
			}
			if k == 3 {
				m.hue(uniform(rng, -amount, amount))
				continue
			}
			m.adjust(k, uniform(rng, max(1-amount, 0), 1+amount))
		}
		return m, nil
	}
}

// adjust changes a property of the image by a factor: brightness (0), contrast (1) or saturation
// (2).
func (m *Image) adjust(property int, factor float64) {
	if property == 2 && m.C == 1 {
		return
	}
	// other is the image that a factor of 0 would give. For brightness and contrast it is nil,
	// because all elements of that image have the value mean.
	var other *Image
	mean := float32(0)
	switch property {
	case 1:
		sum := 0.0
		g := m.luma()
		for _, v := range g.U8 {
			sum += float64(v)
		}
		for _, v := range g.F32 {
			sum += float64(v)
		}
		mean = float32(sum / float64(m.H*m.W))
	case 2:
		other = m.luma()
	}
	switch {
	case m.F32 != nil && other != nil:
		for c := range m.C {
			p := m.F32[c*len(other.F32):]
			for i, o := range other.F32 {
				p[i] = mixed(p[i], o, factor)
			}
		}
	case m.F32 != nil:
		for i, v := range m.F32 {
			m.F32[i] = mixed(v, mean, factor)
		}
	default:
		m.adjustBytes(other, mean, factor)
	}
}

// mixed returns factor·v + (1−factor)·w, clamped to 0 … 1.
func mixed(v, w float32, factor float64) float32 {
	return min(max(float32(float32(factor)*v)+float32(float32(1-factor)*w), 0), 1)
}

// adjustBytes does the same as adjust for an image of bytes. It clamps results to 0 … 255 and
// truncates them.
func (m *Image) adjustBytes(other *Image, mean float32, factor float64) {
	f, g := float32(factor), float32(1-factor)
	var mine, theirs [256]float32
	for v := range mine {
		mine[v], theirs[v] = f*float32(v), g*float32(v)
	}
	if other == nil {
		var table [256]uint8
		for v := range table {
			table[v] = uint8(min(max(mine[v]+float32(g*mean), 0), 255))
		}
		for i, v := range m.U8 {
			m.U8[i] = table[v]
		}
		return
	}
	for c := range m.C {
		p := m.U8[c*len(other.U8):][:len(other.U8)]
		for i, o := range other.U8 {
			p[i] = uint8(min(max(int32(mine[p[i]]+theirs[o]), 0), 255))
		}
	}
}

// hue rotates the hue of an image of three channels by the given fraction of a full turn.
func (m *Image) hue(fraction float64) {
	if m.C != 3 {
		return
	}
	n, t := m.H*m.W, float32(fraction)
	if m.F32 != nil {
		for i := range n {
			m.F32[i], m.F32[n+i], m.F32[2*n+i] = turned(m.F32[i], m.F32[n+i], m.F32[2*n+i], t)
		}
		return
	}
	for i := range n {
		r, g, b := turned(unit[m.U8[i]], unit[m.U8[n+i]], unit[m.U8[2*n+i]], t)
		const full = 255 + 1 - 1e-3 // the constant of torchvision's convert_image_dtype
		m.U8[i], m.U8[n+i], m.U8[2*n+i] = uint8(r*full), uint8(g*full), uint8(b*full)
	}
}

// turned converts a colour to HSV, rotates its hue by the given fraction of a full turn, and
// converts it back to RGB (A. R. Smith, "Color gamut transform pairs", 1978). If several channels
// share the greatest value, it uses the one that Pillow uses.
func turned(r, g, b, fraction float32) (float32, float32, float32) {
	v, low := max(r, g, b), min(r, g, b)
	if v == low {
		return v, v, v
	}
	d := v - low
	var h float32
	switch v {
	case r:
		h = (g - b) / d
	case g:
		h = 2 + (b-r)/d
	default:
		h = 4 + (r-g)/d
	}
	h = h/6 + 1 + fraction // adding 1 puts h into the range 1/3 to 7/3, which is positive
	for h >= 1 {
		h--
	}
	h *= 6
	sector := int(h)
	f, s := h-float32(sector), d/v
	p, q, t := v*(1-s), v*(1-float32(s*f)), v*(1-float32(s*(1-f)))
	p, q, t = min(max(p, 0), 1), min(max(q, 0), 1), min(max(t, 0), 1)
	switch sector % 6 {
	case 0:
		return v, t, p
	case 1:
		return q, v, p
	case 2:
		return p, v, t
	case 3:
		return p, q, v
	case 4:
		return t, p, v
	}
	return v, p, q
}
