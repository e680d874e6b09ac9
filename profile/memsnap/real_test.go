package memsnap_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// trained returns the memory history of some training steps of a small transformer on an emulated
// GPU.
func trained(t testing.TB, steps int) *device.MemorySnapshot {
	t.Helper()
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	gpu := gpus[0]
	gpu.RecordMemoryHistory()
	m := nn.To(nn.NewSequential(nn.NewLinear(64, 256), nn.GELU{}, nn.NewLayerNorm([]int{256}), nn.NewLinear(256, 256), nn.GELU{}, nn.NewLinear(256, 10)), gpu)
	opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-3})
	for i := range steps {
		tensor.Do(func(s *tensor.Scope) {
			x := s.On(gpu).Randn(16+8*(i%3), 64)
			var loss *tensor.Tensor
			s.Do(func(f *tensor.Scope) { loss = m.Forward(x.In(f)).Square().Mean(); f.Close(loss) }, tensor.Named("forward"))
			s.Do(func(*tensor.Scope) { loss.Backward() }, tensor.Named("backward"))
			s.Do(func(*tensor.Scope) { opt.Step(); opt.ZeroGrad() }, tensor.Named("optimizer"))
		}, tensor.Named("step"))
	}
	return gpu.MemorySnapshot()
}
