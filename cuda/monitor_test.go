package cuda

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/lib/nvml"
	"github.com/flambeau-go/flambeau/device"
)

// cards imitates the management library with fixed answers. It also lists a GPU that CUDA hides.
type cards struct {
	nvml.API
	fail error
}

func (c cards) DeviceByPCIBusID(id string) (nvml.Device, error) {
	if id != "0000:02:00.0" {
		return 0, &nvml.Error{Call: "nvmlDeviceGetHandleByPciBusId_v2", Return: nvml.ErrNotFound}
	}
	return 5, c.fail
}

func (cards) Utilization(d nvml.Device) (int, int, error) { return 90 + int(d), 40, nil }
func (cards) Temperature(nvml.Device) (int, error)        { return 66, nil }
func (cards) Power(nvml.Device) (int, int, error)         { return 512345, 700000, nil }
func (cards) Memory(nvml.Device) (nvml.Memory, error) {
	return nvml.Memory{Total: 100, Free: 60, Used: 40}, nil
}
func (cards) Throttle(nvml.Device) (nvml.Throttle, error) {
	return nvml.ThrottlePowerCap | nvml.ThrottleThermal, nil
}
func (cards) Link(nvml.Device) (nvml.Link, error) {
	return nvml.Link{Generation: 3, Width: 8, MaxGeneration: 5, MaxWidth: 16}, nil
}
func (cards) Processes(nvml.Device) ([]nvml.Process, error) {
	return []nvml.Process{{PID: 7, UsedMemory: 1 << 30}, {PID: 8, UsedMemory: nvml.NoValue}}, nil
}

func (cards) Clock(_ nvml.Device, c nvml.ClockType) (int, int, error) {
	return 1000 * int(c), 2000 * int(c), nil
}

func (cards) ECCErrors(_ nvml.Device, ever bool) (uint64, uint64, error) {
	if ever {
		return 30, 4, nil
	}
	return 1, 2, nil
}

func TestMonitor(t *testing.T) {
	list, err := Emulate("emulate:2,mem=4MiB")
	must(t, err)
	queries := map[string]struct {
		ask  func(d device.Device) (any, error)
		want any
	}{
		"utilization":      {func(d device.Device) (any, error) { return Utilization(d) }, 95},
		"memory usage":     {func(d device.Device) (any, error) { return MemoryUsage(d) }, 40},
		"memory used":      {func(d device.Device) (any, error) { return DeviceMemoryUsed(d) }, 40},
		"temperature":      {func(d device.Device) (any, error) { return Temperature(d) }, 66},
		"power draw":       {func(d device.Device) (any, error) { return PowerDraw(d) }, 512345},
		"clock rate":       {func(d device.Device) (any, error) { return ClockRate(d) }, 1000},
		"throttle reasons": {func(d device.Device) (any, error) { return ThrottleReasons(d) }, []string{"power cap", "thermal slowdown"}},
		"PCIe link":        {func(d device.Device) (any, error) { return PCIeLink(d) }, Link{3, 8, 5, 16}},
		"ECC errors":       {func(d device.Device) (any, error) { return ECCErrors(d) }, MemoryErrors{1, 2, 30, 4}},
		"processes":        {func(d device.Device) (any, error) { return ListGPUProcesses(d) }, []GPUProcess{{7, 1 << 30}, {8, -1}}},
	}
	lost := &nvml.Error{Call: "nvmlDeviceGetHandleByPciBusId_v2", Return: nvml.ErrGPULost}
	for name, q := range queries {
		refused := func(d *Device, monitor func() (nvml.API, error), want string, is error) {
			t.Helper()
			d.p.monitor = monitor
			v, err := q.ask(d)
			var m *MonitorError
			if !errors.As(err, &m) || m.Device != d.name || m.Query != name || !strings.Contains(err.Error(), want) || is != nil && !errors.Is(err, is) || !reflect.ValueOf(v).IsZero() {
				t.Errorf("%s: %v, %v, want %q", name, v, err, want)
			}
		}
		refused(list[1], nil, name+" of cuda:1: the GPU is emulated and has no sensors", nil)
		refused(list[1], func() (nvml.API, error) { return nil, &nvml.Unavailable{} }, "comes with the driver", nil)
		refused(list[1], func() (nvml.API, error) { return cards{fail: lost}, nil }, "fallen off the bus", nvml.ErrGPULost)
		refused(list[0], func() (nvml.API, error) { return cards{}, nil }, "not found", nvml.ErrNotFound)
		list[1].p.monitor = func() (nvml.API, error) { return cards{}, nil }
		if v, err := q.ask(list[1]); err != nil || !reflect.DeepEqual(v, q.want) {
			t.Errorf("%s: %v, %v, want %v", name, v, err, q.want)
		}
		var v *device.OperandError
		if _, err := q.ask(nil); !errors.As(err, &v) {
			t.Errorf("%s of nothing: %v", name, err)
		}
	}
	if d := hardware(t); d != nil {
		for name, q := range queries {
			v, err := q.ask(d)
			t.Logf("%s: %v, %v", name, v, err)
			var m *MonitorError // the error if the machine has no management library
			if celsius, _ := v.(int); err != nil && !errors.As(err, &m) || err == nil && name == "temperature" && (celsius < 1 || celsius > 120) {
				t.Errorf("%s: %v, %v", name, v, err)
			}
		}
	}
	if v, err := DriverRelease(); err != nil {
		var m *MonitorError
		if !errors.As(err, &m) || v != "" {
			t.Errorf("%q, %v", v, err)
		}
	} else if v == "" {
		t.Error("the driver has no release")
	}
}
