package optim_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// rankRun trains a model of its own on dev. It uses features that depend on scopes, such as
// checkpoints, autocast and NoGrad. It returns the weights, the losses and some random numbers.
func rankRun(t *testing.T, dev device.Device, rank, steps int) (all []float64) {
	tensor.Do(func(home *tensor.Scope) {
		in := nn.In(home)
		m := nn.To(nn.NewSequential(
			nn.NewLinear(5, 7, in), nn.NewLayerNorm([]int{7}, in), nn.ReLU{}, nn.NewDropout(0.3),
			nn.NewLinear(7, 4, in), nn.NewBatchNorm1d(4, in), nn.NewLinear(4, 3, in)), dev)
		params := nn.Parameters(m)
		opt := optim.NewAdamW(params, optim.AdamConfig{LR: 0.05})
		heard := 0
		defer tensor.WatchBackward(params, countsReady{&heard})()
		for k := range steps {
			home.Do(func(s *tensor.Scope) {
				x, y := s.Randn(6, 5), s.Randn(6, 3)
				forward := func(x *tensor.Tensor) *tensor.Tensor { return m.Forward(x) }
				out := autograd.Checkpoint(forward, x)
				if k == 1 {
					s.Do(func(s *tensor.Scope) {
						out.In(s).Sub(y).Float().Square().Mean().Backward()
					}, tensor.Autocast(dtype.BF16))
				} else {
					out.Sub(y).Square().Mean().Backward()
				}
				all = append(all, optim.ClipGradNorm(params, 0.7).Item())
				s.Do(func(s *tensor.Scope) {
					all = append(all, x.In(s).Mul(out.Detach().Sum()).Mean().Item())
				}, tensor.NoGrad())
			})
			opt.Step()
			opt.ZeroGrad()
		}
		if heard != steps*len(params) {
			t.Errorf("rank %d heard of %d gradients, not %d", rank, heard, steps*len(params))
		}
		all = append(all, home.Rand(4).Floats()...)
		for _, p := range params {
			all = append(all, p.Floats()...)
		}
	}, tensor.On(dev), tensor.Seed(uint64(rank)))
	return all
}

// countsReady counts the parameters whose gradients are ready.
type countsReady struct{ n *int }

func (c countsReady) Begin(*tensor.Scope, []bool) tensor.BackwardRun { return c }
func (c countsReady) Ready(int)                                      { *c.n++ }
func (c countsReady) Missed(int)                                     {}
func (c countsReady) End(error)                                      {}

// Ranks train at the same time, each with its own model and generator. Their results are bitwise
// equal to those of each rank alone. The ranks share one device or have several devices.
func TestRanksTrainAtTheSameTime(t *testing.T) {
	gpus, err := cuda.Emulate("emulate:2,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	host := tensor.Root().Device()
	devs := []device.Device{host, gpus[0], gpus[1], host, gpus[0]}
	steps, rounds := 4, 2
	if testing.Short() { // a short run, for the race detector
		devs, steps, rounds = devs[:4], 2, 1
	}
	alone := make([][]float64, len(devs))
	for rank, dev := range devs {
		alone[rank] = rankRun(t, dev, rank, steps)
		if rank > 0 && slices.Equal(alone[rank], alone[rank-1]) {
			t.Fatalf("ranks %d and %d do the same", rank-1, rank)
		}
	}
	for round := range rounds {
		together := make([][]float64, len(devs))
		stop, drawn := make(chan int), make(chan int)
		// At the same time another goroutine draws from the root scope's generator and records
		// graphs there.
		go func() {
			defer close(drawn)
			for {
				select {
				case <-stop:
					return
				default:
					tensor.Root().Randn(3).RequiresGrad().Sum().Backward()
				}
			}
		}()
		var wg sync.WaitGroup
		for rank, dev := range devs {
			wg.Go(func() { together[rank] = rankRun(t, dev, rank, steps) })
		}
		wg.Wait()
		close(stop)
		<-drawn
		for rank := range devs {
			if !slices.Equal(alone[rank], together[rank]) {
				t.Errorf("round %d, rank %d: alone %v\ntogether %v", round, rank, fmt.Sprint(alone[rank]), fmt.Sprint(together[rank]))
			}
		}
	}
}
