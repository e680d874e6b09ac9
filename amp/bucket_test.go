package amp_test

import (
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// bucketed moves gradients into one tensor when they are ready, as data parallel training does.
type bucketed struct{ leaves, views []*tensor.Tensor }

func (b bucketed) Begin(*tensor.Scope, []bool) tensor.BackwardRun { return b }

func (b bucketed) Ready(i int) {
	x := b.leaves[i]
	g := x.TakeGrad()
	x.Scope().Do(func(s *tensor.Scope) { b.views[i].In(s).Copy(g) }, tensor.NoGrad())
	g.Free()
	x.SetGrad(b.views[i].Detach())
}

func (b bucketed) Missed(int) {}

func (b bucketed) End(error) {}

// A scaler unscales gradients that are views of one tensor, and finds infinities in them. Scale,
// weights and gradients are bitwise equal to those with separate memory for each gradient.
func TestScalerWithGradientsInABucket(t *testing.T) {
	train := func(dev device.Device, bucket bool) (all []float64) {
		tensor.Do(func(s *tensor.Scope) {
			var params []*tensor.Tensor
			for _, n := range []int{3, 17, 1, 6} {
				params = append(params, s.Arange(n).Sin().Clone().RequiresGrad())
			}
			memory := s.Zeros(28)
			if bucket {
				b := bucketed{leaves: params}
				at := 1
				for _, p := range params {
					b.views = append(b.views, memory.Narrow(0, at, p.Size()))
					at += p.Size()
				}
				defer tensor.WatchBackward(params, b)()
			}
			opt := optim.NewAdamW(params, optim.AdamConfig{LR: 0.1})
			scaler := amp.NewGradScaler(amp.InitScale(1024), amp.GrowthInterval(2))
			for step := range 5 {
				s.Do(func(c *tensor.Scope) {
					loss := c.Zeros()
					for i, p := range params {
						l := p.In(c).Square().Sum()
						if step == 2 && i == 1 {
							l = l.MulScalar(math.MaxFloat32)
						}
						loss = loss.Add(l)
					}
					scaler.Scale(loss).Backward()
				})
				scaler.Unscale(opt)
				all = append(all, optim.ClipGradNorm(params, 1).Item())
				for _, p := range params {
					all = append(all, p.Grad().Floats()...)
				}
				scaler.Step(opt)
				scaler.Update()
				opt.ZeroGrad()
				all = append(all, scaler.Value())
			}
			for _, p := range params {
				all = append(all, p.Floats()...)
			}
			if n := opt.Steps(); n != 4 {
				t.Errorf("%d steps of 5 were done, where one is infinite", n)
			}
		}, tensor.On(dev))
		return all
	}
	for _, dev := range devices(t) {
		own, within := train(dev, false), train(dev, true)
		same := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
		if !slices.EqualFunc(own, within, same) {
			t.Errorf("%s: with gradients of their own %v\nin a bucket %v", dev.Name(), own, within)
		}
	}
}
