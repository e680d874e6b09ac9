package cpu

import (
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/device/devicetest"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// inEachWay runs f three times: with compiled loops, with compiled loops for AVX2, and with
// kernels.
func inEachWay(f func()) {
	f()
	asKernels(f)
	if asm.Active() == "avx512" {
		defer asm.Use("avx2")()
		f()
	}
}

// asKernels runs f while new plans run as kernels.
func asKernels(f func()) {
	unfused = true
	defer func() { unfused = false }()
	f()
}

// TestRandomPrograms runs random programs with loops and with kernels. Both must give the same bits
// as the interpreter.
func TestRandomPrograms(t *testing.T) {
	n := 400
	if os.Getenv("FLAMBEAU_SOAK") == "1" {
		n = 100_000
	}
	inEachWay(func() { devicetest.RandomPrograms(t, Get(), 2, n) })
}

func FuzzPrograms(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		inEachWay(func() { devicetest.RandomPrograms(t, Get(), seed, 4) })
	})
}

// TestConformanceOfAVX2 runs the conformance suite with the loops and kernels of AVX2.
func TestConformanceOfAVX2(t *testing.T) {
	for _, name := range asm.Variants() {
		if name == "avx2" {
			defer asm.Use(name)()
			devicetest.Run(t, Get())
		}
	}
}

// TestLoopsBesideCollector runs compiled loops while the garbage collector runs all the time.
func TestLoopsBesideCollector(t *testing.T) {
	calls := 100_000
	if os.Getenv("FLAMBEAU_SOAK") == "1" {
		calls = 1_000_000
	}
	if !fusing() {
		t.Logf("loops are not made here: kernels run instead")
	}
	d := Get()
	stop := make(chan struct{})
	var collector, callers sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	p := unaryProgram(expr.Call("sigmoid", expr.X(0)).Add(expr.X(0)))
	for range 4 {
		callers.Go(func() {
			x, y := newView(t, d, dtype.F32, 3, 70), newView(t, d, dtype.F32, 3, 70)
			do(t, d, mapOf(p, y, x))
			want := string(y.Buf.Host())
			for range calls / 4 {
				do(t, d, mapOf(p, y, x))
				if string(y.Buf.Host()) != want {
					t.Error("a result changed")
					return
				}
			}
		})
	}
	callers.Wait()
	close(stop)
	collector.Wait()
}

// TestTimeToCompile measures the time to compile a new program. It must be at most 2 ms, which is
// less than the time of one run on a large tensor.
func TestTimeToCompile(t *testing.T) {
	if !fusing() {
		t.Logf("loops are not made here")
		return
	}
	least := time.Hour
	for i := range 20 {
		e := expr.Call("gelu", expr.X(0).Add(expr.C(float64(i)))).Mul(expr.X(1))
		p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, -1)
		began := time.Now()
		planFor(p, 0, stored)
		least = min(least, time.Since(began))
	}
	t.Logf("a plan of gelu takes %v", least)
	if least > 2*time.Millisecond {
		t.Errorf("a plan of gelu takes %v", least)
	}
}

// TestUniformValuesOfAnyType checks that a plan runs as a loop if only its uniform values have 64
// bits, such as the param of lerp, which is compared as float64.
func TestUniformValuesOfAnyType(t *testing.T) {
	if !fusing() {
		t.Skip(interpreted())
	}
	x, y, w := expr.X(0), expr.X(1), expr.Param(0)
	e := w.Abs().Lt(expr.C(0.5)).Select(w.FMA(y.Sub(x), x), y.Sub(x).Neg().FMA(expr.C(1).Sub(w), y))
	f := dtype.F32
	p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{f}, []dtype.Type{f, f}, -1)
	scalar := expr.MustLower([]*expr.Expr{x.Add(y.Cvt(f))}, []dtype.Type{f}, []dtype.Type{f, dtype.F64}, -1)
	for _, variant := range asm.Variants() {
		if variant == "generic" {
			continue
		}
		restore := asm.Use(variant)
		if pl := planFor(p, 0, stored); pl.fused == nil || pl.fused.whole == nil {
			t.Errorf("%s: lerp with a scalar weight does not run as a loop", variant)
		}
		if pl := planFor(scalar, 2, stored); pl.fused == nil || pl.fused.whole == nil {
			t.Errorf("%s: the sum with a float64 of one element does not run as a loop", variant)
		}
		restore()
	}
}
