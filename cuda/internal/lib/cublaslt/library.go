package cublaslt

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// libraryNames lists the library's file names on linux and on windows, the newest first.
var libraryNames = map[string][]string{
	"linux":   {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"},
	"windows": {"cublasLt64_13.dll", "cublasLt64_12.dll", "cublasLt64_11.dll"},
}

// Library is a loaded cublasLt.
type Library struct {
	l       *cu.Library
	version Version
	fn      [functions]uintptr
}

// function is the index of a C function in Library.fn.
type function int

const (
	getVersion function = iota
	create
	destroy
	descCreate
	descDestroy
	descSet
	layoutCreate
	layoutDestroy
	layoutSet
	preferenceCreate
	preferenceDestroy
	preferenceSet
	getHeuristic
	matmul
	functions
)

var names = [functions]string{
	getVersion: "cublasLtGetVersion", create: "cublasLtCreate", destroy: "cublasLtDestroy",
	descCreate: "cublasLtMatmulDescCreate", descDestroy: "cublasLtMatmulDescDestroy", descSet: "cublasLtMatmulDescSetAttribute",
	layoutCreate: "cublasLtMatrixLayoutCreate", layoutDestroy: "cublasLtMatrixLayoutDestroy", layoutSet: "cublasLtMatrixLayoutSetAttribute",
	preferenceCreate: "cublasLtMatmulPreferenceCreate", preferenceDestroy: "cublasLtMatmulPreferenceDestroy",
	preferenceSet: "cublasLtMatmulPreferenceSetAttribute", getHeuristic: "cublasLtMatmulAlgoGetHeuristic", matmul: "cublasLtMatmul",
}

var opened struct {
	sync.Mutex
	l *Library
}

// Open loads the library from the first path that works, or from where the system's loader finds
// it. Once it has succeeded, every call returns the same library. The error is an *[Unavailable].
func Open(paths ...string) (*Library, error) {
	opened.Lock()
	defer opened.Unlock()
	if opened.l != nil {
		return opened.l, nil
	}
	var tried []string
	for _, path := range append(paths[:len(paths):len(paths)], libraryNames[runtime.GOOS]...) {
		l, answers := cu.OpenLibrary(path)
		tried = append(tried, answers...)
		if l == nil {
			continue
		}
		lib, err := Bind(l)
		if err == nil {
			opened.l = lib
		}
		return lib, err
	}
	return nil, &Unavailable{Tried: tried}
}

// Bind resolves the functions of a loaded library, and reads its version. The error is an
// *[Unavailable].
func Bind(l *cu.Library) (*Library, error) {
	lib := &Library{l: l}
	u := &Unavailable{Path: l.Path}
	for i, name := range names {
		if lib.fn[i] = l.Function(name); lib.fn[i] == 0 {
			u.Missing = append(u.Missing, name)
		}
	}
	if lib.fn[getVersion] != 0 {
		lib.version = Version(cu.CallWord(lib.fn[getVersion]))
	}
	if u.Version = lib.version; u.Version < Minimum || u.Missing != nil {
		return nil, u
	}
	return lib, nil
}

// Version returns the library's version.
func (l *Library) Version() Version { return l.version }

// Path returns the path of the library's file.
func (l *Library) Path() string { return l.l.Path }

// Create is cublasLtCreate, for the device whose context is current.
func (l *Library) Create() (Handle, error) {
	h, err := l.make(create)
	return Handle(h), err
}

// Destroy is cublasLtDestroy. All plans of the handle must be closed.
func (l *Library) Destroy(h Handle) error { return l.call(destroy, uintptr(h)) }

func (l *Library) call(f function, args ...uintptr) error {
	if s := Status(cu.Call(l.fn[f], args...)); s != Success {
		return &Error{Call: names[f], Status: s}
	}
	return nil
}

// make calls a function that creates an object, and returns the handle that the function writes
// through its first argument.
func (l *Library) make(f function, args ...uintptr) (uintptr, error) {
	out := word(0)
	err := l.call(f, append([]uintptr{addressOf(out)}, args...)...)
	runtime.KeepAlive(out)
	if err != nil {
		return 0, err
	}
	return uintptr(*out), nil
}

// set sets an attribute of a descriptor to a value of the given number of bytes.
func (l *Library) set(f function, descriptor uintptr, attribute int, value uint64, bytes uintptr) error {
	// the copy is little-endian, so its first bytes are the value of a shorter integer
	v := word(value)
	err := l.call(f, descriptor, uintptr(attribute), addressOf(v), bytes)
	runtime.KeepAlive(v)
	return err
}

// word returns a pointer to a copy of v on the heap, which does not move.
//
//go:noinline
func word(v uint64) *uint64 { return &v }

func addressOf(p *uint64) uintptr { return uintptr(unsafe.Pointer(p)) }
