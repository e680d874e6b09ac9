//go:build !nogpu && linux && (amd64 || arm64)

package cuda

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// trainedBy trains a network with batch norms on n samples a step. It returns the network's
// parameters and buffers. The argument sample is the index of the first sample in each batch.
func trainedBy(m *nn.Sequential, opt optim.Optimizer, run func(f func(s *tensor.Scope)), sample, n int, scale float64) (all []float64) {
	for step := range 8 {
		run(func(s *tensor.Scope) {
			var v []float32
			var c []int64
			for i := sample; i < sample+n; i++ {
				for k := range 6 {
					v = append(v, float32(math.Sin(float64(step*100+i*17+k*5))))
				}
				c = append(c, int64((i+step)%3))
			}
			nn.CrossEntropy(m.Forward(s.From(v).Reshape(n, 6)), s.From(c)).MulScalar(scale).Backward()
			opt.Step()
			opt.ZeroGrad()
		})
	}
	for _, p := range nn.Named(m) {
		all = append(all, p.Tensor.Floats()...)
	}
	return all
}

// TestNCCLTraining trains with DDP over NCCL, batch norms over all ranks and a sharded optimizer.
// The results must be those of a training on one device.
func TestNCCLTraining(t *testing.T) {
	for _, world := range []int{2, 4} {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			rig := newNCCL(t, world, "")
			model := func() *nn.Sequential {
				m := nn.NewSequential(nn.NewLinear(6, 16, nn.NoBias()), nn.NewBatchNorm1d(16), nn.ReLU{}, nn.NewLinear(16, 3))
				tensor.Do(func(s *tensor.Scope) {
					for _, p := range nn.Parameters(m) {
						p.Copy(s.Typed(p.Type()).Randn(p.Shape().Slice()...).MulScalar(0.3))
					}
				}, tensor.NoGrad(), tensor.Seed(3))
				return m
			}
			adam := optim.AdamConfig{LR: 0.01}
			const whole = 12
			one := model()
			want := trainedBy(one, optim.NewAdamW(nn.Parameters(one), adam), func(f func(s *tensor.Scope)) { tensor.Do(f) }, 0, whole, 1)
			var gpus []device.Device
			for _, d := range rig.devs {
				gpus = append(gpus, d)
			}
			got := make([][]float64, world)
			err := dist.Run(context.Background(), dist.On(gpus...), func(_ context.Context, g *dist.Group) error {
				if g.Backend() != "nccl" {
					return fmt.Errorf("the backend is %s", g.Backend())
				}
				m := dist.ConvertSyncBatchNorm(nn.To(dist.Make(g, model), g.Device()), g)
				dist.DDP(m, g, dist.BucketBytes(200, 400))
				opt := dist.NewZeRO(g, optim.NewAdamW(nn.Parameters(m), adam))
				// The ranks have different numbers of samples. The loss of a rank is weighted by
				// the rank's number of samples.
				n := whole/world + 1 - 2*(g.Rank()%2)
				at := whole / world * g.Rank()
				if g.Rank()%2 == 1 {
					at++
				}
				got[g.Rank()] = trainedBy(m, opt, func(f func(s *tensor.Scope)) { g.Do(f) }, at, n, float64(n*world)/whole)
				return nil
			})
			must(t, err)
			for r, v := range got {
				if !slices.Equal(v, got[0]) {
					t.Errorf("ranks 0 and %d differ", r)
				}
				for i, x := range v {
					if math.Abs(x-want[i]) > 2e-4*(1+math.Abs(want[i])) {
						t.Fatalf("rank %d: element %d is %v, one device has %v", r, i, x, want[i])
					}
				}
			}
		})
	}
}
