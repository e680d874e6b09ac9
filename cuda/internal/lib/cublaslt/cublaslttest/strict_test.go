//go:build !nogpu && linux && (amd64 || arm64)

package cublaslttest

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/lib/cublaslt"
)

// idleMachine is a machine that runs no work. Memory from address 0x100000 on belongs to device 1.
type idleMachine struct{ current int }

func (d *idleMachine) CurrentDevice() int        { return d.current }
func (d *idleMachine) StreamDevice(s uint64) int { return int(s >> 20) }
func (d *idleMachine) MemoryDevice(at, bytes uint64) int {
	if at>>20 != (at+bytes-1)>>20 {
		return -1
	}
	return int(at >> 20)
}
func (d *idleMachine) Issue(*Op) error { return nil }

// productFixture holds a handle of device 1 and a plan with a bias.
type productFixture struct {
	*Strict
	*idleMachine
	h    cublaslt.Handle
	plan *cublaslt.Plan
}

// plain returns a product that the strict library accepts.
func plain() cublaslt.Product {
	m := cublaslt.Matrix{Type: cublaslt.BFloat16, Ld: 64, Align: 16}
	return cublaslt.Product{M: 64, N: 64, K: 64, Batch: 1, A: m, B: m, D: m, Bias: true, BiasAlign: 16}
}

func ok(err error) {
	if err != nil {
		panic(err)
	}
}

func (b *productFixture) with(change func(p *cublaslt.Product)) {
	p := plain()
	change(&p)
	_, _ = b.Plan(b.h, p, 1<<20)
}

const at = 0x110000 // an address in the middle of the device's memory

// run runs the plan on operands that do not overlap. The arguments are added to the addresses of
// these operands.
func (b *productFixture) run(a, d, bias, workspace uint64) {
	_ = b.plan.Run(at+a, at+0x10000, at+0x20000+d, at+0x30000+bias, at+0x40000+workspace, 0x100001)
}

// misuses lists programs that the strict library must end. The key is a part of the library's
// message.
var misuses = map[string]func(b *productFixture){
	"cublasLtCreate: no context is current":                                          func(b *productFixture) { b.current = -1; _, _ = b.Create() },
	"cublasLtDestroy: the handle 0x":                                                 func(b *productFixture) { _ = b.Destroy(b.h); _ = b.Destroy(b.h) },
	"cublasLtMatrixLayoutCreate: a leading dimension of 63 for 64 rows":              func(b *productFixture) { b.with(func(p *cublaslt.Product) { p.A.Ld = 63 }) },
	"cublasLtMatrixLayoutCreate: 64 rows, 0 columns":                                 func(b *productFixture) { b.with(func(p *cublaslt.Product) { p.N = 0 }) },
	"cublasLtMatrixLayoutCreate: type 1":                                             func(b *productFixture) { b.with(func(p *cublaslt.Product) { p.A.Type = 1 }) },
	"cublasLtMatmulAlgoGetHeuristic: A is of type 14, B of type 2":                   func(b *productFixture) { b.with(func(p *cublaslt.Product) { p.B.Type = cublaslt.Float16 }) },
	"cublasLtMatmulAlgoGetHeuristic: no product of type 14 into type 2":              func(b *productFixture) { b.with(func(p *cublaslt.Product) { p.D.Type = cublaslt.Float16 }) },
	"cublasLtMatmulAlgoGetHeuristic: the matrices of D overlap: stride 63":           func(b *productFixture) { b.with(func(p *cublaslt.Product) { p.Batch, p.D.Stride = 2, 63 }) },
	"cublasLtMatmulAlgoGetHeuristic: device 0 is current, the handle is of device 1": func(b *productFixture) { b.current = 0; b.with(func(*cublaslt.Product) {}) },
	"cublasLtMatmulPreferenceSetAttribute: an alignment of 12 bytes":                 func(b *productFixture) { b.with(func(p *cublaslt.Product) { p.A.Align = 12 }) },
	"cublasLtMatmulDescSetAttribute: (nil) is no description":                        func(b *productFixture) { ok(b.plan.Close()); b.run(0, 0, 0, 0) },
	"cublasLtMatmul: A at 0x110008 is not aligned to 16 bytes":                       func(b *productFixture) { b.run(8, 0, 0, 0) },
	"cublasLtMatmul: D overlaps a factor":                                            func(b *productFixture) { _ = b.plan.Run(at, at+0x10000, at+0x10000, at+0x30000, at+0x40000, 0x100001) },
	"cublasLtMatmul: D overlaps the bias":                                            func(b *productFixture) { _ = b.plan.Run(at, at+0x10000, at+0x20000, at+0x20000, at+0x40000, 0x100001) },
	"cublasLtMatmul: the bias at 0x140002 is not aligned to 16 bytes":                func(b *productFixture) { b.run(0, 0, 2, 0) },
	"cublasLtMatmul: workspace at 0x150010 is not aligned to 256 bytes":              func(b *productFixture) { b.run(0, 0, 0, 16) },
	"cublasLtMatmul: workspace: 16384 bytes at 0 are no memory of device 1":          func(b *productFixture) { _ = b.plan.Run(at, at+0x10000, at+0x20000, at+0x30000, 0, 0x100001) },
	"cublasLtMatmul: D: 8192 bytes at 0x":                                            func(b *productFixture) { b.run(0, 0xcf000, 0, 0) },
	"cublasLtMatmul: its stream is not of device 1":                                  func(b *productFixture) { _ = b.plan.Run(at, at+0x10000, at+0x20000, at+0x30000, at+0x40000, 1) },
	"cublasLtMatmul: a bias without an address":                                      func(b *productFixture) { _ = b.plan.Run(at, at+0x10000, at+0x20000, 0, at+0x40000, 0x100001) },
}

// TestStrictRefuses runs programs that do what NVIDIA's documentation forbids, each in a separate
// process. The strict library must end the process with a message that says what was wrong.
func TestStrictRefuses(t *testing.T) {
	path := os.Getenv("FLAMBEAU_CUBLASLT_STRICT")
	if path == "" {
		t.Skip("FLAMBEAU_CUBLASLT_STRICT is not set")
	}
	if name := os.Getenv("FLAMBEAU_CUBLASLT_MISUSE"); name != "" {
		b := &productFixture{idleMachine: &idleMachine{current: 1}}
		var err error
		b.Strict, err = Load(path, b.idleMachine)
		ok(err)
		b.h, err = b.Create()
		ok(err)
		b.plan, err = b.Plan(b.h, plain(), 1<<20)
		ok(err)
		ok(b.plan.Run(at, at+0x10000, at+0x20000, at+0x30000, at+0x40000, 0x100001))
		misuses[name](b)
		return // the strict library did not end the program
	}
	for name := range misuses {
		c := exec.Command(os.Args[0], "-test.run=^TestStrictRefuses$")
		c.Env = append(os.Environ(), "FLAMBEAU_CUBLASLT_MISUSE="+name)
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 86 || !strings.Contains(string(out), "strict cublasLt: "+name) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
