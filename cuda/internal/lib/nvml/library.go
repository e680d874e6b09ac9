package nvml

import (
	"bytes"
	"runtime"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

func libraryName() string {
	if runtime.GOOS == "windows" {
		return "nvml.dll"
	}
	return "libnvidia-ml.so.1"
}

var opened struct {
	sync.Mutex
	api API
}

// Open loads and initialises the library. Once it has succeeded, every call returns the same
// library. The error is an [*Unavailable].
func Open() (API, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.api != nil {
		return opened.api, nil
	}
	l, tried := cu.OpenLibrary(libraryName())
	if l == nil {
		return nil, &Unavailable{Tried: tried}
	}
	api, err := start(l)
	if err != nil {
		return nil, err
	}
	opened.api = api
	return api, nil
}

func start(l *cu.Library) (API, error) {
	m := &library{l}
	if err := m.call([]string{"nvmlInit_v2"}); err != nil {
		return nil, &Unavailable{Library: l.Path, Return: err.(*Error).Return}
	}
	return m, nil
}

// library implements API with calls of the C library.
type library struct{ l *cu.Library }

// scratch is memory to which C functions write. It lies on the heap, which does not move.
type scratch struct {
	n [4]uint64
	// The size is NVML_DEVICE_NAME_V2_BUFFER_SIZE, which suffices for every text.
	text [96]byte
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func (s *scratch) at(i int) uintptr { return uintptr(unsafe.Pointer(&s.n[i])) }

// call calls the first of the named functions that the library has. The names are variants of one
// function, the newest first.
func (m *library) call(names []string, args ...uintptr) error {
	fn := m.l.Function(names...)
	if fn == 0 {
		return &Error{names[0], ErrFunctionNotFound}
	}
	if r := cu.Call(fn, args...); r != 0 {
		return &Error{names[0], Return(r)}
	}
	return nil
}

// numbers calls a function of a device that writes unsigned 32-bit integers through pointers. The
// argument count is the number of these pointers.
func (m *library) numbers(name string, d Device, count int, before ...uintptr) ([3]int, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.n = [4]uint64{}
	args := append([]uintptr{uintptr(d)}, before...)
	for i := range count {
		args = append(args, s.at(i))
	}
	err := m.call([]string{name}, args...)
	runtime.KeepAlive(s)
	return [3]int{int(uint32(s.n[0])), int(uint32(s.n[1])), int(uint32(s.n[2]))}, err
}

func (m *library) number(name string, d Device, before ...uintptr) (int, error) {
	v, err := m.numbers(name, d, 1, before...)
	return v[0], err
}

// wide calls a function of a device that writes one 64-bit integer.
func (m *library) wide(names []string, d Device, before ...uintptr) (uint64, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.n[0] = 0
	err := m.call(names, append(append([]uintptr{uintptr(d)}, before...), s.at(0))...)
	runtime.KeepAlive(s)
	return s.n[0], err
}

// text calls a function that fills a buffer with a C string.
func (m *library) text(name string, before ...uintptr) (string, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	clear(s.text[:])
	err := m.call([]string{name}, append(before, uintptr(unsafe.Pointer(&s.text[0])), uintptr(len(s.text)))...)
	runtime.KeepAlive(s)
	b := s.text[:]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b), err
}

func (m *library) DriverVersion() (string, error) { return m.text("nvmlSystemGetDriverVersion") }
func (m *library) Name(d Device) (string, error)  { return m.text("nvmlDeviceGetName", uintptr(d)) }
func (m *library) UUID(d Device) (string, error)  { return m.text("nvmlDeviceGetUUID", uintptr(d)) }
func (m *library) Temperature(d Device) (int, error) {
	return m.number("nvmlDeviceGetTemperature", d, 0)
}

func (m *library) DeviceCount() (int, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.n[0] = 0
	err := m.call([]string{"nvmlDeviceGetCount_v2"}, s.at(0))
	runtime.KeepAlive(s)
	return int(uint32(s.n[0])), err
}

func (m *library) DeviceByIndex(i int) (Device, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.n[0] = 0
	err := m.call([]string{"nvmlDeviceGetHandleByIndex_v2"}, uintptr(uint32(i)), s.at(0))
	runtime.KeepAlive(s)
	return Device(s.n[0]), err
}

func (m *library) DeviceByPCIBusID(id string) (Device, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	if len(id) >= len(s.text) {
		return 0, &Error{"nvmlDeviceGetHandleByPciBusId_v2", ErrInvalidArgument}
	}
	s.n[0] = 0
	clear(s.text[:])
	copy(s.text[:], id)
	err := m.call([]string{"nvmlDeviceGetHandleByPciBusId_v2"}, uintptr(unsafe.Pointer(&s.text[0])), s.at(0))
	runtime.KeepAlive(s)
	return Device(s.n[0]), err
}

// Utilization reads nvmlUtilization_t, which has two 32-bit numbers.
func (m *library) Utilization(d Device) (gpu, memory int, err error) {
	v, err := m.wide([]string{"nvmlDeviceGetUtilizationRates"}, d)
	return int(uint32(v)), int(v >> 32), err
}

func (m *library) Power(d Device) (now, limit int, err error) {
	if now, err = m.number("nvmlDeviceGetPowerUsage", d); err != nil {
		return 0, 0, err
	}
	limit, err = m.number("nvmlDeviceGetEnforcedPowerLimit", d)
	if Missing(err) {
		return now, 0, nil
	}
	return now, limit, err
}

func (m *library) Clock(d Device, c ClockType) (now, most int, err error) {
	if now, err = m.number("nvmlDeviceGetClockInfo", d, uintptr(c)); err != nil {
		return 0, 0, err
	}
	most, err = m.number("nvmlDeviceGetMaxClockInfo", d, uintptr(c))
	if Missing(err) {
		return now, 0, nil
	}
	return now, most, err
}

// Memory reads nvmlMemory_t: total, free, used.
func (m *library) Memory(d Device) (Memory, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.n = [4]uint64{}
	err := m.call([]string{"nvmlDeviceGetMemoryInfo"}, uintptr(d), s.at(0))
	runtime.KeepAlive(s)
	return Memory{Total: s.n[0], Free: s.n[1], Used: s.n[2]}, err
}

// processInfo is nvmlProcessInfo_t in versions 2 and 3 of the call.
type processInfo struct {
	pid                   uint32
	used                  uint64
	gpuInstance, computes uint32
}

// newInfos allocates on the heap, because Go may move stacks.
//
//go:noinline
func newInfos(n int) []processInfo { return make([]processInfo, n) }

// maxProcesses bounds the number of processes that a query returns.
const maxProcesses = 4096

func (m *library) Processes(d Device) ([]Process, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	for n := 64; ; n *= 4 {
		infos := newInfos(n)
		s.n[0] = uint64(n)
		err := m.call([]string{"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"}, uintptr(d), s.at(0), uintptr(unsafe.Pointer(&infos[0])))
		runtime.KeepAlive(infos)
		runtime.KeepAlive(s)
		if e, ok := err.(*Error); ok && e.Return == ErrInsufficientSize && n < maxProcesses {
			continue
		}
		if err != nil {
			return nil, err
		}
		var list []Process
		for _, p := range infos[:min(int(uint32(s.n[0])), n)] {
			list = append(list, Process{p.pid, p.used, p.gpuInstance, p.computes})
		}
		return list, nil
	}
}

func (m *library) Link(d Device) (l Link, err error) {
	for name, to := range map[string]*int{"nvmlDeviceGetCurrPcieLinkGeneration": &l.Generation, "nvmlDeviceGetCurrPcieLinkWidth": &l.Width,
		"nvmlDeviceGetMaxPcieLinkGeneration": &l.MaxGeneration, "nvmlDeviceGetMaxPcieLinkWidth": &l.MaxWidth} {
		if *to, err = m.number(name, d); err != nil {
			return Link{}, err
		}
	}
	return l, nil
}

func (m *library) ECC(d Device) (now, pending bool, err error) {
	v, err := m.numbers("nvmlDeviceGetEccMode", d, 2)
	return v[0] != 0, v[1] != 0, err
}

func (m *library) ECCErrors(d Device, ever bool) (corrected, uncorrected uint64, err error) {
	var counter uintptr // NVML_VOLATILE_ECC
	if ever {
		counter = 1 // NVML_AGGREGATE_ECC
	}
	if corrected, err = m.wide([]string{"nvmlDeviceGetTotalEccErrors"}, d, 0, counter); err != nil {
		return 0, 0, err
	}
	uncorrected, err = m.wide([]string{"nvmlDeviceGetTotalEccErrors"}, d, 1, counter)
	return corrected, uncorrected, err
}

func (m *library) RemappedRows(d Device) (Rows, error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	s.n = [4]uint64{}
	err := m.call([]string{"nvmlDeviceGetRemappedRows"}, uintptr(d), s.at(0), s.at(1), s.at(2), s.at(3))
	runtime.KeepAlive(s)
	return Rows{int(uint32(s.n[0])), int(uint32(s.n[1])), uint32(s.n[2]) != 0, uint32(s.n[3]) != 0}, err
}

func (m *library) Throttle(d Device) (Throttle, error) {
	v, err := m.wide([]string{"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"}, d)
	return Throttle(v), err
}

func (m *library) Persistence(d Device) (bool, error) {
	v, err := m.number("nvmlDeviceGetPersistenceMode", d)
	return v != 0, err
}

func (m *library) MIG(d Device) (now, pending bool, err error) {
	v, err := m.numbers("nvmlDeviceGetMigMode", d, 2)
	return v[0] != 0, v[1] != 0, err
}
