//go:build !nogpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/lib/cublaslt"
	"github.com/flambeau-go/flambeau/device"
)

// TestRealCublasLt checks that NVIDIA's cublasLt is found and loads without a toolkit. Without a
// GPU the library creates no handle. A device that needs the library cannot be opened then, and the
// error must say why. FLAMBEAU_CUBLASLT_FOLDER is the folder in which the loader finds the library.
// FLAMBEAU_CUBLASLT_VERSION is the CUBLAS_VERSION of the library's header. The command ".ci/run
// cublaslt" sets both.
func TestRealCublasLt(t *testing.T) {
	folder := os.Getenv("FLAMBEAU_CUBLASLT_FOLDER")
	if folder == "" {
		t.Skip("FLAMBEAU_CUBLASLT_FOLDER is not set")
	}
	lib, err := openCublasLt()
	must(t, err)
	if filepath.Dir(lib.Path()) != folder || strconv.Itoa(int(lib.Version())) != os.Getenv("FLAMBEAU_CUBLASLT_VERSION") {
		t.Errorf("%v at %s, want %s in %s", lib.Version(), lib.Path(), os.Getenv("FLAMBEAU_CUBLASLT_VERSION"), folder)
	}
	api, err := newEmulator("emulate,mem=16MiB")
	must(t, err)
	p, err := newPlatform(api)
	must(t, err)
	p.products = openCublasLt
	_, err = p.open(0)
	var u *device.UnavailableError
	var e *cublaslt.Error
	if !errors.As(err, &u) || !errors.As(err, &e) || e.Call != "cublasLtCreate" || !strings.HasPrefix(u.Reason, "FLAMBEAU_LIBS asks for cublaslt: ") {
		t.Errorf("a device by the real library without a GPU: %v", err)
	}
	t.Logf("cublasLt %v: %v", lib.Version(), err)
}
