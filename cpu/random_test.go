package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/expr"
)

// TestDrawRun computes random numbers in runs and compares each with its definition. In some runs
// the counter overflows, and several runs use the same words.
func TestDrawRun(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	starts := []int64{0, 1, 2, 3, 4, 5, 1022, 1 << 33, 1<<33 + 1, -1, -2, -5}
	draws := []expr.Draw{{}, {Clear: 1}, {Clear: 1, Add: 1}, {Shift: 1}, {Shift: 1, Clear: 2}, {Shift: 1, Clear: 2, Add: 2}}
	for range 60 {
		seed, offset := rnd.Uint64(), rnd.Uint64()>>rnd.IntN(64)
		if rnd.IntN(4) == 0 {
			offset = -offset
		}
		start, n := starts[rnd.IntN(len(starts))], 1+rnd.IntN(2500)>>rnd.IntN(9)
		for _, d := range draws {
			narrow, wide := make([]uint32, n), make([]uint64, n)
			if d.Shift == 0 {
				drawRun(d, narrow, seed, offset, start)
			} else {
				drawRun(d, wide, seed, offset, start)
			}
			for i := range n {
				want := d.Value(seed, offset, start+int64(i))
				if d.Shift == 0 && narrow[i] != uint32(want) || d.Shift == 1 && wide[i] != want {
					t.Fatalf("draw %v, seed %d, offset %d, index %d, number %d of %d: %x or %x, want %x", d, seed, offset, start, i, n, narrow[i], wide[i], want)
				}
			}
		}
	}
}
