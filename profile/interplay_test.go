package profile_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestComputedAgain profiles a model with LeakyReLUs. These are structs without a pointer that
// could identify the layer. The profile must still count them as parts of the model, even when
// Backward recomputes them.
func TestComputedAgain(t *testing.T) {
	m := nn.NewSequential(nn.NewLinear(16, 32), nn.NewLeakyReLU(0.1), nn.NewLinear(32, 8), nn.NewLeakyReLU(0.1), nn.NewLinear(8, 8))
	if nn.SetCheckpointing(m, true) == 0 {
		t.Fatal("nothing is checkpointed")
	}
	x := tensor.Ones(4, 16).RequiresGrad()
	p := recorded(t, profile.Options{Modules: nn.ModuleNames(m, "net")}, func(*profile.Profile) {
		tensor.Do(func(s *tensor.Scope) { m.Forward(x.In(s)).Square().Mean().Backward() })
	})
	by := p.KeyAverages(profile.ByModule())
	flops := 0
	for _, r := range by.Rows {
		if r.Key != "(outside of layers)" {
			flops += r.FLOPs
		}
		if r.Key != "net" && r.CPUSelf != r.CPUTotal {
			t.Errorf("something lies in %+v", r)
		}
	}
	if r := rowOf(t, by, "net"); r.Count != 1 || r.FLOPsTotal != flops {
		t.Errorf("the model has %d operations in %d calls, its layers %d", r.FLOPsTotal, r.Count, flops)
	}
	if r := rowOf(t, by, "net.LeakyReLU (computed again)"); r.Count == 0 || r.FLOPs == 0 {
		t.Errorf("%+v", r)
	}
}

// TestInterplay profiles a model that recomputes activations and trains in float16. One step is
// skipped because it overflows, and some steps are replays. The memory of each step must add up to
// 0, self times must not exceed total times, and the layers must add up to the whole.
func TestInterplay(t *testing.T) {
	for _, dev := range []device.Device{open(t), emulate(t)} {
		m := nn.To(nn.NewSequential(nn.NewLinear(16, 32), nn.ReLU{}, nn.NewLinear(32, 8)), dev)
		opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 0.01})
		scaler := amp.NewGradScaler(amp.InitScale(8))
		x := tensor.Root().On(dev).Randn(4, 16)
		step := func(by float64) {
			tensor.Do(func(s *tensor.Scope) {
				y := autograd.Checkpoint(m.Forward, x.In(s).RequiresGrad())
				scaler.Scale(y.Square().Mean().DivScalar(by)).Backward()
				scaler.Step(opt)
				scaler.Update()
				opt.ZeroGrad()
			}, tensor.On(dev), tensor.Autocast(dtype.F16), tensor.Named("step"))
		}
		step(1)
		replays := 0
		p := recorded(t, profile.Options{Memory: true, Modules: nn.ModuleNames(m, "net")}, func(*profile.Profile) {
			step(1)
			step(0)
			if dev.Info().Kind == "cpu" {
				return
			}
			g, err := tensor.Capture(dev, func(s *tensor.Scope) {
				m.Forward(x.In(s)).Square().Mean().Backward()
				opt.Step()
				opt.ZeroGrad()
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				replays++
				if err := g.Replay(); err != nil {
					t.Fatal(err)
				}
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
		})
		all, by := p.KeyAverages(), p.KeyAverages(profile.ByModule())
		if r := rowOf(t, all, "step"); r.Count != 2 || r.CPUMemory != 0 || r.CUDAMemory != 0 {
			t.Errorf("%s: steps keep %d and %d bytes, in %d calls", dev.Name(), r.CPUMemory, r.CUDAMemory, r.Count)
		}
		for _, a := range []*profile.Averages{all, by} {
			for _, r := range a.Rows {
				if r.CPUSelf > r.CPUTotal || r.CUDASelf > r.CUDATotal {
					t.Errorf("%s: self is more than total: %+v", dev.Name(), r)
				}
			}
		}
		if a, b := all.Total(), by.Total(); !nearTime(a.CPUSelf, b.CPUSelf) || !nearTime(a.CUDASelf, b.CUDASelf) || a.FLOPs != b.FLOPs || a.CUDAMemorySelf != b.CUDAMemorySelf {
			t.Errorf("%s: layers sum to %+v, all to %+v", dev.Name(), b, a)
		}
		// Recomputed work must belong to its own layer, and not to the layer whose gradient caused
		// it.
		for _, key := range []string{"0", "2"} {
			if r := rowOf(t, by, key); r.Count < 4 || r.CPUTotal != r.CPUSelf || r.CUDATotal != r.CUDASelf {
				t.Errorf("%s: nothing lies in the layer: %+v", dev.Name(), r)
			}
		}
		if r := rowOf(t, by, "net"); r.FLOPsTotal < rowOf(t, by, "0").FLOPs+rowOf(t, by, "2").FLOPs {
			t.Errorf("%s: the model has %d operations, less than its layers", dev.Name(), r.FLOPsTotal)
		}
		if replays > 0 {
			if r := rowOf(t, all, "replay"); r.Count != replays || r.CUDATotal <= 0 {
				t.Errorf("%s: %+v", dev.Name(), r)
			}
		}
	}
}
