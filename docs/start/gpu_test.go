package start_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

func Example_devices() {
	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(dev.Name() != "", why != "")

	again, err := device.Open(dev.Name()) // or "cpu", "cuda", "cuda:1", "auto"
	fmt.Println(again == dev, err)
	// Output:
	// true true
	// true <nil>
}

func Example_moving() {
	// with a real GPU, call device.Best or cuda.Get(0)
	gpus, err := cuda.Emulate("emulate")
	if err != nil {
		log.Fatal(err)
	}
	gpu := gpus[0]
	// To moves the model in place, so an optimizer that was made before remains valid
	model := nn.To(nn.NewLinear(2, 1), gpu)
	x := tensor.Ones(3, 2)
	fmt.Println(model.Forward(x.To(gpu)).Device().Name(), x.Device().Name())

	err = tensor.Try(func() { model.Forward(x) }) // x is on the CPU
	fmt.Println(errors.Is(err, tensor.ErrDevice))

	tensor.Do(func(s *tensor.Scope) {
		// On sets the device on which a scope creates tensors
		fmt.Println(s.Zeros(2).Device().Name())
	}, tensor.On(gpu))
	// Output:
	// cuda:0 cpu
	// true
	// cuda:0
}

func Example_used() {
	gpus, err := cuda.Emulate("emulate")
	if err != nil {
		log.Fatal(err)
	}
	model := nn.To(nn.NewLinear(8, 4), gpus[0])
	prof, err := profile.Start(profile.Options{})
	if err != nil {
		log.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) { model.Forward(s.Ones(2, 8)).Sum().Backward() }, tensor.On(gpus[0]))
	if err := prof.Stop(); err != nil {
		log.Fatal(err)
	}
	kernels := 0
	for _, r := range prof.KeyAverages().Rows {
		if r.Kind == "kernel" {
			kernels += r.Count
		}
	}
	fmt.Println(kernels > 0, cuda.MaxMemoryAllocated(gpus[0]) > 0)
	// Output: true true
}

func Example_outOfMemory() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	err = tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) { s.Zeros(32 << 20) }, tensor.On(gpus[0])) // 128 MiB
	})
	fmt.Println(errors.Is(err, device.ErrOutOfMemory))
	// Output: true
}
