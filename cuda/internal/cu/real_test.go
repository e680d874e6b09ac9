//go:build !nogpu && linux && (amd64 || arm64)

package cu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRealDriver loads NVIDIA's own library on a machine without a GPU. The library must have every
// function that this package binds, and Open must explain its error. FLAMBEAU_TEST_LIBCUDA is the
// folder in which the loader finds the library, and FLAMBEAU_TEST_DRIVER is its release. The
// command ".ci/run reallibs" sets both.
func TestRealDriver(t *testing.T) {
	dir, release := os.Getenv("FLAMBEAU_TEST_LIBCUDA"), os.Getenv("FLAMBEAU_TEST_DRIVER")
	if dir == "" {
		t.Skip("FLAMBEAU_TEST_LIBCUDA is not set")
	}
	lib, tried := loadLibrary(libraryName(), libraryDirs)
	if lib == nil {
		t.Fatal(tried)
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err != nil || !strings.Contains(string(maps), filepath.Join(dir, "libcuda.so."+release)) {
		t.Errorf("another library than that of %s was loaded (%v)", dir, err)
	}
	var s symbols
	if missing := s.bind(lib); len(missing) > 0 {
		t.Errorf("driver %s lacks %s", release, strings.Join(missing, ", "))
	}
	// For a driver without cuGetProcAddress_v2, bind looks up the exported names.
	var exported symbols
	missing := exported.bind(&library{path: lib.path, lookup: func(name string) uintptr {
		if name == "cuGetProcAddress_v2" {
			return 0
		}
		return lib.lookup(name)
	}})
	if len(missing) > 0 {
		t.Errorf("driver %s does not export %s", release, strings.Join(missing, ", "))
	}
	raw, r := get1(s.driverGetVersion)
	version := Version(int32(raw))
	if r != 0 || version == 0 {
		t.Fatalf("its version is %v, %v", version, r)
	}
	if r := call1(s.init, 0); r != ErrNoDevice {
		t.Errorf("cuInit answers %v without a GPU", r)
	}
	api, err := Open()
	var u *Unavailable
	if api != nil || !errors.As(err, &u) || u.Version != version || !strings.Contains(err.Error(), "driver API: "+version.String()) {
		t.Fatalf("%v, %v", api, err)
	}
	reason, words := NoDevice, "the NVIDIA driver is installed but shows no GPU"
	if release < MinimumRelease {
		reason, words = DriverTooOld, "version 11.8 of the driver API is needed, which is driver 520 or newer"
	}
	if u.Reason != reason || !strings.Contains(u.Text, words) || errors.Is(err, ErrNoDevice) != (reason == NoDevice) {
		t.Errorf("%v: %v", u.Reason, err)
	}
	if (reason == DriverTooOld) != (version < Minimum) {
		t.Errorf("driver %s is of CUDA %v: %s does not go with %v", release, version, MinimumRelease, Minimum)
	}
	t.Logf("%d functions found; %v", len(symbolTable), err)
}
