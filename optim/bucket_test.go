package optim_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// inBucket gives each parameter a gradient of zeros that is a view of one tensor, and returns this
// tensor. The first view begins at element 1, so that few views are aligned to more than the size
// of an element.
func inBucket(params []*tensor.Tensor) *tensor.Tensor {
	n := 1
	for _, p := range params {
		n += p.Size()
	}
	b := params[0].Scope().On(params[0].Device()).Typed(params[0].Type()).Zeros(n)
	at := 1
	for _, p := range params {
		p.SetGrad(b.Narrow(0, at, p.Size()).View(p.Shape().Slice()...))
		at += p.Size()
	}
	return b
}

// A stepper makes an optimizer for params. It returns a function that makes one step, with
// gradients that its argument computes.
type stepper func(params []*tensor.Tensor) func(gradients func() float64)

// steppers returns a stepper for every optimizer.
func steppers() map[string]stepper {
	all := map[string]stepper{
		"LBFGS": func(params []*tensor.Tensor) func(func() float64) {
			o := optim.NewLBFGS(params, optim.LBFGSConfig{LR: 0.01})
			return func(gradients func() float64) { o.Step(gradients) }
		},
	}
	rules := maps.Clone(makers)
	rules["Muon"] = func(l [][]*tensor.Tensor, lr []float64) optim.Optimizer {
		return optim.NewMuon(l[0], optim.MuonConfig{LR: lr[0]})
	}
	for name, f := range rules {
		all[name] = func(params []*tensor.Tensor) func(func() float64) {
			o := f([][]*tensor.Tensor{params}, []float64{0.01})
			return func(gradients func() float64) {
				gradients()
				o.Step()
			}
		}
	}
	return all
}

// bucketRun trains for some steps. It returns all numbers that a program can observe.
func bucketRun(t *testing.T, s *tensor.Scope, typ dtype.Type, matrices, bucket bool, of stepper) (all []float64) {
	var params, views []*tensor.Tensor
	for i, sh := range [][]int{{3}, {5, 7}, {1}, {17, 2}, {4, 4}} {
		if n := sh[0] * sh[len(sh)-1]; len(sh) == 2 || !matrices {
			if len(sh) == 1 {
				n = sh[0]
			}
			x := s.Typed(dtype.F32).Arange(n).AddScalar(float64(i)).Sin().Reshape(sh...)
			params = append(params, x.Cast(typ).Clone().RequiresGrad())
		}
	}
	step := of(params)
	var b *tensor.Tensor
	if bucket {
		b = inBucket(params)
		for _, p := range params {
			views = append(views, p.Grad())
		}
	}
	for k := range 4 {
		step(func() (value float64) {
			for _, p := range params {
				if !bucket {
					p.ZeroGrad()
				}
			}
			if bucket {
				b.Zero()
			}
			s.Do(func(c *tensor.Scope) {
				loss := c.Zeros()
				for i, p := range params {
					loss = loss.Add(p.In(c).AddScalar(float64(i + k)).Square().Mul(p).Float().Sum())
				}
				loss.Backward()
				value = loss.Item()
			})
			all = append(all, value, optim.GradNorm(params).Item())
			if k > 0 {
				all = append(all, optim.ClipGradNorm(params, 1.5).Item())
			}
			if k > 1 {
				optim.ClipGradValue(params, 0.1)
			}
			return value
		})
	}
	for i, p := range params {
		all = append(append(all, p.Floats()...), p.Grad().Floats()...)
		if bucket && p.Grad() != views[i] {
			t.Errorf("parameter %d has another gradient", i)
		}
	}
	if bucket && b.Select(0, 0).Item() != 0 {
		t.Errorf("what lies in front of the first gradient is %v", b.Select(0, 0).Item())
	}
	return all
}

// Gradients may be views of one tensor. The results of every optimizer are then bitwise equal to
// those for gradients with separate memory, with or without clipping. The views stay in the
// tensor's memory.
func TestGradientsInABucket(t *testing.T) {
	all := steppers()
	for _, dev := range []device.Device{tensor.Root().Device(), emulatedGPU(t, "mem=64MiB")} {
		for _, typ := range []dtype.Type{dtype.F32, dtype.BF16} {
			for _, name := range slices.Sorted(maps.Keys(all)) {
				t.Run(fmt.Sprint(dev.Info().Kind, "/", typ, "/", name), func(t *testing.T) {
					var own, within []float64
					for bucket, got := range map[bool]*[]float64{false: &own, true: &within} {
						tensor.Do(func(s *tensor.Scope) {
							*got = bucketRun(t, s, typ, name == "Muon", bucket, all[name])
						}, tensor.On(dev))
					}
					if len(own) < 20 || !slices.Equal(own, within) {
						t.Errorf("with gradients of their own: %v\nin a bucket: %v", own, within)
					}
				})
			}
		}
	}
}
