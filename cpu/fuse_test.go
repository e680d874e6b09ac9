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

// TestWideScalars checks which programs run as loops of AVX2. Scalars of 64 bits are allowed if
// they do not meet an element.
func TestWideScalars(t *testing.T) {
	x, p := expr.X(0), expr.Param(0, dtype.F64)
	for _, c := range []struct {
		name   string
		e      *expr.Expr
		result dtype.Type
		narrow bool
	}{
		{"factor", p.Eq(expr.C(0)).Select(expr.C(0), p.Cvt(dtype.F32).Mul(x)), dtype.F32, true},
		{"sum in float64", p.Mul(x.Cvt(dtype.F64)), dtype.F32, false},
		{"result of 64 bits", p.Cvt(dtype.I64), dtype.I64, false},
	} {
		prog := expr.MustLower([]*expr.Expr{c.e}, []dtype.Type{c.result}, []dtype.Type{dtype.F32}, -1)
		if narrow(prog) != c.narrow {
			t.Errorf("%s: runs as a loop of AVX2: %v, want %v", c.name, !c.narrow, c.narrow)
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

// TestTimeToCompile measures the time to compile a new program. It must be less than the time of
// one run on a large tensor.
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
