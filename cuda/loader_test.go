package cuda_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestTrainingWithCopiesAhead copies batches from page-locked memory on other streams, before the
// steps need them. The training must give the same bits as one that copies each batch in its step.
// Streams may run late.
func TestTrainingWithCopiesAhead(t *testing.T) {
	train := func(spec string, ahead bool) []float32 {
		gpus, err := cuda.Emulate(spec)
		if err != nil {
			t.Fatal(err)
		}
		gpu := gpus[0]
		ds, err := data.NewTensorDataset(tensor.Root().Arange(40*6).Float().MulScalar(0.01).Sin().Reshape(40, 6), tensor.Root().Arange(40).RemainderScalar(3))
		if err != nil {
			t.Fatal(err)
		}
		c := data.Config{Batch: 8, Shuffle: true, Seed: 3, Workers: 2, Prefetch: 3}
		if ahead {
			c.Device, c.Pin = gpu, true
		}
		loader, err := data.NewLoader(ds, c)
		if err != nil {
			t.Fatal(err)
		}
		tensor.ManualSeed(1)
		model := nn.To(nn.NewSequential(nn.NewLinear(6, 12), nn.Tanh{}, nn.NewLinear(12, 3)), gpu)
		opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 0.05})
		for range 2 {
			for b, err := range loader.Batches() {
				if err != nil {
					t.Fatal(err)
				}
				tensor.Do(func(s *tensor.Scope) {
					nn.CrossEntropy(model.Forward(s.From(b.X)), s.From(b.Y)).Backward()
					opt.Step()
					opt.ZeroGrad()
				}, tensor.On(gpu))
			}
		}
		var out []float32
		for _, p := range nn.Parameters(model) {
			out = append(out, tensor.Data[float32](p)...)
		}
		if n := gpu.PinnedStats().Allocated; n != 0 {
			t.Errorf("%s: %d bytes of page-locked memory are left", spec, n)
		}
		return out
	}
	want := train("emulate,mem=16MiB", false)
	for seed := range 3 {
		if got := train(fmt.Sprintf("emulate,mem=16MiB,seed=%d", seed), true); !slices.Equal(got, want) {
			t.Errorf("seed %d: the weights differ: %v, want %v", seed, got[:6], want[:6])
		}
	}
}
