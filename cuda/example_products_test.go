package cuda_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda"
)

// Products returns the name of the implementation of matrix products that a GPU uses. On hardware,
// FLAMBEAU_LIBS=cublaslt selects NVIDIA's library. An emulated GPU always uses the package's own
// kernels.
func ExampleDevice_Products() {
	gpus, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		panic(err)
	}
	fmt.Println(gpus[0].Products())
	// Output:
	// own kernels
}
