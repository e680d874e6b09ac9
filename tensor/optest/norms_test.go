package optest

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestNormMisuse(t *testing.T) {
	for _, c := range []struct {
		kind error
		says string
		f    func(s *tensor.Scope, x *tt) // x is of shape [2, 4, 3]
	}{
		{tensor.ErrShape, "dimensions of shape [4]", func(_ *tensor.Scope, x *tt) { x.LayerNorm([]int{4}, nil, nil, 1e-5) }},
		{tensor.ErrShape, "dimensions of shape []", func(_ *tensor.Scope, x *tt) { x.LayerNorm(nil, nil, nil, 1e-5) }},
		{tensor.ErrShape, "dimensions of shape [1, 2, 4, 3]", func(_ *tensor.Scope, x *tt) { x.RMSNorm([]int{1, 2, 4, 3}, nil, 1e-5) }},
		{tensor.ErrShape, "not [4]", func(s *tensor.Scope, x *tt) { x.LayerNorm([]int{3}, s.Ones(4), nil, 1e-5) }},
		{tensor.ErrType, "floating point", func(_ *tensor.Scope, x *tt) { x.Long().LayerNorm([]int{3}, nil, nil, 1e-5) }},
		{tensor.ErrType, "not float64", func(s *tensor.Scope, x *tt) { x.LayerNorm([]int{3}, s.Ones(3).Double(), nil, 1e-5) }},
		{tensor.ErrType, "not bfloat16", func(s *tensor.Scope, x *tt) { x.RMSNorm([]int{3}, s.Ones(3).BFloat16(), 1e-5) }},
		{tensor.ErrType, "not float16", func(s *tensor.Scope, x *tt) { x.BFloat16().GroupNorm(2, s.Ones(4).Half(), nil, 1e-5) }},
		{tensor.ErrShape, "[n, channels, …]", func(s *tensor.Scope, _ *tt) { s.Ones(4).BatchNorm(nil, nil, nil, nil, true, 0.1, 1e-5) }},
		{tensor.ErrShape, "one value per channel", func(s *tensor.Scope, _ *tt) { s.Ones(1, 4).BatchNorm(nil, nil, nil, nil, true, 0.1, 1e-5) }},
		{tensor.ErrShape, "one value per channel, not [3]", func(s *tensor.Scope, x *tt) { x.BatchNorm(s.Ones(3), s.Ones(3), nil, nil, true, 0.1, 1e-5) }},
		{tensor.ErrValue, "neither", func(s *tensor.Scope, x *tt) { x.BatchNorm(s.Ones(4), nil, nil, nil, true, 0.1, 1e-5) }},
		{tensor.ErrValue, "outside of training", func(_ *tensor.Scope, x *tt) { x.BatchNorm(nil, nil, nil, nil, false, 0.1, 1e-5) }},
		{tensor.ErrGrad, "no gradient", func(s *tensor.Scope, x *tt) {
			x.BatchNorm(s.Ones(4).RequiresGrad(), s.Ones(4), nil, nil, false, 0.1, 1e-5)
		}},
		{tensor.ErrShape, "expanded", func(s *tensor.Scope, x *tt) {
			x.BatchNorm(s.Ones(1).Expand(4), s.Ones(4), nil, nil, true, 0.1, 1e-5)
		}},
		{tensor.ErrType, "not float64", func(s *tensor.Scope, x *tt) {
			x.BatchNorm(s.Ones(4).Double(), s.Ones(4).Double(), nil, nil, true, 0.1, 1e-5)
		}},
		{tensor.ErrShape, "one element a channel", func(s *tensor.Scope, _ *tt) { s.Ones(2, 4, 1).InstanceNorm(nil, nil, nil, nil, true, 0.1, 1e-5) }},
		{tensor.ErrValue, "running ones are needed", func(_ *tensor.Scope, x *tt) { x.InstanceNorm(nil, nil, nil, nil, false, 0.1, 1e-5) }},
		{tensor.ErrValue, "3 groups", func(_ *tensor.Scope, x *tt) { x.GroupNorm(3, nil, nil, 1e-5) }},
		{tensor.ErrValue, "0 groups", func(_ *tensor.Scope, x *tt) { x.GroupNorm(0, nil, nil, 1e-5) }},
		{tensor.ErrShape, "one value a group", func(s *tensor.Scope, _ *tt) { s.Ones(1, 4).GroupNorm(4, nil, nil, 1e-5) }},
		{tensor.ErrShape, "nothing to normalise", func(s *tensor.Scope, _ *tt) { s.Ones(1, 4, 0).GroupNorm(4, nil, nil, 1e-5) }},
		{tensor.ErrShape, "out of range", func(_ *tensor.Scope, x *tt) { x.Normalize(2, 3, 1e-12) }},
		{tensor.ErrShape, "out of range", func(s *tensor.Scope, _ *tt) { s.Ones().Normalize(2, 1, 1e-12) }},
		{tensor.ErrType, "floating point", func(_ *tensor.Scope, x *tt) { x.Long().Normalize(2, 1, 1e-12) }},
		{tensor.ErrShape, "3 to 7 dimensions", func(s *tensor.Scope, _ *tt) { s.Ones(2, 3).LocalResponseNorm(2, 1, 1, 1) }},
		{tensor.ErrValue, "not positive", func(_ *tensor.Scope, x *tt) { x.LocalResponseNorm(0, 1, 1, 1) }},
		{tensor.ErrDevice, "cuda:0", func(_ *tensor.Scope, x *tt) { x.LayerNorm([]int{3}, tensor.Ones(3).To(emulated(t)), nil, 1e-5) }},
	} {
		tensor.Do(func(s *tensor.Scope) {
			err := tensor.Try(func() { c.f(s, s.Ones(2, 4, 3)) })
			var e *tensor.Error
			if !errors.Is(err, c.kind) || !errors.As(err, &e) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %v that says %q", err, c.kind, c.says)
			} else if !strings.Contains(e.Site, "norms_test.go") {
				t.Errorf("%v: the caller is not named", err)
			}
		})
	}
}

func bothDevices(t *testing.T, f func(s *tensor.Scope, dev device.Device)) {
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		tensor.Do(func(s *tensor.Scope) { f(s, dev) }, tensor.On(dev))
	}
}

// TestRunningStatistics checks that running statistics change in place and raise their versions. A
// gradient that is computed after the next batch still uses the old statistics.
func TestRunningStatistics(t *testing.T) {
	bothDevices(t, func(s *tensor.Scope, dev device.Device) {
		x := s.From([][]float32{{1, 10}, {2, 30}, {6, 20}})
		for _, typ := range []dtype.Type{dtype.F32, dtype.BF16} {
			mean, variance := s.Zeros(2), s.Ones(2)
			v := mean.Version()
			x.Cast(typ).BatchNorm(mean, variance, nil, nil, true, 0.25, 1e-5)
			if mean.Version() == v || variance.Version() == v {
				t.Error("the versions are the same")
			}
			for i, w := range []float64{0.75, 5, 0.75 + 0.25*7, 0.75 + 0.25*100} {
				if got := append(mean.Floats(), variance.Floats()...)[i]; math.Abs(got-w) > 1e-5 {
					t.Errorf("%v on %s: running statistic %d is %v, want %v", typ, dev.Name(), i, got, w)
				}
			}
			z := x.Cast(typ).BatchNorm(mean, variance, s.Ones(2), s.Zeros(2), false, 0.25, 1e-5)
			if z.Type() != typ || math.Abs(z.Select(0, 2).Floats()[0]-(6-0.75)/math.Sqrt(2.5)) > 2e-2 {
				t.Errorf("%v with running statistics: %v", typ, z)
			}
		}
		leaf := s.From([][]float32{{1, 10}, {2, 30}, {6, 20}}).RequiresGrad()
		mean, variance := s.Zeros(2), s.Full(4, 2)
		y := leaf.BatchNorm(mean, variance, nil, nil, false, 0, 0)
		leaf.BatchNorm(mean, variance, nil, nil, true, 1, 1e-5)
		if g := tensor.Gradients(y.Sum(), []*tt{leaf})[0].Floats(); g[0] != 0.5 || g[5] != 0.5 {
			t.Errorf("gradient %v, want halves", g)
		}
		old := mean.Floats()
		s.Empty(0, 2).BatchNorm(mean, variance, nil, nil, true, 1, 1e-5)
		if now := mean.Floats(); now[0] != old[0] || old[0] != 3 {
			t.Errorf("an empty batch made %v of %v", now, old)
		}
	})
}

// TestHalfNorms checks that norms of 16-bit floats are computed in float32 and rounded once, with
// weights of either type. The gradients have the types of the operands.
func TestHalfNorms(t *testing.T) {
	bothDevices(t, func(s *tensor.Scope, dev device.Device) {
		for _, typ := range []dtype.Type{dtype.F16, dtype.BF16} {
			// the default eps is the spacing of float32 numbers at 1
			tiny := s.Typed(typ).Full(0x1p-8, 1, 4).RMSNorm([]int{4}, nil, -1).Floats()[0]
			if want := round(typ, 0x1p-8/math.Sqrt(0x1p-16+0x1p-23)); tiny != want {
				t.Errorf("the default eps gives %v in %v on %s, want %v", tiny, typ, dev.Name(), want)
			}
			x := s.Randn(6, 8, 3).AddScalar(4).Cast(typ).RequiresGrad()
			w := s.Randn(8).Cast(typ).Float().RequiresGrad()
			b := s.Randn(8).Cast(typ).Float().RequiresGrad()
			last := s.Randn(3).Cast(typ).Float()
			for name, f := range map[string]func(x, w, b, last *tt) *tt{
				"layer":    func(x, _, _, last *tt) *tt { return x.LayerNorm([]int{3}, last, nil, 1e-5) },
				"rms":      func(x, _, _, last *tt) *tt { return x.RMSNorm([]int{3}, last, 1e-5) },
				"batch":    func(x, w, b, _ *tt) *tt { return x.BatchNorm(nil, nil, w, b, true, 0, 1e-5) },
				"group":    func(x, w, b, _ *tt) *tt { return x.GroupNorm(2, w, b, 1e-5) },
				"instance": func(x, w, b, _ *tt) *tt { return x.InstanceNorm(nil, nil, w, b, true, 0, 1e-5) },
			} {
				want := f(x.Detach().Float(), w, b, last).Cast(typ).Floats()
				for _, y := range []*tt{f(x, w, b, last), f(x, w.Cast(typ), b.Cast(typ), last.Cast(typ))} {
					got := y.Floats()
					for i := range got {
						if y.Type() != typ || math.Abs(got[i]-want[i]) > ulp(typ, want[i]) {
							t.Fatalf("%s %v on %s: element %d is %v, want %v", name, typ, dev.Name(), i, got[i], want[i])
						}
					}
				}
				if name == "layer" || name == "rms" {
					continue
				}
				for i, g := range tensor.Gradients(f(x, w, b, last), []*tt{x, w, b}, tensor.GradOutput(s.Typed(typ).Ones(6, 8, 3))) {
					if want := []*tt{x, w, b}[i]; g.Type() != want.Type() || g.Shape() != want.Shape() {
						t.Errorf("%s: gradient %d is %v %v", name, i, g.Type(), g.Shape())
					}
				}
			}
		}
	})
}

// TestLargeGroups checks the gradients of large group norms, which come from the sums of each
// channel. It compares them with float64 gradients that tensor ops compute. Some operands are
// absent or need no gradient.
func TestLargeGroups(t *testing.T) {
	bothDevices(t, func(s *tensor.Scope, dev device.Device) {
		x, w, b := s.Randn(3, 4, 11, 1024).AddScalar(2).RequiresGrad(), s.Randn(4).RequiresGrad(), s.Randn(4).RequiresGrad()
		seed := s.Randn(3, 4, 11, 1024)
		for _, c := range []struct {
			name string
			in   []*tt // x, weight and bias; nil if absent
			of   []int // operands whose gradients are wanted
		}{
			{"all", []*tt{x, w, b}, []int{0, 1, 2}}, {"parameters", []*tt{x.Detach(), w, b}, []int{1, 2}}, {"x and weight", []*tt{x, w, nil}, []int{0, 1}},
			{"x and bias", []*tt{x, nil, b}, []int{0, 2}}, {"bias", []*tt{x.Detach(), w.Detach(), b}, []int{2}}, {"x", []*tt{x, w.Detach(), b.Detach()}, []int{0}},
		} {
			gradients := func(in []*tt, g *tt, opts ...tensor.GradOption) []*tt {
				var of []*tt
				for _, i := range c.of {
					of = append(of, in[i])
				}
				return tensor.Gradients(in[0].GroupNorm(2, in[1], in[2], 1e-5), of, append(opts, tensor.GradOutput(g))...)
			}
			wide := make([]*tt, 3)
			for i, v := range c.in {
				if v != nil {
					wide[i] = v.Detach().Double().CPU().In(s)
				}
			}
			for _, i := range c.of {
				wide[i] = wide[i].RequiresGrad()
			}
			want := gradients(wide, seed.Double().CPU().In(s), tensor.CreateGraph())
			for k, g := range gradients(c.in, seed) {
				got, exact := g.Floats(), want[k].Floats()
				scale := 0.0
				for _, v := range exact {
					scale = max(scale, math.Abs(v))
				}
				for i := range got {
					if math.Abs(got[i]-exact[i]) > 1e-5*scale {
						t.Fatalf("%s on %s: gradient %d has %v at %d, want %v", c.name, dev.Name(), c.of[k], got[i], i, exact[i])
					}
				}
			}
		}
	})
}

// TestLongRows checks that several workers share the reduction of a long row, with the same values
// and gradients.
func TestLongRows(t *testing.T) {
	bothDevices(t, func(s *tensor.Scope, dev device.Device) {
		const n = 1<<14 + 3
		x := s.Randn(1, n).RequiresGrad()
		seed := s.Randn(1, n)
		wide := x.Detach().Double().CPU().In(s).RequiresGrad()
		want := wide.LayerNorm([]int{n}, nil, nil, 1e-5)
		grad := tensor.Gradients(want, []*tt{wide}, tensor.GradOutput(seed.CPU().In(s).Double()))[0].Floats()
		y := x.LayerNorm([]int{n}, nil, nil, 1e-5)
		got := tensor.Gradients(y, []*tt{x}, tensor.GradOutput(seed))[0].Floats()
		v := y.Floats()
		for i, w := range want.Floats() {
			if math.Abs(v[i]-w) > 1e-5 || math.Abs(got[i]-grad[i]) > 1e-5 {
				t.Fatalf("on %s: element %d is %v, want %v; its gradient %v, want %v", dev.Name(), i, v[i], w, got[i], grad[i])
			}
		}
	})
}
