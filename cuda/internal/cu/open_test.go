//go:build !nogpu && linux && (amd64 || arm64)

package cu

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestUnavailable provokes each Reason with a fake library, and compares the error.
func TestUnavailable(t *testing.T) {
	initResult := func(r Result) func(*fake) {
		return func(f *fake) { f.override("cuInit", func(*[11]uintptr) Result { return r }) }
	}
	cases := []struct {
		name    string
		version Version
		plant   func(*fake)
		reason  Reason
		result  Result
		words   []string
	}{
		{"old driver", 11070, func(*fake) {}, DriverTooOld, 0, []string{"11.8", "520", "driver API: 11.7", "libfake.so.1"}},
		{"functions missing", 12040, func(f *fake) { delete(f.exports, "cuMemAlloc_v2"); delete(f.exports, "cuLinkComplete") },
			DriverTooOld, 0, []string{"missing functions: cuLinkComplete, cuMemAlloc_v2"}},
		{"not a driver", 12040, func(f *fake) { delete(f.exports, "cuDriverGetVersion") }, DriverTooOld, 0, []string{"cuDriverGetVersion"}},
		{"no device", 12040, initResult(ErrNoDevice), NoDevice, ErrNoDevice, []string{"CUDA_VISIBLE_DEVICES", "nvidia-smi"}},
		{"no device in the count", 12040, func(f *fake) {
			f.override("cuDeviceGetCount", func(a *[11]uintptr) Result { *(*int32)(pointer(a[0])) = 0; return 0 })
		}, NoDevice, ErrNoDevice, []string{"CUDA_VISIBLE_DEVICES"}},
		{"mismatch", 12040, initResult(ErrSystemDriverMismatch), Mismatch, ErrSystemDriverMismatch, []string{"restart", "driver API: 12.4"}},
		{"forward compatibility", 12040, initResult(ErrCompatNotSupportedOnDevice), ForwardCompat, ErrCompatNotSupportedOnDevice, []string{"cuda-compat", "LD_LIBRARY_PATH"}},
		{"unknown", 12040, initResult(ErrUnknown), InitFailed, ErrUnknown, []string{"CUDA_ERROR_UNKNOWN (999)", "nvidia_uvm"}},
		{"exclusive", 12040, initResult(ErrDeviceUnavailable), InitFailed, ErrDeviceUnavailable, []string{"(46)", "exclusive"}},
		{"not a known result", 12040, initResult(4711), InitFailed, 4711, []string{"4711", "dmesg"}},
		{"stub library", 12040, func(f *fake) {
			f.override("cuDriverGetVersion", func(*[11]uintptr) Result { return ErrStubLibrary })
		}, InitFailed, ErrStubLibrary, []string{"(34)", "stubs directory"}},
		{"version fails", 12040, func(f *fake) {
			f.override("cuDriverGetVersion", func(*[11]uintptr) Result { return ErrOperatingSystem })
		}, InitFailed, ErrOperatingSystem, []string{"(304)", "/dev/nvidia"}},
		{"count fails", 12040, func(f *fake) {
			f.override("cuDeviceGetCount", func(*[11]uintptr) Result { return ErrNotInitialized })
		}, InitFailed, ErrNotInitialized, []string{"cuDeviceGetCount"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, c.version)
			c.plant(f)
			d, u := start(f.library())
			if d != nil || u == nil {
				t.Fatalf("start succeeded")
			}
			want(t, "reason", u.Reason, c.reason)
			want(t, "result", u.Result, c.result)
			if c.result != 0 && !errors.Is(u, c.result) {
				t.Errorf("errors.Is does not find %v", c.result)
			}
			for _, w := range c.words {
				if !strings.Contains(u.Error(), w) {
					t.Errorf("%q lacks %q", u.Error(), w)
				}
			}
		})
	}
}

func TestLibraryNotFound(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "libflambeau-absent.so.1")
	if err := os.WriteFile(broken, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	lib, tried := loadLibrary("libflambeau-absent.so.1", []string{"/nowhere", dir})
	if lib != nil {
		t.Fatal("a library was found")
	}
	if len(tried) != 3 || !strings.HasPrefix(tried[0], "libflambeau-absent.so.1: ") || tried[1] != "/nowhere/libflambeau-absent.so.1: no such file" ||
		!strings.HasPrefix(tried[2], broken+": ") {
		t.Errorf("tried %q", tried)
	}
	for _, dir := range []string{"/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"} {
		if !slices.Contains(libraryDirs, dir) {
			t.Errorf("%s is not looked through", dir)
		}
	}
}

// TestOpen checks that Open returns either a driver or an *Unavailable. It passes on machines with
// and without a driver.
func TestOpen(t *testing.T) {
	api, err := Open()
	var u *Unavailable
	switch {
	case err == nil:
		if n, err := api.DeviceCount(); err != nil || n < 1 {
			t.Errorf("%d devices, %v", n, err)
		}
		again, err := Open()
		if err != nil || again != api {
			t.Errorf("the second Open gave another driver: %v", err)
		}
	case !errors.As(err, &u) || u.Reason == 0 || u.Text == "" || api != nil:
		t.Errorf("not explained: %v", err)
	default:
		t.Log(err)
	}
}

// TestBindPrefersGetProcAddress checks that bind first uses the driver's function
// cuGetProcAddress_v2. For functions that it does not find, bind must use exported names.
func TestBindPrefersGetProcAddress(t *testing.T) {
	f := newFake(t, 12040)
	f.exports["cuGetProcAddress_v2"] = true
	f.exports["resolved"] = true
	f.override("cuGetProcAddress_v2", func(a *[11]uintptr) Result {
		version := Minimum
		if cString(a[0]) == "cuLaunchKernelEx" {
			version = max(launchKernelExSince, Minimum)
		}
		want(t, "version", a[2], uintptr(version))
		want(t, "flags", a[3], uintptr(0))
		switch cString(a[0]) {
		case "cuMemAlloc":
			*(*uintptr)(pointer(a[1])) = callback("resolved")
		// the status says that this version lacks the function, so the address must not be used
		case "cuMemFree":
			*(*uintptr)(pointer(a[1])), *(*int32)(pointer(a[4])) = 1, 2
		case "cuEventRecord":
			return ErrNotFound
		}
		return 0
	})
	var s symbols
	if missing := s.bind(f.library()); len(missing) > 0 {
		t.Fatalf("missing %q", missing)
	}
	want(t, "cuMemAlloc", s.memAlloc, callback("resolved"))
	want(t, "cuMemFree", s.memFree, callback("cuMemFree_v2"))
	want(t, "cuEventRecord", s.eventRecord, callback("cuEventRecord"))
}

// TestSymbolTableIsComplete checks that the table has one row for each C function that a method
// calls.
func TestSymbolTableIsComplete(t *testing.T) {
	next := uintptr(0)
	var s symbols
	names := map[string]bool{}
	missing := s.bind(&library{lookup: func(name string) uintptr {
		if name == "cuGetProcAddress_v2" {
			return 0
		}
		if names[name] {
			t.Errorf("%s is looked up twice", name)
		}
		names[name] = true
		next++
		return next
	}})
	v := reflect.ValueOf(s)
	seen := map[uint64]string{}
	fields := slices.DeleteFunc(reflect.VisibleFields(v.Type()), func(f reflect.StructField) bool { return f.Anonymous })
	for _, f := range fields {
		p, field := v.FieldByIndex(f.Index).Uint(), f.Name
		if p == 0 || seen[p] != "" {
			t.Errorf("%s is not bound to a function of its own (%q)", field, seen[p])
		}
		seen[p] = field
	}
	if len(missing) > 0 || len(names) != len(fields) {
		t.Errorf("missing %q, %d rows for %d functions", missing, len(names), len(fields))
	}
}
