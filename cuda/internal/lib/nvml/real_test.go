//go:build !nogpu && linux && (amd64 || arm64)

package nvml

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// TestRealDriver loads NVIDIA's own library. It must have every function that this package calls,
// and return its version. Without a driver in the kernel, Open must return an *Unavailable.
// FLAMBEAU_TEST_LIBCUDA is the folder in which the loader finds the library, and
// FLAMBEAU_TEST_DRIVER is its release. The command ".ci/run reallibs" sets both.
func TestRealDriver(t *testing.T) {
	dir, release := os.Getenv("FLAMBEAU_TEST_LIBCUDA"), os.Getenv("FLAMBEAU_TEST_DRIVER")
	if dir == "" {
		t.Skip("FLAMBEAU_TEST_LIBCUDA is not set")
	}
	l, tried := cu.OpenLibrary(libraryName())
	if l == nil {
		t.Fatal(tried)
	}
	if maps, err := os.ReadFile("/proc/self/maps"); err != nil || !strings.Contains(string(maps), filepath.Join(dir, "libnvidia-ml.so."+release)) {
		t.Errorf("another library than that of %s was loaded (%v)", dir, err)
	}
	source, err := os.ReadFile("library.go")
	if err != nil {
		t.Fatal(err)
	}
	// Neighbouring names are variants of one function, the newest first.
	calls := regexp.MustCompile(`"nvml[A-Z]\w*"(?:, "nvml[A-Z]\w*")*`).FindAll(source, -1)
	for _, c := range calls {
		if l.Function(strings.Split(strings.ReplaceAll(string(c), `"`, ""), ", ")...) == 0 {
			t.Errorf("driver %s lacks %s", release, c)
		}
	}
	if len(calls) < 20 {
		t.Errorf("%d calls were found in library.go", len(calls))
	}
	// From driver 535 on, this call needs neither nvmlInit nor a driver in the kernel.
	version, err := (&library{l}).text("nvmlSystemGetNVMLVersion")
	if release < "535" {
		if !errors.Is(err, ErrUninitialized) {
			t.Errorf("its version is %q, %v, before it is initialised", version, err)
		}
	} else if err != nil || !strings.HasSuffix(version, release) {
		t.Errorf("its version is %q, %v, want that of driver %s", version, err, release)
	}
	api, err := Open()
	var u *Unavailable
	if api != nil || !errors.As(err, &u) || u.Library == "" || u.Return != ErrDriverNotLoaded {
		t.Errorf("%v, %v", api, err)
	}
	t.Logf("NVML %q, %d functions found; %v", version, len(calls), err)
}
