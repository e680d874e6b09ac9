//go:build !nogpu && linux && (amd64 || arm64)

package cublaslt

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// TestUnavailable opens a library that is too old, one that lacks a function, and one that does not
// exist. Each error must say so.
func TestUnavailable(t *testing.T) {
	version := uintptr(111099)
	callback := purego.NewCallback(func() uintptr { return version })
	lacks := ""
	bind := func() error {
		_, err := Bind(cu.NewLibrary("libfake.so", func(name string) uintptr {
			if name == lacks {
				return 0
			}
			return callback
		}))
		return err
	}
	var u *Unavailable
	if err := bind(); !errors.As(err, &u) || err.Error() != "libfake.so is cublasLt 11.10.99, 11.11.0 or newer is needed" {
		t.Errorf("%v", err)
	}
	version = 111103
	if err := bind(); err != nil {
		t.Error(err)
	}
	lacks = "cublasLtMatmul"
	if err := bind(); !errors.As(err, &u) || err.Error() != "libfake.so lacks cublasLtMatmul" {
		t.Errorf("%v", err)
	}
	if s := (&Unavailable{Tried: []string{"/a: no", "b: no"}}).Error(); s != "cublasLt was not found: tried /a: no; b: no" {
		t.Error(s)
	}
	if s := Status(99).Error(); !strings.Contains(s, "99") {
		t.Error(s)
	}
	if err := error(&Error{Call: "cublasLtMatmul", Status: ErrInvalidValue, Detail: "this"}); !errors.Is(err, ErrInvalidValue) ||
		err.Error() != "cublasLtMatmul: an invalid argument (cuBLAS status 7): this" {
		t.Errorf("%v", err)
	}
}

// TestReal loads NVIDIA's own library. It must accept the descriptions of products that this
// package makes. Without a GPU, it must refuse calls that need one. FLAMBEAU_CUBLASLT_LIBRARY is
// its path, and FLAMBEAU_CUBLASLT_VERSION the version in its header. The command ".ci/run cublaslt"
// sets both.
func TestReal(t *testing.T) {
	path := os.Getenv("FLAMBEAU_CUBLASLT_LIBRARY")
	if path == "" {
		t.Skip("FLAMBEAU_CUBLASLT_LIBRARY is not set")
	}
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := os.Getenv("FLAMBEAU_CUBLASLT_VERSION"); strconv.Itoa(int(l.Version())) != want {
		t.Errorf("%s is %d, want %s", path, l.Version(), want)
	}
	for _, typ := range []DataType{Float32, Float16, BFloat16} {
		o := Product{M: 32, N: 48, K: 64, Batch: 3, TransA: true, A: Matrix{typ, 64, 2048, 16}, B: Matrix{typ, 64, 0, 4},
			D: Matrix{Float32, 40, 40 * 48, 256}, Bias: true, BiasAlign: 8}
		p := &Plan{l: l, algo: new(algorithm), bias: true}
		if err := p.describe(&o); err != nil {
			t.Errorf("%v: %v", o, err)
		}
		// The library accepts all preferences. Without a handle it finds no algorithm.
		var e *Error
		if err := p.choose(&o, 1<<20); !errors.As(err, &e) || e.Call != "cublasLtMatmulAlgoGetHeuristic" {
			t.Errorf("%v: an algorithm without a handle: %v", o, err)
		} else {
			t.Logf("without a handle: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	var e *Error
	if h, err := l.Create(); !errors.As(err, &e) || h != 0 {
		t.Errorf("a handle without a GPU: %#x, %v", h, err)
	} else {
		t.Logf("cublasLt %v at %s; without a GPU: %v", l.Version(), path, err)
	}
	// The library refuses wrong values. So it must have understood the values that it accepted
	// above.
	p := &Plan{l: l}
	if p.desc, err = l.make(descCreate, compute32F, uintptr(Float32)); err != nil {
		t.Fatal(err)
	}
	if err := l.set(descSet, p.desc, descTransA, opT, 1); !errors.Is(err, ErrInvalidValue) {
		t.Errorf("an attribute of the wrong size: %v", err)
	}
	if err := l.set(descSet, p.desc, 9999, 0, 4); !errors.Is(err, ErrInvalidValue) {
		t.Errorf("an attribute that is none: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
