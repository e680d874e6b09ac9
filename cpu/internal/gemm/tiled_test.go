package gemm

import (
	"io"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"testing"
	"time"
)

// dpTile computes one element of the result of TDPBF16PS (Intel, "Intel 64 and IA-32 Architectures
// Software Developer's Manual", volume 2). It adds two sums of fused multiply-adds to acc: one of
// the even elements and one of the odd elements. Subnormal operands and results become zeros.
func dpTile(acc float32, a, b []uint16) float32 {
	var sums [2]float32
	for p := range 32 {
		x, y := float32(0), float32(0)
		if p < len(a) {
			x, y = flush(decode(a[p])), flush(decode(b[p]))
		}
		sums[p%2] = flush(fma32(x, y, sums[p%2]))
	}
	return flush(flush(acc) + flush(sums[0]+sums[1]))
}

// TestTileInstructions compares products that use AMX with a Go model of the instruction, bit for
// bit. The sizes leave all possible remainders of tiles and steps.
func TestTileInstructions(t *testing.T) {
	if !hasTiles() || !HasBF16() {
		t.Log("the processor or the system has no AMX: it was NOT tested")
		return
	}
	for seed := range uint64(120) {
		r := rand.New(rand.NewPCG(seed, 5))
		m, n, k := tiledRows+r.IntN(100), 32+r.IntN(70), tiledDepth+r.IntN(120)
		if seed%10 == 0 {
			k += 1000
		}
		draw := func() uint16 { return encode(float32(r.NormFloat64())) }
		if seed%2 == 1 {
			draw = func() uint16 { return randomBF16(r) }
		}
		a, b, c := make([]uint16, m*k), make([]uint16, k*n), make([]float32, m*n)
		for _, x := range [][]uint16{a, b} {
			for i := range x {
				x[i] = draw()
			}
		}
		for i := range c {
			c[i] = float32(r.NormFloat64())
		}
		ars, acs, brs, bcs := k, 1, n, 1
		if seed&2 != 0 {
			ars, acs = 1, m
		}
		if seed&4 != 0 {
			brs, bcs = 1, k
		}
		want, add := slices.Clone(c), seed&8 != 0
		row, col := make([]uint16, k), make([]uint16, k)
		for i := range want {
			for p := range k {
				row[p], col[p] = a[i/n*ars+p*acs], b[p*brs+i%n*bcs]
			}
			if !add {
				want[i] = 0
			}
			for p := 0; p < k; p += 32 {
				want[i] = dpTile(want[i], row[p:min(p+32, k)], col[p:min(p+32, k)])
			}
		}
		BF16(Serial, m, n, k, a, ars, acs, b, brs, bcs, c, n, 1, add)
		for i := range c {
			if !sameFloat(c[i], want[i]) {
				t.Fatalf("seed %d, %d×%d by %d: element %d is %v, want %v", seed, m, n, k, i, c[i], want[i])
			}
		}
	}
}

// TestTilesAndSignals multiplies on several goroutines while signals arrive. The signals come from
// a CPU profile, and from a garbage collector that always runs and interrupts goroutines. The
// results must be right: the system must save the tiles, and a goroutine must not change its thread
// while it uses tiles.
func TestTilesAndSignals(t *testing.T) {
	if !hasTiles() || !HasBF16() {
		t.Log("the processor or the system has no AMX: it was NOT tested")
		return
	}
	if err := pprof.StartCPUProfile(io.Discard); err == nil {
		defer pprof.StopCPUProfile()
	} else {
		t.Log("go test takes a profile already:", err)
	}
	const m, n, k = 200, 150, 1000
	r := rand.New(rand.NewPCG(3, 3))
	a, b := make([]uint16, m*k), make([]uint16, k*n)
	for _, x := range [][]uint16{a, b} {
		for i := range x {
			x[i] = encode(float32(r.NormFloat64()))
		}
	}
	want := make([]float32, m*n)
	BF16(Serial, m, n, k, a, k, 1, b, n, 1, want, n, 1, false)
	stop := time.Now().Add(time.Second)
	var all sync.WaitGroup
	all.Go(func() {
		for time.Now().Before(stop) {
			runtime.GC()
		}
	})
	for range 2 * runtime.GOMAXPROCS(0) {
		all.Go(func() {
			c := make([]float32, m*n)
			for time.Now().Before(stop) {
				clear(c)
				BF16(Serial, m, n, k, a, k, 1, b, n, 1, c, n, 1, false)
				if !slices.Equal(c, want) {
					t.Error("a product beside signals has other bits")
					return
				}
			}
		})
	}
	all.Wait()
}
