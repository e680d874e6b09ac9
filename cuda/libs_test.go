package cuda

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/lib/cublaslt"
	"github.com/flambeau-go/flambeau/device"
)

// TestLibs checks that FLAMBEAU_LIBS accepts the names of known libraries. For another name, the
// error must contain the name.
func TestLibs(t *testing.T) {
	for _, value := range []string{"cublas", "cublaslt,", "cublaslt,cudnn", " cublaslt", "cuBLASLt"} {
		t.Setenv("FLAMBEAU_LIBS", value)
		_, err := Emulate("emulate,mem=16MiB")
		var u *device.UnavailableError
		if !errors.As(err, &u) || !strings.Contains(u.Reason, `FLAMBEAU_LIBS is "`+value+`"`) || !strings.Contains(u.Reason, "want a list of cublaslt") {
			t.Errorf("%q: %v", value, err)
		}
	}
	// NVIDIA's library works only on hardware. Emulated GPUs, with or without memory, use the
	// package's own kernels.
	for _, value := range []string{"", "cublaslt"} {
		t.Setenv("FLAMBEAU_LIBS", value)
		meta, err := driver{}.OpenMeta(device.MetaConfig{Capability: [2]int{9, 0}})
		must(t, err)
		for _, d := range []*Device{emulated(t, "emulate,mem=16MiB"), meta.(*Device)} {
			if s := d.Products(); s != "own kernels" {
				t.Errorf("FLAMBEAU_LIBS=%s: products are by %s", value, s)
			}
		}
	}
}

// TestProductsUnavailable checks that opening a device fails if FLAMBEAU_LIBS names a missing
// library. The device must not silently work without it.
func TestProductsUnavailable(t *testing.T) {
	api, err := newEmulator("emulate,mem=16MiB")
	must(t, err)
	p, err := newPlatform(api)
	must(t, err)
	missing := &cublaslt.Unavailable{Tried: []string{"libcublasLt.so.13: no such file"}}
	p.products = func() (*cublaslt.Library, error) { return nil, missing }
	_, err = p.open(0)
	var u *device.UnavailableError
	var m *cublaslt.Unavailable
	if !errors.As(err, &u) || u.Name != "cuda:0" || !errors.As(err, &m) || !strings.Contains(u.Help, "FLAMBEAU_LIBS") ||
		u.Reason != "FLAMBEAU_LIBS asks for cublaslt: cublasLt was not found: tried libcublasLt.so.13: no such file" {
		t.Fatalf("%v", err)
	}
	p.products = nil
	if _, err := p.open(0); err != nil {
		t.Errorf("the device cannot be opened without it: %v", err)
	}
}
