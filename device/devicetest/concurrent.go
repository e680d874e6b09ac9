package devicetest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// testConcurrency uses the device from four goroutines at the same time, each with its own stream
// and memory.
func testConcurrency(r *rig) {
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Add(1)
		r.T.Run(fmt.Sprint("goroutine ", g), func(t *testing.T) {
			defer wg.Done()
			t.Parallel()
			q := newRig(t, r.dev)
			s, err := r.dev.NewStream(0)
			q.must(err, "NewStream")
			q.s = s
			n := 600
			if q.large {
				n = 60_000
			}
			for i := range 4 {
				d := shape.Of(n + g*10 + i)
				a, b := q.random(dtype.F32, d, contiguous), q.random(dtype.F32, d, contiguous)
				q.checkMap("map beside others", lower(expr.X(0).Mul(expr.X(1)).Add(expr.Param(0)), dtype.F32, dtype.F32, dtype.F32),
					[]*array{q.empty(dtype.F32, d, contiguous)}, []*array{a, b}, []uint64{expr.Encode(dtype.F32, float64(g*i))})
				m := q.small(dtype.F32, shape.Of(20, 30+i), contiguous)
				q.checkReduce(0, dtype.F32, m, q.empty(dtype.F32, shape.Of(1, 30+i), contiguous))
				w := q.small(dtype.F32, shape.Of(1, 20, 9), contiguous)
				q.checkMatMul(w, q.small(dtype.F32, shape.Of(1, 9, 11), transposed), nil, q.empty(dtype.F32, shape.Of(1, 20, 11), contiguous))
				for _, buf := range q.bufs {
					buf.Free()
				}
				q.bufs = nil
			}
		})
	}
}
