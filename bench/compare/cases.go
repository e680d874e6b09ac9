package main

import (
	"math"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

type benchCase struct {
	name, unit string
	gpu        bool // whether the case runs only on GPUs
	run        func(r *run)
}

// vectorSize is the number of elements of a large vector. Such a vector has 1 GiB in float32, which
// is more than any cache.
const vectorSize = 256 << 20

// cases are the measured cases. Those with a promised result (report.go) come first, so that even a
// run that is aborted early measures them. The peaks of memory that are measured for PyTorch's
// trainings include a workspace of cuBLAS: up to 32 MiB on an H200. The test in peak_test.go
// compares with peaks without this workspace.
var cases = []benchCase{
	{"add_256M_f32", "GB/s", true, elementwise(dtype.F32, 3, func(a, b *tensor.Tensor) { a.Add(b) })},
	{"relu_256M_f32", "GB/s", true, elementwise(dtype.F32, 2, func(a, _ *tensor.Tensor) { a.Relu() })},
	{"add_256M_bf16", "GB/s", true, elementwise(dtype.BF16, 3, func(a, b *tensor.Tensor) { a.Add(b) })},
	{"copy_1GiB", "GB/s", true, copying},
	{"matmul_4096_f32", "GFLOP/s", false, product(dtype.F32, 4096, 4096, 4096)},
	{"mlp_784_4096_4096_10_b128", "samples/s", false, training(128, dtype.Invalid, mlp(784, 4096, 4096, 10))},
	{"cnn_b256", "samples/s", false, training(256, dtype.Invalid, cnn)},
	{"chargpt_b32", "samples/s", false, training(32, dtype.Invalid, charGPT)},

	{"mlp_digits_b32", "samples/s", false, training(32, dtype.Invalid, mlp(64, 128, 10))},
	{"chargpt_b32_bf16", "samples/s", false, training(32, dtype.BF16, charGPT)},
	{"mlp_digits_b32_graph", "samples/s", true, replaying(32, dtype.Invalid, mlp(64, 128, 10))},
	{"cnn_b256_graph", "samples/s", true, replaying(256, dtype.Invalid, cnn)},
	{"chargpt_b32_graph", "samples/s", true, replaying(32, dtype.Invalid, charGPT)},
	{"launch_add_1", "ns", true, launching},

	{"matmul_1024_f32", "GFLOP/s", false, product(dtype.F32, 1024, 1024, 1024)},
	{"matmul_2048_f32", "GFLOP/s", true, product(dtype.F32, 2048, 2048, 2048)},
	{"matmul_8192_f32", "GFLOP/s", true, product(dtype.F32, 8192, 8192, 8192)},
	{"matmul_16x4096x4096_f32", "GFLOP/s", true, product(dtype.F32, 16, 4096, 4096)},
	{"matmul_128x4096x4096_f32", "GFLOP/s", true, product(dtype.F32, 128, 4096, 4096)},
	{"matmul_4096x64x4096_f32", "GFLOP/s", true, product(dtype.F32, 4096, 64, 4096)},
	{"matmul_4096x4096x64_f32", "GFLOP/s", true, product(dtype.F32, 4096, 4096, 64)},
	{"matmul_256x256x65536_f32", "GFLOP/s", true, product(dtype.F32, 256, 256, 65536)},
	{"matmul_4096_bf16", "GFLOP/s", true, product(dtype.BF16, 4096, 4096, 4096)},
	{"matmul_8192_bf16", "GFLOP/s", true, product(dtype.BF16, 8192, 8192, 8192)},
	{"matmul_4096_f16", "GFLOP/s", true, product(dtype.F16, 4096, 4096, 4096)},

	{"gelu_256M_f32", "GB/s", true, elementwise(dtype.F32, 2, func(a, _ *tensor.Tensor) { a.Gelu() })},
	{"exp_256M_f32", "GB/s", true, elementwise(dtype.F32, 2, func(a, _ *tensor.Tensor) { a.Exp() })},
	{"relu_256M_bf16", "GB/s", true, elementwise(dtype.BF16, 2, func(a, _ *tensor.Tensor) { a.Relu() })},
	{"relu_256M_u8", "GB/s", true, elementwise(dtype.U8, 2, func(a, _ *tensor.Tensor) { a.Clamp(1, 100) })},
	// The data begins one element after a multiple of 16 bytes, so kernels cannot use wide loads.
	{"add_odd_256M_f32", "GB/s", true, elementwise(dtype.F32, 3, func(a, b *tensor.Tensor) {
		n := a.Shape().At(0)
		a.Slice(0, 1, n, 1).Add(b.Slice(0, 1, n, 1))
	})},
	{"add_row_256M_f32", "GB/s", true, elementwise(dtype.F32, 2, func(a, b *tensor.Tensor) {
		rows := a.Reshape(-1, 1024)
		rows.Add(b.Slice(0, 0, 1024, 1))
	})},
	{"transpose_16K_f32", "GB/s", true, elementwise(dtype.F32, 2, func(a, _ *tensor.Tensor) {
		n := int(math.Sqrt(float64(a.Shape().At(0))))
		a.Reshape(n, n).Transpose(0, 1).Contiguous()
	})},
	{"sum_256M_f32", "GB/s", true, elementwise(dtype.F32, 1, func(a, _ *tensor.Tensor) { a.Sum() })},
	{"sum_rows_256M_f32", "GB/s", true, elementwise(dtype.F32, 1, func(a, _ *tensor.Tensor) { a.Reshape(-1, 1024).Sum(1) })},
	{"sum_columns_256M_f32", "GB/s", true, elementwise(dtype.F32, 1, func(a, _ *tensor.Tensor) { a.Reshape(-1, 1024).Sum(0) })},
	{"softmax_256M_f32", "GB/s", true, elementwise(dtype.F32, 2, func(a, _ *tensor.Tensor) { a.Reshape(-1, 1024).Softmax(1) })},
	{"layer_norm_256M_f32", "GB/s", true, elementwise(dtype.F32, 2, func(a, _ *tensor.Tensor) { a.Reshape(-1, 1024).LayerNorm([]int{1024}, nil, nil, 1e-5) })},

	{"sort_16M_f32", "Melem/s", true, ordering(16<<20, 4096, randomVector, func(x []*tensor.Tensor) { x[0].Sort(0, false) })},
	{"topk_50_64x50257_f32", "Mrow/s", true, ordering(64, 2, logits, func(x []*tensor.Tensor) { x[0].TopK(50, 1, true, true) })},
	{"unique_16M_i64", "Melem/s", true, ordering(16<<20, 4096, numbers, func(x []*tensor.Tensor) { x[0].Unique(tensor.UniqueOptions{}) })},
	{"index_add_8192x768_f32", "Mrow/s", true, ordering(8192, 64, tokenRows, func(x []*tensor.Tensor) { x[2].IndexAddInPlace(0, x[1], x[0], 1) })},
	{"embedding_grad_8192x768_f32", "Mrow/s", true, ordering(8192, 64, tokenRows, func(x []*tensor.Tensor) {
		// The gradient of Embedding makes the same call.
		x[2].ZerosLike().IndexAddInPlace(0, x[1], x[0], 1)
	})},
}

// A builder makes a model, its optimizer and its training step in a scope. It moves the model to
// dev, unless dev is nil. The step computes the loss of a random batch.
type builder func(r *run, home *tensor.Scope, dev device.Device, batch int) *train.PlannedStep

func adamW(m any, to device.Device, loss func(s *tensor.Scope) *tensor.Tensor) *train.PlannedStep {
	if to != nil {
		nn.To(m, to)
	}
	return &train.PlannedStep{Model: m, Optimizer: optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 1e-4}), Loss: loss}
}

// mlp builds a perceptron with layers of the given sizes.
func mlp(sizes ...int) builder {
	return func(r *run, home *tensor.Scope, to device.Device, batch int) *train.PlannedStep {
		size := func(i int) int { return r.n(sizes[i], min(sizes[i], 32)) }
		last := len(sizes) - 1
		var layers []nn.Module
		for i := range last {
			if i > 0 {
				layers = append(layers, nn.ReLU{})
			}
			layers = append(layers, nn.NewLinear(size(i), size(i+1), nn.In(home)))
		}
		m := nn.NewSequential(layers...)
		return adamW(m, to, func(s *tensor.Scope) *tensor.Tensor {
			return nn.CrossEntropy(m.Forward(s.Randn(batch, size(0))), s.RandInt(0, size(last), batch))
		})
	}
}

// cnn builds models.CNN for images of 28×28 pixels.
func cnn(r *run, home *tensor.Scope, to device.Device, batch int) *train.PlannedStep {
	m, size := models.NewCNN(1, 10, nn.In(home)), r.n(28, 8)
	return adamW(m, to, func(s *tensor.Scope) *tensor.Tensor {
		logits := m.Forward(s.Randn(batch, 1, size, size))
		defer logits.Free() // PyTorch frees the logits here too
		return nn.CrossEntropy(logits, s.RandInt(0, 10, batch))
	})
}

func charGPT(r *run, home *tensor.Scope, to device.Device, batch int) *train.PlannedStep {
	context := r.n(64, 8)
	m := models.NewGPT(models.GPTConfig{Vocab: 65, Context: context, Layers: r.n(4, 1), Heads: 4, Width: r.n(128, 32), Dropout: 0.1}, nn.In(home))
	return adamW(m, to, func(s *tensor.Scope) *tensor.Tensor {
		return m.Loss(s.RandInt(0, 65, batch, context), s.RandInt(0, 65, batch, context))
	})
}

// training measures training steps. It waits for the device after every ten steps. autocast is a
// 16-bit type, or dtype.Invalid for none.
func training(batch int, autocast dtype.Type, build builder) func(*run) {
	return func(r *run) {
		if r.graphs {
			replaying(batch, autocast, build)(r)
			return
		}
		batch := r.n(batch, 2)
		tensor.ManualSeed(1)
		options := []tensor.Option{tensor.Autocast(autocast)}
		if gpu, ok := r.dev.(*cuda.Device); ok && autocast == dtype.Invalid {
			r.plan(gpu, build, batch)
		}
		tensor.Do(func(home *tensor.Scope) {
			p := build(r, home, nil, batch)
			r.measure(10, false, func() {
				home.Do(func(s *tensor.Scope) { p.Loss(s).Backward() }, options...)
				p.Optimizer.Step()
				p.Optimizer.ZeroGrad()
			})
			if r.dev.Info().Kind == "cpu" {
				r.count(p.Model)
				home.Do(func(s *tensor.Scope) { r.Loss = p.Loss(s).Item() }, options...)
			}
		}, tensor.On(r.dev))
		if gpu, ok := r.dev.(*cuda.Device); ok {
			free, total, err := cuda.MemGetInfo(gpu)
			must(err)
			r.Context = total - free - gpu.Stats().Reserved
		}
		r.Rate = float64(batch) / r.Median
	}
}

// plan computes the planned peak memory of a step on a GPU with as much memory as gpu.
func (r *run) plan(gpu *cuda.Device, build builder, batch int) {
	p, err := train.Plan(func(s *tensor.Scope, batch int) *train.PlannedStep { return build(r, s, nil, batch) }, train.PlanConfig{Machine: train.Machine{Kind: "cuda"}, Memory: gpu.Info().Memory, Batch: batch})
	must(err)
	r.Planned = p.Peak
}

// replaying measures the same steps as training does, as replays of a captured graph. The model is
// in the root scope.
func replaying(batch int, autocast dtype.Type, build builder) func(*run) {
	return func(r *run) {
		batch, modes := r.n(batch, 2), []tensor.Option{tensor.On(r.dev), tensor.Autocast(autocast)}
		tensor.ManualSeed(1)
		p := build(r, tensor.Root(), r.dev, batch)
		step := func(s *tensor.Scope) {
			p.Loss(s).Backward()
			p.Optimizer.Step()
			p.Optimizer.ZeroGrad()
		}
		// The first step allocates the optimizer's state and compiles the kernels.
		tensor.Do(step, modes...)
		g, err := tensor.Capture(r.dev, step, modes...)
		must(err)
		r.measure(10, false, func() { must(g.Replay()) })
		must(g.Close())
		r.Rate = float64(batch) / r.Median
	}
}

// launching adds 1 to a tensor of one element. It waits for the device after every thousand
// additions. This measures the time that an op takes on the host.
func launching(r *run) {
	tensor.Do(func(data *tensor.Scope) {
		a, one := data.Zeros(1), data.Ones(1)
		r.measure(1000, false, func() { a.AddInPlace(one) })
	}, tensor.On(r.dev), tensor.NoGrad())
	r.Rate = r.Median * 1e9
}

// product multiplies an m×k matrix by a k×n matrix of type t. float32 matrices are multiplied in
// full precision.
func product(t dtype.Type, m, n, k int) func(*run) {
	return func(r *run) {
		m, n, k := r.n(m, min(m, 48)), r.n(n, min(n, 64)), r.n(k, min(k, 80))
		flops := 2 * float64(m) * float64(n) * float64(k)
		tensor.Do(func(data *tensor.Scope) {
			a, b := data.Randn(m, k).Cast(t), data.Randn(k, n).Cast(t)
			step := func() { data.Do(func(s *tensor.Scope) { a.In(s).MatMul(b) }) }
			r.measure(calls(flops), true, step)
			r.FMAs, r.Share = fmaShare(r.dev, r.n(15, 1), flops, step)
		}, tensor.On(r.dev), tensor.NoGrad())
		r.Rate = flops / r.Median / 1e9
	}
}

// elementwise runs f on two large vectors. moved is the number of vectors that f reads or writes.
func elementwise(t dtype.Type, moved int, f func(a, b *tensor.Tensor)) func(*run) {
	return func(r *run) {
		n := r.n(vectorSize, 4096)
		tensor.Do(func(data *tensor.Scope) {
			var v [2]*tensor.Tensor
			for i := range v {
				data.Do(func(s *tensor.Scope) {
					v[i] = s.Rand(n).Cast(t)
					s.Close(v[i])
				})
			}
			r.measure(10, true, func() { data.Do(func(s *tensor.Scope) { f(v[0].In(s), v[1].In(s)) }) })
		}, tensor.On(r.dev), tensor.NoGrad())
		r.Rate = float64(moved) * float64(n*t.Size()) / r.Median / 1e9
	}
}

// copying measures the driver's copy within the device's memory. The copy's rate is the limit for
// all ops that only move memory.
func copying(r *run) {
	n := r.n(1<<30, 1<<16)
	var b [2]device.Buffer
	for i := range b {
		var err error
		b[i], err = r.dev.Alloc(n, nil, device.Origin{Op: "copy"})
		must(err)
		defer b[i].Free()
	}
	r.measure(10, true, func() { must(r.dev.CopyFrom(r.dev.DefaultStream(), b[1], 0, b[0], 0, n)) })
	r.Rate = 2 * float64(n) / r.Median / 1e9
}
