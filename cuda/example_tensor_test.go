package cuda_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// emulate returns an emulated GPU. On a machine with a GPU, device.Open("cuda") returns a real GPU.
func emulate(mem string) device.Device {
	gpus, err := cuda.Emulate("emulate,sm=90,mem=" + mem)
	if err != nil {
		log.Fatal(err)
	}
	return gpus[0]
}

// To copies a tensor to a GPU, and gradients flow back through the copy. x.CUDA() copies x to the
// device "cuda:0".
func Example_tensors() {
	gpu := emulate("64MiB")
	x := tensor.From([]float32{1, 2, 3}).RequiresGrad()
	y := x.To(gpu).Square()
	fmt.Println(y.Detach())
	y.Sum().Backward()
	fmt.Println(x.Grad())
	fmt.Println(y.CPU().Device().Name())
	// Output:
	// tensor([1., 4., 9.], device='cuda:0')
	// tensor([2., 4., 6.])
	// cpu
}

// nn.To moves a model to the GPU. The option On makes the scope's new tensors there.
func Example_training() {
	gpu := emulate("64MiB")
	tensor.ManualSeed(1)
	model := nn.To(nn.NewSequential(nn.NewLinear(2, 8), nn.Tanh{}, nn.NewLinear(8, 2)), gpu)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 0.1})
	points := [][]float32{{0, 0}, {0, 1}, {1, 0}, {1, 1}}
	xor := []int64{0, 1, 1, 0}
	for range 20 {
		tensor.Do(func(s *tensor.Scope) {
			nn.CrossEntropy(model.Forward(s.From(points)), s.From(xor)).Backward()
			opt.Step()
			opt.ZeroGrad()
		}, tensor.On(gpu))
	}
	tensor.Do(func(s *tensor.Scope) {
		fmt.Println(model.Forward(s.From(points)).Argmax(-1))
	}, tensor.On(gpu), tensor.NoGrad())
	// Output:
	// tensor([0, 1, 1, 0], device='cuda:0')
}

// Operands must be on one device; the library never copies them silently.
func Example_devices() {
	gpu := emulate("64MiB")
	err := tensor.Try(func() { tensor.Ones(2).Add(tensor.Ones(2).To(gpu)) })
	var e *tensor.Error
	errors.As(err, &e)
	fmt.Println(e.Op+":", e.Msg)
	fmt.Println(errors.Is(err, tensor.ErrDevice))
	// Output:
	// add: operands are on cpu and cuda:0
	// true
}

// Lack of memory is an error that a program can handle. Here the program continues with a smaller
// batch.
func Example_outOfMemory() {
	gpu := emulate("100MiB")
	batch := 1 << 20
	for {
		err := tensor.Try(func() {
			tensor.Do(func(s *tensor.Scope) { s.Ones(batch, 64).AddScalar(1) }, tensor.On(gpu))
		})
		if !errors.Is(err, device.ErrOutOfMemory) {
			fmt.Println(batch, err)
			return
		}
		batch /= 2
	}
	// Output:
	// 131072 <nil>
}

// Counters counts the requests to a GPU. Here the optimizer updates all parameters in one launch.
func ExampleDevice_Counters() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB,sm=90")
	if err != nil {
		log.Fatal(err)
	}
	model := nn.To(nn.NewSequential(nn.NewLinear(4, 4), nn.NewLinear(4, 4), nn.NewLinear(4, 4)), gpus[0])
	opt := optim.NewSGD(nn.Parameters(model), optim.SGDConfig{LR: 0.1})
	tensor.Do(func(s *tensor.Scope) {
		model.Forward(s.Ones(2, 4)).Sum().Backward()
	}, tensor.On(gpus[0]))
	before := gpus[0].Counters().Launches
	opt.Step()
	fmt.Println(len(opt.Params()), "parameters,", gpus[0].Counters().Launches-before, "launch")
	// Output:
	// 6 parameters, 1 launch
}

// SetMemoryLimit limits the memory that the program takes, so that other programs can use the rest
// of the GPU.
func ExampleDevice_SetMemoryLimit() {
	gpus, err := cuda.Emulate("emulate,mem=256MiB,sm=90")
	if err != nil {
		log.Fatal(err)
	}
	gpus[0].SetMemoryLimit(64 << 20)
	err = tensor.Try(func() { tensor.Root().On(gpus[0]).Zeros(128 << 20 / 4) })
	fmt.Println(errors.Is(err, device.ErrOutOfMemory), cuda.MemoryFraction(gpus[0]))
	// the fraction must not exceed 1
	err = gpus[0].SetMemoryFraction(1.5)
	var v *device.OperandError
	fmt.Println(errors.As(err, &v), err)
	// Output:
	// true 0.25
	// true cuda:0: set memory fraction: fraction: 1.5 is not between 0 and 1
}

// IsAvailable does not open a GPU. Unavailable says why there is none.
func ExampleIsAvailable() {
	if !cuda.IsAvailable() {
		var u *device.UnavailableError
		fmt.Println(errors.As(cuda.Unavailable(), &u) && u.Reason != "")
	} else {
		fmt.Println(cuda.Unavailable() == nil && cuda.DeviceCount() > 0)
	}
	// Output: true
}

// With mode=meta the GPU hands out addresses without memory. So a program can find out whether a
// model fits, without a GPU of that size.
func ExampleEmulate_meta() {
	gpus, err := cuda.Emulate("emulate,mem=80GiB,sm=90,mode=meta")
	if err != nil {
		log.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		x := s.Typed(dtype.BF16).Empty(100_000, 100_000) // 18.6 GiB
		x.MatMul(x)
	}, tensor.On(gpus[0]))
	fmt.Printf("%.1f GiB at the peak\n", float64(gpus[0].Stats().AllocatedPeak)/(1<<30))
	// Output:
	// 37.3 GiB at the peak
}

// The example finds the device of a model, moves inputs to it, and moves a leaf with its gradient.
// It also measures the peak of the memory that later work uses.
func Example_placement() {
	gpu := emulate("64MiB")
	model := nn.To(nn.NewLinear(4, 2), gpu)
	fmt.Println(nn.DeviceOf(model).Name())
	x := nn.Follow(model, tensor.Ones(3, 4)) // like x.to(next(model.parameters()).device) in torch
	fmt.Println(model.Forward(x).Device().Name())
	// moves both inputs of a model with two inputs
	both := nn.FollowAll(model, tensor.Ones(3, 4), tensor.Zeros(2, 4))
	fmt.Println(both[0].Device().Name(), both[1].Device().Name())
	w := tensor.Ones(1024).RequiresGrad()
	w.MoveTo(gpu) // w stays the same leaf, so an optimizer of w can continue
	gpu.ResetPeak()
	before := gpu.Stats().Allocated
	tensor.Do(func(s *tensor.Scope) { w.In(s).Exp().Sum() }, tensor.Nondeterministic())
	fmt.Println(w.Storage().Bytes(), "bytes")
	fmt.Println(w.Device().Name(), gpu.Stats().AllocatedPeak-before >= 4096, gpu.Stats().Allocated-before)
	// Output:
	// cuda:0
	// cuda:0
	// cuda:0 cuda:0
	// 4096 bytes
	// cuda:0 true 0
}
