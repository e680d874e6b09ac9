package doctor

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
)

// examination holds a report while it is being made.
type examination struct {
	Report
	m      machine
	system system
}

// system holds what the files of a Linux machine say about GPUs and the driver.
type system struct {
	linux     bool
	gpus      []card // NVIDIA's GPUs on the PCI bus
	devices   int    // number of PCI devices of all vendors
	container string // the sign by which a container was recognised; empty outside of containers
	wsl       bool
	kernel    string // version of the loaded kernel module; "" if none is loaded
}

// card is a GPU on the PCI bus.
type card struct{ at, driver string }

func examine(m machine) *Report {
	x := &examination{m: m}
	x.Findings, x.GPUs, x.Libraries = []Finding{}, []GPU{}, []Library{}
	x.look()
	x.environment()
	x.libraries()
	api, err := m.Driver()
	if err != nil {
		x.noDriver(err)
	} else {
		x.driver(api)
	}
	slices.SortStableFunc(x.Findings, func(a, b Finding) int { return int(b.Level) - int(a.Level) })
	for _, f := range x.Findings {
		x.Verdict = max(x.Verdict, f.Level)
	}
	return &x.Report
}

// moduleVersion finds the version in /proc/driver/nvidia/version. A line of that file begins with
// "NVRM version: NVIDIA UNIX x86_64 Kernel Module 550.54.15".
var moduleVersion = regexp.MustCompile(`(?m)^NVRM version:.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s`)

// look reads the system files of a Linux machine.
func (x *examination) look() {
	s := &x.system
	if s.linux = x.m.System() == "linux"; !s.linux {
		return
	}
	vendors := x.m.Glob("/sys/bus/pci/devices/*/vendor")
	s.devices = len(vendors)
	for _, v := range vendors {
		dir := filepath.Dir(v)
		vendor, _ := x.m.Read(v)
		class, _ := x.m.Read(dir + "/class")
		// PCI class 0x03 is display controllers: 0x0300 is VGA, and 0x0302 is a 3D controller
		// without a display.
		if strings.TrimSpace(vendor) != "0x10de" || !strings.HasPrefix(class, "0x03") {
			continue
		}
		c := card{at: filepath.Base(dir)}
		if x.m.Exists(dir + "/driver") {
			c.driver = filepath.Base(x.m.Target(dir + "/driver"))
		}
		s.gpus = append(s.gpus, c)
	}
	text, _ := x.m.Read("/proc/driver/nvidia/version")
	if found := moduleVersion.FindStringSubmatch(text); found != nil {
		s.kernel = found[1]
	} else if v, ok := x.m.Read("/sys/module/nvidia/version"); ok {
		s.kernel = strings.TrimSpace(v)
	}
	x.KernelDriver = s.kernel
	release, _ := x.m.Read("/proc/sys/kernel/osrelease")
	s.wsl = strings.Contains(strings.ToLower(release), "microsoft")
	s.container = x.container()
}

// container returns the sign by which it recognises a container, or "" outside of containers.
func (x *examination) container() string {
	for _, f := range []string{"/.dockerenv", "/run/.containerenv"} {
		if x.m.Exists(f) {
			return f + " is there"
		}
	}
	if _, ok := x.m.Env("KUBERNETES_SERVICE_HOST"); ok {
		return "KUBERNETES_SERVICE_HOST is set"
	}
	if v, ok := x.m.Env("container"); ok && v != "" {
		return "container=" + v + " is set"
	}
	groups, _ := x.m.Read("/proc/1/cgroup")
	for _, word := range []string{"docker", "kubepods", "containerd", "lxc", "libpod"} {
		if strings.Contains(groups, word) {
			return "/proc/1/cgroup speaks of " + word
		}
	}
	return ""
}

// environment checks the environment variables that switch GPUs off or slow them down.
func (x *examination) environment() {
	if v, _ := x.m.Env("FLAMBEAU_CUDA"); v == "off" {
		x.find("switched-off", Unused, "FLAMBEAU_CUDA=off switches GPUs off", "unset FLAMBEAU_CUDA")
	} else if _, err := emu.Parse(v); v != "" && err == nil {
		x.find("emulated", Unused, fmt.Sprintf("FLAMBEAU_CUDA=%s: emulated GPUs are used in place of real ones, thousands of times slower", v), "unset FLAMBEAU_CUDA")
	} else if strings.HasPrefix(v, "emulate") {
		x.find("switch-unknown", Unused, err.Error()+"; so no GPU is used, not an emulated one either", "unset FLAMBEAU_CUDA, or correct it")
	} else if v != "" {
		x.find("switch-unknown", Unused, fmt.Sprintf("FLAMBEAU_CUDA=%s means nothing, so that no GPU is used", v), "unset FLAMBEAU_CUDA")
	}
	for _, e := range []struct {
		name, value, id string
		level           Level
		what            string
	}{
		{"CUDA_DISABLE_PTX_JIT", "1", "jit-disabled", Unused, "the driver may not compile kernels, and this library's are all compiled by it"},
		{"FLAMBEAU_CUDA_SYNC", "1", "synchronous", Slow, "the host waits for each kernel"},
		{"CUDA_LAUNCH_BLOCKING", "1", "synchronous", Slow, "the host waits for each kernel"},
	} {
		if v, _ := x.m.Env(e.name); v == e.value {
			x.find(e.id, e.level, fmt.Sprintf("%s=%s is set: %s", e.name, v, e.what), "unset "+e.name)
		}
	}
}

var versionInName = regexp.MustCompile(`(?:\.so\.|64_)(\d+(?:\.\d+)*)`)

// libraries lists the optional libraries, with the versions in their files' names.
func (x *examination) libraries() {
	for _, l := range x.m.Libraries() {
		out := Library{Name: l.Name}
		if l.Found {
			out.Path = l.Path
			if v := versionInName.FindStringSubmatch(filepath.Base(x.m.Target(l.Path))); v != nil {
				out.Version = v[1]
			}
		}
		x.Libraries = append(x.Libraries, out)
	}
}

// noDriver explains why the driver cannot be used. It first reports what the system's files show,
// and then the driver's own error.
func (x *examination) noDriver(err error) {
	var u *cu.Unavailable
	if !errors.As(err, &u) {
		x.find("driver-failed", Unused, err.Error(), "nvidia-smi and the kernel's log (dmesg) usually say more")
		return
	}
	switch u.Reason {
	case cu.BuiltWithout:
		x.find("built-without-gpu", Unused, "this program was built with the tag nogpu, which leaves the driver out", "build it without -tags nogpu")
		return
	case cu.UnsupportedPlatform:
		x.find("platform", Unused, "NVIDIA has no driver for this platform: "+u.Detail, "use Linux or Windows on amd64 or arm64; FLAMBEAU_CUDA=emulate emulates a GPU everywhere")
		return
	}
	known := x.hardware()
	x.reason(u, known)
}

// hardware looks for reasons why the driver cannot use the GPU. It returns true if it found one
// that explains all later errors.
func (x *examination) hardware() (explained bool) {
	s := &x.system
	before := len(x.Findings)
	switch {
	case !s.linux:
	case x.m.Exists("/dev/nvhost-gpu"), x.m.Exists("/dev/nvgpu"):
		// The machine may be a Jetson, whose GPU is not on a PCI bus.
	case s.wsl:
		if !x.m.Exists("/dev/dxg") {
			x.find("wsl-no-gpu", Unused, "this is WSL, and /dev/dxg, by which it reaches the GPU of Windows, is not there",
				"use WSL 2 (wsl --set-version), update it (wsl --update), and install NVIDIA's driver in Windows, not in WSL")
		}
	case len(s.gpus) == 0 && s.kernel == "":
		seen := fmt.Sprintf("there is no NVIDIA GPU on the PCI bus (/sys/bus/pci shows %d devices, none of them a display of vendor 10de), and no NVIDIA driver in the kernel", s.devices)
		do := "use a machine with an NVIDIA GPU; in a virtual machine pass the GPU through; if it is a card, see that it is seated and powered"
		if s.container != "" {
			seen += "; this is a container (" + s.container + ")"
			do = "use a machine whose host has an NVIDIA GPU, and start the container with it (docker run --gpus all)"
		}
		x.find("no-gpu", Unused, seen, do)
	case s.kernel == "":
		x.notLoaded()
	default:
		x.deviceFiles()
	}
	return len(x.Findings) > before
}

// notLoaded explains why NVIDIA's driver is not loaded, although a GPU is on the bus.
func (x *examination) notLoaded() {
	for _, c := range x.system.gpus {
		f := Finding{ID: "driver-not-loaded", Level: Unused, GPU: c.at, Seen: "the GPU is on the PCI bus, but NVIDIA's driver is not loaded (there is no /proc/driver/nvidia)",
			Do: "install the driver (" + cu.MinimumRelease + " or newer), or load it: modprobe nvidia; after an update of the kernel restart, or rebuild the module (dkms autoinstall); with Secure Boot the module must be signed"}
		switch c.driver {
		case "nouveau":
			f.ID, f.Seen = "driver-nouveau", "the GPU is driven by nouveau, which cannot compute"
			f.Do = "install NVIDIA's driver (" + cu.MinimumRelease + " or newer); it puts nouveau on the list of modules that are not loaded; then restart"
		case "vfio-pci", "pci-stub":
			f.ID, f.Seen = "driver-passthrough", "the GPU is given to virtual machines (driver "+c.driver+")"
			f.Do = "use it inside of the virtual machine, or bind it to the driver nvidia"
		}
		x.add(f)
	}
}

// deviceFiles checks whether this user may open the device files of the kernel module.
func (x *examination) deviceFiles() {
	s := &x.system
	if !x.m.Exists("/dev/nvidiactl") {
		if s.container == "" {
			x.find("device-files", Unused, fmt.Sprintf("the kernel's driver (%s) is loaded, but /dev/nvidiactl is not there", s.kernel),
				"run nvidia-smi or nvidia-modprobe -c 0 -u as root, or start nvidia-persistenced: they make the files")
			return
		}
		do := "start the container with the GPU: docker run --gpus all (podman: --device nvidia.com/gpu=all; Kubernetes: resources.limits nvidia.com/gpu), with NVIDIA's container toolkit on the host"
		seen := fmt.Sprintf("this is a container (%s) without GPUs: the host's driver (%s) is loaded, but /dev/nvidiactl is not there", s.container, s.kernel)
		if v, ok := x.m.Env("NVIDIA_VISIBLE_DEVICES"); ok && (v == "void" || v == "none" || v == "") {
			seen += fmt.Sprintf("; NVIDIA_VISIBLE_DEVICES is %q", v)
		}
		x.find("container-without-gpu", Unused, seen, do)
		return
	}
	files := append([]string{"/dev/nvidiactl", "/dev/nvidia-uvm"}, x.m.Glob("/dev/nvidia[0-9]*")...)
	for _, f := range files {
		if !x.m.Exists(f) {
			x.find("device-files", Unused, f+" is not there", "nvidia-modprobe -c 0 -u as root makes it; after a suspend reload the module: rmmod nvidia_uvm, modprobe nvidia_uvm")
			continue
		}
		if err := x.m.Open(f); err != nil {
			do := "add the user to the group of the file (ls -l " + f + "; usually video or render), or correct its permissions (udev, NVreg_DeviceFileMode)"
			if s.container != "" {
				do = "let the container have the device (docker run --gpus all, or --device " + f + "): its control group, or the user in it, may not open the file"
			}
			x.find("permission", Unused, fmt.Sprintf("%s cannot be opened: %v", f, plain(err)), do)
		}
	}
}

// plain returns a file system error without its path.
func plain(err error) error {
	if u := errors.Unwrap(err); u != nil {
		return u
	}
	return err
}

// reason reports the driver's own error. If earlier findings explain the error, it is only a note.
func (x *examination) reason(u *cu.Unavailable, explained bool) {
	level := Unused
	if explained {
		level = Note
	}
	detail := ""
	if u.Detail != "" {
		detail = " (" + u.Detail + ")"
	}
	switch u.Reason {
	case cu.LibraryNotFound:
		do := "install NVIDIA's driver; no toolkit is needed"
		switch {
		case x.system.container != "":
			do = "start the container with the GPU (docker run --gpus all), which brings the host's library in; NVIDIA_DRIVER_CAPABILITIES must contain compute"
			if v, ok := x.m.Env("NVIDIA_DRIVER_CAPABILITIES"); ok && !strings.Contains(v, "compute") && v != "all" {
				detail += fmt.Sprintf(" (NVIDIA_DRIVER_CAPABILITIES=%s)", v)
			}
		case x.system.wsl:
			do = "install NVIDIA's driver in Windows; WSL then has its library in /usr/lib/wsl/lib"
		}
		tried := ""
		// absent lists folders that were searched and do not contain the library.
		var absent []string
		for _, t := range u.Tried {
			switch path, answer, _ := strings.Cut(t, ": "); answer {
			case "":
			case "no such file":
				absent = append(absent, path[:max(strings.LastIndexAny(path, `/\`), 0)])
			default:
				tried += fmt.Sprintf("; %s: %s", path, answer)
			}
		}
		if len(absent) > 0 {
			tried += "; it is not in " + strings.Join(absent, ", ")
		}
		x.find("libcuda-missing", level, "the driver's library (libcuda.so.1, on Windows nvcuda.dll) cannot be loaded"+detail+tried, do)
	case cu.DriverTooOld:
		have := ""
		if u.Version != 0 {
			have = fmt.Sprintf(": it supports CUDA %v, %v is needed", u.Version, cu.Minimum)
		}
		x.find("driver-too-old", Unused, "the driver is too old"+have+detail, "install driver "+cu.MinimumRelease+" or newer")
	case cu.Mismatch:
		library := "of another version"
		if v := versionInName.FindStringSubmatch(filepath.Base(x.m.Target(u.Library))); v != nil && strings.Contains(v[1], ".") {
			library = v[1]
		}
		x.find("version-mismatch", Unused, fmt.Sprintf("the kernel's module is %s, the library %s is %s", orUnknown(x.system.kernel), orUnknown(u.Library), library),
			"restart the machine (or rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia, then modprobe nvidia); in a container use the host's library, not one of the image")
	case cu.ForwardCompat:
		x.find("forward-compat", Unused, "a cuda-compat library is loaded, which this GPU does not support"+detail,
			"take it out of LD_LIBRARY_PATH (/usr/local/cuda/compat), so that the installed driver's library is found")
	case cu.NoDevice:
		x.noDevice(level, detail)
	default:
		x.initFailed(u, level)
	}
}

// noDevice explains why a working driver reports no GPU.
func (x *examination) noDevice(level Level, detail string) {
	if v, ok := x.m.Env("CUDA_VISIBLE_DEVICES"); ok {
		x.find("hidden", Unused, fmt.Sprintf("CUDA_VISIBLE_DEVICES is %q, which shows none of the GPUs", v), "unset it, or set it to 0, to 0,1 or to the UUIDs that nvidia-smi -L prints")
		return
	}
	if m, err := x.m.Monitor(); err == nil {
		n, _ := m.DeviceCount()
		for i := range n {
			d, err := m.DeviceByIndex(i)
			if err != nil {
				continue
			}
			if on, _, err := m.MIG(d); err == nil && on {
				x.find("mig-without-instance", Unused, fmt.Sprintf("GPU %d is in MIG mode, and there is no instance that this process may use", i),
					"make one (nvidia-smi mig -cgi 0 -C), or leave the mode (nvidia-smi -mig 0)")
				return
			}
		}
	}
	x.find("no-device", level, "the driver works but shows no GPU"+detail, "see what nvidia-smi says; in a container attach the GPU (docker run --gpus all)")
}

// initFailed explains an error of cuInit for which there is no specific Reason. It uses the
// driver's result.
func (x *examination) initFailed(u *cu.Unavailable, level Level) {
	id, do := "driver-failed", "nvidia-smi and the kernel's log (dmesg | grep -i nvrm) usually say more"
	switch u.Result {
	case cu.ErrSystemNotReady:
		id, do = "fabric-manager", "start the fabric manager of this NVSwitch machine (systemctl start nvidia-fabricmanager), of the driver's version"
	case cu.ErrStubLibrary:
		id, do = "stub-library", "take the toolkit's stubs out of LD_LIBRARY_PATH"
	case cu.ErrDeviceUnavailable:
		id, do = "gpu-taken", "end the process that holds the GPU (nvidia-smi shows it), or allow several: nvidia-smi -c 0"
	case cu.ErrMPSConnectionFailed, cu.ErrMPSRPCFailure, cu.ErrMPSServerNotReady, cu.ErrMPSMaxClientsReached, cu.ErrMPSMaxConnectionsReached, cu.ErrMPSClientTerminated:
		id, do = "mps", "see the log of nvidia-cuda-mps-control, or work without it: unset CUDA_MPS_PIPE_DIRECTORY"
	}
	x.find(id, level, "the driver cannot be initialised ("+u.Detail+")", do)
}
