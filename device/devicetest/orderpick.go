package devicetest

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// testArgsortPick tests sorts that return one position of each row, such as that of the median. It
// compares each position with the definition of [device.SortPick], applied to a fully sorted row.
func testArgsortPick(r *rig) {
	if !r.supports("argsort") {
		return
	}
	sizes := []shape.Dims{shape.Of(3, 1), shape.Of(2, 9), shape.Of(3, 70), shape.Of(0, 5), shape.Of(2, 300)}
	if r.large {
		sizes = append(sizes, shape.Of(100, 40), shape.Of(1, 7000))
	}
	n := 0
	for _, t := range dtype.Types() {
		for _, s := range sizes {
			n++
			x := r.random(t, s, inForms[n%5])
			all := r.empty(dtype.I64, s, outForms[0])
			what := fmt.Sprintf("of %v of %v, operand %s", t, s, x.form)
			r.run("order "+what, &device.Argsort{Out: all.v, X: x.v})
			order, f, bits := all.fetch("order "+what), x.floats(), x.bits()
			for pick := device.PickRank; pick <= device.PickMode; pick++ {
				o := &device.Argsort{X: x.v, Pick: pick, Rank: n * 7 % s.At(1)}
				out := r.empty(dtype.I64, shape.Of(s.At(0), 1), outForms[n%len(outForms)])
				if o.Out = out.v; !r.dev.Supports(o) {
					r.Logf("%s does not support pick %d: nothing to test", r.dev.Name(), pick)
					continue
				}
				name := fmt.Sprintf("pick %d, rank %d, %s", pick, o.Rank, what)
				r.run(name, o)
				var want []uint64
				for row := range s.At(0) {
					lo, hi := row*s.At(1), (row+1)*s.At(1)
					want = append(want, picked(pick, o.Rank, order[lo:hi], f[lo:hi], bits[lo:hi], t == dtype.I64))
				}
				out.equal(name, want)
			}
			r.end()
		}
	}
}

// picked returns the position that pick selects from a row. The slice order holds the positions of
// the row's elements in sorted order. If whole is true, elements are equal only if their bits are
// equal.
func picked(pick device.SortPick, rank int, order []uint64, f []float64, bits []uint64, whole bool) uint64 {
	nans := 0
	for _, v := range f {
		if v != v {
			nans++
		}
	}
	switch n := len(order); {
	case pick == device.PickRank:
		return order[rank]
	case pick == device.PickMedian && nans > 0:
		return order[n-nans]
	case pick == device.PickMedian:
		return order[(n-1)/2]
	case pick == device.PickNanMedian:
		return order[max(0, n-1-nans)/2]
	}
	var best uint64
	for most, run, i := 0, 0, 0; i < len(order); i++ {
		p := order[i]
		if run++; i > 0 {
			if q := order[i-1]; whole && bits[p] != bits[q] || !whole && f[p] != f[q] {
				run = 1
			}
		}
		if run > most {
			most, best = run, p
		}
	}
	return best
}
