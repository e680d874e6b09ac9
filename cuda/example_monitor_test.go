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

// What nvidia-smi tells, GPU by GPU. What a machine cannot tell is an error of one type, so that a report goes on without it.
func ExampleUtilization() {
	gpu := emulate("16MiB")
	say := func(what string, value any, err error) {
		var m *cuda.MonitorError
		if errors.As(err, &m) {
			fmt.Println(what+":", m.Reason)
			return
		}
		fmt.Println(what+":", value)
	}
	busy, err := cuda.Utilization(gpu)
	say("percent of the time with a kernel", busy, err)
	memory, err := cuda.MemoryUsage(gpu)
	say("percent of the time with memory in use", memory, err)
	power, err := cuda.PowerDraw(gpu)
	say("mW", power, err)
	clock, err := cuda.ClockRate(gpu)
	say("MHz", clock, err)
	processes, err := cuda.ListGPUProcesses(gpu)
	say("processes", len(processes), err)
	// Output:
	// percent of the time with a kernel: the GPU is emulated and has no sensors
	// percent of the time with memory in use: the GPU is emulated and has no sensors
	// mW: the GPU is emulated and has no sensors
	// MHz: the GPU is emulated and has no sensors
	// processes: the GPU is emulated and has no sensors
}
