package cuda_test

import (
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/cuda"
)

// How warm a GPU is. An emulated one has no sensors, and a machine may lack NVIDIA's management library: both are errors of one type.
func ExampleTemperature() {
	gpu := emulate("16MiB")
	celsius, err := cuda.Temperature(gpu)
	var m *cuda.MonitorError
	if errors.As(err, &m) {
		fmt.Println(err)
		return
	}
	fmt.Println(celsius, "°C")
	// Output: cuda: temperature of cuda:0: the GPU is emulated and has no sensors
}
