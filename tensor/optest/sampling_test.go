package optest

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestSpaces(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for _, c := range []struct {
			x    *tt
			want []float64
		}{ // the expected results are torch's
			{s.Linspace(3, 10, 5), []float64{3, 4.75, 6.5, 8.25, 10}},
			{s.Linspace(-10, 10, 1), []float64{-10}}, {s.Linspace(0, 1, 0), []float64{}},
			{s.Linspace(1, -1, 4), []float64{1, float64(float32(1.0 / 3)), float64(float32(-1.0 / 3)), -1}},
			{s.Typed(dtype.I64).Linspace(0, 7, 4), []float64{0, 2, 4, 7}},
			{s.Typed(dtype.F64).Linspace(-math.MaxFloat64, math.MaxFloat64, 3), []float64{-math.MaxFloat64, 0, math.MaxFloat64}},
			{s.Logspace(-2, 2, 5, 10), []float64{float64(float32(0.01)), float64(float32(0.1)), 1, 10, 100}},
			{s.Logspace(0, 4, 3, 2), []float64{1, 4, 16}},
		} {
			if got := c.x.Floats(); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		}
		for _, wrong := range []func(){func() { s.Linspace(0, 1, -1) }, func() { s.Linspace(0, math.Inf(1), 3) }, func() { s.Ones(3).Multinomial(4, false) },
			func() { s.Ones(3).Multinomial(0, true) }, func() { s.Ones(1, 2, 3).Multinomial(1, true) }, func() { s.Arange(3).Multinomial(1, true) },
			func() { s.Typed(dtype.F32).TruncNormal(0, 0, -1, 1, 3) }, func() { s.Typed(dtype.F32).TruncNormal(0, 1, 1, 1, 3) },
			func() { s.Ones(3).BernoulliInPlace(2) }, func() { s.Arange(3).RandLike() }} {
			if tensor.Try(wrong) == nil {
				t.Error("a misuse is not refused")
			}
		}
	})
}

func TestSampling(t *testing.T) {
	const n = 1 << 15
	tensor.Do(func(s *tensor.Scope) {
		for _, ty := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16} {
			m := s.Typed(ty)
			for name, x := range map[string]*tt{"TruncNormal": m.TruncNormal(1, 2, -1, 3, n), "TruncNormalInPlace": m.Empty(n).TruncNormalInPlace(1, 2, -1, 3)} {
				v := x.Floats()
				mean, std := moments(v)
				// The variance of a normal number that is limited to one deviation is 1 -
				// 2φ(1)/(2Φ(1)-1) = 0.2911 of the variance without a limit.
				if slices.Min(v) < -1 || slices.Max(v) > 3 || math.Abs(mean-1) > 0.03 || math.Abs(std-2*math.Sqrt(0.2911)) > 0.03 {
					t.Errorf("%s %v: from %v to %v, mean %v, deviation %v", name, ty, slices.Min(v), slices.Max(v), mean, std)
				}
			}
			for name, x := range map[string]*tt{"Bernoulli": m.Full(0.25, n).Bernoulli(), "BernoulliInPlace": m.Empty(n).BernoulliInPlace(0.25)} {
				if mean, std := moments(x.Floats()); x.Type() != ty || math.Abs(mean-0.25) > 0.015 || math.Abs(std-math.Sqrt(0.1875)) > 0.01 {
					t.Errorf("%s %v: mean %v, deviation %v", name, ty, mean, std)
				}
			}
			weights := []float64{1, 0, 3, 4}
			p := s.From(weights).Cast(ty)
			freq := make([]float64, 4)
			drawn := p.Multinomial(n, true)
			for _, c := range drawn.Floats() {
				freq[int(c)]++
			}
			for c, w := range weights {
				if math.Abs(freq[c]/n-w/8) > 0.015 {
					t.Errorf("%v: class %d of weight %v came %v times of %d", ty, c, w, freq[c], n)
				}
			}
			if !slices.Equal(drawn.Shape().Slice(), []int{n}) || drawn.Type() != dtype.I64 || drawn.Scope() != s {
				t.Errorf("%v: %v %v", ty, drawn.Shape(), drawn.Type())
			}
			// Samples are drawn without replacement. The probability of the first sample is its
			// weight. The probability of the second sample is its share of the remaining weight.
			pairs := p.Unsqueeze(0).Expand(n/4, 4).Multinomial(3, false)
			first, second := map[float64]float64{}, map[float64]float64{}
			v := pairs.Floats()
			for i := 0; i < len(v); i += 3 {
				if v[i] == v[i+1] || v[i] == v[i+2] || v[i+1] == v[i+2] {
					t.Fatalf("%v: a class twice: %v", ty, v[i:i+3])
				}
				if v[i] == 1 || v[i+1] == 1 || v[i+2] == 1 {
					t.Fatalf("%v: a class of probability 0: %v", ty, v[i:i+3])
				}
				first[v[i]] += 4.0 / n
				second[v[i+1]] += 4.0 / n
			}
			for c, w := range weights {
				want := 0.0
				for d, u := range weights {
					if c != d {
						want += u / 8 * w / (8 - u)
					}
				}
				if f := float64(c); math.Abs(first[f]-w/8) > 0.025 || math.Abs(second[f]-want) > 0.025 {
					t.Errorf("%v: class %d first %v, want %v; second %v, want %v", ty, c, first[f], w/8, second[f], want)
				}
			}
			if x := p.Unsqueeze(0); ty.IsFloat() && (x.RandLike().Type() != ty || x.RandnLike().Rank() != 2 || x.EmptyLike().Dim(1) != 4) {
				t.Errorf("%v: RandLike and the like", ty)
			}
		}
		x := s.From([]int32{1, 2, 3}).RandIntLike(5, 7)
		if v := x.Floats(); x.Type() != dtype.I32 || slices.Min(v) < 5 || slices.Max(v) > 6 {
			t.Errorf("RandIntLike: %v", x)
		}
	}, tensor.Seed(5))
}

// TestSameSamples checks that the same seed draws the same numbers on every device.
func TestSameSamples(t *testing.T) {
	gpu := emulated(t)
	run := func(dev device.Device) (out []*tt) {
		tensor.Do(func(s *tensor.Scope) {
			m := s.On(dev)
			p := m.Rand(5, 9)
			for _, y := range []*tt{m.Linspace(-3, 7, 100), m.Logspace(-3, 3, 50, 2.5), m.Typed(dtype.BF16).Linspace(0, 1, 33), m.TruncNormal(0, 1, -2, 1, 500),
				p.Bernoulli(), p.Multinomial(20, true), p.Multinomial(9, false), p.RandnLike(), m.Empty(70).BernoulliInPlace(0.5)} {
				out = append(out, tensor.FromBytes(y.Type(), y.Bytes(), y.Shape().Slice()...))
			}
		}, tensor.Seed(9))
		return out
	}
	a, b := run(hostDevice()), run(gpu)
	for i := range a {
		sameBits(t, "sample "+string(rune('0'+i)), a[i], b[i])
	}
}

// TestDrawingOverResults draws random numbers into a result of an op. This is recorded like Fill:
// the gradient of the old values is 0. The result may be a leaf, but not a view of a leaf.
func TestDrawingOverResults(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		for name, c := range map[string]struct {
			draw func(x *tt) *tt
			v    float64
		}{
			"uniform":      {func(x *tt) *tt { return x.UniformInPlace(2, 2) }, 2},
			"normal":       {func(x *tt) *tt { return x.NormalInPlace(2, 0) }, 2},
			"trunc_normal": {func(x *tt) *tt { return x.TruncNormalInPlace(2, 1e-9, 1, 3) }, 2},
			"bernoulli":    {func(x *tt) *tt { return x.BernoulliInPlace(1) }, 1},
		} {
			draw := c.draw
			x := s.From([]float32{1, 2, 3}).RequiresGrad()
			y := x.MulScalar(5)
			draw(y.Narrow(0, 1, 1))
			y.Square().Sum().Backward()
			want(t, name+" over a view of a result", x.Grad(), 50, 0, 150)
			y = x.Exp()
			z := y.Square() // z uses the old values of y
			if err := tensor.Try(func() { draw(y); z.Sum().Backward() }); !errors.Is(err, tensor.ErrInPlace) {
				t.Errorf("%s over what a gradient needs: %v", name, err)
			}
			if err := tensor.Try(func() { draw(x.Narrow(0, 0, 2)) }); !errors.Is(err, tensor.ErrGrad) {
				t.Errorf("%s over a view of a leaf: %v", name, err)
			}
			s.Do(func(n *tensor.Scope) {
				v := x.In(n).Narrow(0, 1, 2)
				draw(v)
				draw(y.In(n))
			}, tensor.NoGrad())
			want(t, name+" over a view of a leaf without a graph", x, 1, c.v, c.v)
			want(t, name+" over a result without a graph", y, c.v, c.v, c.v)
			draw(x)
			want(t, name+" over a leaf", x, c.v, c.v, c.v)
		}
	})
}

// TestSeveralDraws draws several times with replacement. A class without probability must never be
// drawn, whatever else is in the row. The frequencies must be right for probabilities of all sizes.
func TestSeveralDraws(t *testing.T) {
	const n = 1 << 14
	inf, nan := math.Inf(1), math.NaN()
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		for _, c := range []struct{ p, want []float64 }{
			{[]float64{0, 1e-30, 0, 3e-30, 0}, []float64{0, 0.25, 0, 0.75, 0}},
			{[]float64{1e30, 0, 1e30, 2e30}, []float64{0.25, 0, 0.25, 0.5}},
			{[]float64{5, inf, 5, inf}, []float64{0, 0.5, 0, 0.5}},
			{[]float64{-1, 2, nan, 2}, nil}, // these are no probabilities, so any class may occur
			{[]float64{0, 0, 0}, []float64{1, 0, 0}},
			{[]float64{0.5}, []float64{1}},
		} {
			freq := make([]float64, len(c.p))
			for _, k := range s.From(c.p).Float().Multinomial(n, true).Floats() {
				freq[int(k)] += 1.0 / n // this panics if k is not a class
			}
			for k, w := range c.want {
				if math.Abs(freq[k]-w) > 0.02 || w == 0 && freq[k] != 0 {
					t.Errorf("%v: class %d comes in %v of the draws, want %v", c.p, k, freq[k], w)
				}
			}
		}
	})
}
