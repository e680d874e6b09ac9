package initial_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/tensor"
)

// spread returns the least and the greatest number of w, the mean and the standard deviation.
func spread(w []float64) (lo, hi, mean, deviation float64) {
	for _, v := range w {
		mean += v / float64(len(w))
	}
	for _, v := range w {
		deviation += (v - mean) * (v - mean) / float64(len(w))
	}
	return slices.Min(w), slices.Max(w), mean, math.Sqrt(deviation)
}

// Each initialiser gives values with the bounds and the standard deviation in the table. The weight
// is [60, 20, 3, 3], so its fan in is 180 and its fan out is 540.
func TestDistributions(t *testing.T) {
	tensor.ManualSeed(11)
	uniform := func(b float64) [2]float64 { return [2]float64{b, b / math.Sqrt(3)} }
	normal := func(d float64) [2]float64 { return [2]float64{math.Inf(1), d} }
	for name, c := range map[string]struct {
		f    func(w *tensor.Tensor)
		want [2]float64 // bound and standard deviation
	}{
		"kaiming uniform":     {func(w *tensor.Tensor) { initial.KaimingUniform(w, initial.Gain(initial.ReLU)) }, uniform(math.Sqrt(6.0 / 180))},
		"kaiming uniform out": {func(w *tensor.Tensor) { initial.KaimingUniform(w, initial.LeakyGain(0.2), initial.FanOut) }, uniform(math.Sqrt(3 * 2 / 1.04 / 540))},
		"kaiming normal":      {func(w *tensor.Tensor) { initial.KaimingNormal(w, initial.Gain(initial.Tanh), initial.FanIn) }, normal(5.0 / 3 / math.Sqrt(180))},
		"kaiming normal out":  {func(w *tensor.Tensor) { initial.KaimingNormal(w, initial.Gain(initial.ReLU), initial.FanOut) }, normal(math.Sqrt(2.0 / 540))},
		"xavier uniform":      {func(w *tensor.Tensor) { initial.XavierUniform(w, 1) }, uniform(math.Sqrt(6.0 / 720))},
		"xavier normal":       {func(w *tensor.Tensor) { initial.XavierNormal(w, 2) }, normal(2 * math.Sqrt(2.0/720))},
		"uniform":             {func(w *tensor.Tensor) { initial.Uniform(w, -0.3, 0.3) }, uniform(0.3)},
		"normal":              {func(w *tensor.Tensor) { initial.Normal(w, 0, 0.02) }, normal(0.02)},
		// This is a normal distribution truncated at one standard deviation σ. Its own standard
		// deviation is σ·√(1 - 2φ(1)/(2Φ(1)-1)).
		"truncated": {func(w *tensor.Tensor) { initial.TruncNormal(w, 0, 0.5, -0.5, 0.5) }, [2]float64{0.5, 0.5 * 0.5396}},
		"constant":  {func(w *tensor.Tensor) { initial.Constant(w, 0) }, [2]float64{0, 0}},
	} {
		w := tensor.Ones(60, 20, 3, 3).RequiresGrad()
		c.f(w)
		lo, hi, mean, d := spread(w.Floats())
		if b := float64(float32(c.want[0])); lo < -b || hi > b || !math.IsInf(b, 1) && (lo > -0.995*b || hi < 0.995*b) {
			t.Errorf("%s: in [%v, %v], want ±%v", name, lo, hi, b)
		}
		if math.Abs(mean) > 0.03*c.want[1] || math.Abs(d-c.want[1]) > 0.02*c.want[1] {
			t.Errorf("%s: mean %v, deviation %v, want %v", name, mean, d, c.want[1])
		}
		if math.IsInf(c.want[0], 1) && (hi < 3*d || lo > -3*d) {
			t.Errorf("%s: in [%v, %v] of deviation %v", name, lo, hi, d)
		}
		if !w.NeedsGrad() || !w.IsLeaf() || w.Grad() != nil {
			t.Errorf("%s: the parameter stays one", name)
		}
	}
}

// The gains equal those of PyTorch 2.15.
func TestGains(t *testing.T) {
	for f, want := range map[initial.Nonlinearity]float64{initial.Linear: 1, initial.Tanh: 1.6666666666666667, initial.ReLU: 1.4142135623730951, initial.LeakyReLU: 1.4141428569978354, initial.SELU: 0.75} {
		if got := initial.Gain(f); got != want {
			t.Errorf("%v: %v, want %v", f, got, want)
		}
	}
}

func TestEyeAndDirac(t *testing.T) {
	w := tensor.Ones(2, 3).RequiresGrad()
	if initial.Eye(w); !slices.Equal(w.Floats(), []float64{1, 0, 0, 0, 1, 0}) {
		t.Error(w)
	}
	// A Dirac weight makes a convolution return its input, as in PyTorch 2.15.
	tensor.Do(func(s *tensor.Scope) {
		x := s.Rand(2, 4, 5, 5)
		for _, groups := range []int{1, 2} {
			w := s.Ones(6, 4/groups, 3, 3).RequiresGrad()
			initial.Dirac(w, groups)
			y := x.Conv2d(w, nil, tensor.ConvOptions{Padding: []int{1}, Groups: groups})
			want := tensor.Cat(1, x, s.Zeros(2, 2, 5, 5))
			if groups == 2 {
				z := s.Zeros(2, 1, 5, 5)
				want = tensor.Cat(1, x.Narrow(1, 0, 2), z, x.Narrow(1, 2, 2), z)
			}
			if !slices.Equal(y.Floats(), want.Floats()) {
				t.Errorf("%d groups", groups)
			}
		}
		v := s.Ones(2, 2, 4)
		if initial.Dirac(v, 1); v.Sum().Item() != 2 || v.Index(1, 1, 2).Item() != 1 {
			t.Error(v)
		}
		initial.Dirac(s.Ones(2, 0, 3), 1)
	})
}

func TestOrthogonal(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for _, dims := range [][]int{{5, 5}, {3, 7}, {7, 3}, {4, 2, 3}, {0, 3}} {
			for _, ty := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
				w := s.Typed(ty).Ones(dims...).RequiresGrad()
				initial.Orthogonal(w, 2)
				if w.Size() == 0 {
					continue
				}
				m := w.Detach().Double().Reshape(dims[0], -1)
				if m.Dim(0) > m.Dim(1) {
					m = m.T()
				}
				tol := map[dtype.Type]float64{dtype.F32: 1e-5, dtype.F64: 1e-12, dtype.BF16: 0.1}[ty]
				if !m.MatMul(m.T()).AllClose(s.Typed(dtype.F64).Eye(m.Dim(0)).MulScalar(4), 0, tol) {
					t.Errorf("%v of %v: %v", dims, ty, m.MatMul(m.T()))
				}
			}
		}
		// All directions of an orthogonal matrix are equally likely, so each element has mean 0 and
		// variance 1/n.
		sum, square := s.Zeros(3, 3), s.Zeros(3, 3)
		for range 300 {
			w := s.Zeros(3, 3)
			initial.Orthogonal(w, 1)
			sum, square = sum.Add(w), square.Add(w.Square())
		}
		if m := sum.DivScalar(300).Abs().Amax().Item(); m > 0.13 {
			t.Errorf("a mean is %v", m)
		}
		if !square.DivScalar(300).AllClose(s.Full(1.0/3, 3, 3), 0, 0.06) {
			t.Errorf("variances %v", square.DivScalar(300))
		}
	})
}

func TestSparse(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		w := s.Ones(100, 7).RequiresGrad()
		initial.Sparse(w, 0.905, 0.5)
		for _, n := range w.Detach().EqScalar(0).Cast(dtype.I64).Sum(0).Floats() {
			if n != 91 {
				t.Errorf("%v zeros in a column", n)
			}
		}
		first := w.Detach().EqScalar(0).Cast(dtype.I64)
		if first.Select(1, 0).Eq(first.Select(1, 1)).All().Item() == 1 {
			t.Error("all columns are alike")
		}
	})
}

func TestMistakes(t *testing.T) {
	v, m := tensor.Ones(3), tensor.Ones(3, 2)
	for name, f := range map[string]func(){
		"kaiming": func() { initial.KaimingUniform(v, 1) }, "kaiming normal": func() { initial.KaimingNormal(v, 1) },
		"xavier": func() { initial.XavierUniform(v, 1) }, "xavier normal": func() { initial.XavierNormal(v, 1) },
		"eye": func() { initial.Eye(v) }, "dirac": func() { initial.Dirac(m, 1) }, "groups": func() { initial.Dirac(tensor.Ones(3, 2, 2), 2) },
		"orthogonal": func() { initial.Orthogonal(v, 1) }, "sparse": func() { initial.Sparse(v, 0.5, 1) }, "share": func() { initial.Sparse(m, 1.5, 1) },
	} {
		if err := tensor.Try(f); !errors.Is(err, tensor.ErrShape) && !errors.Is(err, tensor.ErrValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The error for a nil bias says that the layer has no bias.
func TestNothingToInitialise(t *testing.T) {
	for name, f := range map[string]func(w *tensor.Tensor){
		"constant": func(w *tensor.Tensor) { initial.Constant(w, 0) }, "kaiming_uniform": func(w *tensor.Tensor) { initial.KaimingUniform(w, 1) },
		"kaiming_normal": func(w *tensor.Tensor) { initial.KaimingNormal(w, 1) }, "xavier_uniform": func(w *tensor.Tensor) { initial.XavierUniform(w, 1) },
		"xavier_normal": func(w *tensor.Tensor) { initial.XavierNormal(w, 1) }, "eye": initial.Eye, "dirac": func(w *tensor.Tensor) { initial.Dirac(w, 1) },
		"orthogonal": func(w *tensor.Tensor) { initial.Orthogonal(w, 1) }, "sparse": func(w *tensor.Tensor) { initial.Sparse(w, 0.5, 1) },
		"normal": func(w *tensor.Tensor) { initial.Normal(w, 0, 1) }, "uniform": func(w *tensor.Tensor) { initial.Uniform(w, 0, 1) },
		"trunc_normal": func(w *tensor.Tensor) { initial.TruncNormal(w, 0, 1, -2, 2) },
	} {
		if err := tensor.Try(func() { f(nil) }); !errors.Is(err, tensor.ErrValue) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
