package cu

import (
	"fmt"
	"runtime"
	"strings"
)

// Minimum is the oldest driver API that Open accepts, 11.8. The kernels are tested with the
// compilers of this version and of later ones.
const Minimum Version = 11080

// MinimumRelease is the driver branch that introduced Minimum (table "CUDA Toolkit and
// Corresponding Driver Versions" of the CUDA 11.8 release notes).
const MinimumRelease = "520"

// Reason says why no CUDA driver can be used.
type Reason int

// Reasons for being unavailable.
const (
	LibraryNotFound Reason = iota + 1 // none of the usual folders has a driver library
	NoDevice                          // the driver works but finds no GPU
	// the driver is older than Minimum, or lacks functions that it should have
	DriverTooOld
	Mismatch      // the kernel module and the library have different versions
	ForwardCompat // a cuda-compat package is installed that does not support the GPU
	InitFailed    // cuInit returned another error
	Disabled      // FLAMBEAU_CUDA=off turns GPUs off
	BuiltWithout  // the program was built with the tag nogpu
	// NVIDIA has no CUDA driver for this operating system or processor
	UnsupportedPlatform
)

var reasonNames = [...]string{LibraryNotFound: "library not found", NoDevice: "no device", DriverTooOld: "driver too old", Mismatch: "driver mismatch",
	ForwardCompat: "forward compatibility not supported", InitFailed: "initialisation failed", Disabled: "disabled", BuiltWithout: "built without GPU support",
	UnsupportedPlatform: "unsupported platform"}

// String returns the reason in a few words.
func (r Reason) String() string {
	if r <= 0 || int(r) >= len(reasonNames) {
		return fmt.Sprintf("Reason(%d)", int(r))
	}
	return reasonNames[r]
}

// Unavailable says why Open cannot return a driver on this machine.
type Unavailable struct {
	Reason Reason
	Text   string // what the reason means and what to do about it
	Detail string // what was found on this machine; may be empty
	// Tried lists each name and folder with the loader's error, for LibraryNotFound.
	Tried   []string
	Library string  // path of the library that was loaded; "" if none was
	Version Version // the driver's version; 0 if it is unknown
	Result  Result  // the driver's result; 0 if the driver was not called
}

// Error returns text, detail and what was tried.
func (u *Unavailable) Error() string {
	var b strings.Builder
	b.WriteString("CUDA is not available: " + u.Text)
	if u.Detail != "" {
		b.WriteString(" [" + u.Detail + "]")
	}
	for _, t := range u.Tried {
		b.WriteString("\n\ttried " + t)
	}
	return b.String()
}

// Unwrap returns the driver's result, if there is one.
func (u *Unavailable) Unwrap() error {
	if u.Result == 0 {
		return nil
	}
	return u.Result
}

// NewUnavailable returns an Unavailable with the explanation of a reason. The argument detail says
// what was found on this machine.
func NewUnavailable(r Reason, detail string) *Unavailable {
	u := &Unavailable{Reason: r, Detail: detail}
	switch r {
	case LibraryNotFound:
		u.Text = "the NVIDIA driver's library (" + libraryName() + ") was not found; on a machine with an NVIDIA GPU install its driver (no toolkit is needed), " +
			"in a container start it with the GPU attached (docker run --gpus all)"
	case NoDevice:
		u.Text = "the NVIDIA driver is installed but shows no GPU; check nvidia-smi, CUDA_VISIBLE_DEVICES, and in a container that the GPU is attached"
	case DriverTooOld:
		u.Text = fmt.Sprintf("the NVIDIA driver is too old; version %s of the driver API is needed, which is driver %s or newer", Minimum, MinimumRelease)
	case Mismatch:
		u.Text = "the kernel's NVIDIA module and the driver library are of different versions, usually after an update without a restart; " +
			"restart the machine or reload the module, and in a container use the host's driver library"
	case ForwardCompat:
		u.Text = "a forward-compatibility package (cuda-compat) is loaded, which this GPU does not support; remove it from the library path " +
			"(LD_LIBRARY_PATH, /usr/local/cuda/compat) so that the installed driver's own library is found"
	case InitFailed:
		u.Text = "the NVIDIA driver was found but could not be initialised"
	case Disabled:
		u.Text = "it was switched off by FLAMBEAU_CUDA=off; unset the variable to use the GPU"
	case BuiltWithout:
		u.Text = "this program was built with the tag nogpu; build it without the tag to use the GPU"
	case UnsupportedPlatform:
		u.Text = "NVIDIA has no CUDA driver for this platform; GPUs are used on linux and windows (amd64, arm64), and FLAMBEAU_CUDA=emulate works everywhere"
	default:
		u.Text = r.String()
	}
	return u
}

// libraryName returns the name of the file that the driver's installation provides.
func libraryName() string {
	if runtime.GOOS == "windows" {
		return "nvcuda.dll"
	}
	return "libcuda.so.1"
}

// advice says what to do about a result of cuInit for which there is no specific Reason.
func advice(r Result) string {
	switch r {
	case ErrDeviceUnavailable:
		return "another process holds the GPU in exclusive mode: end it, or set the compute mode to default (nvidia-smi -c 0)"
	case ErrStubLibrary:
		return "the toolkit's stubs directory is on the library path: remove it, so that the driver's own library is found"
	case ErrSystemNotReady:
		return "start the fabric manager service (nvidia-fabricmanager), or wait until it is up"
	case ErrUnknown:
		return "see that the device nodes exist (/dev/nvidia*, nvidia-modprobe -u -c 0), that this user may open them, and reload the nvidia_uvm module after a suspend"
	case ErrOperatingSystem:
		return "the device nodes (/dev/nvidia*) are missing or may not be opened by this user"
	case ErrMPSConnectionFailed, ErrMPSRPCFailure, ErrMPSServerNotReady, ErrMPSMaxClientsReached, ErrMPSMaxConnectionsReached, ErrMPSClientTerminated:
		return "see the MPS control daemon's log, or unset CUDA_MPS_PIPE_DIRECTORY to work without it"
	}
	return "nvidia-smi and the kernel's log (dmesg) usually say more"
}
