package optest

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// dropouts lists the kinds of dropout, each with a shape. whole is the number of leading dimensions
// that select a unit. A unit is dropped as a whole.
var dropouts = []struct {
	name  string
	f     func(x *tt, p float64) *tt
	shape []int
	whole int
	alpha bool
}{
	{"Dropout", (*tt).Dropout, []int{50, 60, 4}, 3, false},
	{"AlphaDropout", (*tt).AlphaDropout, []int{50, 60, 4}, 3, true},
	{"Dropout1d", (*tt).Dropout1d, []int{70, 60, 4}, 2, false},
	{"Dropout1d of one", (*tt).Dropout1d, []int{4000, 3}, 1, false},
	{"Dropout2d", (*tt).Dropout2d, []int{70, 60, 2, 3}, 2, false},
	{"Dropout2d of signals", (*tt).Dropout2d, []int{70, 60, 3}, 2, false},
	{"Dropout3d", (*tt).Dropout3d, []int{70, 60, 1, 2, 3}, 2, false},
	{"Dropout3d of one", (*tt).Dropout3d, []int{4000, 1, 2, 3}, 1, false},
	{"FeatureAlphaDropout", (*tt).FeatureAlphaDropout, []int{70, 60, 4}, 2, true},
	{"FeatureAlphaDropout of vectors", (*tt).FeatureAlphaDropout, []int{70, 60}, 2, true},
}

// TestDropouts checks that every kind of dropout drops elements, or whole channels, with the given
// probability. A dropped element gets the value that the formula of the kind says. Gradients and
// second gradients use the same mask.
func TestDropouts(t *testing.T) {
	const p = 0.3
	for _, c := range dropouts {
		for _, ty := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
			keep, shift, instead := 1/(1-p), 0.0, 0.0
			if c.alpha { // these are torch's constants
				const alpha = 1.7580993408473766
				keep = 1 / math.Sqrt((alpha*alpha*p+1)*(1-p))
				shift, instead = keep*alpha*p, keep*alpha*p-keep*alpha
			}
			tensor.Do(func(s *tensor.Scope) {
				x := s.Typed(ty).Uniform(1, 2, c.shape...).Transpose(0, -1).Clone().Transpose(0, -1).RequiresGrad()
				y := c.f(x, p)
				seed := s.Typed(ty).Uniform(1, 2, c.shape...).RequiresGrad()
				g := tensor.Gradients(y, []*tt{x}, tensor.GradOutput(seed), tensor.CreateGraph())[0]
				if y.Type() != ty || y.Shape() != x.Shape() {
					t.Fatalf("%s: %v %v of %v %v", c.name, y.Type(), y.Shape(), ty, x.Shape())
				}
				in, out, grad, seeds := x.Floats(), y.Floats(), g.Floats(), seed.Floats()
				unit := size(c.shape[c.whole:])
				dropped, tol := 0, 4*ulp(ty, 1)
				for i, v := range in {
					gone := math.Abs(out[i]-instead) < 0.25
					if gone != (math.Abs(out[i/unit*unit]-instead) < 0.25) {
						t.Fatalf("%s: element %d is not dropped as its channel", c.name, i)
					}
					want, wantGrad := v*keep+shift, seeds[i]*keep
					if gone {
						want, wantGrad = instead, 0
						dropped++
					}
					if math.Abs(out[i]-want) > tol*math.Abs(want) || math.Abs(grad[i]-wantGrad) > tol*wantGrad {
						t.Fatalf("%s %v: element %d of %v is %v, want %v, gradient %v, want %v", c.name, ty, i, v, out[i], want, grad[i], wantGrad)
					}
				}
				units := float64(len(in) / unit)
				if off := float64(dropped)/float64(len(in)) - p; math.Abs(off) > 4*math.Sqrt(p*(1-p)/units) {
					t.Errorf("%s drops %v too many of each", c.name, off)
				}
				// The gradient is linear in the incoming gradient, with the same mask. Therefore
				// the gradient of the gradient uses that mask too.
				again := tensor.Gradients(g, []*tt{seed}, tensor.GradOutput(seed))[0]
				if !slices.Equal(again.Floats(), grad) {
					t.Errorf("%s: the gradient's gradient is another", c.name)
				}
			}, tensor.Seed(11))
		}
	}
}

// TestAlphaDropoutKeepsMoments checks that alpha dropout keeps a mean of 0 and a variance of 1.
func TestAlphaDropoutKeepsMoments(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for name, y := range map[string]*tt{"elements": s.Randn(1 << 16).AlphaDropout(0.2), "channels": s.Randn(1<<8, 1<<8, 2).FeatureAlphaDropout(0.4)} {
			if mean, std := moments(y.Floats()); math.Abs(mean) > 0.02 || math.Abs(std-1) > 0.02 {
				t.Errorf("%s: mean %v, deviation %v", name, mean, std)
			}
		}
	}, tensor.Seed(3))
}

// TestDropoutsOfASeed checks that the same seed drops the same elements on every device.
// Probability 0 drops nothing and makes no copy. Probability 1 drops everything.
func TestDropoutsOfASeed(t *testing.T) {
	gpu := emulated(t)
	for _, c := range dropouts {
		dims := slices.Clone(c.shape)
		for i := range dims {
			dims[i] = min(dims[i], 5)
		}
		run := func(dev device.Device, p float64) (v, g []float64) {
			tensor.Do(func(s *tensor.Scope) {
				x := s.Arange(size(dims)).AddScalar(1).Float().Reshape(dims...).To(dev).RequiresGrad()
				y := c.f(x, p)
				if p == 0 && y != x {
					t.Errorf("%s(0) copies", c.name)
				}
				v, g = y.Floats(), tensor.Gradients(y.Square().Sum(), []*tt{x})[0].Floats()
			}, tensor.Seed(7))
			return v, g
		}
		a, ga := run(hostDevice(), 0.5)
		b, gb := run(gpu, 0.5)
		if !slices.Equal(a, b) || !slices.Equal(ga, gb) {
			t.Errorf("%s differs between devices", c.name)
		}
		run(hostDevice(), 0)
		a, ga = run(hostDevice(), 1)
		if slices.ContainsFunc(append(a, ga...), func(v float64) bool { return v != 0 }) {
			t.Errorf("%s(1) leaves something", c.name)
		}
	}
}

func TestDropoutMisuse(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(2, 3, 4)
		for _, c := range []struct {
			kind error
			want string
			f    func()
		}{
			{tensor.ErrValue, "1.5 is not a probability", func() { x.AlphaDropout(1.5) }},
			{tensor.ErrValue, "NaN is not a probability", func() { x.Dropout(math.NaN()) }},
			{tensor.ErrType, "use Float", func() { x.Long().Dropout1d(0.5) }},
			{tensor.ErrShape, "dropout1d: the input has shape [2, 3, 4, 1], it should have 2 or 3 dimensions (Dropout drops", func() { x.Unsqueeze(-1).Dropout1d(0.5) }},
			{tensor.ErrShape, "3 or 4 dimensions", func() { x.Flatten(0, -1).Dropout2d(0) }},
			{tensor.ErrShape, "4 or 5 dimensions", func() { x.Dropout3d(0.5) }},
			{tensor.ErrShape, "[n, channels, …]", func() { x.Flatten(0, -1).FeatureAlphaDropout(0.5) }},
		} {
			if err := tensor.Try(c.f); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v is not %v with %q", err, c.kind, c.want)
			}
		}
		for _, c := range dropouts {
			if y := c.f(s.Zeros(append([]int{0}, c.shape[1:]...)...), 0.5); y.Size() != 0 {
				t.Errorf("%s of nothing is %v", c.name, y.Shape())
			}
		}
	})
}
