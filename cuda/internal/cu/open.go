//go:build !nogpu && (linux || windows) && (amd64 || arm64)

package cu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

var opened struct {
	sync.Mutex
	api API
}

// Open loads and initialises the NVIDIA driver. Once it has succeeded, every call returns the same
// driver. After a failure, the next call tries again. The error is always an [*Unavailable]. Open
// does not read FLAMBEAU_CUDA; its caller does.
func Open() (API, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.api != nil {
		return opened.api, nil
	}
	lib, tried := loadLibrary(libraryName(), libraryDirs)
	if lib == nil {
		u := NewUnavailable(LibraryNotFound, systemDetail())
		u.Tried = tried
		return nil, u
	}
	d, u := start(lib)
	if u != nil {
		return nil, u
	}
	opened.api = d
	return d, nil
}

// start binds and initialises the driver in lib, or explains why it cannot be used.
func start(lib *library) (*driver, *Unavailable) {
	fail := func(r Reason, res Result, v Version, details ...string) (*driver, *Unavailable) {
		details = slices.DeleteFunc(append(details, "library: "+lib.path), func(s string) bool { return s == "" })
		if v != 0 {
			details = append(details, "driver API: "+v.String())
		}
		u := NewUnavailable(r, strings.Join(details, "; "))
		u.Library, u.Result, u.Version = lib.path, res, v
		return nil, u
	}

	// The version is queried first, by a name that every driver exports, because an old driver may
	// lack functions that bind needs.
	versionFn := lib.lookup("cuDriverGetVersion")
	if versionFn == 0 {
		return fail(DriverTooOld, 0, 0, "the library exports no cuDriverGetVersion")
	}
	raw, r := get1(versionFn)
	version := Version(int32(raw))
	// every function of the stub library that comes with the toolkit returns this
	if r == ErrStubLibrary {
		return fail(InitFailed, r, 0, r.Error(), advice(r))
	}
	if r != 0 {
		return fail(InitFailed, r, 0, "cuDriverGetVersion: "+r.Error(), advice(r))
	}
	if version < Minimum {
		return fail(DriverTooOld, 0, version)
	}
	d := &driver{library: lib.path, version: version}
	if missing := d.fn.bind(lib); len(missing) > 0 {
		return fail(DriverTooOld, 0, version, "missing functions: "+strings.Join(missing, ", "))
	}

	switch r := call1(d.fn.init, 0); r {
	case 0:
	case ErrNoDevice:
		return fail(NoDevice, r, version, visibleDevices(), systemDetail())
	case ErrSystemDriverMismatch:
		return fail(Mismatch, r, version, systemDetail())
	case ErrCompatNotSupportedOnDevice:
		return fail(ForwardCompat, r, version, systemDetail())
	default:
		return fail(InitFailed, r, version, "cuInit: "+r.Error(), advice(r), systemDetail())
	}
	switch n, err := d.DeviceCount(); {
	case err != nil:
		return fail(InitFailed, resultOf(err), version, err.Error())
	case n == 0:
		return fail(NoDevice, ErrNoDevice, version, visibleDevices())
	}
	return d, nil
}

// visibleDevices describes the value of CUDA_VISIBLE_DEVICES, which hides GPUs.
func visibleDevices() string {
	if v, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok {
		return fmt.Sprintf("CUDA_VISIBLE_DEVICES is %q", v)
	}
	return "CUDA_VISIBLE_DEVICES is not set"
}

// OpenLibrary opens a library that comes with the driver. It searches where [Open] searches for the
// driver's own library. If it finds none, it returns nil and the list of what it tried. If name is
// an absolute path, only that path is tried.
func OpenLibrary(name string) (*Library, []string) {
	dirs := libraryDirs
	if filepath.IsAbs(name) {
		dirs = nil
	}
	l, tried := loadLibrary(name, dirs)
	if l == nil {
		return nil, tried
	}
	return NewLibrary(l.path, l.lookup), tried
}

// Call calls the C function at fn with up to 16 integers or pointers. It returns the lower 32 bits
// of the result, because a C enum has 32 bits. Memory to which pointers point must lie on the heap,
// because Go may move stacks.
func Call(fn uintptr, args ...uintptr) uint32 { return uint32(CallWord(fn, args...)) }

// CallWord is [Call] for a function with a 64-bit result, such as a pointer.
func CallWord(fn uintptr, args ...uintptr) uintptr {
	b := getBlock(fn)
	copy(b.a[:], args)
	b.invoke()
	r := b.r1
	putBlock(b)
	return r
}
