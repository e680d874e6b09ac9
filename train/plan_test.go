package train_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

type builder = func(s *tensor.Scope, batch int) *train.PlannedStep

// adamW returns a training step with AdamW for a model and its loss.
func adamW(m any, loss func(s *tensor.Scope) *tensor.Tensor) *train.PlannedStep {
	return &train.PlannedStep{Model: m, Optimizer: optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-4}), Loss: loss}
}

// images returns a function that builds the training step of an image classifier.
func images(make func(o nn.Option) nn.Module, dims ...int) builder {
	return func(s *tensor.Scope, batch int) *train.PlannedStep {
		m := make(nn.In(s))
		return adamW(m, func(s *tensor.Scope) *tensor.Tensor {
			x := s.Zeros(append([]int{batch}, dims...)...)
			return nn.CrossEntropy(m.Forward(x), s.Typed(dtype.I64).Zeros(batch))
		})
	}
}

func gptStep(c models.GPTConfig, length int) builder {
	return func(s *tensor.Scope, batch int) *train.PlannedStep {
		m := models.NewGPT(c, nn.In(s))
		return adamW(m, func(s *tensor.Scope) *tensor.Tensor {
			x := s.Typed(dtype.I64).Zeros(batch, length)
			return m.Loss(x, x)
		})
	}
}

// small lists models that the emulated GPU can run.
var small = []struct {
	name    string
	build   builder
	batches [3]int
}{
	{"mlp", images(func(o nn.Option) nn.Module { return models.NewMLP([]int{256, 128, 10}, 0.1, o) }, 256), [3]int{4, 32, 100}},
	{"gpt", gptStep(models.GPTConfig{Vocab: 64, Context: 16, Layers: 2, Heads: 2, Width: 32, Dropout: 0.1}, 16), [3]int{1, 4, 9}},
	{"lenet", images(func(o nn.Option) nn.Module { return models.NewLeNet(28, 1, 10, o) }, 1, 28, 28), [3]int{1, 2, 4}},
	{"resnet", images(func(o nn.Option) nn.Module {
		return models.NewResNet(models.ResNetConfig{Blocks: [4]int{1, 1, 1, 1}, Classes: 10, Channels: 3, Width: 8}, o)
	}, 3, 32, 32), [3]int{2, 3, 5}},
	{"vit", images(func(o nn.Option) nn.Module {
		return models.NewViT(models.ViTConfig{Image: 16, Patch: 4, Layers: 2, Heads: 2, Width: 32, Classes: 10, Dropout: 0.1}, o)
	}, 3, 16, 16), [3]int{1, 3, 8}},
	{"gpt, bf16 and checkpoints", func(s *tensor.Scope, batch int) *train.PlannedStep {
		m := models.NewGPT(models.GPTConfig{Vocab: 64, Context: 16, Layers: 3, Heads: 2, Width: 32, Dropout: 0.1}, nn.In(s))
		nn.SetCheckpointing(m, true)
		return adamW(m, func(s *tensor.Scope) (loss *tensor.Tensor) {
			s.Do(func(s *tensor.Scope) {
				x := s.Typed(dtype.I64).Zeros(batch, 16)
				loss = m.Loss(x, x)
				s.Close(loss)
			}, tensor.Autocast(dtype.BF16))
			return loss
		})
	}, [3]int{1, 4, 9}},
}

// Plan also works if saved tensors are moved to the host. In a plan, the host's memory has no
// contents either.
func TestPlanOffloads(t *testing.T) {
	gpt := models.GPTConfig{Vocab: 1000, Context: 512, Layers: 8, Heads: 8, Width: 512}
	saved := func(modes ...tensor.Option) builder {
		return func(s *tensor.Scope, batch int) *train.PlannedStep {
			m := models.NewGPT(gpt, nn.In(s))
			return adamW(m, func(s *tensor.Scope) (loss *tensor.Tensor) {
				s.Do(func(s *tensor.Scope) {
					x := s.Typed(dtype.I64).Zeros(batch, 512)
					loss = m.Loss(x, x)
					s.Close(loss)
				}, modes...)
				return loss
			})
		}
	}
	c := train.PlanConfig{Batch: 16, Memory: 64 << 30}
	here, err := train.Plan(saved(), c)
	if err != nil {
		t.Fatal(err)
	}
	there, err := train.Plan(saved(autograd.SaveOnCPU(true)), c)
	if err != nil {
		t.Fatal(err)
	}
	if there.Breakdown.Activations > here.Breakdown.Activations/4 || there.Peak > here.Peak/2 {
		t.Errorf("%d bytes with what is saved on the host, %+v; %d without, %+v", there.Peak, there.Breakdown, here.Peak, here.Breakdown)
	}
	// Memory that is not page-locked is ordinary memory of the program. A plan has no values to
	// copy to it.
	if _, err := train.Plan(saved(autograd.SaveOnCPU(false)), c); !errors.Is(err, device.ErrNoValues) {
		t.Errorf("saved in memory that is not pinned: %v", err)
	}
}

// peakOf runs the step on a device with memory, and returns the peak of the second run.
func peakOf(t *testing.T, dev device.Device, build builder, batch int) int {
	t.Helper()
	tensor.Do(func(s *tensor.Scope) {
		p := build(s, batch)
		for range 2 {
			dev.ResetPeak()
			s.Do(func(s *tensor.Scope) { p.Loss(s).Backward() })
			p.Optimizer.Step()
			p.Optimizer.ZeroGrad()
		}
	}, tensor.On(dev), tensor.Seed(0))
	if err := dev.Synchronize(); err != nil {
		t.Fatal(err)
	}
	return dev.Stats().AllocatedPeak
}

// The planned peak is exactly that of a GPU, rounded to whole blocks.
func TestPlanPredictsThePeak(t *testing.T) {
	const memory = 64 << 20
	for i, m := range small {
		batches := m.batches[:]
		if os.Getenv("FLAMBEAU_SOAK") != "1" {
			if i >= 2 {
				break
			}
			batches = batches[1:2]
		}
		for _, batch := range batches {
			r, err := train.Plan(m.build, train.PlanConfig{Memory: memory, Batch: batch})
			if err != nil {
				t.Fatal(m.name, err)
			}
			gpus, err := cuda.Emulate(fmt.Sprintf("emulate,mem=%d", memory>>20) + "MiB")
			if err != nil {
				t.Fatal(err)
			}
			peak := peakOf(t, gpus[0], m.build, batch)
			ratio := float64(r.Peak) / float64(peak)
			t.Logf("%s, batch %d: planned %d bytes, took %d, ratio %.4f", m.name, batch, r.Peak, peak, ratio)
			if math.Abs(ratio-1) > 0.02 {
				t.Errorf("%s, batch %d: planned %d bytes, took %d", m.name, batch, r.Peak, peak)
			}
			if launches := gpus[0].Counters().Launches; uint64(r.Kernels) > launches || r.Kernels < 10 {
				t.Errorf("%s: %d kernels in a step, %d in two and the model's making", m.name, r.Kernels, launches)
			}
			if r.Launches != r.Kernels || r.Modules < 5 || r.Modules > r.Launches {
				t.Errorf("%s: %d launches of %d modules, %d kernels", m.name, r.Launches, r.Modules, r.Kernels)
			}
		}
	}
}

// The operations of all units add up to those of the step. If a step has a single primitive, Least
// has the minimum times of that primitive.
func TestPlanUnits(t *testing.T) {
	const n = 4096
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
		r, err := train.Plan(func(s *tensor.Scope, batch int) *train.PlannedStep {
			x, y := s.Typed(typ).Empty(batch, n), s.Typed(typ).Empty(n, n)
			return &train.PlannedStep{Model: nn.NewLinear(1, 1, nn.In(s)), Loss: func(s *tensor.Scope) *tensor.Tensor { return x.In(s).MatMul(y) }}
		}, train.PlanConfig{Batch: n - 1})
		if err != nil {
			t.Fatal(err)
		}
		const work = 2 * (n - 1) * n * n
		want := train.Units{Tensor: work, Issued: 2 * n * n * n}
		switch typ {
		case dtype.F32:
			want = train.Units{Other: work, Products: work}
		case dtype.F64:
			want = train.Units{Float64: work, Products: work}
		}
		if r.Units != want || r.FLOPs.Total() != work || r.Launches != 1 || r.Modules != 1 {
			t.Errorf("%v: %+v of %d operations, %d launches of %d modules; want %+v", typ, r.Units, r.FLOPs.Total(), r.Launches, r.Modules, want)
		}
		if len(r.Least) != len(train.GPUs()) {
			t.Errorf("%v: least times of %d GPUs: %v", typ, len(r.Least), r.Least)
		}
		for _, g := range train.GPUs() {
			rate := map[dtype.Type]float64{dtype.F32: g.Float32, dtype.F64: g.Float64, dtype.BF16: g.Half}[typ]
			if got, want := r.Least[g.Name], work/rate; math.Abs(got-want) > 1e-9*want {
				t.Errorf("%v on %s: at least %v s, want %v", typ, g.Name, got, want)
			}
		}
	}
	r, err := train.Plan(small[0].build, train.PlanConfig{Machine: train.Machine{Kind: "cpu"}, Batch: 4})
	if err != nil {
		t.Fatal(err)
	}
	if r.Units != (train.Units{}) || r.Launches+r.Modules+len(r.Least) != 0 || train.LaunchSeconds(1000) != 3.8e-3 {
		t.Errorf("a CPU has no launches: %+v", r)
	}
}

// A plan for the CPU counts the memory that the CPU's pool counts.
func TestPlanForTheCPU(t *testing.T) {
	dev := tensor.Zeros(1).Device()
	for _, m := range small {
		batch := 4 * m.batches[2]
		r, err := train.Plan(m.build, train.PlanConfig{Machine: train.Machine{Kind: "cpu"}, Batch: batch})
		if err != nil {
			t.Fatal(m.name, err)
		}
		before := dev.Stats().Allocated
		peak := peakOf(t, dev, m.build, batch) - before
		if ratio := float64(r.Peak) / float64(peak); math.Abs(ratio-1) > 0.02 {
			t.Errorf("%s: planned %d bytes, took %d", m.name, r.Peak, peak)
		}
	}
	// Buffers of 16 KiB come from the pool, so the breakdown has them too.
	build := func(s *tensor.Scope, batch int) *train.PlannedStep {
		m := nn.NewSequential(nn.NewLinear(64, 64, nn.In(s), nn.NoBias()), nn.NewLinear(64, 64, nn.In(s), nn.NoBias()))
		return adamW(m, func(s *tensor.Scope) *tensor.Tensor { return m.Forward(s.Zeros(batch, 64)).Square().Mean() })
	}
	const weights = 2 * 64 * 64 * 4
	r, err := train.Plan(build, train.PlanConfig{Machine: train.Machine{Kind: "cpu"}, Batch: 64})
	if b := r.Breakdown; err != nil || b.Weights != weights || b.Optimizer != 2*weights || b.Rounding < 0 || b.Rounding > r.Peak/50 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestPlanBreakdown(t *testing.T) {
	const vocab, width, hidden = 1000, 256, 1024
	build := func(s *tensor.Scope, batch int) *train.PlannedStep {
		l1, l2 := nn.NewLinear(width, hidden, nn.In(s), nn.NoBias()), nn.NewLinear(hidden, width, nn.In(s), nn.NoBias())
		m := nn.NewSequential(l1, nn.Tanh{}, l2)
		table := s.Zeros(128, 128) // belongs neither to the model nor to the step
		return adamW(m, func(s *tensor.Scope) *tensor.Tensor {
			_ = table
			return m.Forward(s.Zeros(batch, width)).Square().Mean()
		})
	}
	const batch, weights = 64, 2 * width * hidden * 4
	r, err := train.Plan(build, train.PlanConfig{Batch: batch, Memory: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	b := r.Breakdown
	if b.Weights != weights || b.Optimizer != 2*weights || b.Other != 128*128*4 || r.Parameters != weights/4 {
		t.Errorf("weights %d, optimizer %d, other %d, %d parameters", b.Weights, b.Optimizer, b.Other, r.Parameters)
	}
	if sum := b.Weights + b.Gradients + b.Optimizer + b.Activations + b.Workspace + b.Other + b.Rounding; sum != r.Peak {
		t.Errorf("%+v is %d, the peak %d", b, sum, r.Peak)
	}
	if b.Rounding < 0 || b.Rounding > r.Peak/50 || r.Reserved < r.Peak || !r.Fits || r.At == "" {
		t.Errorf("%+v", r)
	}
	// The forward pass of each of two layers has 2·batch·in·out operations. Backward needs as many
	// for the weight of each layer, and as many for the input of the second layer. The operations
	// of the hyperbolic tangent count as part of the preceding product.
	const product, slack = 2 * batch * width * hidden, 100 * batch * hidden
	if f := r.FLOPs; f.MatMul < 5*product || f.MatMul > 5*product+slack || f.Forward < 2*product || f.Forward > 3*product || f.Backward < 3*product || f.Total() != f.Forward+f.Backward+f.Optimizer {
		t.Errorf("%+v, a product is %d", f, product)
	}
	// Gradients exist until the optimizer has run, so with few samples the peak is in the
	// optimizer's step.
	if b.Gradients != weights {
		t.Errorf("gradients %d of %d, at %s", b.Gradients, weights, r.At)
	}
	// A step with two losses has twice the operations of a step with one loss. It needs no
	// additional memory, except for the gradients that exist after the first loss.
	twice := func(s *tensor.Scope, n int) *train.PlannedStep { p := build(s, n); p.Accumulate = 2; return p }
	r2, err := train.Plan(twice, train.PlanConfig{Batch: batch, Memory: 1 << 30})
	if err != nil || r2.FLOPs.MatMul != 2*r.FLOPs.MatMul || r2.Peak < r.Peak || r2.Peak > r.Peak+2*weights {
		t.Errorf("accumulation: %+v, %v", r2, err)
	}
	// Without training there are no gradients, and the optimizer has no state.
	frozen := func(s *tensor.Scope, n int) *train.PlannedStep { p := build(s, n); p.Optimizer = nil; return p }
	r3, err := train.Plan(frozen, train.PlanConfig{Batch: batch, Memory: 1 << 30})
	if err != nil || r3.FLOPs.Backward != 0 || r3.FLOPs.MatMul < 2*product || r3.FLOPs.MatMul > 2*product+slack || r3.Breakdown.Gradients+r3.Breakdown.Optimizer != 0 || r3.Peak > r.Peak/2 {
		t.Errorf("evaluation: %+v, %v", r3, err)
	}
}

// The largest batch fits, and a batch with one more sample does not.
func TestPlanLargestBatch(t *testing.T) {
	build := images(func(o nn.Option) nn.Module { return models.NewMLP([]int{512, 512, 10}, 0, o) }, 512)
	fits := func(n int) bool {
		r, err := train.Plan(build, train.PlanConfig{Batch: n, Memory: 32 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return r.Fits
	}
	// These sizes are far below, near, and far above the largest batch.
	for _, first := range []int{1, 700, 1 << 20} {
		r, err := train.Plan(build, train.PlanConfig{Batch: first, Memory: 32 << 20, MaxBatch: 1 << 24})
		if err != nil {
			t.Fatal(err)
		}
		if r.MaxBatch < 100 || !fits(r.MaxBatch) || fits(r.MaxBatch+1) || r.Fits != (first <= r.MaxBatch) {
			t.Errorf("from %d: the largest batch is %d, which fits: %v, and one more: %v", first, r.MaxBatch, fits(r.MaxBatch), fits(r.MaxBatch+1))
		}
		if !r.Fits && r.Peak < 32<<20 {
			t.Errorf("a batch of %d does not fit, and takes %d bytes", first, r.Peak)
		}
	}
	r, err := train.Plan(build, train.PlanConfig{Batch: 1, Memory: 32 << 20, MaxBatch: 7})
	if err != nil || r.MaxBatch != 7 {
		t.Errorf("up to 7: %+v, %v", r, err)
	}
	if r, err = train.Plan(build, train.PlanConfig{Batch: 1, Memory: 2 << 20, MaxBatch: 7}); err != nil || r.MaxBatch != 0 || r.Fits {
		t.Errorf("the weights alone do not fit: %+v, %v", r, err)
	}
}

func TestPlanMistakes(t *testing.T) {
	ok := small[0].build
	read := func(s *tensor.Scope, n int) *train.PlannedStep {
		p := ok(s, n)
		loss := p.Loss
		p.Loss = func(s *tensor.Scope) *tensor.Tensor { l := loss(s); l.Item(); return l }
		return p
	}
	if _, err := train.Plan(read, train.PlanConfig{Batch: 1}); !errors.Is(err, device.ErrNoValues) || !strings.Contains(err.Error(), "plan_test.go:") {
		t.Errorf("a step that reads: %v", err)
	}
	var own *train.Error
	for name, c := range map[string]struct {
		build builder
		c     train.PlanConfig
	}{
		"nil": {nil, train.PlanConfig{Batch: 1}}, "no batch": {ok, train.PlanConfig{}}, "no end": {ok, train.PlanConfig{Batch: 1, MaxBatch: 10}},
		"little memory": {ok, train.PlanConfig{Batch: 1, Memory: 100}},
	} {
		if _, err := train.Plan(c.build, c.c); !errors.As(err, &own) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := train.Plan(func(*tensor.Scope, int) *train.PlannedStep { return nil }, train.PlanConfig{Batch: 1}); !errors.Is(err, tensor.ErrValue) {
		t.Errorf("no step: %v", err)
	}
	var u *device.UnavailableError
	if _, err := train.Plan(ok, train.PlanConfig{Batch: 1, Machine: train.Machine{Kind: "tpu"}}); !errors.As(err, &u) {
		t.Errorf("no such kind: %v", err)
	}
	p, err := profile.Start(profile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := train.Plan(ok, train.PlanConfig{Batch: 1}); !errors.As(err, &own) || !strings.Contains(err.Error(), "a profiler is running") || device.Tracing() == nil {
		t.Errorf("while a profiler runs: %v", err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := train.FindGPU("T4"); err == nil || !strings.Contains(err.Error(), "h100") {
		t.Errorf("a GPU that is not in the table: %v", err)
	}
}

// On a known GPU, the tensor cores determine the time of a half-precision matrix product. The
// memory determines the time of an addition, and the launch determines the time of a tiny kernel.
func TestPlanSeconds(t *testing.T) {
	gpu, err := train.FindGPU("A100")
	if err != nil {
		t.Fatal(err)
	}
	seconds := func(f func(s *tensor.Scope, x *tensor.Tensor)) float64 {
		const n = 8192
		base := 0.0
		for i, g := range []func(s *tensor.Scope, x *tensor.Tensor){func(*tensor.Scope, *tensor.Tensor) {}, f} {
			r, err := train.Plan(func(s *tensor.Scope, _ int) *train.PlannedStep {
				x := s.Typed(dtype.BF16).Empty(n, n)
				return &train.PlannedStep{Model: nn.NewLinear(2, 2, nn.In(s)), Loss: func(s *tensor.Scope) *tensor.Tensor { g(s, x.In(s)); return nil }}
			}, train.PlanConfig{Machine: gpu, Batch: 1})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				base = r.Seconds
			} else {
				return r.Seconds - base
			}
		}
		return 0
	}
	const n = 8192.0
	for name, c := range map[string]struct {
		f    func(s *tensor.Scope, x *tensor.Tensor)
		want float64
	}{
		"product":  {func(s *tensor.Scope, x *tensor.Tensor) { x.MatMul(x) }, 2 * n * n * n / 312e12},
		"addition": {func(s *tensor.Scope, x *tensor.Tensor) { x.Add(x.T()) }, 2 * 3 * n * n / 2039e9},
		"tiny":     {func(s *tensor.Scope, x *tensor.Tensor) { x.Narrow(0, 0, 1).Relu() }, 3.8e-6},
	} {
		if got := seconds(c.f); math.Abs(got/c.want-1) > 0.01 {
			t.Errorf("%s: %v seconds, want %v", name, got, c.want)
		}
	}
}

// FindGPU accepts a GPU's name as people, shops and nvidia-smi write it. It rejects names of other
// variants.
func TestFindGPUSpellings(t *testing.T) {
	for name, list := range map[string][]string{
		"4090": {"4090", "rtx4090", "RTX 4090", "rtx-4090", "geforce-rtx-4090", "NVIDIA GeForce RTX 4090", "rtx_4090"},
		"3090": {"GeForce RTX 3090", "rtx3090 24GB"},
		"a100": {"A100", "a100-80gb", "A100-80G", "NVIDIA A100-SXM4-80GB", "a100 sxm", "A100 SXM 80GB", "nvidia-tesla-a100", "NVIDIA Tesla A100"},
		"h100": {"h100 sxm", "H100-SXM5", "NVIDIA H100 80GB HBM3", "h100_80gb"},
		"h200": {"H200", "H200 SXM 141GB", "nvidia h200"},
		"l4":   {"L4", "NVIDIA L4", "l4-24gb"}, "l40s": {"L40S", "nvidia-l40s", "L40S 48GB"},
	} {
		for _, spelled := range list {
			if m, err := train.FindGPU(spelled); err != nil || m.Name != name || m.Kind != "cuda" {
				t.Errorf("%q: %q, %v; want %q", spelled, m.Name, err, name)
			}
		}
	}
	for spelled, meant := range map[string]string{
		"A100-40GB": "a100, the A100 SXM 80GB", "a100-sxm4-40gb": "a100,", "H100 PCIe": "h100,", "rtx4090ti": "4090,", "RTX 4090 Laptop GPU": "4090,", "l40": "l4", "h10": "h100,", "hh100": "h100,",
		"rtx490": "4090,",
	} {
		if _, err := train.FindGPU(spelled); err == nil || !strings.Contains(err.Error(), "did you mean "+meant) {
			t.Errorf("%q: %v; want %q", spelled, err, meant)
		}
	}
	for _, spelled := range []string{"", "t4", "rx7900", "tpu", "nvidia"} {
		var e *train.Error
		if _, err := train.FindGPU(spelled); !errors.As(err, &e) || strings.Contains(err.Error(), "did you mean") || !strings.Contains(err.Error(), "known are 3090, 4090") {
			t.Errorf("%q: %v", spelled, err)
		}
	}
}
