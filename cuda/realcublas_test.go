//go:build !nogpu && linux && (amd64 || arm64)

package cuda

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// TestRealCublasLt: NVIDIA's cublasLt is found, loads without a toolkit, has the functions of a
// matrix product, and answers as its header says as far as it does without a GPU.
// FLAMBEAU_CUBLASLT_FOLDER is where the loader finds it, FLAMBEAU_CUBLASLT_VERSION CUBLAS_VERSION
// of its header (.ci/run cublaslt).
func TestRealCublasLt(t *testing.T) {
	folder := os.Getenv("FLAMBEAU_CUBLASLT_FOLDER")
	if folder == "" {
		t.Skip("FLAMBEAU_CUBLASLT_FOLDER is not set")
	}
	var found Library
	for _, l := range Libraries() {
		if l.Name == "cublasLt" {
			found = l
		}
	}
	if !found.Found || filepath.Dir(found.Path) != folder {
		t.Fatalf("%+v, want it in %s", found, folder)
	}
	l, tried := cu.OpenLibrary(found.Path)
	if l == nil {
		t.Fatal(tried)
	}
	for _, name := range []string{"GetVersion", "GetStatusString", "Create", "Destroy", "MatmulDescCreate", "MatmulDescDestroy", "MatmulDescSetAttribute",
		"MatrixLayoutCreate", "MatrixLayoutDestroy", "MatrixLayoutSetAttribute", "MatmulPreferenceCreate", "MatmulPreferenceDestroy",
		"MatmulPreferenceSetAttribute", "MatmulAlgoGetHeuristic", "Matmul"} {
		if l.Function("cublasLt"+name) == 0 {
			t.Fatalf("%s lacks cublasLt%s", found.Path, name)
		}
	}
	version := cu.CallWord(l.Function("cublasLtGetVersion"))
	if want := os.Getenv("FLAMBEAU_CUBLASLT_VERSION"); strconv.Itoa(int(version)) != want {
		t.Errorf("its version is %d, want %s", version, want)
	}
	// Descriptions of products and of matrices need no GPU; a handle does, and says so.
	const compute32F, real32F = 68, 0 // CUBLAS_COMPUTE_32F, CUDA_R_32F
	out := make([]uintptr, 3)
	at := func(i int) uintptr { return uintptr(unsafe.Pointer(&out[i])) }
	t.Cleanup(func() { clear(out) }) // which keeps it on the heap: stacks move
	if r := cu.Call(l.Function("cublasLtMatmulDescCreate"), at(0), compute32F, real32F); r != 0 || out[0] == 0 {
		t.Errorf("a description of a product: status %d", r)
	} else if r := cu.Call(l.Function("cublasLtMatmulDescDestroy"), out[0]); r != 0 {
		t.Errorf("its end: status %d", r)
	}
	if r := cu.Call(l.Function("cublasLtMatrixLayoutCreate"), at(1), real32F, 64, 32, 64); r != 0 || out[1] == 0 {
		t.Errorf("a layout: status %d", r)
	} else if r := cu.Call(l.Function("cublasLtMatrixLayoutDestroy"), out[1]); r != 0 {
		t.Errorf("its end: status %d", r)
	}
	status := cu.Call(l.Function("cublasLtCreate"), at(2))
	if status == 0 {
		t.Error("a handle was made without a GPU")
	}
	t.Logf("cublasLt %d; cublasLtCreate answers %d without a GPU", version, status)
}
