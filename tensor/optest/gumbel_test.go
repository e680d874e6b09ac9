package optest

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestGumbelSoftmax checks that the frequencies of hard samples follow the logits. The gradient of
// a hard sample is the gradient of the soft sample with the same noise.
func TestGumbelSoftmax(t *testing.T) {
	gpu := emulated(t)
	tensor.Do(func(s *tensor.Scope) {
		logits := []float64{0, math.Log(2), math.Log(5)}
		for _, ty := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
			x := s.From(logits).Cast(ty).Reshape(3, 1).Expand(3, 1<<14)
			y := x.GumbelSoftmax(0.7, true, 0)
			if y.Type() != ty || y.Shape() != x.Shape() {
				t.Fatalf("%v %v", y.Type(), y.Shape())
			}
			for i, v := range y.Float().Mean(1).Floats() {
				if want := []float64{1, 2, 5}[i] / 8; math.Abs(v-want) > 0.02 {
					t.Errorf("%v: class %d comes %v of the time, want %v", ty, i, v, want)
				}
			}
		}
		x := s.Typed(dtype.F64).Randn(5, 4)
		sample := func(hard bool) (v, g []float64) {
			s.Do(func(c *tensor.Scope) {
				x := x.Clone().In(c).RequiresGrad()
				y := x.GumbelSoftmax(0.5, hard, -1)
				v, g = y.Floats(), tensor.Gradients(y.Mul(c.Typed(dtype.F64).Arange(4)).Sum(), []*tt{x})[0].Floats()
			}, tensor.Seed(2))
			return v, g
		}
		soft, gs := sample(false)
		hard, gh := sample(true)
		if !slices.Equal(gs, gh) {
			t.Error("the gradients of hard and smooth samples differ")
		}
		for i := range 5 {
			at := i * 4
			for k, v := range soft[at : at+4] {
				want := 0.0
				if v == slices.Max(soft[at:at+4]) {
					want = 1
				}
				if math.Abs(hard[at+k]-want) > 1e-12 {
					t.Errorf("the hard sample of %v is %v", soft[at:at+4], hard[at:at+4])
				}
			}
		}
		var same [2][]float64
		for i, dev := range []*tt{s.Zeros(2, 3), s.Zeros(2, 3).To(gpu)} {
			s.Do(func(c *tensor.Scope) { same[i] = dev.In(c).GumbelSoftmax(1, false, 1).Floats() }, tensor.Seed(3))
		}
		for i, v := range same[0] {
			if math.Abs(v-same[1][i]) > 1e-6 {
				t.Errorf("devices differ: %v", same)
			}
		}
		if v := s.Ones().GumbelSoftmax(1, true, 0).Item(); v != 1 {
			t.Errorf("of a scalar: %v", v)
		}
	}, tensor.Seed(8))
}

// TestALiBi checks that the slopes and the biases of ALiBi are the same as in the authors' code.
func TestALiBi(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for _, c := range []struct {
			heads  int
			slopes []float64
		}{{1, []float64{1.0 / 256}}, {2, []float64{1.0 / 16, 1.0 / 256}}, {4, []float64{0.25, 1.0 / 16, 1.0 / 64, 1.0 / 256}}, {3, []float64{1.0 / 16, 1.0 / 256, 0.25}},
			{6, []float64{0.25, 1.0 / 16, 1.0 / 64, 1.0 / 256, 0.5, 0.125}}} {
			b := s.Typed(dtype.F64).ALiBi(c.heads, 2, 3).Floats()
			for h, m := range c.slopes {
				if got, want := b[6*h:6*h+6], []float64{-m, 0, -m, -2 * m, -m, 0}; !slices.Equal(got, want) {
					t.Errorf("head %d of %d: %v, want %v", h, c.heads, got, want)
				}
			}
		}
		if b := s.Typed(dtype.BF16).ALiBi(8, 1, 5); b.Type() != dtype.BF16 {
			t.Errorf("type %v", b.Type())
		}
	})
}

func TestFormMisuse(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, z, w := s.Ones(4, 3), s.Ones(4, 2), s.Ones(5, 3, 2)
		for _, c := range []struct {
			kind error
			want string
			f    func()
		}{
			{tensor.ErrShape, "equal dimensions before; shapes are [4, 3] and [3, 2]", func() { x.Bilinear(s.Ones(3, 2), w, nil) }},
			{tensor.ErrShape, "the weight should be [out, 3, 2], it is [5, 2, 3]", func() { x.Bilinear(z, w.T(), nil) }},
			{tensor.ErrShape, "the bias should be [5], it is [3]", func() { x.Bilinear(z, w, s.Ones(3)) }},
			{tensor.ErrType, "float32 and float64", func() { x.Bilinear(z.Double(), w, nil) }},
			{tensor.ErrType, "use Float", func() { x.Long().Softmin(0) }},
			{tensor.ErrShape, "dimension 2", func() { x.Softmin(2) }},
			{tensor.ErrValue, "the temperature is 0", func() { x.GumbelSoftmax(0, false, 0) }},
			{tensor.ErrShape, "dimension -3", func() { x.GumbelSoftmax(1, false, -3) }},
			{tensor.ErrShape, "0 heads", func() { s.Typed(dtype.F32).ALiBi(0, 1, 1) }},
			{tensor.ErrType, "of floating point", func() { s.Typed(dtype.I64).ALiBi(1, 1, 1) }},
		} {
			if err := tensor.Try(c.f); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v is not %v with %q", err, c.kind, c.want)
			}
		}
	})
}
