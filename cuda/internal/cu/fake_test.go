//go:build !nogpu && linux && (amd64 || arm64)

package cu

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// fake is a driver library whose functions are callbacks into this test. Each call reaches the
// function handle, with the exported name of the C function and its first eleven arguments. This
// also tests the calling convention.
type fake struct {
	exports map[string]bool
	handle  func(name string, a *[11]uintptr) Result
	calls   []string
}

var fakes struct {
	sync.Mutex
	now *fake
	// callbacks by the name of the C function; all tests share them, because a callback is never
	// freed
	addrs map[string]uintptr
}

// callback returns the address of a C function. A call of that function reaches the current fake as
// a call of the function with the given name.
func callback(name string) uintptr {
	if p := fakes.addrs[name]; p != 0 {
		return p
	}
	p := purego.NewCallback(func(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10 uintptr) uintptr {
		f := fakes.now
		f.calls = append(f.calls, name)
		a := [11]uintptr{a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10}
		// the upper half of a register that returns a CUresult is undefined
		return uintptr(f.handle(name, &a)) | 0xdeadbeef<<32
	})
	if fakes.addrs == nil {
		fakes.addrs = map[string]uintptr{}
	}
	fakes.addrs[name] = p
	return p
}

// newFake returns a working driver of the given version with one device. It exports all functions
// of symbolTable.
func newFake(t *testing.T, version Version) *fake {
	t.Helper()
	fakes.Lock()
	f := &fake{exports: map[string]bool{}}
	fakes.now = f
	t.Cleanup(func() { fakes.now = nil; fakes.Unlock() })
	for _, row := range symbolTable {
		f.exports[row.name()] = true
	}
	for _, row := range laterTable {
		f.exports[row.name()] = true
	}
	f.handle = func(name string, a *[11]uintptr) Result {
		switch name {
		case "cuInit":
		case "cuDriverGetVersion":
			*(*int32)(pointer(a[0])) = int32(version)
		case "cuDeviceGetCount":
			*(*int32)(pointer(a[0])) = 1
		default:
			t.Errorf("unexpected call of %s", name)
			return ErrUnknown
		}
		return 0
	}
	return f
}

// override makes h handle the calls of name. Other calls are handled as before.
func (f *fake) override(name string, h func(a *[11]uintptr) Result) {
	next := f.handle
	f.handle = func(n string, a *[11]uintptr) Result {
		if n == name {
			return h(a)
		}
		return next(n, a)
	}
}

// skip stands for any value of an argument.
const skip = ^uintptr(0)

// expects returns a function that makes a call twice. The first time, the C function fn runs
// effect. The call must run only fn, with the arguments in the list a, where skip stands for any
// value. The second time, fn returns the given failure. The call must return an *Error with that
// Result.
func (f *fake) expects(t *testing.T, failure Result) func(fn string, a []uintptr, effect func(*[11]uintptr), call func() error) {
	return func(fn string, a []uintptr, effect func(*[11]uintptr), call func() error) {
		t.Helper()
		f.calls = nil
		f.override(fn, func(got *[11]uintptr) Result {
			for i, w := range a {
				if w != skip && got[i] != w {
					t.Errorf("%s: argument %d is %#x, want %#x", fn, i, got[i], w)
				}
			}
			if effect != nil {
				effect(got)
			}
			return 0
		})
		if err := call(); err != nil {
			t.Errorf("%s: %v", fn, err)
		}
		if len(f.calls) != 1 || f.calls[0] != fn {
			t.Errorf("called %v, want %s", f.calls, fn)
		}
		f.override(fn, func(*[11]uintptr) Result { return failure })
		var e *Error
		if err := call(); !errors.Is(err, failure) || !errors.As(err, &e) || !strings.HasPrefix(fn, e.Call) {
			t.Errorf("%s: failure came back as %v", fn, err)
		}
	}
}

func (f *fake) library() *library {
	return &library{path: "libfake.so.1", lookup: func(name string) uintptr {
		if !f.exports[name] {
			return 0
		}
		return callback(name)
	}}
}

func (f *fake) start(t *testing.T) *driver {
	t.Helper()
	d, u := start(f.library())
	if u != nil {
		t.Fatal(u)
	}
	return d
}

// pointer converts an address from C to an unsafe.Pointer.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

func cString(p uintptr) string {
	b := (*[1 << 16]byte)(pointer(p))
	n := 0
	for b[n] != 0 {
		n++
	}
	return string(b[:n])
}

func want[T comparable](t *testing.T, what string, got, expected T) {
	t.Helper()
	if got != expected {
		t.Errorf("%s: got %v, want %v", what, fmt.Sprint(got), fmt.Sprint(expected))
	}
}
