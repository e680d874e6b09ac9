package autograd_test

import (
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/tensor"
)

func ExampleCheckpoint() {
	tensor.Do(func(s *tensor.Scope) {
		w := s.From([]float64{1, 2, 3}).RequiresGrad()
		block := func(x *tensor.Tensor) *tensor.Tensor {
			fmt.Println("computed again:", x.Scope().Recomputing())
			return x.Mul(w).Exp().Dropout(0.5) // under Checkpoint these ops save nothing
		}
		x := s.From([]float64{0.1, 0.2, 0.3}).RequiresGrad()
		autograd.Checkpoint(block, x).Sum().Backward()
		fmt.Println(x.Grad().Shape(), w.Grad().Shape())
	})
	// Output:
	// computed again: false
	// computed again: true
	// [3] [3]
}

func ExampleCheckpointAll() {
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float64{1, 2}).RequiresGrad()
		y := autograd.CheckpointAll(func(x ...*tensor.Tensor) []*tensor.Tensor {
			e := x[0].Exp()
			return []*tensor.Tensor{e, e.Reciprocal()}
		}, x)
		y[0].Mul(y[1]).Sum().Backward() // eˣ·e⁻ˣ is 1
		fmt.Printf("%.1f\n", x.Grad().Abs().Sum().Item())
	})
	// Output: 0.0
}

func ExampleCheckpointSequential() {
	tensor.Do(func(s *tensor.Scope) {
		double := func(x *tensor.Tensor) *tensor.Tensor { return x.Square().MulScalar(0.5) }
		layers := []func(x *tensor.Tensor) *tensor.Tensor{double, double, double, double, double, double, double, double, double}
		x := s.Full(2, 1).RequiresGrad()
		y := autograd.CheckpointSequential(layers, 3, x) // 3 segments of 3 layers
		y.Backward()
		fmt.Println(y.Item(), x.Grad().Item())
	})
	// Output: 2 512
}

func ExampleSaveOnCPU() {
	gpus, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		panic(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		w := s.Full(0.01, 64, 64).RequiresGrad()
		for _, modes := range [][]tensor.Option{nil, {autograd.SaveOnCPU(true)}} {
			s.Do(func(s *tensor.Scope) {
				before := gpus[0].Stats().Allocated
				y := s.Ones(64, 64)
				for range 4 {
					z := y.MatMul(w).Exp()
					y.Free()
					y = z
				}
				loss := y.Sum()
				y.Free()
				fmt.Println("much is held on the GPU:", gpus[0].Stats().Allocated-before > 6*64*64*4)
				loss.Backward()
			}, modes...)
		}
	}, tensor.On(gpus[0]))
	// Output:
	// much is held on the GPU: true
	// much is held on the GPU: false
}

// Accumulate computes the gradients of a batch of ten samples, four samples at a time.
func ExampleAccumulate() {
	tensor.Do(func(s *tensor.Scope) {
		w := s.Full(1, 1).RequiresGrad()
		samples := s.Typed(w.Type()).Arange(10)
		loss := autograd.Accumulate(s, 10, 4, func(s *tensor.Scope, from, to int) *tensor.Tensor {
			return samples.In(s).Narrow(0, from, to-from).Mul(w).Mean()
		})
		fmt.Println(loss.Item(), w.Grad().Item()) // opt.Step() and opt.ZeroGrad() would follow here
	})
	// Output: 4.5 4.5
}

// This loop goes over micro-batches of different sizes. The weight of each is proportional to its
// number of samples.
func ExampleBackwardShare() {
	tensor.Do(func(s *tensor.Scope) {
		w := s.Full(1, 1).RequiresGrad()
		batches := [][]float32{{1, 2, 3}, {6}}
		const total = 4
		for _, b := range batches {
			s.Do(func(s *tensor.Scope) { autograd.BackwardShare(s.From(b).Mul(w).Mean(), len(b), total) })
		}
		fmt.Println(w.Grad().Item())
	})
	// Output: 3
}

// Code that cannot import package autograd, such as a layer of package tensor, calls the functions
// of package tensor that Checkpoint and SaveOnCPU use.
func ExampleCheckpoint_tensor() {
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float64{1, 2}).RequiresGrad()
		y := tensor.Recompute(func(x []*tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{x[0].Square().Exp()} }, x)
		y[0].Log().Sum().Backward() // this computes log(exp(x²))
		fmt.Println(x.Grad().Floats())
	}, tensor.Offload(false))
	// Output: [2 4]
}

// Backward detects a function that behaves differently in the second call, as torch does with its
// CheckpointError. This function counts its calls.
func ExampleCheckpoint_error() {
	calls := 0
	err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Ones(3).RequiresGrad()
			autograd.Checkpoint(func(x *tensor.Tensor) *tensor.Tensor {
				if calls++; calls == 1 {
					return x.Exp()
				}
				return x.Sin()
			}, x).Sum().Backward()
		})
	})
	fmt.Println(errors.Is(err, tensor.ErrGrad))
	// Output: true
}
