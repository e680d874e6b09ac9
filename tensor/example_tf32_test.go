package tensor_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/tensor"
)

// AllowTF32 lets matrix products round their factors to TF32. Here the factors 1+2⁻¹² are rounded
// to 1.
func ExampleAllowTF32() {
	gpus, err := cuda.Emulate("emulate,mem=16MiB") // with a GPU: device.Open("cuda")
	if err != nil {
		fmt.Println(err)
		return
	}
	product := func(s *tensor.Scope) {
		x := s.Full(1+0x1p-12, 4, 16)
		fmt.Println(s.TF32(), x.MatMul(s.Ones(16, 8)).Floats()[0])
	}
	tensor.Do(func(s *tensor.Scope) {
		s.Do(product)
		s.Do(product, tensor.NoTF32())
	}, tensor.On(gpus[0]), tensor.AllowTF32())
	tensor.Do(product, tensor.On(gpus[0]))
	// Output:
	// true 16
	// false 16.00390625
	// false 16.00390625
}
