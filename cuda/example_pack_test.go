package cuda_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/tensor"
)

// A pack of compiled kernels is made once and shipped with the program. The command "flambeau
// kernels pack" makes one too. If the pack was made without the target GPU, it has no machine code
// until Compile adds it.
func ExamplePack() {
	gpus, err := cuda.Emulate("emulate:2")
	if err != nil {
		panic(err)
	}
	step := func(s *tensor.Scope) { s.Ones(1000).Exp().Sum() }
	stage, err := gpus[0].Rehearsal()
	if err != nil {
		panic(err)
	}
	tensor.Do(step, tensor.On(stage))
	made, err := gpus[0].Pack(context.Background(), stage)
	if err != nil {
		panic(err)
	}
	var file bytes.Buffer
	if _, err := made.WriteTo(&file); err != nil {
		panic(err)
	}

	p, err := cuda.ReadPack(file.Bytes()) // usually another program reads the pack
	if err != nil {
		panic(err)
	}
	gpu := gpus[1]
	// compiles nothing, because the pack is complete
	if err := gpu.Compile(context.Background(), p, nil); err != nil {
		panic(err)
	}
	gpu.UsePack(p)
	tensor.Do(step, tensor.On(gpu))
	all, ready := p.Kernels(gpu)
	fmt.Println(all == ready, gpu.Counters().Kernels > 0, gpu.Counters().Compiled)
	// Output: true true 0
}

// If a file is not a valid pack, the error says what is wrong with it.
func ExampleOpenPack() {
	f, err := os.CreateTemp("", "kernels")
	if err != nil {
		panic(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	_, err = cuda.OpenPack(f.Name())
	var bad *cuda.PackError
	fmt.Println(errors.As(err, &bad), bad.Reason)
	// Output: true it does not begin as one
}
