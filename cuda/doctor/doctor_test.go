package doctor

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/nvml"
)

// TestDiagnoses examines machines with one defect each. The report must have the finding for that
// defect.
func TestDiagnoses(t *testing.T) {
	for _, c := range []struct {
		name   string
		breaks func(p *planted, h *hardware, s *sensors)
		id     string
		level  Level
		gpu    string
		seen   string
		do     string
	}{
		{"no GPU", func(p *planted, _ *hardware, _ *sensors) {
			p.unload()
			p.files["/sys/bus/pci/devices/0000:01:00.0/vendor"] = "0x1002\n"
			p.refuse(cu.LibraryNotFound, "")
		}, "no-gpu", Unused, "", "shows 3 devices, none of them a display of vendor 10de", "a machine with an NVIDIA GPU"},
		{"no GPU in a container", func(p *planted, _ *hardware, _ *sensors) {
			p.unload()
			delete(p.files, "/sys/bus/pci/devices/0000:01:00.0/vendor")
			p.files["/.dockerenv"] = ""
			p.refuse(cu.LibraryNotFound, "")
		}, "no-gpu", Unused, "", "this is a container (/.dockerenv is there)", "whose host has an NVIDIA GPU"},
		{"driver not loaded", func(p *planted, _ *hardware, _ *sensors) {
			p.unload()
			delete(p.links, "/sys/bus/pci/devices/0000:01:00.0/driver")
			p.refuse(cu.LibraryNotFound, "")
		}, "driver-not-loaded", Unused, "0000:01:00.0", "NVIDIA's driver is not loaded", "modprobe nvidia"},
		{"nouveau", func(p *planted, _ *hardware, _ *sensors) {
			p.unload()
			p.links["/sys/bus/pci/devices/0000:01:00.0/driver"] = "/sys/bus/pci/drivers/nouveau"
			p.refuse(cu.LibraryNotFound, "")
		}, "driver-nouveau", Unused, "0000:01:00.0", "nouveau, which cannot compute", "install NVIDIA's driver"},
		{"passed through", func(p *planted, _ *hardware, _ *sensors) {
			p.unload()
			p.links["/sys/bus/pci/devices/0000:01:00.0/driver"] = "/sys/bus/pci/drivers/vfio-pci"
			p.refuse(cu.LibraryNotFound, "")
		}, "driver-passthrough", Unused, "0000:01:00.0", "vfio-pci", "inside of the virtual machine"},
		{"no library", func(p *planted, _ *hardware, _ *sensors) { p.refuse(cu.LibraryNotFound, "") }, "libcuda-missing", Unused, "", "libcuda.so.1", "install NVIDIA's driver"},
		{"no library on a Jetson", func(p *planted, _ *hardware, _ *sensors) {
			p.unload()
			delete(p.files, "/sys/bus/pci/devices/0000:01:00.0/vendor")
			p.files["/dev/nvhost-gpu"] = ""
			p.refuse(cu.LibraryNotFound, "")
		}, "libcuda-missing", Unused, "", "libcuda.so.1", "install NVIDIA's driver"},
		{"a library that cannot be loaded", func(p *planted, _ *hardware, _ *sensors) {
			p.refuse(cu.LibraryNotFound, "").Tried = []string{"libcuda.so.1: cannot open", "/usr/lib64/libcuda.so.1: wrong ELF class", "/a: no such file"}
		}, "libcuda-missing", Unused, "", "/usr/lib64/libcuda.so.1: wrong ELF class", ""},
		{"no library in a container", func(p *planted, _ *hardware, _ *sensors) {
			p.files["/run/.containerenv"], p.env["NVIDIA_DRIVER_CAPABILITIES"] = "", "utility"
			p.refuse(cu.LibraryNotFound, "")
		}, "libcuda-missing", Unused, "", "NVIDIA_DRIVER_CAPABILITIES=utility", "must contain compute"},
		{"old driver", func(p *planted, _ *hardware, _ *sensors) { p.refuse(cu.DriverTooOld, "").Version = 11020 }, "driver-too-old", Unused, "", "supports CUDA 11.2, 11.8 is needed", "driver 520"},
		{"mismatch", func(p *planted, _ *hardware, _ *sensors) {
			p.refuse(cu.Mismatch, "").Library = "/usr/lib/libcuda.so.1"
			p.links["/usr/lib/libcuda.so.1"] = "/usr/lib/libcuda.so.560.28.03"
		}, "version-mismatch", Unused, "", "the kernel's module is 550.54.15, the library /usr/lib/libcuda.so.1 is 560.28.03", "restart"},
		{"no permission", func(p *planted, _ *hardware, _ *sensors) {
			p.closed["/dev/nvidiactl"] = errDenied
			p.refuse(cu.NoDevice, "")
		}, "permission", Unused, "", "/dev/nvidiactl cannot be opened: permission denied", "group"},
		{"no permission in a container", func(p *planted, _ *hardware, _ *sensors) {
			p.closed["/dev/nvidia0"] = errDenied
			p.files["/proc/1/cgroup"] = "0::/kubepods/besteffort/pod1\n"
			p.refuse(cu.InitFailed, "cuInit: 999")
		}, "permission", Unused, "", "/dev/nvidia0 cannot be opened", "control group"},
		{"container without flags", func(p *planted, _ *hardware, _ *sensors) {
			delete(p.files, "/dev/nvidiactl")
			p.files["/.dockerenv"], p.env["NVIDIA_VISIBLE_DEVICES"] = "", "void"
			p.refuse(cu.LibraryNotFound, "")
		}, "container-without-gpu", Unused, "", `the host's driver (550.54.15) is loaded, but /dev/nvidiactl is not there; NVIDIA_VISIBLE_DEVICES is "void"`, "docker run --gpus all"},
		{"no device files", func(p *planted, _ *hardware, _ *sensors) {
			delete(p.files, "/dev/nvidiactl")
			p.refuse(cu.NoDevice, "")
		}, "device-files", Unused, "", "/dev/nvidiactl is not there", "nvidia-modprobe"},
		{"no uvm file", func(p *planted, _ *hardware, _ *sensors) {
			delete(p.files, "/dev/nvidia-uvm")
			p.refuse(cu.InitFailed, "cuInit: 999")
		}, "device-files", Unused, "", "/dev/nvidia-uvm is not there", "suspend"},
		{"hidden", func(p *planted, _ *hardware, _ *sensors) {
			p.env["CUDA_VISIBLE_DEVICES"] = ""
			p.refuse(cu.NoDevice, "")
		}, "hidden", Unused, "", `CUDA_VISIBLE_DEVICES is ""`, "unset it"},
		{"some hidden", func(p *planted, _ *hardware, s *sensors) { p.env["CUDA_VISIBLE_DEVICES"], s.count = "1", 4 }, "hidden-some", Note, "", "shows 1 of 4 GPUs", "unset it"},
		{"switched off", func(p *planted, _ *hardware, _ *sensors) { p.env["FLAMBEAU_CUDA"] = "off" }, "switched-off", Unused, "", "FLAMBEAU_CUDA=off", "unset FLAMBEAU_CUDA"},
		{"emulated", func(p *planted, _ *hardware, _ *sensors) { p.env["FLAMBEAU_CUDA"] = "emulate:2,mem=1GiB" }, "emulated", Unused, "", "emulated GPUs are used", "unset FLAMBEAU_CUDA"},
		{"a switch that is wrong", func(p *planted, _ *hardware, _ *sensors) { p.env["FLAMBEAU_CUDA"] = "on" }, "switch-unknown", Unused, "", "means nothing", "unset FLAMBEAU_CUDA"},
		{"an emulator that is not", func(p *planted, _ *hardware, _ *sensors) { p.env["FLAMBEAU_CUDA"] = "emulate,men=1GiB" }, "switch-unknown", Unused, "", `"men=1GiB" is wrong`, "correct it"},
		{"no compiling", func(p *planted, _ *hardware, _ *sensors) { p.env["CUDA_DISABLE_PTX_JIT"] = "1" }, "jit-disabled", Unused, "", "may not compile", "unset CUDA_DISABLE_PTX_JIT"},
		{"synchronous", func(p *planted, _ *hardware, _ *sensors) { p.env["FLAMBEAU_CUDA_SYNC"] = "1" }, "synchronous", Slow, "", "waits for each kernel", "unset FLAMBEAU_CUDA_SYNC"},
		{"synchronous by the driver", func(p *planted, _ *hardware, _ *sensors) { p.env["CUDA_LAUNCH_BLOCKING"] = "1" }, "synchronous", Slow, "", "waits for each kernel", "unset CUDA_LAUNCH_BLOCKING"},
		{"old GPU", func(_ *planted, h *hardware, _ *sensors) {
			h.attrs[cu.AttrComputeCapabilityMajor], h.attrs[cu.AttrComputeCapabilityMinor] = 7, 5
		}, "gpu-too-old", Unused, "cuda:0", "compute capability 7.5, 8.0 is needed", "Ampere"},
		{"built without", func(p *planted, _ *hardware, _ *sensors) { p.refuse(cu.BuiltWithout, "") }, "built-without-gpu", Unused, "", "tag nogpu", "without -tags nogpu"},
		{"platform", func(p *planted, _ *hardware, _ *sensors) {
			p.system = "darwin"
			p.refuse(cu.UnsupportedPlatform, "built for darwin/arm64")
		}, "platform", Unused, "", "darwin/arm64", "Linux or Windows"},
		{"compat", func(p *planted, _ *hardware, _ *sensors) { p.refuse(cu.ForwardCompat, "") }, "forward-compat", Unused, "", "cuda-compat", "LD_LIBRARY_PATH"},
		{"no device at all", func(p *planted, _ *hardware, _ *sensors) { p.refuse(cu.NoDevice, "") }, "no-device", Unused, "", "shows no GPU", "nvidia-smi"},
		{"MIG without an instance", func(p *planted, _ *hardware, s *sensors) {
			s.mig = true
			p.refuse(cu.NoDevice, "")
		}, "mig-without-instance", Unused, "", "GPU 0 is in MIG mode", "nvidia-smi mig -cgi"},
		{"fabric manager", func(p *planted, _ *hardware, _ *sensors) {
			p.refuse(cu.InitFailed, "cuInit: 802").Result = cu.ErrSystemNotReady
		}, "fabric-manager", Unused, "", "cuInit: 802", "nvidia-fabricmanager"},
		{"stub", func(p *planted, _ *hardware, _ *sensors) { p.refuse(cu.InitFailed, "").Result = cu.ErrStubLibrary }, "stub-library", Unused, "", "cannot be initialised", "stubs"},
		{"taken", func(p *planted, _ *hardware, _ *sensors) {
			p.refuse(cu.InitFailed, "").Result = cu.ErrDeviceUnavailable
		}, "gpu-taken", Unused, "", "cannot be initialised", "nvidia-smi -c 0"},
		{"MPS", func(p *planted, _ *hardware, _ *sensors) {
			p.refuse(cu.InitFailed, "").Result = cu.ErrMPSServerNotReady
		}, "mps", Unused, "", "cannot be initialised", "CUDA_MPS_PIPE_DIRECTORY"},
		{"another failure", func(p *planted, _ *hardware, _ *sensors) {
			p.refuse(cu.InitFailed, "cuInit: 46").Result = cu.ErrUnknown
		}, "driver-failed", Unused, "", "cuInit: 46", "dmesg"},
		{"an error of no type", func(p *planted, _ *hardware, _ *sensors) { p.driver, p.absent = nil, errors.New("boom") }, "driver-failed", Unused, "", "boom", "dmesg"},
		{"a GPU that fails", func(_ *planted, h *hardware, _ *sensors) { h.fail = errors.New("boom") }, "gpu-failed", Unused, "cuda:0", "boom", "dmesg"},
		{"prohibited", func(_ *planted, h *hardware, _ *sensors) { h.attrs[cu.AttrComputeMode] = 2 }, "gpu-prohibited", Unused, "cuda:0", "Prohibited", "-c 0"},
		{"exclusive", func(_ *planted, h *hardware, _ *sensors) { h.attrs[cu.AttrComputeMode] = 3 }, "gpu-exclusive", Note, "cuda:0", "Exclusive_Process", "-c 0"},
		{"display", func(_ *planted, h *hardware, _ *sensors) { h.attrs[cu.AttrKernelExecTimeout] = 1 }, "display", Note, "cuda:0", "a display hangs on it", "another GPU"},
		{"WSL without a GPU", func(p *planted, _ *hardware, _ *sensors) {
			p.unload()
			p.files["/proc/sys/kernel/osrelease"] = "5.15.153.1-microsoft-standard-WSL2\n"
			p.refuse(cu.LibraryNotFound, "")
		}, "wsl-no-gpu", Unused, "", "/dev/dxg", "wsl --update"},
		{"WSL without a driver in Windows", func(p *planted, _ *hardware, _ *sensors) {
			p.unload()
			p.files["/proc/sys/kernel/osrelease"], p.files["/dev/dxg"] = "5.15.153.1-microsoft-standard-WSL2\n", ""
			p.refuse(cu.LibraryNotFound, "")
		}, "libcuda-missing", Unused, "", "libcuda", "driver in Windows"},
		{"WSL", func(p *planted, _ *hardware, _ *sensors) {
			p.files["/proc/sys/kernel/osrelease"] = "5.15.153.1-microsoft-standard-WSL2\n"
		}, "wsl", Note, "", "copies are slower", ""},
		{"a Linux driver in WSL", func(p *planted, _ *hardware, _ *sensors) {
			p.files["/proc/sys/kernel/osrelease"] = "5.15.153.1-microsoft-standard-WSL2\n"
			p.files["/usr/lib/x86_64-linux-gnu/libcuda.so.1"] = ""
		}, "wsl-driver", Slow, "", "a driver for Linux is installed in WSL", "remove it"},
		{"no NVML", func(p *planted, _ *hardware, _ *sensors) { p.monitor = nil }, "no-nvml", Note, "", "libnvidia-ml.so.1", "utility"},
		{"lost", func(_ *planted, _ *hardware, s *sensors) { s.handle = &nvml.Error{Call: "x", Return: nvml.ErrGPULost} }, "gpu-lost", Slow, "cuda:0", "fallen off the bus", "restart"},
		{"no sensors", func(_ *planted, _ *hardware, s *sensors) { s.handle = &nvml.Error{Call: "x", Return: nvml.ErrNotFound} }, "no-sensors", Note, "cuda:0", "does not tell of it", ""},
		{"hot", func(_ *planted, _ *hardware, s *sensors) { s.throttle = nvml.ThrottleThermal }, "throttle-thermal", Slow, "cuda:0", "thermal slowdown; 66 °C, 1500 MHz of 1980 MHz", "cool air"},
		{"very hot", func(_ *planted, _ *hardware, s *sensors) {
			s.throttle = nvml.ThrottleHardware | nvml.ThrottleHardwareHot
		}, "throttle-thermal", Slow, "cuda:0", "hardware thermal slowdown", "fans"},
		{"power limit", func(_ *planted, _ *hardware, s *sensors) { s.throttle = nvml.ThrottlePowerCap }, "throttle-power", Slow, "cuda:0", "its power limit of 700 W, 1500 MHz of 1980 MHz", "nvidia-smi -pl"},
		{"power supply", func(_ *planted, _ *hardware, s *sensors) {
			s.throttle = nvml.ThrottleHardware | nvml.ThrottlePowerBrake
		}, "throttle-power", Slow, "cuda:0", "power supply", "cables"},
		{"hardware slowdown", func(_ *planted, _ *hardware, s *sensors) { s.throttle = nvml.ThrottleHardware }, "throttle-hardware", Slow, "cuda:0", "halves its clocks", "PERFORMANCE"},
		{"clocks", func(_ *planted, _ *hardware, s *sensors) { s.throttle = nvml.ThrottleSetting }, "clocks-set", Slow, "cuda:0", "held down by a setting", "-rac"},
		{"lanes", func(_ *planted, _ *hardware, s *sensors) { s.link.Width = 4 }, "pcie-width", Slow, "cuda:0", "4 of 16 lanes", "slot"},
		{"generation", func(_ *planted, _ *hardware, s *sensors) { s.link.Generation = 3 }, "pcie-generation", Slow, "cuda:0", "generation 3 of 5", "BIOS"},
		{"generation of an idle one", func(_ *planted, _ *hardware, s *sensors) { s.link.Generation, s.throttle = 1, nvml.ThrottleIdle }, "pcie-generation", Note, "cuda:0", "idle GPUs save power so", ""},
		{"persistence", func(_ *planted, _ *hardware, s *sensors) { s.persistence = false }, "persistence-off", Slow, "cuda:0", "persistence mode is off", "nvidia-persistenced"},
		{"others", func(_ *planted, _ *hardware, s *sensors) {
			s.busy, s.memory.Used = 98, 512<<20
			s.processes = append(s.processes, nvml.Process{PID: 7, UsedMemory: 256 << 20}, nvml.Process{PID: 8, UsedMemory: nvml.NoValue})
		}, "shared", Slow, "cuda:0", "process 7 has 0.2 GiB, process 8; 0.5 of 1.0 GiB of its memory are in use, and it is 98 % busy", "CUDA_VISIBLE_DEVICES"},
		{"many others", func(_ *planted, _ *hardware, s *sensors) {
			for i := range 9 {
				s.processes = append(s.processes, nvml.Process{PID: uint32(i + 1), UsedMemory: 1 << 30})
			}
		}, "shared", Slow, "cuda:0", "process 5 has 1.0 GiB, 4 more; ", ""},
		{"memory of nobody", func(_ *planted, _ *hardware, s *sensors) { s.memory.Used = 512 << 20 }, "memory-used", Slow, "cuda:0", "0.5 of 1.0 GiB", "on the host"},
		{"ECC", func(_ *planted, _ *hardware, s *sensors) { s.uncorrected, s.corrected = 2, 30 }, "ecc-errors", Slow, "cuda:0", "2 errors of its memory could not be corrected since the driver was loaded, 30 were", "replaced"},
		{"many corrected", func(_ *planted, _ *hardware, s *sensors) { s.corrected = 5000 }, "ecc-corrected", Note, "cuda:0", "5000 errors", "-d ECC"},
		{"rows pending", func(_ *planted, _ *hardware, s *sensors) { s.rows.Pending = true }, "memory-pending", Slow, "cuda:0", "next reset", "reset"},
		{"no rows left", func(_ *planted, _ *hardware, s *sensors) { s.rows = nvml.Rows{Pending: true, Failure: true} }, "memory-failing", Slow, "cuda:0", "no spare ones", "replaced"},
		{"spills", func(p *planted, _ *hardware, _ *sensors) {
			// a spill recorded with another driver, which must not be reported
			other := cuda.Spill{Kernel: "scan", Bytes: 8, Capability: "9.0", Driver: "11.0"}
			p.spills = []cuda.Spill{{Kernel: "gemm", Bytes: 16, Capability: "9.0", Driver: "12.4"}, other}
		}, "spills", Slow, "cuda:0", "kernels of the library: gemm (16 bytes a thread)", "another version of the driver"},
		{"MIG", func(_ *planted, _ *hardware, s *sensors) { s.mig = true }, "mig", Note, "cuda:0", "MIG mode", "-mig 0"},
		{"MIG to come", func(_ *planted, _ *hardware, s *sensors) { s.soon = true }, "mig", Note, "cuda:0", "after the next reset", ""},
	} {
		p, h, s := healthy(t)
		c.breaks(p, h, s)
		r := examine(p)
		i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == c.id })
		if i < 0 {
			t.Errorf("%s: %s is not found, but %+v", c.name, c.id, r.Findings)
			continue
		}
		f := r.Findings[i]
		if f.Level != c.level || f.GPU != c.gpu || !strings.Contains(f.Seen, c.seen) || !strings.Contains(f.Do, c.do) || c.do == "" && c.level == Unused && f.Do == "" {
			t.Errorf("%s: %+v, want %v, %q, %q, %q", c.name, f, c.level, c.gpu, c.seen, c.do)
		}
		if r.Verdict < c.level || r.ExitCode() != int(r.Verdict) {
			t.Errorf("%s: the verdict is %v", c.name, r.Verdict)
		}
		for _, other := range r.Findings { // no other finding may be as serious
			if other.ID != c.id && other.Level >= c.level && other.Level > Note {
				t.Errorf("%s: also %+v", c.name, other)
			}
			if other.Level > Note && other.Do == "" {
				t.Errorf("%s: %s does not say what to do", c.name, other.ID)
			}
		}
		if i > 0 && r.Findings[0].Level < f.Level {
			t.Errorf("%s: the worst is not the first", c.name)
		}
	}
}

// TestHealthy examines a machine without defects. The report must have no finding, a line for the
// GPU, and the versions.
func TestHealthy(t *testing.T) {
	p, _, _ := healthy(t)
	r := examine(p)
	if len(r.Findings) != 0 || r.Verdict != Note || r.ExitCode() != 0 {
		t.Fatalf("%+v", r)
	}
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	const want = `GPUs are used, and nothing is wrong with them.

cuda:0  NVIDIA H200, compute capability 9.0, 1.0 GiB, PCI 0000:01:00.0
        66 °C, 500 W of 700 W, 1500 MHz of 1980 MHz, 0 % busy, 0.0 GiB in use, PCIe generation 5 of 5, width 16 of 16

driver 550.54.15, CUDA 12.4

optional libraries, without which everything works too:
  cublasLt  not found
  cudnn     9.1.0  /usr/lib/libcudnn.so.9
  nvml      1  /usr/lib/libnvidia-ml.so.1
`
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	if r.KernelDriver != "550.54.15" || r.Driver != "550.54.15" || r.CUDA != "12.4" {
		t.Errorf("%+v", r)
	}
	text, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(text), `"verdict":"note","findings":[],"gpus":[{"name":"cuda:0","product":"NVIDIA H200"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestOneOfTwo examines a machine in which one of two GPUs has a defect. A program can use the
// other GPU, so the finding must not be "unused".
func TestOneOfTwo(t *testing.T) {
	p, h, _ := healthy(t)
	p.driver = &twoGPUs{h}
	r := examine(p)
	if r.Verdict != Slow || len(r.GPUs) != 2 || r.GPUs[0].Usable || !r.GPUs[1].Usable {
		t.Errorf("%+v", r)
	}
	var b strings.Builder
	_ = r.WriteText(&b)
	if !strings.Contains(b.String(), "GPUs are used, but not all is well:\n\nSLOW    cuda:0: NVIDIA H200 has compute capability 7.0, 8.0 is needed\n        do: use a GPU of the Ampere") {
		t.Error(b.String())
	}
}

// twoGPUs is a driver with an old and a new GPU.
type twoGPUs struct{ *hardware }

func (twoGPUs) DeviceCount() (int, error)                  { return 2, nil }
func (twoGPUs) DeviceGet(i int) (cu.Device, error)         { return cu.Device(i), nil }
func (g twoGPUs) DeviceTotalMem(cu.Device) (uint64, error) { return g.hardware.DeviceTotalMem(0) }
func (g twoGPUs) DevicePCIBusID(cu.Device) (string, error) { return g.hardware.DevicePCIBusID(0) }
func (g twoGPUs) DeviceAttribute(d cu.Device, a cu.DeviceAttr) (int, error) {
	if d == 0 && a == cu.AttrComputeCapabilityMajor {
		return 7, nil
	}
	return g.hardware.DeviceAttribute(0, a)
}

// TestWindows examines a machine with Windows, where no files describe the driver. The report must
// contain the driver's own error.
func TestWindows(t *testing.T) {
	p, _, _ := healthy(t)
	p.system = "windows"
	p.refuse(cu.LibraryNotFound, "")
	r := examine(p)
	if len(r.Findings) != 1 || r.Findings[0].ID != "libcuda-missing" || r.Findings[0].Level != Unused || r.KernelDriver != "" {
		t.Errorf("%+v", r)
	}
}

// TestQuestionsWithoutAnswers examines a GPU that does not support newer queries. This must cause
// no finding.
func TestQuestionsWithoutAnswers(t *testing.T) {
	p, _, s := healthy(t)
	s.missing = &nvml.Error{Call: "x", Return: nvml.ErrNotSupported}
	s.rows.Failure, s.uncorrected, s.mig = true, 5, true
	if r := examine(p); len(r.Findings) != 0 {
		t.Errorf("%+v", r.Findings)
	}
}

// TestThisMachine examines the machine that runs the test. If no GPU can be used, the report must
// say why.
func TestThisMachine(t *testing.T) {
	r := Examine()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	t.Log(b.String())
	if cuda.IsAvailable() {
		if len(r.GPUs) == 0 && r.Verdict != Unused {
			t.Errorf("a GPU can be used, but the doctor says %+v", r)
		}
		return
	}
	if r.Verdict != Unused || r.ExitCode() != 2 || r.Findings[0].Level != Unused || r.Findings[0].Do == "" {
		t.Errorf("no GPU can be used, but the doctor says %+v", r)
	}
}
