package optest

import (
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// onBothDevices runs f on the CPU and on an emulated GPU.
func onBothDevices(t *testing.T, f func(t *testing.T, s *tensor.Scope)) {
	for _, d := range []device.Device{hostDevice(), emulated(t)} {
		t.Run(d.Info().Kind, func(t *testing.T) {
			if err := tensor.Try(func() { tensor.Do(func(s *tensor.Scope) { f(t, s) }, tensor.On(d)) }); err != nil {
				t.Error(err)
			}
		})
	}
}

func want(t *testing.T, what string, x *tt, v ...float64) {
	t.Helper()
	if got := x.Floats(); !slices.Equal(got, v) {
		t.Errorf("%s is %v, want %v", what, got, v)
	}
}

func TestEightDimensions(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		dims := []int{2, 1, 3, 2, 1, 2, 3, 2}
		a := newArray(dims...)
		for i := range a.v {
			a.v[i] = float64(i % 31)
		}
		p := []int{7, 2, 5, 0, 6, 3, 4, 1}
		x := s.Typed(dtype.F32).From(a.v, dims...).Permute(p...)
		b := a.permute(p)
		y := x.Add(s.Ones(2, 3, 1, 2, 1, 2, 1, 1))
		if msg := differs(y, dtype.F32, b.apply(func(v float64) float64 { return v + 1 }), func(int) float64 { return 0 }); msg != "" {
			t.Error("sum:", msg)
		}
		over := []int{0, 3, 6}
		dimsOut, groups, _ := groupsOf(b, over)
		sum := newArray(dimsOut...)
		for i, g := range groups {
			for _, v := range g {
				sum.v[i] += v
			}
		}
		if msg := differs(x.Sum(over...), dtype.F32, sum, func(int) float64 { return 0 }); msg != "" {
			t.Error("reduction:", msg)
		}
	})
}

func TestInt32Indices(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		w := s.From([]float32{1, 2, 3, 4, 5, 6}, 3, 2).RequiresGrad()
		for _, ty := range []dtype.Type{dtype.I32, dtype.I64} {
			ix := s.Typed(ty).From([]int32{2, 0, 2})
			y := w.Embedding(ix)
			want(t, "rows", y, 5, 6, 1, 2, 5, 6)
			want(t, "gradient", tensor.Gradients(y.Sum(), []*tt{w})[0], 1, 1, 0, 0, 2, 2)
			want(t, "scattered", s.Zeros(3).ScatterAdd(0, ix, s.From([]float32{1, 10, 100})), 10, 0, 101)
		}
	})
}

func TestInfiniteNumbers(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		x := s.From([]int64{-7, 0, 9})
		want(t, "clamp", x.Clamp(math.Inf(-1), 5), -7, 0, 5)
		want(t, "sum", x.AddScalar(math.Inf(1)), math.Inf(1), math.Inf(1), math.Inf(1))
		want(t, "less", x.LtScalar(math.Inf(1)), 1, 1, 1)
		want(t, "less than NaN", x.LtScalar(math.NaN()), 0, 0, 0)
		want(t, "not equal to NaN", x.NeScalar(math.NaN()), 1, 1, 1)
		y := s.From([]float32{1, float32(math.NaN()), -1})
		if got := y.Amax().Item(); got == got {
			t.Errorf("the greatest of a NaN among numbers is %v", got)
		}
		want(t, "first NaN", y.Argmin(), 1)
	})
}

// TestEngine checks sums over paths, accumulation, retained graphs, and second derivatives that
// Backward adds to leaves.
func TestEngine(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		w := s.From([]float64{1, 2, 3}).RequiresGrad()
		a := w.Exp()
		y := a.Mul(w).Add(a).Sub(w.MulScalar(2)).Sum() // y is w·e^w + e^w - 2w
		y.Backward(tensor.RetainGraph())
		first := w.Grad().Floats()
		for i, x := range []float64{1, 2, 3} {
			if d := math.Exp(x)*(x+2) - 2; math.Abs(first[i]-d) > 1e-12*d {
				t.Errorf("gradient %d is %v, want %v", i, first[i], d)
			}
		}
		y.Backward()
		for i, v := range w.Grad().Floats() {
			if v != 2*first[i] {
				t.Errorf("a second Backward gives %v, want twice %v", v, first[i])
			}
		}
		w.ZeroGrad()
		seed := s.From([]float64{1, 10, 100})
		w.Add(w).Backward(tensor.GradOutput(seed)) // the leaf receives the same gradient twice
		want(t, "gradient", w.Grad(), 2, 20, 200)
		want(t, "seed", seed, 1, 10, 100)
		w.T().Backward(tensor.GradOutput(seed))
		want(t, "accumulated", w.Grad(), 3, 30, 300)
		want(t, "seed", seed, 1, 10, 100)
		w.ZeroGrad()

		cube := w.Mul(w).Mul(w).Sum()
		g := tensor.Gradients(cube, []*tt{w}, tensor.CreateGraph())[0]
		if w.Grad() != nil {
			t.Error("Gradients adds to the leaf")
		}
		g.Sum().Backward(tensor.RetainGraph())
		want(t, "second derivative", w.Grad(), 6, 12, 18)
		w.ZeroGrad()
		// the gradient of 9w⁴ is 36w³
		h := tensor.Gradients(g.Square().Sum(), []*tt{w}, tensor.CreateGraph())[0]
		want(t, "gradient of a squared gradient", h, 36, 288, 972)

		shared := s.From([]float64{1, 1}).RequiresGrad()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				tensor.Do(func(c *tensor.Scope) {
					for range 5 {
						shared.MulScalar(3).Sum().Backward()
					}
				})
			})
		}
		wg.Wait()
		want(t, "gradient of eight goroutines", shared.Grad(), 120, 120)
	})
	tensor.Do(func(s *tensor.Scope) { // a graph of 50000 nodes in a chain
		x := s.Typed(dtype.F64).Ones(1).RequiresGrad()
		y := x
		for range 50000 {
			y = y.AddScalar(1)
		}
		y.Backward()
		want(t, "gradient of a deep graph", x.Grad(), 1)
	})
}

// TestSecondDerivatives compares second derivatives with those of PyTorch 2.15. It computes them at
// kinks of the first derivative, and at points where finite differences cannot check them.
func TestSecondDerivatives(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		inf, nan := math.Inf(1), math.NaN()
		for name, c := range map[string]struct {
			f       func(x *tt) *tt
			x, want []float64
		}{
			"elu":  {func(x *tt) *tt { return x.Elu(1.5) }, []float64{0, math.Copysign(0, -1), 1, inf, nan}, []float64{0, 0, 0, 0, 0}},
			"celu": {func(x *tt) *tt { return x.Celu(1.5) }, []float64{0, 1, inf}, []float64{0, 0, 0}},
			"selu": {(*tt).Selu, []float64{0, 1, inf}, []float64{0, 0, 0}},
			"relu": {(*tt).Relu, []float64{0, 1, -1, inf}, []float64{0, 0, 0, 0}},
			"abs":  {(*tt).Abs, []float64{0, -1, inf}, []float64{0, 0, 0}},
			"asin": {(*tt).Asin, []float64{1e-20, -1e-20, 0}, []float64{1e-20, -1e-20, 0}},
			"acos": {(*tt).Acos, []float64{1e-20, 0}, []float64{-1e-20, 0}}, "atanh": {(*tt).Atanh, []float64{1e-20, 0}, []float64{2e-20, 0}},
			"sqrt": {(*tt).Sqrt, []float64{0, 1, inf}, []float64{-inf, -0.25, 0}}, "log": {(*tt).Log, []float64{0, inf}, []float64{-inf, 0}},
			"norm":        {func(x *tt) *tt { return x.Reshape(-1, 1).Norm(2, 1) }, []float64{0, 1, -2}, []float64{nan, 0, 0}},
			"pow":         {func(x *tt) *tt { return x.PowScalar(3) }, []float64{0, 1, inf}, []float64{0, 6, inf}},
			"remainder":   {func(x *tt) *tt { return x.OnesLike().Remainder(x) }, []float64{0, 2, -2, inf}, []float64{0, 0, 0, 0}},
			"log_sigmoid": {(*tt).LogSigmoid, []float64{0, -36, 36, -700, 700, inf, -inf}, []float64{-0.25, -math.Exp(-36), -math.Exp(-36), -math.Exp(-700), -math.Exp(-700), 0, 0}},
			"logaddexp":   {func(x *tt) *tt { return x.LogAddExp(x.ZerosLike()) }, []float64{0, -36, 36, 700, inf, -inf}, []float64{0.25, math.Exp(-36), math.Exp(-36), math.Exp(-700), 0, 0}},
			"tanh":        {(*tt).Tanh, []float64{0, inf, -inf}, []float64{0, 0, 0}}, "sigmoid": {(*tt).Sigmoid, []float64{0, inf, -inf}, []float64{0, 0, 0}},
		} {
			x := s.From(c.x).RequiresGrad()
			g := tensor.Gradients(c.f(x), []*tt{x}, tensor.GradOutput(x.OnesLike()), tensor.CreateGraph())[0]
			got := make([]float64, len(c.x))
			if g.NeedsGrad() {
				if h := tensor.Gradients(g.Sum(), []*tt{x}, tensor.AllowUnused())[0]; h != nil {
					got = h.Floats()
				}
			}
			for i, w := range c.want {
				if v := got[i]; v != w && !(v != v && w != w) && !(math.Abs(v-w) <= 1e-15*math.Abs(w)) {
					t.Errorf("%s at %v: %v, want %v", name, c.x[i], v, w)
				}
			}
		}
	})
}

// TestAtan2AtTheOrigin computes the gradient of atan2 at the origin, and where both squares are too
// small for the type. The gradient must be 0, as in PyTorch 2.15.
func TestAtan2AtTheOrigin(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		zero := math.Copysign(0, -1)
		y, x := s.From([]float64{0, 0, zero, zero, 1e-200, 2}).RequiresGrad(), s.From([]float64{0, zero, 0, zero, 1e-200, 0}).RequiresGrad()
		y.Atan2(x).Sum().Backward()
		want(t, "gradient of y", y.Grad(), 0, 0, 0, 0, 0, 0)
		want(t, "gradient of x", x.Grad(), 0, 0, 0, 0, 0, -0.5)
	})
}
