package nn_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// In training, dropout layers drop elements at random, as the seed of the scope determines. In
// evaluation they return their input.
func TestDropoutLayers(t *testing.T) {
	for name, l := range map[string]nn.Module{"Dropout": nn.NewDropout(0.5), "Dropout1d": nn.NewDropout1d(0.5), "Dropout2d": nn.NewDropout2d(0.5), "Dropout3d": nn.NewDropout3d(0.5),
		"AlphaDropout": nn.NewAlphaDropout(0.5), "FeatureAlphaDropout": nn.NewFeatureAlphaDropout(0.5),
		"StochasticDepth": nn.NewStochasticDepth(0.5)} {
		dims := map[string][]int{"Dropout1d": {4, 16, 3}, "Dropout2d": {4, 16, 1, 3}, "Dropout3d": {4, 16, 1, 1, 3}, "StochasticDepth": {16, 4}}[name]
		if dims == nil {
			dims = []int{4, 16}
		}
		tensor.Do(func(s *tensor.Scope) {
			x := s.Ones(dims...)
			y := l.Forward(x)
			// every element of the input is positive, so dropping and scaling both change it
			if n := y.Ne(x).Sum().Item(); n != float64(x.Size()) {
				t.Errorf("%s: %v of %d elements change", name, n, x.Size())
			}
			if v := y.Amin().Item(); v >= 1 {
				t.Errorf("%s drops nothing", name)
			}
			nn.Eval(l)
			if l.Forward(x) != x {
				t.Errorf("%s drops in evaluation", name)
			}
		}, tensor.Seed(1))
	}
}

// The result of d.Add(r, x) equals r + d.Forward(x), in training, in evaluation and with hooks.
// Both Add and Forward call the hooks.
func TestDropoutAdd(t *testing.T) {
	seen := 0
	hooked := nn.NewDropout(0.4)
	hooked.RegisterForwardHook(func(x, y *tensor.Tensor) *tensor.Tensor {
		seen++
		return y.MulScalar(2)
	})
	eval := nn.NewDropout(0.4)
	nn.Eval(eval)
	for name, d := range map[string]*nn.Dropout{"training": nn.NewDropout(0.4), "evaluation": eval, "hooked": hooked} {
		sum := func(f func(x, r *tensor.Tensor) *tensor.Tensor) (v []float64) {
			tensor.Do(func(s *tensor.Scope) {
				r := s.Ones(20, 5)
				v = f(s.Typed(dtype.BF16).Ones(20, 5), r).Floats()
			}, tensor.Seed(3))
			return v
		}
		got := sum(func(x, r *tensor.Tensor) *tensor.Tensor { return d.Add(r, x) })
		want := sum(func(x, r *tensor.Tensor) *tensor.Tensor { return r.Add(d.Forward(x)) })
		if !slices.Equal(got, want) {
			t.Errorf("%s: the sum is %v, want %v", name, got, want)
		}
	}
	if seen != 2 {
		t.Errorf("the hook is called %d times", seen)
	}
}

// As in torch, the constructor refuses an invalid probability.
func TestDropoutProbabilities(t *testing.T) {
	for name, f := range map[string]func(p float64){"Dropout": func(p float64) { nn.NewDropout(p) }, "Dropout1d": func(p float64) { nn.NewDropout1d(p) },
		"Dropout2d": func(p float64) { nn.NewDropout2d(p) }, "Dropout3d": func(p float64) { nn.NewDropout3d(p) },
		"AlphaDropout": func(p float64) { nn.NewAlphaDropout(p) }, "FeatureAlphaDropout": func(p float64) { nn.NewFeatureAlphaDropout(p) },
		"StochasticDepth": func(p float64) { nn.NewStochasticDepth(p) }} {
		for _, p := range []float64{-0.1, 1.5, math.NaN()} {
			func() {
				defer func() {
					if e, ok := recover().(*nn.Error); !ok || e.Path != name || !strings.Contains(e.Msg, fmt.Sprint(p)) {
						t.Errorf("%s of %v: %v", name, p, e)
					}
				}()
				f(p)
			}()
		}
		f(0)
		f(1)
	}
}

// Stochastic depth drops whole samples, never single elements. With Batch it drops all samples or
// none.
func TestStochasticDepth(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Typed(dtype.F16).Randn(4000, 2, 3).RequiresGrad()
		l := nn.NewStochasticDepth(0.2)
		y := l.Forward(x)
		y.Sum().Backward()
		// the gradient is the factor of each sample, 0 or 1/(1-p)
		kept := x.Grad().Select(2, 0).Select(1, 0)
		if n := kept.Ne(kept.ZerosLike()).Sum().Item(); n < 3100 || n > 3300 {
			t.Errorf("%v of 4000 samples stay", n)
		}
		if !y.AllClose(x.Mul(kept.Unsqueeze(-1).Unsqueeze(-1)), 0, 0) || kept.Amax().Item() != 1.25 || y.Type() != dtype.F16 {
			t.Error("samples are not dropped or scaled as a whole")
		}
		l.Batch = true
		seen := map[bool]int{}
		for range 200 {
			y := l.Forward(x)
			dropped := y.CountNonzero().Item() == 0
			if !dropped && !y.AllClose(x.MulScalar(1.25), 0, 0) {
				t.Fatal("a batch is not scaled as a whole")
			}
			seen[dropped]++
		}
		if seen[true] < 20 || seen[true] > 60 {
			t.Errorf("%d of 200 batches are dropped", seen[true])
		}
		if y := nn.NewStochasticDepth(1).Forward(x); y.CountNonzero().Item() != 0 {
			t.Error("p = 1 keeps something")
		}
		for _, none := range []*tensor.Tensor{s.Ones(0, 3), s.Full(2)} {
			if y := nn.NewStochasticDepth(0.5).Forward(none); y.Shape() != none.Shape() {
				t.Errorf("%v becomes %v", none.Shape(), y.Shape())
			}
		}
	}, tensor.Seed(3))
}
