package cuda

import (
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// contexts returns the indices of the GPUs on which this process has a context.
func contexts(t *testing.T) []int {
	t.Helper()
	p, u := current()
	if u != nil {
		t.Fatal(u)
	}
	return p.api.(*emu.Driver).Contexts()
}

// TestOnlyTheUsedGPUHasAContext trains on the second GPU. No context may be created on the first
// GPU, where it would take some hundred MiB.
func TestOnlyTheUsedGPUHasAContext(t *testing.T) {
	if !isChild(t) {
		child(t, t.Name(), "emulate:3,mem=16MiB")
		return
	}
	if n, err := device.Count("cuda"); n != 3 || err != nil || !IsAvailable() || DeviceCount() != 3 {
		t.Fatalf("%d devices, %v", n, err)
	}
	if c := contexts(t); len(c) > 0 {
		t.Fatalf("to count opens %v", c)
	}
	gpu, err := device.Open("cuda:1")
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.Root().Arange(16*6).Float().MulScalar(0.01).Sin().Reshape(16, 6)
	ds, err := data.NewTensorDataset(x, tensor.Root().Arange(16).RemainderScalar(3))
	if err != nil {
		t.Fatal(err)
	}
	model := nn.To(nn.NewSequential(nn.NewLinear(6, 12), nn.Tanh{}, nn.NewLinear(12, 3)), gpu)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 0.05})
	for _, c := range []data.Config{{Batch: 8, Device: gpu, Pin: true}, {Batch: 8, Pin: true}} {
		loader, err := data.NewLoader(ds, c)
		if err != nil {
			t.Fatal(err)
		}
		for b, err := range loader.Batches() {
			if err != nil {
				t.Fatal(err)
			}
			if c.Device == nil && !b.X.IsPinned() {
				t.Error("the batch is not in page-locked memory")
			}
			tensor.Do(func(s *tensor.Scope) {
				loss := nn.CrossEntropy(model.Forward(s.From(b.X)), s.From(b.Y))
				loss.Backward()
				optim.ClipGradNorm(nn.Parameters(model), 1)
				opt.Step()
				opt.ZeroGrad()
				loss.ItemLater().Item()
			}, tensor.On(gpu), tensor.Offload(true))
		}
	}
	tensor.Do(func(s *tensor.Scope) {
		y := s.From(x.Clone()).PinMemory().To(gpu, tensor.NonBlocking())
		back := y.To(s.Device(), tensor.NonBlocking())
		if !back.IsPinned() || !slices.Equal(back.Floats(), x.Floats()) || !slices.Equal(x.CUDA(1).Floats(), x.Floats()) {
			t.Error("the copies differ")
		}
	})
	if c := contexts(t); !slices.Equal(c, []int{1}) {
		t.Errorf("contexts on %v, want one on GPU 1", c)
	}
	if any, err := device.OpenAny("cuda"); err != nil || any != gpu {
		t.Errorf("any GPU is %v, %v", any, err)
	}
	if _, err := device.Open("cuda:0"); err != nil || !slices.Equal(contexts(t), []int{0, 1}) {
		t.Errorf("contexts on %v, %v", contexts(t), err)
	}
}

// TestAnyGPUIsTheFirst checks that page-locked memory can be allocated before any GPU is in use.
// The first GPU must then allocate it.
func TestAnyGPUIsTheFirst(t *testing.T) {
	if !isChild(t) {
		child(t, t.Name(), "emulate:2,mem=16MiB")
		return
	}
	if !tensor.Ones(4).PinMemory().IsPinned() || !slices.Equal(contexts(t), []int{0}) {
		t.Errorf("contexts on %v", contexts(t))
	}
}
