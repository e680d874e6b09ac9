package vision

import (
	"math"
	"math/rand/v2"
	"slices"
)

// RandomApply applies a transform with probability p.
func RandomApply(p float64, t Transform) Transform {
	return func(m *Image, rng *rand.Rand) (*Image, error) {
		if !(p >= 0 && p <= 1) {
			return nil, failf("", "a probability of %v", p)
		}
		if rng.Float64() >= p {
			return m, nil
		}
		return t(m, rng)
	}
}

// RandomHorizontalFlip mirrors the image left to right with probability p.
func RandomHorizontalFlip(p float64) Transform {
	return RandomApply(p, func(m *Image, _ *rand.Rand) (*Image, error) {
		for y := range m.C * m.H {
			if m.F32 != nil {
				slices.Reverse(m.F32[y*m.W : (y+1)*m.W])
			} else {
				slices.Reverse(m.U8[y*m.W : (y+1)*m.W])
			}
		}
		return m, nil
	})
}

// RandomVerticalFlip flips the image top to bottom with probability p.
func RandomVerticalFlip(p float64) Transform {
	return RandomApply(p, func(m *Image, _ *rand.Rand) (*Image, error) {
		if m.F32 != nil {
			flipRows(m.F32, m)
		} else {
			flipRows(m.U8, m)
		}
		return m, nil
	})
}

func flipRows[T pixel](p []T, m *Image) {
	for c := range m.C {
		for y := range m.H / 2 {
			a, b := p[(c*m.H+y)*m.W:][:m.W], p[(c*m.H+m.H-1-y)*m.W:][:m.W]
			for x := range a {
				a[x], b[x] = b[x], a[x]
			}
		}
	}
}

// A Rotation configures [RandomRotation].
type Rotation struct {
	From, To float64       // bounds of the angle in degrees, counter-clockwise
	How      Interpolation // interpolation: Nearest, or Bilinear for any other value
	Fill     float32       // value of pixels outside the source image
}

// RandomRotation rotates the image about its centre by a random angle between the bounds. The size
// of the image does not change. For torchvision's default, set How to [Nearest].
func RandomRotation(r Rotation) Transform {
	return func(m *Image, rng *rand.Rand) (*Image, error) {
		if !(r.To >= r.From) || math.IsInf(r.From, 0) || math.IsInf(r.To, 0) || m.U8 != nil && (r.Fill < 0 || r.Fill > 255) {
			return nil, failf("", "RandomRotation: from %v to %v degrees, fill value %v", r.From, r.To, r.Fill)
		}
		return m.rotate(uniform(rng, r.From, r.To), r.How == Nearest, r.Fill), nil
	}
}

// rotate rotates the image counter-clockwise. Each pixel takes its value from its position in the
// source, in the coordinates of torch's grid_sample (align_corners=False).
func (m *Image) rotate(degrees float64, nearest bool, fill float32) *Image {
	out := m.blank(m.H, m.W)
	sin, cos := math.Sincos(degrees * math.Pi / 180)
	cx, cy := float64(m.W-1)/2, float64(m.H-1)/2
	if m.F32 != nil {
		turn(out.F32, m.F32, m, sin, cos, cx, cy, nearest, fill, func(dst, src []float32) { copy(dst, src) })
	} else {
		turn(out.U8, m.U8, m, sin, cos, cx, cy, nearest, fill, bytesOf)
	}
	return out
}

func turn[T pixel](dst, src []T, m *Image, sin, cos, cx, cy float64, nearest bool, fill float32, store func(dst []T, src []float32)) {
	n, w := m.H*m.W, m.W
	row := make([]float32, m.C*w)
	for y := range m.H {
		dy := float64(y) - cy
		for x := range w {
			dx := float64(x) - cx
			sx, sy := float64(cos*dx)-float64(sin*dy)+cx, float64(sin*dx)+float64(cos*dy)+cy
			if nearest {
				ix, iy := int(math.RoundToEven(sx)), int(math.RoundToEven(sy))
				for c := range m.C {
					row[c*w+x] = fill
					if ix >= 0 && ix < w && iy >= 0 && iy < m.H {
						row[c*w+x] = float32(src[c*n+iy*w+ix])
					}
				}
				continue
			}
			x0, y0 := math.Floor(sx), math.Floor(sy)
			fx, fy := float32(sx-x0), float32(sy-y0)
			ix, iy := int(x0), int(y0)
			weight := [4]float32{(1 - fx) * (1 - fy), fx * (1 - fy), (1 - fx) * fy, fx * fy}
			if ix >= 0 && ix+1 < w && iy >= 0 && iy+1 < m.H {
				for c := range m.C {
					p := src[c*n+iy*w+ix:]
					q := p[w : w+2]
					row[c*w+x] = float32(weight[0]*float32(p[0])) + float32(weight[1]*float32(p[1])) +
						float32(weight[2]*float32(q[0])) + float32(weight[3]*float32(q[1]))
				}
				continue
			}
			for c := range m.C {
				sum, inside := float32(0), float32(0)
				for k, v := range weight {
					px, py := ix+k&1, iy+k>>1
					if px >= 0 && px < w && py >= 0 && py < m.H {
						sum += float32(v * float32(src[c*n+py*w+px]))
						inside += v
					}
				}
				// The variable inside is the sum of the weights of those pixels that lie in the
				// image. As in torchvision, sum is multiplied by inside, although it already
				// contains these weights.
				row[c*w+x] = float32(sum*inside) + float32((1-inside)*fill)
			}
		}
		for c := range m.C {
			store(dst[c*n+y*w:][:w], row[c*w:][:w])
		}
	}
}
