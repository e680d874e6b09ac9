package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/lib/nvml"
	"github.com/flambeau-go/flambeau/device"
)

// A MonitorError says why NVIDIA's management library (NVML), which comes with the driver, did not
// answer a query about a GPU. Only queries about a GPU's state need this library.
type MonitorError struct {
	Device string // "cuda:0"; "" if the query is not about one GPU
	Query  string // the quantity that was queried, such as "temperature"
	Reason string
	Err    error // error of the library or of the loader; nil for an emulated GPU
}

func (e *MonitorError) Error() string {
	of := ""
	if e.Device != "" {
		of = " of " + e.Device
	}
	return fmt.Sprintf("cuda: %s%s: %s", e.Query, of, e.Reason)
}

func (e *MonitorError) Unwrap() error { return e.Err }

// sensors sends a query about a GPU to the management library.
func sensors[T any](query string, dev device.Device, ask func(m nvml.API, h nvml.Device) (T, error)) (v T, err error) {
	d, err := gpu(query, dev)
	if err != nil {
		return v, err
	}
	fail := func(err error) (T, error) {
		var none T
		return none, &MonitorError{Device: d.name, Query: query, Reason: err.Error(), Err: err}
	}
	if d.p.monitor == nil {
		return v, &MonitorError{Device: d.name, Query: query, Reason: "the GPU is emulated and has no sensors"}
	}
	m, err := d.p.monitor()
	if err != nil {
		return fail(err)
	}
	// The GPU is found by its bus ID, because the library's indices also count GPUs that
	// CUDA_VISIBLE_DEVICES hides.
	bus, err := d.api.DevicePCIBusID(d.h)
	if err != nil {
		return fail(err)
	}
	h, err := m.DeviceByPCIBusID(bus)
	if err != nil {
		return fail(err)
	}
	if v, err = ask(m, h); err != nil {
		return fail(err)
	}
	return v, nil
}

// Utilization returns the percentage of the last sample period (up to a second) in which some
// kernel ran on a GPU: torch.cuda.utilization. The error is a *[MonitorError] if NVIDIA's
// management library does not answer, and a *[device.OperandError] if dev is not a GPU.
func Utilization(dev device.Device) (percent int, err error) {
	return sensors("utilization", dev, func(m nvml.API, h nvml.Device) (int, error) {
		v, _, err := m.Utilization(h)
		return v, err
	})
}

// MemoryUsage returns the percentage of the last sample period in which a GPU's memory was read
// or written: torch.cuda.memory_usage. [MemGetInfo] and [DeviceMemoryUsed] return how full the
// memory is. MemoryUsage returns the same errors as [Utilization].
func MemoryUsage(dev device.Device) (percent int, err error) {
	return sensors("memory usage", dev, func(m nvml.API, h nvml.Device) (int, error) {
		_, v, err := m.Utilization(h)
		return v, err
	})
}

// DeviceMemoryUsed returns how many bytes of a GPU's memory all processes and the driver use
// together: torch.cuda.device_memory_used. It returns the same errors as [Utilization].
func DeviceMemoryUsed(dev device.Device) (int, error) {
	return sensors("memory used", dev, func(m nvml.API, h nvml.Device) (int, error) {
		v, err := m.Memory(h)
		return int(v.Used), err
	})
}

// Temperature returns the temperature of a GPU's die in degrees Celsius: torch.cuda.temperature. It
// returns the same errors as [Utilization].
func Temperature(dev device.Device) (celsius int, err error) {
	return sensors("temperature", dev, func(m nvml.API, h nvml.Device) (int, error) { return m.Temperature(h) })
}

// PowerDraw returns the power that a GPU draws in milliwatts: torch.cuda.power_draw. Most GPUs
// average the power over the last second. PowerDraw returns the same errors as [Utilization].
func PowerDraw(dev device.Device) (milliwatts int, err error) {
	return sensors("power draw", dev, func(m nvml.API, h nvml.Device) (int, error) {
		v, _, err := m.Power(h)
		return v, err
	})
}

// ClockRate returns the current clock of a GPU's multiprocessors in MHz: torch.cuda.clock_rate. The
// field ClockRate of [DeviceProperties] is the maximum of this clock. The function ClockRate
// returns the same errors as [Utilization].
func ClockRate(dev device.Device) (megahertz int, err error) {
	return sensors("clock rate", dev, func(m nvml.API, h nvml.Device) (int, error) {
		v, _, err := m.Clock(h, nvml.ClockSM)
		return v, err
	})
}

// ThrottleReasons returns the reasons why a GPU's clocks are below their maximum: "idle", "power
// cap", "thermal slowdown", "hardware slowdown", …. The list is empty if the clocks are at their
// maximum. It returns the same errors as [Utilization].
func ThrottleReasons(dev device.Device) ([]string, error) {
	return sensors("throttle reasons", dev, func(m nvml.API, h nvml.Device) ([]string, error) {
		v, err := m.Throttle(h)
		return v.Names(), err
	})
}

// Link is a GPU's PCI Express link: the current generation and width, and the best generation and
// width in this machine. An idle GPU may lower the generation to save power.
type Link struct{ Generation, Width, MaxGeneration, MaxWidth int }

// PCIeLink returns the PCI Express link of a GPU. It returns the same errors as [Utilization].
func PCIeLink(dev device.Device) (Link, error) {
	return sensors("PCIe link", dev, func(m nvml.API, h nvml.Device) (Link, error) {
		v, err := m.Link(h)
		return Link(v), err
	})
}

// MemoryErrors counts errors of a GPU's memory. An uncorrected error has lost a program's data.
type MemoryErrors struct {
	Corrected, Uncorrected         uint64 // numbers of errors since the driver was loaded
	EverCorrected, EverUncorrected uint64 // numbers of errors since the GPU was made
}

// ECCErrors returns the errors that a GPU's error-correcting memory (ECC) found. It returns the
// same errors as [Utilization], and also an error for a GPU without ECC.
func ECCErrors(dev device.Device) (MemoryErrors, error) {
	return sensors("ECC errors", dev, func(m nvml.API, h nvml.Device) (e MemoryErrors, err error) {
		if e.Corrected, e.Uncorrected, err = m.ECCErrors(h, false); err == nil {
			e.EverCorrected, e.EverUncorrected, err = m.ECCErrors(h, true)
		}
		return e, err
	})
}

// GPUProcess is a process that has a context on a GPU.
type GPUProcess struct {
	PID int
	// UsedMemory is the number of bytes of the GPU's memory that the process uses. It is -1 if the
	// system does not report this, as on Windows and in containers.
	UsedMemory int
}

// ListGPUProcesses returns the processes that have a context on a GPU, including this one:
// torch.cuda.list_gpu_processes. It returns the same errors as [Utilization].
func ListGPUProcesses(dev device.Device) ([]GPUProcess, error) {
	return sensors("processes", dev, func(m nvml.API, h nvml.Device) (list []GPUProcess, err error) {
		found, err := m.Processes(h)
		for _, p := range found {
			used := int(p.UsedMemory)
			if p.UsedMemory == nvml.NoValue {
				used = -1
			}
			list = append(list, GPUProcess{PID: int(p.PID), UsedMemory: used})
		}
		return list, err
	})
}

// DriverRelease returns the driver's version, such as "550.54.15". [DriverVersion] returns the CUDA
// version that the driver supports. The error is a *[MonitorError].
func DriverRelease() (string, error) {
	m, err := nvml.Open()
	if err == nil {
		var v string
		if v, err = m.DriverVersion(); err == nil {
			return v, nil
		}
	}
	return "", &MonitorError{Query: "driver release", Reason: err.Error(), Err: err}
}
