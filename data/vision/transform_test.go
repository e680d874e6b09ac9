package vision

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

// counting returns an image in which each pixel's value is its index.
func counting(c, h, w int) *Image {
	m := &Image{C: c, H: h, W: w, U8: make([]uint8, c*h*w)}
	for i := range m.U8 {
		m.U8[i] = uint8(i)
	}
	return m
}

func numbers(t *testing.T, m *Image) *Image {
	t.Helper()
	m, err := ToTensor()(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// All positions of a crop have the same probability, and a crop holds the pixels at its position.
func TestRandomCrop(t *testing.T) {
	rng, seen := random(1), map[uint8]int{}
	crop := RandomCrop(Crop{H: 2, W: 3})
	const n = 6000
	for range n {
		m, err := crop(counting(1, 4, 5), rng)
		if err != nil || m.H != 2 || m.W != 3 {
			t.Fatal(m, err)
		}
		p := m.U8[0]
		if !slices.Equal(m.U8, []uint8{p, p + 1, p + 2, p + 5, p + 6, p + 7}) {
			t.Fatal(m.U8)
		}
		seen[p]++
	}
	if len(seen) != 9 {
		t.Fatal(seen)
	}
	for p, k := range seen { // each count should be within five standard deviations of its mean n/9
		if math.Abs(float64(k)-n/9.0) > 5*math.Sqrt(n/9.0) {
			t.Errorf("place %d: %d of %d", p, k, n)
		}
	}
	if _, err := crop(counting(1, 2, 2), rng); err == nil {
		t.Error("3 pixels of 2")
	}
	m, err := RandomCrop(Crop{H: 3, IfNeeded: true, Fill: 9})(counting(2, 1, 2), rng)
	if err != nil || m.H != 3 || m.W != 3 || m.C != 2 {
		t.Error(m, err)
	}
	if m, err = RandomCrop(Crop{H: 5, Padding: 2})(counting(1, 1, 1), rng); err != nil || m.U8[12] != 0 || m.H != 5 {
		t.Error(m, err)
	}
}

// areaParams draws areas and ratios within their bounds. The areas are uniform.
func TestAreaParams(t *testing.T) {
	rng := random(2)
	scale, ratio := [2]float64{0.08, 1}, [2]float64{0.75, 4.0 / 3}
	const h, w, n = 400, 600, 20000
	var area, aspect float64
	left, tries := 0, 0
	for range n {
		r := areaParams(rng, h, w, scale, ratio)
		if r.top < 0 || r.left < 0 || r.h < 1 || r.w < 1 || r.top+r.h > h || r.left+r.w > w {
			t.Fatal(r)
		}
		a, q := float64(r.h*r.w)/(h*w), math.Log(float64(r.w)/float64(r.h))
		if a < 0.08*0.99 || a > 1.01 || q < math.Log(0.75)-0.02 || q > math.Log(4.0/3)+0.02 {
			t.Fatalf("%+v: area %v, log of the ratio %v", r, a, q)
		}
		// Areas below 0.5 should be uniform, because every ratio fits into the image.
		if a < 0.5 {
			area, aspect, tries = area+a, aspect+q, tries+1
			if r.left*2 > w-r.w {
				left++
			}
		}
	}
	k := float64(tries)
	if m := area / k; math.Abs(m-(0.08+0.5)/2) > 5*0.42/math.Sqrt(12*k) {
		t.Errorf("mean area %v", m)
	}
	if m := aspect / k; math.Abs(m) > 5*2*math.Log(4.0/3)/math.Sqrt(12*k) {
		t.Errorf("mean log of the ratio %v", m)
	}
	if f := float64(left) / k; math.Abs(f-0.5) > 5*0.5/math.Sqrt(k) {
		t.Errorf("%v of the parts lie on the right", f)
	}
	// If no ratio fits, the crop is centred, as in torchvision.
	if r := areaParams(rng, 10, 1000, [2]float64{1, 1}, ratio); r != (rect{0, 493, 10, 13}) {
		t.Error(r)
	}
	if r := areaParams(rng, 1000, 10, [2]float64{1, 1}, ratio); r != (rect{493, 0, 13, 10}) {
		t.Error(r)
	}
	if r := areaParams(rng, 10, 10, [2]float64{2, 2}, ratio); r != (rect{0, 0, 10, 10}) {
		t.Error(r)
	}
	m, err := RandomResizedCrop(6)(counting(3, 5, 9), rng)
	if err != nil || m.H != 6 || m.W != 6 || m.C != 3 {
		t.Error(m, err)
	}
}

func TestFlips(t *testing.T) {
	for _, c := range []struct {
		f    func(float64) Transform
		want []uint8
	}{
		{RandomHorizontalFlip, []uint8{2, 1, 0, 5, 4, 3, 8, 7, 6, 11, 10, 9}},
		{RandomVerticalFlip, []uint8{3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8}},
	} {
		m, err := c.f(1)(counting(2, 2, 3), random(1))
		if err != nil || !slices.Equal(m.U8, c.want) {
			t.Error(m, err)
		}
		if m, err = c.f(1)(numbers(t, counting(2, 2, 3)), random(1)); err != nil || m.F32[0] != unit[c.want[0]] || m.F32[7] != unit[c.want[7]] {
			t.Error(m, err)
		}
		flipped, rng := 0, random(3)
		for range 4000 {
			m, _ := c.f(0.3)(counting(2, 2, 3), rng)
			if m.U8[0] != 0 {
				flipped++
			}
		}
		if math.Abs(float64(flipped)-1200) > 5*math.Sqrt(4000*0.3*0.7) {
			t.Errorf("%d of 4000 with probability 0.3", flipped)
		}
	}
}

func TestRandomErasing(t *testing.T) {
	rng, done := random(4), 0
	var sum float64
	const n = 3000
	for range n {
		m := numbers(t, &Image{C: 2, H: 30, W: 40, U8: slices.Repeat([]uint8{255}, 2400)})
		m, err := RandomErasing(0.5, Erase{Value: -7})(m, rng)
		if err != nil {
			t.Fatal(err)
		}
		top, left, bottom, right, count := 30, 40, -1, -1, 0
		for i, v := range m.F32[:1200] {
			if v == m.F32[1200+i] && v == -7 {
				count++
				top, bottom, left, right = min(top, i/40), max(bottom, i/40), min(left, i%40), max(right, i%40)
			} else if v != 1 {
				t.Fatal(v)
			}
		}
		if count == 0 {
			continue
		}
		h, w := bottom-top+1, right-left+1
		area, q := float64(count)/1200, float64(h)/float64(w)
		if count != h*w || area > 0.36 || area < 0.012 || q < 0.2 || q > 5 {
			t.Fatalf("%d pixels of %d×%d", count, h, w)
		}
		done++
		sum += area
	}
	if math.Abs(float64(done)-n/2) > 5*math.Sqrt(n/4) {
		t.Errorf("%d of %d with probability 0.5", done, n)
	}
	// The area is drawn uniformly from 0.02 to 0.33. Some large areas do not fit into the image, so
	// the mean is lower.
	if m := sum / float64(done); m < 0.15 || m > 0.19 {
		t.Errorf("mean area %v", m)
	}
	m, err := RandomErasing(1, Erase{Random: true, Scale: [2]float64{0.9, 0.9}, Ratio: [2]float64{1, 1}})(numbers(t, counting(1, 100, 100)), rng)
	if err != nil {
		t.Fatal(err)
	}
	var s, s2 float64
	for _, v := range m.F32 {
		s, s2 = s+float64(v), s2+float64(v)*float64(v)
	}
	if math.Abs(s/1e4) > 0.1 || math.Abs(s2/1e4-0.9) > 0.1 {
		t.Errorf("mean %v, mean square %v", s/1e4, s2/1e4)
	}
}

// Jitter stays within its bounds and applies the changes in every order. The same random numbers
// give the same result.
func TestColorJitter(t *testing.T) {
	m := counting(3, 4, 4)
	low, high := 255.0, 0.0
	rng := random(5)
	for range 500 {
		j, err := ColorJitter(Jitter{Brightness: 0.4})(&Image{C: 3, H: 4, W: 4, U8: slices.Repeat([]uint8{100}, 48)}, rng)
		if err != nil {
			t.Fatal(err)
		}
		low, high = min(low, float64(j.U8[0])), max(high, float64(j.U8[0]))
	}
	if low < 59 || low > 62 || high > 140 || high < 138 {
		t.Errorf("100 became %v to %v", low, high)
	}
	full := ColorJitter(Jitter{0.4, 0.4, 0.4, 0.1})
	seen := map[string]bool{}
	for seed := range 50 {
		a, err := full(&Image{C: 3, H: 4, W: 4, U8: slices.Clone(m.U8)}, random(uint64(seed)))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := full(&Image{C: 3, H: 4, W: 4, U8: slices.Clone(m.U8)}, random(uint64(seed)))
		if !slices.Equal(a.U8, b.U8) {
			t.Fatal("the same seed, other colours")
		}
		seen[string(a.U8)] = true
	}
	if len(seen) != 50 {
		t.Errorf("%d of 50 differ", len(seen))
	}
	if g, err := full(counting(1, 4, 4), random(1)); err != nil || g.C != 1 {
		t.Error(g, err)
	}
}

func TestRandomRotation(t *testing.T) {
	rng := random(6)
	var most float64
	for range 300 {
		// The test computes the angle from the new position of a dot that was to the right of the
		// centre.
		m := &Image{C: 1, H: 101, W: 101, F32: make([]float32, 101*101)}
		for y := 49; y <= 51; y++ {
			for x := 88; x <= 90; x++ {
				m.F32[y*101+x] = 1
			}
		}
		m, err := RandomRotation(Rotation{From: -30, To: 10})(m, rng)
		if err != nil {
			t.Fatal(err)
		}
		var x, y, sum float64
		for i, v := range m.F32 {
			x, y, sum = x+float64(v)*float64(i%101-50), y+float64(v)*float64(50-i/101), sum+float64(v)
		}
		angle := math.Atan2(y/sum, x/sum) * 180 / math.Pi
		if angle < -30.5 || angle > 10.5 {
			t.Fatalf("%v degrees", angle)
		}
		most = max(most, math.Abs(angle+10))
	}
	if most < 18 {
		t.Errorf("at most %v degrees from the middle of 40", most)
	}
}

// Invalid settings cause an *Error, never a panic.
func TestTransformErrors(t *testing.T) {
	for name, f := range map[string]Transform{
		"Resize":             Resize(0),
		"ResizeTo":           ResizeTo(1<<20, 1),
		"CenterCrop":         CenterCrop(-1),
		"Pad":                Pad(-1, 0, 0, 0, Constant, 0),
		"Pad mirrored":       Pad(9, 0, 0, 0, Reflect, 0),
		"Pad fill":           Pad(1, 0, 0, 0, Constant, 256),
		"RandomCrop":         RandomCrop(Crop{}),
		"RandomCrop padding": RandomCrop(Crop{H: 1, Padding: -1}),
		"RandomResizedCrop":  RandomResizedCrop(4, Area{Scale: [2]float64{1, 0.5}}),
		"flip":               RandomHorizontalFlip(2),
		"flip NaN":           RandomVerticalFlip(math.NaN()),
		"erasing bytes":      RandomErasing(1),
		"erasing":            Compose(ToTensor(), RandomErasing(-1)),
		"normalize bytes":    Normalize([]float64{0, 0, 0}, []float64{1, 1, 1}),
		"normalize":          Compose(ToTensor(), Normalize([]float64{0}, []float64{1})),
		"normalize by 0":     Compose(ToTensor(), Normalize([]float64{0, 0, 0}, []float64{1, 0, 1})),
		"grayscale":          Grayscale(2),
		"jitter":             ColorJitter(Jitter{Hue: 0.6}),
		"rotation":           RandomRotation(Rotation{From: 1}),
		"rotation NaN":       RandomRotation(Rotation{From: math.NaN()}),
	} {
		m, err := f(counting(3, 4, 5), random(1))
		var e *Error
		if m != nil || !errors.As(err, &e) {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	// The transforms accept images of a single row or column.
	for _, h := range []int{1, 3000} {
		if _, err := Resize(4)(counting(1, h, 3001-h), random(1)); err != nil {
			t.Error(err)
		}
	}
}

func TestMixup(t *testing.T) {
	x := tensor.From([]float32{1, 2, 3, 4, 5, 6}, 3, 1, 1, 2)
	y := tensor.From([]int64{2, 0, 1})
	rng := random(8)
	var sum, square float64
	const n = 2000
	for range n {
		mixed, target := Mixup(x, y, 3, 0.4, rng)
		v, p := mixed.Floats(), target.Floats()
		// The value p[2] is λ. The target of image 0 is λ for its own class 2, and 1-λ for class 1,
		// the class of image 2.
		l := p[2]
		if math.Abs(p[1]+l-1) > 1e-6 || p[0] != 0 || math.Abs(v[0]-(l*1+(1-l)*5)) > 1e-5 || math.Abs(v[3]-(l*4+(1-l)*2)) > 1e-5 {
			t.Fatal(mixed, target)
		}
		sum, square = sum+l, square+(l-0.5)*(l-0.5)
	}
	// The variance of Beta(a, a) is 1/(4(2a+1)).
	if m, v := sum/n, square/n; math.Abs(m-0.5) > 0.04 || math.Abs(v-1/(4*1.8)) > 0.01 {
		t.Errorf("mean %v, variance %v", m, v)
	}
	for _, a := range []float64{1e-3, 1, 50} {
		for range 100 {
			if l := beta(rng, a); !(l >= 0 && l <= 1) {
				t.Fatal(a, l)
			}
		}
	}
	if !slices.Equal(x.Floats(), []float64{1, 2, 3, 4, 5, 6}) {
		t.Error("the operand changed")
	}
}

func TestCutMix(t *testing.T) {
	const h, w = 12, 10
	x := tensor.Zeros(2, 3, h, w)
	x.Select(0, 1).Copy(tensor.Ones(3, h, w))
	y := tensor.From([]int64{0, 1})
	rng := random(9)
	sizes := map[int]bool{}
	for range 300 {
		mixed, target := CutMix(x, y, 2, 1, rng)
		v, p := mixed.Floats(), target.Floats()
		count := 0
		for i := range 3 * h * w {
			if v[i]+v[3*h*w+i] != 1 {
				t.Fatal("a pixel of neither")
			}
			count += int(v[i])
		}
		if math.Abs(p[1]-float64(count)/(3*h*w)) > 1e-6 || math.Abs(p[0]+p[1]-1) > 1e-6 || math.Abs(p[0]-p[3]) > 1e-6 {
			t.Fatal(count, target)
		}
		sizes[count] = true
	}
	if len(sizes) < 15 {
		t.Errorf("%d sizes in 300", len(sizes))
	}
	for _, bad := range []func(){
		func() { Mixup(x, y.Cast(dtype.F32), 2, 1, rng) }, func() { CutMix(x, y, 2, 0, rng) }, func() { Mixup(x.Select(0, 0), y, 2, 1, rng) },
	} {
		var e *tensor.Error
		if err := tensor.Try(bad); !errors.As(err, &e) {
			t.Error(err)
		}
	}
}
