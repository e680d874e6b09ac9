package vision

import (
	"bytes"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"testing"
)

// photo returns an image of 500×375 pixels, the same as in bench/images/torch_images.py.
func photo() *Image {
	m := &Image{C: 3, H: 375, W: 500, U8: make([]uint8, 3*375*500)}
	for i := range m.U8 {
		c, y, x := i/(375*500), i/500%375, i%500
		v := 127 + 60*math.Sin(float64(x)*0.05+float64(c)) + 40*math.Sin(float64(y)*0.11) + 20*math.Sin(float64(x*y)*0.013)
		m.U8[i] = uint8(v)
	}
	return m
}

func photoJPEG(b *testing.B) []byte {
	m := photo()
	img := image.NewRGBA(image.Rect(0, 0, m.W, m.H))
	n := m.H * m.W
	for i := range n {
		img.SetRGBA(i%m.W, i/m.W, color.RGBA{m.U8[i], m.U8[n+i], m.U8[2*n+i], 255})
	}
	var out bytes.Buffer
	if err := jpeg.Encode(&out, img, &jpeg.Options{Quality: 90}); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
}

func (m *Image) clone() *Image {
	return &Image{C: m.C, H: m.H, W: m.W, U8: append([]uint8(nil), m.U8...), F32: append([]float32(nil), m.F32...)}
}

// BenchmarkImages decodes and transforms one image on one goroutine. The script
// bench/images/torch_images.py measures the same work in torchvision.
func BenchmarkImages(b *testing.B) {
	m, file := photo(), photoJPEG(b)
	train := Compose(RandomResizedCrop(224), RandomHorizontalFlip(0.5), ToTensor(), Normalize(ImageNetMean, ImageNetStd))
	eval := Compose(Resize(256), CenterCrop(224), ToTensor(), Normalize(ImageNetMean, ImageNetStd))
	small := &Image{C: 3, H: 224, W: 224, U8: m.resample(rect{0, 0, 375, 500}, 224, 224, Bilinear).U8}
	for _, c := range []struct {
		name string
		f    Transform
		on   *Image
	}{
		{"resize256", Resize(256), m},
		{"resize256bicubic", Resize(256, Bicubic), m},
		{"train224", train, m},
		{"eval224", eval, m},
		{"jitter224", ColorJitter(Jitter{0.4, 0.4, 0.4, 0.1}), small},
		{"rotate224", RandomRotation(Rotation{From: -15, To: 15, How: Bilinear}), small},
	} {
		b.Run(c.name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.f(c.on.clone(), rng); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if _, err := (Decode{}).Read(bytes.NewReader(file)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
