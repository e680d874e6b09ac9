package cpu

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// TestNormOfChannels normalises rows with weights for runs of columns, and with the same weights
// repeated for each column. The results must have the same bits.
func TestNormOfChannels(t *testing.T) {
	d := Get()
	rnd := rand.New(rand.NewPCG(5, 7))
	const rows, period, inner, runs = 15, 3, 70, 11
	const cols = inner * runs // a group has ten rows, so the second group begins within a period
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
		acc := typ.Compute()
		put := func(v device.View, i int, b uint64) {
			writeBits(unsafe.Add(pointer(&v), i*v.Type.Size()), v.Type.Size(), b)
		}
		x, mean, rstd := newView(t, d, typ, rows, cols), newView(t, d, acc, rows), newView(t, d, acc, rows)
		for i := range rows * cols {
			put(x, i, expr.Store(typ, expr.Encode(acc, rnd.Float64()-0.3)))
		}
		// the weights and the biases, for runs and for columns
		var few, all [2]device.View
		for i := range few {
			few[i], all[i] = newView(t, d, acc, period*runs), newView(t, d, acc, period*cols)
			for k := range period * runs {
				b := expr.Encode(acc, rnd.Float64()-0.5)
				put(few[i], k, b)
				for c := range inner {
					put(all[i], k*inner+c, b)
				}
			}
		}
		for which := 1; which < 4; which++ {
			for _, zero := range []bool{false, true} {
				run := func(operands [2]device.View, inner int) []byte {
					o := &device.Norm{Out: newView(t, d, typ, rows, cols), Mean: mean, Rstd: rstd, X: x,
						RowNorm: device.RowNorm{Eps: 1e-5, Period: period, Inner: inner, Zero: zero}}
					if which&1 != 0 {
						o.Weight = operands[0]
					}
					if which&2 != 0 {
						o.Bias = operands[1]
					}
					do(t, d, o)
					return bytes.Clone(o.Out.Buf.Host())
				}
				inEachWay(func() {
					if !bytes.Equal(run(few, inner), run(all, 1)) {
						t.Errorf("%v, weight %v, bias %v, zero %v: the bits differ", typ, which&1 != 0, which&2 != 0, zero)
					}
				})
			}
		}
	}
}
