//go:build !nogpu && linux && (amd64 || arm64)

package nvml

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// fake is a library whose functions are callbacks into this test.
type fake struct {
	lacks  map[string]bool
	handle func(name string, a [5]uintptr) Return
	calls  []string
}

var fakes struct {
	sync.Mutex
	now *fake
	// callbacks by the name of the C function; all tests share them, because a callback is never
	// freed
	addrs map[string]uintptr
}

func callback(name string) uintptr {
	if fakes.addrs[name] == 0 {
		if fakes.addrs == nil {
			fakes.addrs = map[string]uintptr{}
		}
		fakes.addrs[name] = purego.NewCallback(func(a0, a1, a2, a3, a4 uintptr) uintptr {
			f := fakes.now
			f.calls = append(f.calls, name)
			// the upper half of a register that returns an enum is undefined
			return uintptr(f.handle(name, [5]uintptr{a0, a1, a2, a3, a4})) | 0xdeadbeef<<32
		})
	}
	return fakes.addrs[name]
}

func newFake(t *testing.T, handle func(name string, a [5]uintptr) Return) (*fake, *cu.Library) {
	fakes.Lock()
	f := &fake{lacks: map[string]bool{}, handle: handle}
	fakes.now = f
	t.Cleanup(func() { fakes.now = nil; fakes.Unlock() })
	return f, cu.NewLibrary("libfake.so.1", func(name string) uintptr {
		if f.lacks[name] {
			return 0
		}
		return callback(name)
	})
}

func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
func put32(p uintptr, v uint32)        { *(*uint32)(pointer(p)) = v }
func put64(p uintptr, v uint64)        { *(*uint64)(pointer(p)) = v }
func cString(p uintptr) string {
	b := (*[64]byte)(pointer(p))
	return string(b[:slices.Index(b[:], 0)])
}

const handle = 0x7777

// TestEachQuery checks that each query calls its function with the right arguments and returns what
// the function writes. A failure must contain the library's return code.
func TestEachQuery(t *testing.T) {
	var failure Return
	texts := map[string]string{"nvmlSystemGetDriverVersion": "550.54.15", "nvmlDeviceGetName": "NVIDIA H200", "nvmlDeviceGetUUID": "GPU-1"}
	f, l := newFake(t, func(name string, a [5]uintptr) Return {
		if failure != 0 && name != "nvmlInit_v2" {
			return failure
		}
		if strings.HasPrefix(name, "nvmlDeviceGet") && !strings.Contains(name, "GetHandle") && !strings.Contains(name, "GetCount") && a[0] != handle {
			t.Errorf("%s of device %#x", name, a[0])
		}
		if s := texts[name]; s != "" {
			to, size := a[0], a[1]
			if name != "nvmlSystemGetDriverVersion" {
				to, size = a[1], a[2]
			}
			if int(size) < 80 {
				t.Errorf("%s: a buffer of %d bytes", name, size)
			}
			copy((*[80]byte)(pointer(to))[:], s+"\x00")
			return 0
		}
		switch name {
		case "nvmlInit_v2":
		case "nvmlDeviceGetCount_v2":
			put32(a[0], 3)
		case "nvmlDeviceGetHandleByIndex_v2":
			if a[0] != 2 {
				t.Errorf("index %d", a[0])
			}
			put64(a[1], handle)
		case "nvmlDeviceGetHandleByPciBusId_v2":
			if s := cString(a[0]); s != "0000:01:00.0" {
				t.Errorf("bus %q", s)
			}
			put64(a[1], handle)
		case "nvmlDeviceGetUtilizationRates":
			put32(a[1], 97)
			put32(a[1]+4, 41)
		case "nvmlDeviceGetTemperature":
			if a[1] != 0 {
				t.Errorf("sensor %d", a[1])
			}
			put32(a[2], 66)
		case "nvmlDeviceGetPowerUsage":
			put32(a[1], 512345)
		case "nvmlDeviceGetEnforcedPowerLimit":
			put32(a[1], 700000)
		case "nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo":
			put32(a[2], uint32(1000*(a[1]+1)+uintptr(len(name))))
		case "nvmlDeviceGetMemoryInfo":
			put64(a[1], 100)
			put64(a[1]+8, 60)
			put64(a[1]+16, 40)
		case "nvmlDeviceGetComputeRunningProcesses_v3":
			// the machine has more processes than fit into the first buffer
			if n := *(*uint32)(pointer(a[1])); n < 100 {
				put32(a[1], 100)
				return ErrInsufficientSize
			}
			put32(a[1], 2)
			// the layout of nvmlProcessInfo_t in C: 24 bytes, with fields at 0, 8, 16 and 20
			for i := range uintptr(2) {
				at := a[2] + 24*i
				put32(at, uint32(100+i))
				put64(at+8, uint64(i+1)<<33)
				put32(at+16, NoInstance)
				put32(at+20, 7)
			}
		case "nvmlDeviceGetCurrPcieLinkGeneration":
			put32(a[1], 3)
		case "nvmlDeviceGetCurrPcieLinkWidth":
			put32(a[1], 8)
		case "nvmlDeviceGetMaxPcieLinkGeneration":
			put32(a[1], 5)
		case "nvmlDeviceGetMaxPcieLinkWidth":
			put32(a[1], 16)
		case "nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode":
			put32(a[1], 1)
			put32(a[2], 0)
		case "nvmlDeviceGetTotalEccErrors":
			put64(a[3], uint64(10*a[1]+a[2])+1<<40)
		case "nvmlDeviceGetRemappedRows":
			put32(a[1], 1)
			put32(a[2], 2)
			put32(a[3], 1)
			put32(a[4], 0)
		case "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons":
			put64(a[1], uint64(ThrottlePowerCap|ThrottleThermal))
		case "nvmlDeviceGetPersistenceMode":
			put32(a[1], 1)
		default:
			t.Errorf("unexpected call of %s", name)
		}
		return 0
	})
	api, err := start(l)
	if err != nil {
		t.Fatal(err)
	}
	type list = []any
	queries := map[string]struct {
		ask  func() (list, error)
		want list
	}{
		"nvmlSystemGetDriverVersion":    {func() (list, error) { s, err := api.DriverVersion(); return list{s}, err }, list{"550.54.15"}},
		"nvmlDeviceGetCount_v2":         {func() (list, error) { n, err := api.DeviceCount(); return list{n}, err }, list{3}},
		"nvmlDeviceGetHandleByIndex_v2": {func() (list, error) { d, err := api.DeviceByIndex(2); return list{d}, err }, list{Device(handle)}},
		"nvmlDeviceGetHandleByPciBusId_v2": {func() (list, error) { d, err := api.DeviceByPCIBusID("0000:01:00.0"); return list{d}, err },
			list{Device(handle)}},
		"nvmlDeviceGetName":             {func() (list, error) { s, err := api.Name(handle); return list{s}, err }, list{"NVIDIA H200"}},
		"nvmlDeviceGetUUID":             {func() (list, error) { s, err := api.UUID(handle); return list{s}, err }, list{"GPU-1"}},
		"nvmlDeviceGetUtilizationRates": {func() (list, error) { a, b, err := api.Utilization(handle); return list{a, b}, err }, list{97, 41}},
		"nvmlDeviceGetTemperature":      {func() (list, error) { a, err := api.Temperature(handle); return list{a}, err }, list{66}},
		"nvmlDeviceGetPowerUsage":       {func() (list, error) { a, b, err := api.Power(handle); return list{a, b}, err }, list{512345, 700000}},
		"nvmlDeviceGetClockInfo": {func() (list, error) { a, b, err := api.Clock(handle, ClockMemory); return list{a, b}, err },
			list{3000 + len("nvmlDeviceGetClockInfo"), 3000 + len("nvmlDeviceGetMaxClockInfo")}},
		"nvmlDeviceGetMemoryInfo": {func() (list, error) { m, err := api.Memory(handle); return list{m}, err }, list{Memory{Total: 100, Free: 60, Used: 40}}},
		"nvmlDeviceGetComputeRunningProcesses_v3": {func() (list, error) { p, err := api.Processes(handle); return list{p}, err },
			list{[]Process{{100, 1 << 33, NoInstance, 7}, {101, 2 << 33, NoInstance, 7}}}},
		"nvmlDeviceGetEccMode": {func() (list, error) { a, b, err := api.ECC(handle); return list{a, b}, err }, list{true, false}},
		"nvmlDeviceGetMigMode": {func() (list, error) { a, b, err := api.MIG(handle); return list{a, b}, err }, list{true, false}},
		"nvmlDeviceGetTotalEccErrors": {func() (list, error) { a, b, err := api.ECCErrors(handle, true); return list{a, b}, err },
			list{uint64(1)<<40 + 1, uint64(1)<<40 + 11}},
		"nvmlDeviceGetRemappedRows":              {func() (list, error) { r, err := api.RemappedRows(handle); return list{r}, err }, list{Rows{1, 2, true, false}}},
		"nvmlDeviceGetCurrentClocksEventReasons": {func() (list, error) { r, err := api.Throttle(handle); return list{r}, err }, list{ThrottlePowerCap | ThrottleThermal}},
		"nvmlDeviceGetPersistenceMode":           {func() (list, error) { r, err := api.Persistence(handle); return list{r}, err }, list{true}},
		"nvmlDeviceGetCurrPcieLink":              {func() (list, error) { r, err := api.Link(handle); return list{r}, err }, list{Link{3, 8, 5, 16}}},
	}
	for name, q := range queries {
		f.calls, failure = nil, 0
		got, err := q.ask()
		if err != nil || !reflect.DeepEqual(got, q.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, q.want)
		}
		if !slices.ContainsFunc(f.calls, func(c string) bool { return strings.HasPrefix(c, name) }) {
			t.Errorf("%s was not called, but %v", name, f.calls)
		}
		failure = ErrGPULost
		var e *Error
		if _, err = q.ask(); !errors.Is(err, ErrGPULost) || !errors.As(err, &e) || !strings.HasPrefix(e.Call, "nvml") || !strings.Contains(err.Error(), "fallen off the bus") {
			t.Errorf("%s: its failure came back as %v", name, err)
		}
	}
	if n := reflect.TypeFor[API]().NumMethod(); n != len(queries) {
		t.Errorf("%d of %d queries are tested", len(queries), n)
	}

	// An older library has another name for the throttle reasons, and has no function for remapped
	// rows.
	failure = 0
	_, l = l, cu.NewLibrary("libold.so.1", func(name string) uintptr {
		if name == "nvmlDeviceGetCurrentClocksEventReasons" || name == "nvmlDeviceGetRemappedRows" {
			return 0
		}
		return callback(name)
	})
	if api, err = start(l); err != nil {
		t.Fatal(err)
	}
	if r, err := api.Throttle(handle); err != nil || r != ThrottlePowerCap|ThrottleThermal {
		t.Errorf("an older library: %v, %v", r, err)
	}
	if _, err := api.RemappedRows(handle); !Missing(err) || !errors.Is(err, ErrFunctionNotFound) {
		t.Errorf("a function that is not there: %v", err)
	}
	if _, err := api.DeviceByPCIBusID(strings.Repeat("0", 200)); !errors.Is(err, ErrInvalidArgument) {
		t.Errorf("a long bus id: %v", err)
	}
}

// TestDoesNotStart loads a library whose initialisation fails. The error must give the reason.
func TestDoesNotStart(t *testing.T) {
	_, l := newFake(t, func(string, [5]uintptr) Return { return ErrVersionMismatch })
	var u *Unavailable
	if _, err := start(l); !errors.As(err, &u) || !errors.Is(err, ErrVersionMismatch) || u.Library != "libfake.so.1" || !strings.Contains(err.Error(), "different versions") {
		t.Errorf("%v", err)
	}
}

// TestLayout checks that the Go struct has the sizes and offsets of the C struct in nvml.h, as a C
// compiler computes them.
func TestLayout(t *testing.T) {
	var p processInfo
	for what, v := range map[string][2]uintptr{
		"sizeof(nvmlProcessInfo_t)": {unsafe.Sizeof(p), 24}, "pid": {unsafe.Offsetof(p.pid), 0}, "usedGpuMemory": {unsafe.Offsetof(p.used), 8},
		"gpuInstanceId": {unsafe.Offsetof(p.gpuInstance), 16}, "computeInstanceId": {unsafe.Offsetof(p.computes), 20},
	} {
		if v[0] != v[1] {
			t.Errorf("%s is %d, want %d", what, v[0], v[1])
		}
	}
}

// TestOpen checks the result of Open on this machine, with or without the library.
func TestOpen(t *testing.T) {
	api, err := Open()
	if err != nil {
		var u *Unavailable
		if !errors.As(err, &u) || u.Library == "" && len(u.Tried) == 0 || !strings.Contains(err.Error(), "libnvidia-ml.so.1") {
			t.Errorf("%v", err)
		}
		return
	}
	if v, err := api.DriverVersion(); err != nil || v == "" {
		t.Errorf("%q, %v", v, err)
	}
	if n, err := api.DeviceCount(); err != nil || n == 0 {
		t.Errorf("%d GPUs, %v", n, err)
	}
}

func TestWords(t *testing.T) {
	if s := (ThrottlePowerCap | ThrottleHardwareHot | 1<<20).String(); s != "power cap, hardware thermal slowdown, unknown reason 0x100000" || Throttle(0).String() != "none" {
		t.Error(s)
	}
	if s := Return(77).Error(); s != "an error without a name here (NVML error 77)" {
		t.Error(s)
	}
}
