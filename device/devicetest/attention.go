package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

func testAttention(r *rig) {
	if !r.has("attention") {
		return
	}
	n := 0
	for _, c := range [][6]int{ // heads, of keys, queries, keys, features, values
		{1, 1, 1, 1, 1, 1}, {2, 2, 3, 5, 4, 3}, {4, 2, 5, 3, 7, 6}, {1, 1, 300, 260, 8, 5}, {6, 2, 33, 17, 16, 16}, {2, 1, 1, 700, 8, 8}, {0, 0, 3, 3, 3, 3}, {2, 2, 0, 3, 3, 3}, {4, 2, 6, 3, 0, 5}, {2, 2, 3, 4, 5, 0},
	} {
		for _, causal := range []bool{false, true} {
			n++
			batch := 1 + n%2
			forms := []form{contiguous, offset, strided, transposed}
			q := r.small(dtype.F32, shape.Of(batch, c[0], c[2], c[4]), forms[n%4])
			k := r.small(dtype.F32, shape.Of(batch, c[1], c[3], c[4]), forms[(n+1)%4])
			v := r.small(dtype.F32, shape.Of(batch, c[1], c[3], c[5]), forms[(n+2)%4])
			out := r.empty(dtype.F32, shape.Of(batch, c[0], c[2], c[5]), forms[n/2%4])
			what := fmt.Sprintf("attention of %d samples, %d heads over %d, %d queries, %d keys, causal %v, operands %s, %s, %s", batch, c[0], c[1], c[2], c[3], causal, q.form, k.form, v.form)
			scale := 0.7
			r.run(what, &device.Attention{Out: out.v, Q: q.v, K: k.v, V: v.v, Weighing: device.Weighing{Scale: scale, Causal: causal}})
			fq, fk, fv := q.floats(), k.floats(), v.floats()
			var want, size []float64
			for i := range batch * c[0] * c[2] {
				head := i / c[2] / (c[0] / c[1])
				keys := c[3]
				if causal {
					keys = min(keys, i%c[2]+1)
				}
				scores := make([]float64, keys)
				for j := range scores {
					for f := range c[4] {
						scores[j] += scale * fq[i*c[4]+f] * fk[(head*c[3]+j)*c[4]+f]
					}
				}
				m, log := logSumExp(scores)
				for f := range c[5] {
					var sum, most float64
					for j, s := range scores {
						x := fv[(head*c[3]+j)*c[5]+f]
						sum += math.Exp(s-m-log) * x
						most = max(most, math.Abs(x))
					}
					want, size = append(want, sum), append(size, most)
				}
			}
			// An error of a score is one of its weight, in proportion.
			out.near(what, want, func(i int) float64 { return epsilon(dtype.F32) * size[i] * float64(64+8*c[4]+c[3]) })
			r.end()
		}
	}
}
