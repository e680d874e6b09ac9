package cuda_test

import (
	"errors"
	"fmt"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
)

// Temperature returns the temperature of a GPU. An emulated GPU has no sensors, and a machine may
// lack NVIDIA's management library. Both cases return an error of the same type.
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

// This prints a report on each GPU, like nvidia-smi. A query that the machine cannot answer returns
// a *cuda.MonitorError. The report then continues with the next query.
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
	used, err := cuda.DeviceMemoryUsed(gpu)
	say("bytes in use", used, err)
	processes, err := cuda.ListGPUProcesses(gpu)
	say("processes", len(processes), err)
	// Output:
	// percent of the time with a kernel: the GPU is emulated and has no sensors
	// percent of the time with memory in use: the GPU is emulated and has no sensors
	// mW: the GPU is emulated and has no sensors
	// MHz: the GPU is emulated and has no sensors
	// bytes in use: the GPU is emulated and has no sensors
	// processes: the GPU is emulated and has no sensors
}

// These queries help to find out why a GPU is slow: its link to the host, memory errors, and
// reduced clock rates. The command "flambeau doctor" makes the same queries.
func ExampleThrottleReasons() {
	gpu := emulate("16MiB")
	if link, err := cuda.PCIeLink(gpu); err != nil {
		fmt.Println(err)
	} else if link.Width < link.MaxWidth {
		fmt.Println("only", link.Width, "of", link.MaxWidth, "lanes")
	}
	if ecc, err := cuda.ECCErrors(gpu); err != nil {
		fmt.Println(err)
	} else if ecc.EverUncorrected > 0 {
		fmt.Println("the memory has lost data", ecc.EverUncorrected, "times")
	}
	if reasons, err := cuda.ThrottleReasons(gpu); err != nil {
		fmt.Println(err)
	} else {
		fmt.Println("clocks are held down by", reasons)
	}
	// Output:
	// cuda: PCIe link of cuda:0: the GPU is emulated and has no sensors
	// cuda: ECC errors of cuda:0: the GPU is emulated and has no sensors
	// cuda: throttle reasons of cuda:0: the GPU is emulated and has no sensors
}

// These versions belong in a bug report. If the driver or its management library is missing, the
// error says so.
func ExampleDriverVersion() {
	version, err := cuda.DriverVersion() // the CUDA version that the driver supports, such as "12.4"
	var none *device.UnavailableError
	fmt.Println(version != "" || errors.As(err, &none))
	release, err := cuda.DriverRelease() // the release of the driver, such as "550.54.15"
	var m *cuda.MonitorError
	fmt.Println(release != "" || errors.As(err, &m))
	// Output:
	// true
	// true
}

// Libraries lists NVIDIA's optional libraries. Each entry says what the library is used for, and
// where it was found.
func ExampleLibraries() {
	for _, l := range cuda.Libraries() {
		where := l.Path
		if !l.Found {
			where = "not " + l.Looked()
		}
		fmt.Println(l.Name, where != "") // such as "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
	}
	// Output:
	// cublasLt true
	// cudnn true
	// nccl true
	// nvml true
}
