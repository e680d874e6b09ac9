package cuda

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/cuda/internal/emu"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/cublaslt"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/nccl"
	"github.com/flambeau-go/flambeau/cuda/internal/lib/nvml"
	"github.com/flambeau-go/flambeau/device"
)

// platform is one driver, real or emulated, with its devices.
type platform struct {
	api      cu.API
	version  cu.Version
	emulated bool
	meta     bool // addresses have no memory (mode=meta)
	count    int

	sync bool // wait after every launch (FLAMBEAU_CUDA_SYNC)
	// writer to which the PTX of kernels is printed (FLAMBEAU_PRINT_PTX); nil if it is not printed
	print   io.Writer
	folder  string   // folder to which the PTX of kernels is written (FLAMBEAU_PRINT_PTX)
	printed sync.Map // set of the kernels (*kernels.Kernel) that were printed
	cubins  *cubinCache
	packs   atomic.Pointer[[]*Pack]

	tuning   Tuning   // initial tuning of devices (FLAMBEAU_TUNE)
	tunedDir string   // folder of the measurements of matrix products; "" if they are not kept
	rounds   int      // number of rounds of a measurement of matrix products, after the first round
	tuned    sync.Map // maps the name of a file of measurements to its *tunedProducts

	spills spills
	warn   func(Spill) // called when a kernel first spills registers

	owners sync.Map // maps each stream (cu.Stream) to its *Device
	pinned pinnedPool

	// functions that load NVIDIA's optional libraries; nil for emulated GPUs
	monitor     func() (nvml.API, error)
	collectives func() (*nccl.Library, error)
	// products loads cublasLt. It is nil for emulated GPUs, and if FLAMBEAU_LIBS does not name
	// cublasLt.
	products func() (*cublaslt.Library, error)

	arenas     sync.Map // maps the pool.StreamID of a recording's arena to its *lane
	recordings atomic.Uint64

	mu      sync.Mutex
	devices map[int]*Device
}

// newPlatform creates a platform, and queries the properties that all of its devices share.
func newPlatform(api cu.API) (*platform, error) {
	p := &platform{api: api, devices: map[int]*Device{}, sync: os.Getenv("FLAMBEAU_CUDA_SYNC") == "1"}
	p.warn = func(s Spill) { log.Printf("cuda: %v (Device.Spills lists all, flambeau doctor says what to do)", s) }
	p.pinned.idle = map[int][]*pinnedBlock{}
	switch v := os.Getenv("FLAMBEAU_PRINT_PTX"); v {
	case "", "0":
	case "1":
		p.print = os.Stderr
	default:
		p.folder = v
	}
	if e, ok := api.(cu.Emulated); ok {
		p.emulated = e.Emulated()
	}
	if e, ok := api.(*emu.Driver); ok {
		p.meta = e.Config().Meta
	}
	libs, err := parseLibs(os.Getenv("FLAMBEAU_LIBS"))
	if err != nil {
		return nil, err
	}
	if p.tuning, err = parseTuning(os.Getenv("FLAMBEAU_TUNE")); err != nil {
		return nil, err
	}
	if file := os.Getenv("FLAMBEAU_KERNELS"); file != "" && !p.meta {
		if pack, err := OpenPack(file); err == nil {
			p.usePack(pack)
		} else {
			log.Printf("cuda: FLAMBEAU_KERNELS: %v; kernels are compiled as they come", err)
		}
	}
	if !p.emulated {
		p.cubins, p.monitor, p.collectives, p.rounds = defaultCubins(), nvml.Open, openNCCL, measuredRounds
		if slices.Contains(libs, "cublaslt") {
			p.products = openCublasLt
		}
	}
	if !p.meta && (!p.emulated || p.tuning != TuningOff) {
		p.tunedDir = defaultTuned()
	}
	if p.version, err = api.DriverVersion(); err != nil {
		return nil, err
	}
	p.count, err = api.DeviceCount()
	return p, err
}

// accepted lists the values that FLAMBEAU_CUDA accepts.
const accepted = "unset it to use the NVIDIA driver, or set it to off or to emulate[:devices][,mem=256MiB][,sm=90][,mode=meta][,seed=1][,segment=64KiB][,expandable=on][,peer=off][,link=10GB][,pageable=late]"

// choose creates the platform for a value of FLAMBEAU_CUDA. It calls open to load NVIDIA's driver.
func choose(value string, open func() (cu.API, error)) (*platform, *device.UnavailableError) {
	var api cu.API
	var err error
	name, _, _ := strings.Cut(value, ",")
	name, _, _ = strings.Cut(name, ":")
	switch {
	case value == "":
		api, err = open()
	case value == "off":
		err = cu.NewUnavailable(cu.Disabled, "")
	case name == "emulate":
		api, err = newEmulator(value)
	default:
		return nil, &device.UnavailableError{Name: "cuda", Reason: fmt.Sprintf("FLAMBEAU_CUDA is %q, which means nothing", value), Help: accepted}
	}
	if err == nil {
		var p *platform
		if p, err = newPlatform(api); err == nil {
			return p, nil
		}
	}
	return nil, explain(err)
}

func newEmulator(spec string) (cu.API, error) {
	cfg, err := emu.Parse(spec)
	if err != nil {
		return nil, err
	}
	d, err := emu.New(cfg)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// current returns the platform that FLAMBEAU_CUDA selects. The variable is read at first use.
var current = sync.OnceValues(func() (*platform, *device.UnavailableError) { return choose(os.Getenv("FLAMBEAU_CUDA"), cu.Open) })

// minCapability is the lowest compute capability that the kernels support.
var minCapability = [2]int{8, 0}

func (p *platform) capability(i int) (c [2]int, err error) {
	h, err := p.api.DeviceGet(i)
	if err != nil {
		return c, err
	}
	if c[0], err = p.api.DeviceAttribute(h, cu.AttrComputeCapabilityMajor); err != nil {
		return c, err
	}
	c[1], err = p.api.DeviceAttribute(h, cu.AttrComputeCapabilityMinor)
	return c, err
}

// open returns device i. Every call with the same i returns the same device. A failure is not
// cached, because a full GPU may have free memory later.
func (p *platform) open(i int) (*Device, error) {
	name := deviceName(i)
	if i < 0 || i >= p.count {
		return nil, &device.UnavailableError{Name: name, Reason: fmt.Sprintf("the driver shows %d GPUs", p.count), Help: "the first is cuda:0"}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.devices[i]; d != nil {
		return d, nil
	}
	c, err := p.capability(i)
	if err != nil {
		return nil, &device.UnavailableError{Name: name, Reason: err.Error(), Err: err}
	}
	if c[0] < minCapability[0] || c[0] == minCapability[0] && c[1] < minCapability[1] {
		product, _ := p.api.DeviceName(cu.Device(i))
		return nil, &device.UnavailableError{Name: name,
			Reason: fmt.Sprintf("%s has compute capability %d.%d, %d.%d or more is needed", product, c[0], c[1], minCapability[0], minCapability[1]),
			Help:   "use a GPU of the Ampere generation or newer, or the CPU"}
	}
	d, err := newDevice(p, i, c)
	if u, ok := errors.AsType[*device.UnavailableError](err); ok {
		return nil, u
	}
	if err != nil {
		return nil, &device.UnavailableError{Name: name, Reason: "it cannot be initialised: " + err.Error(), Help: "nvidia-smi shows which processes use it", Err: err}
	}
	p.devices[i] = d
	return d, nil
}

// opened returns the opened device with the lowest index, or nil if none is open.
func (p *platform) opened() *Device {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.count {
		if d := p.devices[i]; d != nil {
			return d
		}
	}
	return nil
}

func deviceName(i int) string { return fmt.Sprintf("cuda:%d", i) }

// explain converts an error of a driver or of the emulator to a *[device.UnavailableError].
func explain(err error) *device.UnavailableError {
	e := &device.UnavailableError{Name: "cuda", Err: err}
	var spec *emu.SpecError
	var u *cu.Unavailable
	var libs *libsError
	var tune *tuneError
	switch {
	case errors.As(err, &tune):
		e.Reason, e.Help = tune.Error(), "unset FLAMBEAU_TUNE, or correct it"
	case errors.As(err, &libs):
		e.Reason, e.Help = libs.Error(), "unset FLAMBEAU_LIBS, or correct it"
	case errors.As(err, &spec):
		e.Reason = fmt.Sprintf("FLAMBEAU_CUDA is %q, in which %q is wrong", spec.Spec, spec.Part)
		e.Help = "want " + spec.Want
	case errors.As(err, &u):
		e.Reason, e.Help = describe(u)
	default:
		e.Reason = err.Error()
	}
	return e
}

// describe returns a line that says what is missing, and a text that says what to do about it.
func describe(u *cu.Unavailable) (reason, help string) {
	detail := ""
	if u.Detail != "" {
		detail = " (" + u.Detail + ")"
	}
	switch u.Reason {
	case cu.LibraryNotFound:
		return "no NVIDIA driver: " + notFound(u.Tried), "on a machine with an NVIDIA GPU install its driver (no toolkit is needed), in a container attach the GPU (docker run --gpus all); " +
			"FLAMBEAU_CUDA=emulate emulates a GPU, slowly"
	case cu.NoDevice:
		return "the NVIDIA driver shows no GPU" + detail, "check nvidia-smi, CUDA_VISIBLE_DEVICES, and in a container that the GPU is attached"
	case cu.DriverTooOld:
		have := "the NVIDIA driver is too old"
		if u.Version != 0 {
			have += fmt.Sprintf(": it is of CUDA %v, %v is needed", u.Version, cu.Minimum)
		}
		return have + detail, "install driver " + cu.MinimumRelease + " or newer"
	case cu.Mismatch:
		return "the NVIDIA kernel module and the driver library are of different versions" + detail,
			"restart the machine or reload the module; in a container use the host's driver library"
	case cu.ForwardCompat:
		return "a cuda-compat library is loaded, which this GPU does not support" + detail,
			"remove it from the library path (LD_LIBRARY_PATH, /usr/local/cuda/compat), so that the driver's own library is found"
	case cu.InitFailed:
		return "the NVIDIA driver cannot be initialised" + detail, "nvidia-smi and the kernel's log (dmesg) usually say more"
	case cu.Disabled:
		return "switched off by FLAMBEAU_CUDA=off", "unset the variable to use the GPU"
	case cu.BuiltWithout:
		return "this program was built with the tag nogpu", "build it without the tag to use the GPU; FLAMBEAU_CUDA=emulate emulates one"
	case cu.UnsupportedPlatform:
		return "NVIDIA has no driver for this platform" + detail, "GPUs are used on linux and windows (amd64, arm64); FLAMBEAU_CUDA=emulate emulates one everywhere"
	}
	return u.Text + detail, ""
}

// notFound says that the driver's library was not found. It names only the library, because the
// doctor lists the folders that were searched. If a file exists but could not be loaded, notFound
// reports that file. Each element of attempts is a path, a colon and the loader's error.
func notFound(attempts []string) string {
	library := "its library"
	for i, t := range attempts {
		path, answer, _ := strings.Cut(t, ": ")
		if i == 0 {
			library = path
		} else if answer != "no such file" {
			return fmt.Sprintf("%s cannot be loaded: %s", path, answer)
		}
	}
	return library + " not found"
}
