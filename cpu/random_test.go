package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/dtype"
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

// TestNeighbours breaks a list of consecutive integers at each place. The function neighbours must
// return the length of the part before that place.
func TestNeighbours(t *testing.T) {
	for n := 1; n <= 27; n++ {
		for broken := 1; broken <= n; broken++ {
			x := make([]int64, n)
			asm.IotaI64(x, -3)
			for i := broken; i < n; i++ {
				x[i] += 1 << 40
			}
			if got := neighbours(x); got != broken {
				t.Fatalf("%d neighbours of %v, want %d", got, x, broken)
			}
		}
	}
}

// TestRandomLoops makes plans that draw random numbers of 32 bits. The rest of their instructions
// must run as one loop.
func TestRandomLoops(t *testing.T) {
	if !fusing() {
		t.Skip("loops are not made here")
	}
	seed, offset, index := expr.Param(0, dtype.I64), expr.Param(1, dtype.I64), expr.Index(dtype.I64)
	for name, e := range map[string]*expr.Expr{
		"uniform": expr.RandomUniform(dtype.F32, seed, offset, index),
		"normal":  expr.RandomNormal(dtype.F32, seed, offset, index),
		"dropout": expr.RandomKeeps(seed, offset, index, expr.Param(2, dtype.U32)).Select(expr.C(2), expr.C(0)),
	} {
		p := expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, nil, -1)
		loops := 0
		if pl := planFor(p, 0, stored); pl.fused != nil {
			for _, s := range pl.body {
				if s.code != nil {
					loops++
				}
			}
		}
		if loops != 1 {
			t.Errorf("%s has %d loops", name, loops)
		}
	}
}
