package cuda_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/tensor"
)

// With TuningOn, a matrix product is measured when it is first used. The environment variable
// FLAMBEAU_TUNE=1 has the same effect. The command "flambeau kernels tuned" lists the measurements.
func ExampleDevice_SetTuning() {
	gpus, err := cuda.Emulate("emulate,mem=16MiB")
	if err != nil {
		panic(err)
	}
	gpu := gpus[0]
	gpu.SetTuning(cuda.TuningOn)
	tensor.Do(func(s *tensor.Scope) {
		fmt.Println(s.Ones(40, 128).MatMul(s.Ones(128, 72)).Mean().Item())
	}, tensor.On(gpu))
	var measured []cuda.TunedProduct = gpu.TunedProducts()
	for _, p := range measured {
		fmt.Println(p.Product, p.After <= p.Before)
	}
	gpu.SetTuning(cuda.TuningUse) // from now on nothing is measured
	var now cuda.Tuning = gpu.Tuning()
	fmt.Println(now, now == cuda.TuningOff)
	// Output:
	// 128
	// float32 1x40x72x128 kv·ov=v true
	// use false
}
