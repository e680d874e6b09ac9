package asm

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/expr"
)

// TestPhilox compares every variant with expr.Philox. The lengths include incomplete rounds of a
// kernel. Some counters carry into their upper half, and some wrap.
func TestPhilox(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, name := range Variants() {
		restore := Use(name)
		for _, start := range []uint64{0, 1<<32 - 7, math.MaxUint64 - 20, r.Uint64()} {
			for blocks := range 40 {
				seed := r.Uint64()
				all := make([]uint32, guard+4*blocks+guard)
				for i := range all {
					all[i] = 0xdeadbeef
				}
				Philox(all[guard:guard+4*blocks], seed, start)
				for i, got := range all {
					want := uint32(0xdeadbeef)
					if k := i - guard; k >= 0 && k < 4*blocks {
						want = uint32(expr.Draw{}.Value(seed, start, int64(k)))
					}
					if got != want {
						t.Fatalf("%s: word %d of %d blocks from %#x on is %#x, want %#x", name, i-guard, blocks, start, got, want)
					}
				}
			}
		}
		restore()
	}
}

func TestPhiloxLength(t *testing.T) {
	defer func() {
		if e := recover(); e != "asm: Philox: 7 words are no whole blocks" {
			t.Errorf("%v", e)
		}
	}()
	Philox(make([]uint32, 7), 1, 2)
}

func BenchmarkPhilox(b *testing.B) {
	dst := make([]uint32, 1024)
	for _, name := range Variants() {
		b.Run(name, func(b *testing.B) {
			defer Use(name)()
			b.SetBytes(int64(4 * len(dst)))
			for b.Loop() {
				Philox(dst, 1, 2)
			}
		})
	}
}
