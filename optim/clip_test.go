package optim_test

import (
	"errors"
	"math"
	"strconv"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// Clipped gradients and norms equal PyTorch's, on the CPU and on an emulated GPU.
func TestClippingEqualsTorch(t *testing.T) {
	f, err := golden.Open("testdata/clip.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, dev := range []device.Device{cpu, emulatedGPU(t, "mem=64MiB")} {
		for _, ty := range []dtype.Type{dtype.F32, dtype.F64} {
			for _, c := range f.Cases {
				var params []*tensor.Tensor
				for _, o := range c.In {
					g := tensor.Root().On(dev).From(o.Base.Float32s()).Reshape(o.Base.Shape...).Cast(ty)
					for _, v := range o.Views {
						g = g.Transpose(v.Args[0], v.Args[1])
					}
					p := g.ZerosLike().RequiresGrad()
					p.SetGrad(g)
					params = append(params, p)
				}
				number := func(name string) float64 {
					v, err := strconv.ParseFloat(c.Args.Text(name), 64)
					if err != nil {
						t.Fatal(err)
					}
					return v
				}
				var got []*tensor.Tensor
				if c.Op == "norm" {
					var opts []optim.ClipOption
					if c.Args.Has("norm_type") {
						opts = append(opts, optim.NormType(number("norm_type")))
					}
					before := optim.GradNorm(params, opts...)
					got = append(got, optim.ClipGradNorm(params, number("max_norm"), opts...))
					if before.Item() != got[0].Item() {
						t.Errorf("%s: the norm was %v, then %v", c.Name, before, got[0])
					}
				} else {
					optim.ClipGradValue(params, number("clip_value"))
				}
				for _, p := range params {
					got = append(got, p.Grad())
				}
				for i, x := range got {
					want, tol := c.Out[i].F64.Float64s, 1e-14
					if ty == dtype.F32 {
						want, tol = func() []float64 { return widen(c.Out[i].F32.Float32s()) }, 4e-7
					}
					if x.Type() != ty || x.Device() != dev {
						t.Fatalf("%s: result %d is %v on %s", c.Name, i, x.Type(), x.Device().Name())
					}
					for k, w := range want() {
						if v := x.Floats()[k]; v != w && !near(v, w, tol) {
							t.Fatalf("%s %v on %s: result %d element %d: %v want %v", c.Name, ty, dev.Name(), i, k, v, w)
						}
					}
				}
			}
		}
	}
}

// Gradients may have different sizes, types and layouts. The norm is that of all elements together.
// Clipping many small gradients needs few launches.
func TestClippingOfManyKinds(t *testing.T) {
	gpu := emulatedGPU(t, "mem=64MiB")
	cpu, _ := device.Open("cpu")
	for _, dev := range []device.Device{cpu, gpu} {
		tensor.Do(func(s *tensor.Scope) {
			var params []*tensor.Tensor
			sum := 0.0
			add := func(g *tensor.Tensor) {
				p := s.Typed(g.Type()).Zeros(g.Shape().Slice()...).RequiresGrad()
				p.SetGrad(g)
				params = append(params, p)
				for _, v := range g.Floats() {
					sum += v * v
				}
			}
			for i := range 20 {
				add(s.Typed(dtype.F32).Full(0.25+float64(i), 3, i))
			}
			add(s.Typed(dtype.F32).Full(0.5, 70000))
			add(s.Typed(dtype.BF16).Full(2, 70))
			add(s.Typed(dtype.F16).Full(300, 300)) // squares of these elements overflow float16
			add(s.Full(3, 1).Expand(4))
			add(s.Full(2, 5, 4).T())
			before := gpu.Counters().Launches
			total := optim.ClipGradNorm(params, 10, optim.InScope(s))
			launches := gpu.Counters().Launches - before
			if w := math.Sqrt(sum); !near(total.Item(), w, 1e-6) {
				t.Errorf("the norm is %v, want %v", total.Item(), w)
			}
			if dev == device.Device(gpu) && launches > 40 {
				t.Errorf("%d launches for %d gradients", launches, len(params))
			}
			if after := optim.GradNorm(params, optim.InScope(s)).Item(); !near(after, 10, 1e-3) {
				t.Errorf("the norm is %v after clipping to 10", after)
			}
			if g := params[23].Grad().Floats(); !near(g[0], 3*10/math.Sqrt(sum), 1e-6) {
				t.Errorf("an expanded gradient is %v", g)
			}
			optim.ClipGradValue(params, 1e-3)
			if after := optim.GradNorm(params, optim.NormType(math.Inf(1)), optim.InScope(s)).Item(); !near(after, 1e-3, 1e-5) {
				t.Errorf("the largest is %v after clipping to 0.001", after)
			}
		}, tensor.On(dev))
	}
	// Twenty small gradients of one type need few launches: one to gather, one or two to measure,
	// one for the factor, and one to scale.
	tensor.Do(func(s *tensor.Scope) {
		var params []*tensor.Tensor
		for i := range 20 {
			p := s.Ones(4 + i).RequiresGrad()
			p.SetGrad(s.Ones(4 + i))
			params = append(params, p)
		}
		before := gpu.Counters()
		optim.ClipGradNorm(params, 1, optim.InScope(s))
		after := gpu.Counters()
		if n := after.Launches - before.Launches; n > 5 {
			t.Errorf("%d launches", n)
		}
		if after.Downloads != before.Downloads {
			t.Errorf("%d reads of the host", after.Downloads-before.Downloads)
		}
	}, tensor.On(gpu))
}

// Misuse raises a typed error, and changes nothing. Without gradients the norm is 0.
func TestClippingErrors(t *testing.T) {
	p := ones(2)
	if v := optim.ClipGradNorm([]*tensor.Tensor{p}, 1).Item(); v != 0 {
		t.Errorf("without gradients the norm is %v", v)
	}
	p.SetGrad(tensor.From([]float32{1, float32(math.NaN())}))
	for name, f := range map[string]func(){
		"NaN":              func() { optim.ClipGradNorm([]*tensor.Tensor{p}, 1, optim.ErrorIfNonfinite()) },
		"a negative limit": func() { optim.ClipGradNorm([]*tensor.Tensor{p}, -1) },
		"order 0":          func() { optim.ClipGradNorm([]*tensor.Tensor{p}, 1, optim.NormType(0)) },
		"nil":              func() { optim.ClipGradNorm([]*tensor.Tensor{nil}, 1) },
		"a value below 0":  func() { optim.ClipGradValue([]*tensor.Tensor{p}, -1) },
		"nil for values":   func() { optim.ClipGradValue([]*tensor.Tensor{nil}, 1) },
	} {
		if err := tensor.Try(f); !errors.Is(err, tensor.ErrValue) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v := p.Grad().Floats(); v[0] != 1 {
		t.Errorf("the gradient is %v", v)
	}
}
