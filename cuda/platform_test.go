package cuda

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
)

// TestUnavailable checks the errors on machines without a usable GPU. Each must give the reason in
// one line, and say what to do.
func TestUnavailable(t *testing.T) {
	refuse := func(u *cu.Unavailable) func() (cu.API, error) { return func() (cu.API, error) { return nil, u } }
	missing := cu.NewUnavailable(cu.LibraryNotFound, "no NVIDIA kernel module is loaded")
	missing.Tried = []string{"libcuda.so.1: cannot open shared object file", "/usr/lib/wsl/lib/libcuda.so.1: no such file", "/a/libcuda.so.1: no such file",
		"/b/libcuda.so.1: no such file", "/c/libcuda.so.1: no such file"}
	broken := cu.NewUnavailable(cu.LibraryNotFound, "")
	broken.Tried = []string{"libcuda.so.1: cannot open shared object file", "/usr/lib64/libcuda.so.1: wrong ELF class"}
	old := cu.NewUnavailable(cu.DriverTooOld, "library: /usr/lib64/libcuda.so.1")
	old.Version = 11020
	for _, c := range []struct {
		value        string
		open         func() (cu.API, error)
		reason, help string
	}{
		{"", refuse(missing), "no NVIDIA driver: libcuda.so.1 not found", "install its driver"},
		{"", refuse(broken), "no NVIDIA driver: /usr/lib64/libcuda.so.1 cannot be loaded: wrong ELF class", "install its driver"},
		{"", refuse(cu.NewUnavailable(cu.LibraryNotFound, "")), "no NVIDIA driver: its library not found", "install its driver"},
		{"", refuse(cu.NewUnavailable(cu.NoDevice, `CUDA_VISIBLE_DEVICES is ""`)), `the NVIDIA driver shows no GPU (CUDA_VISIBLE_DEVICES is "")`, "nvidia-smi"},
		{"", refuse(old), "the NVIDIA driver is too old: it is of CUDA 11.2, 11.8 is needed (library: /usr/lib64/libcuda.so.1)", "520"},
		{"", refuse(cu.NewUnavailable(cu.DriverTooOld, "")), "the NVIDIA driver is too old", "520"},
		{"", refuse(cu.NewUnavailable(cu.Mismatch, "x")), "the NVIDIA kernel module and the driver library are of different versions (x)", "restart"},
		{"", refuse(cu.NewUnavailable(cu.ForwardCompat, "")), "a cuda-compat library is loaded, which this GPU does not support", "LD_LIBRARY_PATH"},
		{"", refuse(cu.NewUnavailable(cu.InitFailed, "cuInit: 46")), "the NVIDIA driver cannot be initialised (cuInit: 46)", "dmesg"},
		{"off", nil, "switched off by FLAMBEAU_CUDA=off", "unset"},
		{"", refuse(cu.NewUnavailable(cu.BuiltWithout, "built for linux/amd64")), "this program was built with the tag nogpu", "without the tag"},
		{"", refuse(cu.NewUnavailable(cu.UnsupportedPlatform, "built for darwin/arm64")), "NVIDIA has no driver for this platform (built for darwin/arm64)", "emulate"},
		{"on", nil, `FLAMBEAU_CUDA is "on", which means nothing`, "emulate[:devices]"},
		{"emulated", nil, `FLAMBEAU_CUDA is "emulated", which means nothing`, "emulate[:devices]"},
		{"emulate:0", nil, `FLAMBEAU_CUDA is "emulate:0", in which "emulate:0" is wrong`, "1 to 64 devices"},
		{"emulate:2,mem=64MB", nil, `FLAMBEAU_CUDA is "emulate:2,mem=64MB", in which "mem=64MB" is wrong`, "mem=256MiB"},
		{"emulate,sm=75", nil, `FLAMBEAU_CUDA is "emulate,sm=75", in which "sm=75" is wrong`, "80, 86"},
	} {
		p, u := choose(c.value, c.open)
		if p != nil || u == nil {
			t.Errorf("FLAMBEAU_CUDA=%s: a driver, want %q", c.value, c.reason)
			continue
		}
		if u.Reason != c.reason || !strings.Contains(u.Help, c.help) || strings.Contains(u.Error(), "\n") || u.Name != "cuda" {
			t.Errorf("FLAMBEAU_CUDA=%s: %q, %q, want %q and %q", c.value, u.Reason, u.Help, c.reason, c.help)
		}
	}
	for r := cu.LibraryNotFound; r <= cu.UnsupportedPlatform; r++ {
		var found *cu.Unavailable
		if _, u := choose("", refuse(cu.NewUnavailable(r, ""))); u.Reason == "" || u.Help == "" || !errors.As(u, &found) || found.Reason != r {
			t.Errorf("%v: %q, %q, %v", r, u.Reason, u.Help, u.Err)
		}
	}
	if _, err := Emulate("emulate:65"); err == nil || !strings.Contains(err.Error(), "1 to 64 devices") {
		t.Errorf("Emulate of 65 devices: %v", err)
	}
}

// oldGPU is a driver whose first devices have a compute capability that is too low.
type oldGPU struct {
	cu.API
	capability []int
}

func (o oldGPU) DeviceAttribute(d cu.Device, a cu.DeviceAttr) (int, error) {
	switch {
	case a == cu.AttrComputeCapabilityMajor:
		return o.capability[d] / 10, nil
	case a == cu.AttrComputeCapabilityMinor:
		return o.capability[d] % 10, nil
	}
	return o.API.DeviceAttribute(d, a)
}

func TestOldGPU(t *testing.T) {
	api, err := newEmulator("emulate:2")
	if err != nil {
		t.Fatal(err)
	}
	p, u := choose("", func() (cu.API, error) { return oldGPU{api, []int{75, 90}}, nil })
	if u != nil {
		t.Fatal(u)
	}
	if p.count != 2 || p.unusable() != nil {
		t.Errorf("%d devices, %v: want 2, one of which is usable", p.count, p.unusable())
	}
	_, err = p.open(0)
	if want := `device "cuda:0" is not available: Emulated GPU (sm_90) has compute capability 7.5, 8.0 or more is needed; ` +
		"use a GPU of the Ampere generation or newer, or the CPU"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	d, err := p.open(1)
	if err != nil || d.Name() != "cuda:1" {
		t.Fatalf("the newer GPU: %v", err)
	}
	if again, err := p.open(1); again != d || err != nil {
		t.Error("opened twice, it is another device")
	}
	p, u = choose("", func() (cu.API, error) { return oldGPU{api, []int{61, 75}}, nil })
	if u != nil || p.unusable() == nil || !strings.Contains(p.unusable().Error(), "7.5") {
		t.Errorf("only old GPUs: %v, %v", u, p.unusable())
	}
	for _, i := range []int{-1, 2} {
		var e *device.UnavailableError
		if _, err := p.open(i); !errors.As(err, &e) || e.Reason != "the driver shows 2 GPUs" {
			t.Errorf("device %d: %v", i, err)
		}
	}
}

func TestInfo(t *testing.T) {
	list, err := Emulate("emulate:2,mem=32MiB,sm=86")
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range list {
		want := device.Info{Kind: "cuda", Name: "Emulated GPU (sm_86)", Emulated: true, Capability: [2]int{8, 6}, Memory: 32 << 20, Cores: 4, Driver: "12.4", PTX: "8.4"}
		if d.Info() != want || d.Name() != deviceName(i) {
			t.Errorf("%s: %+v, want %+v", d.Name(), d.Info(), want)
		}
	}
	for v, want := range map[cu.Version]int{11040: 74, 11080: 78, 12000: 80, 12040: 84, 12050: 85, 12060: 85, 12070: 86, 12080: 87, 12090: 88, 13000: 90, 13010: 91, 14000: 91} {
		if got := newestPTX(v); got != want {
			t.Errorf("driver of CUDA %v takes PTX %d, want %d", v, got, want)
		}
	}
}

// child runs one test of this binary in another process, with the given value of FLAMBEAU_CUDA.
func child(t *testing.T, name, value string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), "FLAMBEAU_CUDA="+value, "FLAMBEAU_TEST_CHILD="+name)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("with FLAMBEAU_CUDA=%s: %v\n%s", value, err, out)
	}
}

// isChild reports whether the function child started this process for this test.
func isChild(t *testing.T) bool { return os.Getenv("FLAMBEAU_TEST_CHILD") == t.Name() }

func TestRegistry(t *testing.T) {
	if !isChild(t) {
		child(t, t.Name(), "emulate:2,mem=16MiB")
		return
	}
	if !IsAvailable() || DeviceCount() != 2 || Unavailable() != nil {
		t.Errorf("available %v, %d devices, %v", IsAvailable(), DeviceCount(), Unavailable())
	}
	first, err := device.Open("cuda")
	if err != nil {
		t.Fatal(err)
	}
	if d, err := Open(0); err != nil || first != device.Device(d) {
		t.Errorf("Open(0) is not what the registry has: %v", err)
	}
	if d, why := device.Best(); d != first || !strings.Contains(why, "cuda:0") {
		t.Errorf("the best device is %v, %s", d, why)
	}
	if d, err := device.Open("cuda:1"); err != nil || d == first || d.Name() != "cuda:1" {
		t.Errorf("cuda:1: %v", err)
	}
	var e *device.UnavailableError
	if _, err := device.Open("cuda:7"); !errors.As(err, &e) || e.Name != "cuda:7" || e.Reason != "there are 2 cuda devices" {
		t.Errorf("cuda:7: %v", err)
	}
	if _, err := Open(7); !errors.As(err, &e) || e.Name != "cuda:7" {
		t.Errorf("Open(7): %v", err)
	}
	fresh, err := Emulate("emulate")
	if err != nil || device.Device(fresh[0]) == first {
		t.Errorf("Emulate gives the registry's device, %v", err)
	}
}

func TestRegistryOff(t *testing.T) {
	if !isChild(t) {
		child(t, t.Name(), "off")
		return
	}
	var e *device.UnavailableError
	if _, err := device.Open("cuda:1"); !errors.As(err, &e) || e.Name != "cuda:1" || !strings.Contains(e.Reason, "FLAMBEAU_CUDA=off") {
		t.Errorf("cuda:1: %v", err)
	}
	if _, err := Open(1); !errors.As(err, &e) || e.Name != "cuda:1" {
		t.Errorf("Open(1): %v", err)
	}
	if IsAvailable() || DeviceCount() != 0 || Unavailable() == nil {
		t.Error("available although it is switched off")
	}
	if list, err := Emulate("emulate"); err != nil || len(list) != 1 {
		t.Errorf("Emulate: %v", err)
	}
}
