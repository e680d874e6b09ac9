package doctor

import (
	"os"
	"path"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/nvml"
)

// planted is a machine whose files, driver and environment a test sets.
type planted struct {
	system    string
	files     map[string]string // contents of files by path; "" for files that only have to exist
	links     map[string]string
	closed    map[string]error // errors of device files that may not be opened
	env       map[string]string
	driver    cu.API
	absent    error // error of loading the driver
	monitor   nvml.API
	libraries []cuda.Library
	spills    []cuda.Spill
}

func (p *planted) System() string            { return p.system }
func (p *planted) Process() int              { return 4242 }
func (p *planted) Open(name string) error    { return p.closed[name] }
func (p *planted) Libraries() []cuda.Library { return p.libraries }
func (p *planted) Spills() []cuda.Spill      { return p.spills }
func (p *planted) Exists(name string) bool {
	_, file := p.files[name]
	_, link := p.links[name]
	return file || link
}
func (p *planted) Env(name string) (string, bool)  { v, ok := p.env[name]; return v, ok }
func (p *planted) Read(name string) (string, bool) { v, ok := p.files[name]; return v, ok }
func (p *planted) Driver() (cu.API, error)         { return p.driver, p.absent }
func (p *planted) Target(name string) string {
	if t := p.links[name]; t != "" {
		return t
	}
	return name
}

func (p *planted) Glob(pattern string) []string {
	var list []string
	for name := range p.files {
		if ok, _ := path.Match(pattern, name); ok {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

func (p *planted) Monitor() (nvml.API, error) {
	if p.monitor == nil {
		return nil, &nvml.Unavailable{}
	}
	return p.monitor, nil
}

// hardware is a driver whose GPUs are not marked as emulated.
type hardware struct {
	cu.API
	attrs map[cu.DeviceAttr]int
	fail  error
}

func (h *hardware) DeviceName(cu.Device) (string, error) { return "NVIDIA H200", h.fail }
func (h *hardware) DeviceAttribute(d cu.Device, a cu.DeviceAttr) (int, error) {
	if v, ok := h.attrs[a]; ok {
		return v, nil
	}
	return h.API.DeviceAttribute(d, a)
}

// sensors is a management library whose results a test can change.
type sensors struct {
	handle      error
	count       int
	busy        int
	throttle    nvml.Throttle
	link        nvml.Link
	memory      nvml.Memory
	processes   []nvml.Process
	corrected   uint64
	uncorrected uint64
	rows        nvml.Rows
	persistence bool
	mig, soon   bool
	missing     error // error of queries that only newer GPUs support
}

func (s *sensors) DriverVersion() (string, error)                { return "550.54.15", nil }
func (s *sensors) DeviceCount() (int, error)                     { return s.count, nil }
func (s *sensors) DeviceByIndex(int) (nvml.Device, error)        { return 1, s.handle }
func (s *sensors) DeviceByPCIBusID(string) (nvml.Device, error)  { return 1, s.handle }
func (s *sensors) Name(nvml.Device) (string, error)              { return "NVIDIA H200", nil }
func (s *sensors) UUID(nvml.Device) (string, error)              { return "GPU-1", nil }
func (s *sensors) Utilization(nvml.Device) (int, int, error)     { return s.busy, 10, nil }
func (s *sensors) Temperature(nvml.Device) (int, error)          { return 66, nil }
func (s *sensors) Power(nvml.Device) (int, int, error)           { return 500_000, 700_000, nil }
func (s *sensors) Memory(nvml.Device) (nvml.Memory, error)       { return s.memory, nil }
func (s *sensors) Processes(nvml.Device) ([]nvml.Process, error) { return s.processes, nil }
func (s *sensors) Link(nvml.Device) (nvml.Link, error)           { return s.link, nil }
func (s *sensors) ECC(nvml.Device) (bool, bool, error)           { return true, true, nil }
func (s *sensors) ECCErrors(nvml.Device, bool) (uint64, uint64, error) {
	return s.corrected, s.uncorrected, s.missing
}
func (s *sensors) RemappedRows(nvml.Device) (nvml.Rows, error)         { return s.rows, s.missing }
func (s *sensors) Throttle(nvml.Device) (nvml.Throttle, error)         { return s.throttle, nil }
func (s *sensors) Persistence(nvml.Device) (bool, error)               { return s.persistence, nil }
func (s *sensors) MIG(nvml.Device) (bool, bool, error)                 { return s.mig, s.soon, s.missing }
func (s *sensors) Clock(nvml.Device, nvml.ClockType) (int, int, error) { return 1500, 1980, nil }

// healthy returns a Linux machine with one GPU and no defect. Tests add a defect to it.
func healthy(t *testing.T) (*planted, *hardware, *sensors) {
	t.Helper()
	e, err := emu.New(emu.Config{Memory: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	h := &hardware{API: e, attrs: map[cu.DeviceAttr]int{}}
	s := &sensors{count: 1, persistence: true, link: nvml.Link{Generation: 5, Width: 16, MaxGeneration: 5, MaxWidth: 16}, memory: nvml.Memory{Total: 1 << 30, Free: 1000 << 20, Used: 24 << 20},
		processes: []nvml.Process{{PID: 4242, UsedMemory: 1 << 20}}}
	return &planted{system: "linux", files: map[string]string{
		"/sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086\n",
		"/sys/bus/pci/devices/0000:00:00.0/class":  "0x060000\n",
		"/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
		"/sys/bus/pci/devices/0000:01:00.0/class":  "0x030200\n",
		"/sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n", // the GPU's audio function
		"/sys/bus/pci/devices/0000:01:00.1/class":  "0x040300\n",
		"/proc/driver/nvidia/version":              "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  gcc 12\n",
		"/proc/sys/kernel/osrelease":               "6.8.0-40-generic\n",
		"/proc/1/cgroup":                           "0::/init.scope\n",
		"/dev/nvidiactl":                           "", "/dev/nvidia0": "", "/dev/nvidia-uvm": "",
	}, links: map[string]string{
		"/sys/bus/pci/devices/0000:01:00.0/driver": "/sys/bus/pci/drivers/nvidia",
		"/usr/lib/libcudnn.so.9":                   "/usr/lib/libcudnn.so.9.1.0",
	}, closed: map[string]error{}, env: map[string]string{}, driver: h, monitor: s, libraries: []cuda.Library{
		{Name: "cublasLt"}, {Name: "cudnn", Found: true, Path: "/usr/lib/libcudnn.so.9"}, {Name: "nvml", Found: true, Path: "/usr/lib/libnvidia-ml.so.1"}}}, h, s
}

// refuse makes the driver unavailable for the reason r.
func (p *planted) refuse(r cu.Reason, detail string) *cu.Unavailable {
	u := cu.NewUnavailable(r, detail)
	p.driver, p.absent = nil, u
	return u
}

func (p *planted) unload() {
	delete(p.files, "/proc/driver/nvidia/version")
	for _, f := range []string{"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm"} {
		delete(p.files, f)
	}
}

var errDenied = &os.PathError{Op: "open", Path: "/dev/nvidiactl", Err: os.ErrPermission}
