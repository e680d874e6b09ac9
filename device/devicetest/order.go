package devicetest

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// slowScan computes a scan of x with a simple loop. For a linear recurrence, y[i] = x[i]·y[i-1] +
// terms[i].
func slowScan(kind device.ScanKind, x, terms []float64, reverse bool) []float64 {
	y := make([]float64, len(x))
	s, best := 0.0, 0
	for k := range x {
		i := k
		if reverse {
			i = len(x) - 1 - k
		}
		v, first := x[i], k == 0
		switch {
		case kind == device.ScanSum:
			s += v
		case kind == device.ScanMax || kind == device.ScanMin:
			if first || v != v || kind == device.ScanMax && v >= x[best] || kind == device.ScanMin && v <= x[best] {
				best = i
			}
			s = float64(best)
		case kind == device.ScanLinear && first:
			s = terms[i]
		case kind == device.ScanLinear:
			s = v*s + terms[i]
		case first:
			s = v
		case kind == device.ScanProd:
			s *= v
		default:
			m := math.Max(s, v)
			s = m + math.Log(math.Exp(s-m)+math.Exp(v-m))
		}
		y[i] = s
	}
	return y
}

func testScan(r *rig) {
	if !r.supports("scan-sum") {
		return
	}
	sizes := []shape.Dims{shape.Of(2, 5, 3), shape.Of(3, 40, 1), shape.Of(9, 17, 1), shape.Of(1, 12, 35), shape.Of(0, 3, 2), shape.Of(2, 0, 2), shape.Of(1, 1, 1)}
	if r.large {
		sizes = append(sizes, shape.Of(2, 1500, 1), shape.Of(2, 3000, 2), shape.Of(1, 100, 500))
	}
	n := 0
	for _, kind := range []device.ScanKind{device.ScanSum, device.ScanProd, device.ScanLogSumExp, device.ScanMax, device.ScanMin, device.ScanLinear} {
		for _, t := range dtype.Types() {
			positions := kind == device.ScanMax || kind == device.ScanMin
			if !t.IsFloat() && (kind == device.ScanLogSumExp || kind == device.ScanLinear) {
				continue
			}
			for _, s := range sizes {
				// an emulated device is slow, so it runs only the first shape and a third of the
				// others
				if r.dev.Info().Emulated && n%3 != 0 && s.At(1) != 5 {
					n++
					continue
				}
				n++
				if kind == device.ScanProd && !t.IsFloat() && s.At(1) > 12 {
					continue // the products could overflow int64
				}
				x := r.small(t, s, inForms[n%len(inForms)])
				switch {
				case positions && t != dtype.I64:
					// the reference is in float64, which cannot represent large int64 values;
					// package optest tests those
					x = r.random(t, s, inForms[n%len(inForms)])
				case t.IsFloat() && (kind == device.ScanProd || kind == device.ScanLinear):
					// use factors near 1, so that products neither vanish nor overflow
					x = r.array(t, s, inForms[n%len(inForms)], func(int) uint64 { return expr.Encode(t, 0.999+r.rnd.Float64()*0.002) })
				}
				ins, fx := []*array{x}, x.floats()
				var terms []float64
				if kind == device.ScanLinear {
					ins = append(ins, r.small(t, s, inForms[n/2%len(inForms)]))
					terms = ins[1].floats()
				}
				result := dtype.I64
				if t.IsFloat() && !positions {
					result = t
				}
				out := r.empty(result, s, outForms[n%len(outForms)])
				reverse := n%2 == 0
				what := fmt.Sprintf("scan %v of %v of %v, reverse %v, operand %s", kind, t, s, reverse, x.form)
				r.run(what, &device.Scan{Kind: kind, Out: out.v, Ins: views(ins), Reverse: reverse})
				want, size := make([]float64, s.Size()), make([]float64, s.Size())
				for o := range s.At(0) {
					for j := range s.At(2) {
						column, abs, b, babs := make([]float64, s.At(1)), make([]float64, s.At(1)), make([]float64, s.At(1)), make([]float64, s.At(1))
						at := func(i int) int { return (o*s.At(1)+i)*s.At(2) + j }
						for i := range column {
							column[i], abs[i] = fx[at(i)], math.Abs(fx[at(i)])
							if terms != nil {
								b[i], babs[i] = terms[at(i)], math.Abs(terms[at(i)])
							}
						}
						for i, v := range slowScan(kind, column, b, reverse) {
							want[at(i)] = v
						}
						for i, v := range slowScan(kind, abs, babs, reverse) {
							size[at(i)] = v
						}
					}
				}
				length := float64(s.At(1))
				out.close(what, want, func(i int) float64 {
					if !result.IsFloat() {
						return 0
					}
					return 2*epsilon(t)*math.Abs(want[i]) + length*epsilon(t.Compute())*(1+size[i])
				})
			}
			r.end()
		}
	}
}

func testArgsort(r *rig) {
	if !r.supports("argsort") {
		return
	}
	sizes := []shape.Dims{shape.Of(3, 1), shape.Of(2, 9), shape.Of(2, 70), shape.Of(0, 5), shape.Of(1, 2100)}
	if r.large {
		sizes = append(sizes, shape.Of(100, 40), shape.Of(3, 600), shape.Of(2, 5000), shape.Of(1, 70000))
	}
	n := 0
	for _, t := range dtype.Types() {
		for _, s := range sizes {
			n++
			descending := n%2 == 0
			x := r.random(t, s, inForms[n%5])
			k := s.At(1)
			switch n % 3 {
			case 0:
				k = (k + 8) / 9
			case 1:
				k = (k + 39) / 40
			}
			out := r.empty(dtype.I64, shape.Of(s.At(0), k), outForms[n%len(outForms)])
			what := fmt.Sprintf("first %d of %v of %v in order, descending %v, operand %s", k, t, s, descending, x.form)
			r.run(what, &device.Argsort{Out: out.v, X: x.v, Descending: descending})
			f, bits := x.floats(), x.bits()
			compare := func(i, j int) int {
				if descending {
					i, j = j, i
				}
				switch {
				case t == dtype.I64:
					return cmp.Compare(int64(bits[i]), int64(bits[j]))
				// a scan treats NaN as the greatest value, but cmp.Compare treats it as the
				// smallest
				case f[i] != f[i] || f[j] != f[j]:
					return -cmp.Compare(f[i], f[j])
				}
				return cmp.Compare(f[i], f[j])
			}
			var want []uint64
			for row := range s.At(0) {
				at := make([]int, s.At(1))
				for i := range at {
					at[i] = row*s.At(1) + i
				}
				slices.SortStableFunc(at, compare)
				for _, i := range at[:k] {
					want = append(want, uint64(i-row*s.At(1)))
				}
			}
			out.equal(what, want)
			r.end()
		}
	}
}

func testSearch(r *rig) {
	if !r.supports("search") {
		return
	}
	n := 0
	for _, t := range dtype.Types() {
		// each case: number of rows, of elements in a row, and of values to search for in a row
		for _, c := range [][3]int{{1, 1, 1}, {2, 9, 5}, {3, 70, 40}, {1, 300, 700}, {0, 5, 5}, {2, 3, 0}} {
			n++
			x := r.random(t, shape.Of(c[0], c[1]), inForms[0])
			f, bits := x.floats(), x.bits()
			less := func(i, j int) int { // sorts NaN last
				switch {
				case t == dtype.I64:
					return cmp.Compare(int64(bits[i]), int64(bits[j]))
				case f[i] != f[i] || f[j] != f[j]:
					return -cmp.Compare(f[i], f[j])
				}
				return cmp.Compare(f[i], f[j])
			}
			order := make([]int, c[0]*c[1])
			for row := range c[0] {
				at := order[row*c[1] : (row+1)*c[1]]
				for i := range at {
					at[i] = row*c[1] + i
				}
				slices.SortStableFunc(at, less)
			}
			form := inForms[n%5]
			l, _ := place(x.v.Shape, form)
			// value by storage index, to find two different values for one element
			at := map[int]uint64{}
			for i, o := range offsets(l) {
				at[o] = bits[order[i]]
			}
			sorted := r.array(t, x.v.Shape, form, func(i int) uint64 { return at[i] })
			// Every second value equals an element of the row.
			values := r.array(t, shape.Of(c[0], c[2]), inForms[(n+2)%5], func(i int) uint64 {
				if i%2 == 0 && len(bits) > 0 {
					return bits[i*7%len(bits)]
				}
				return r.value(t)
			})
			out := r.empty(dtype.I64, shape.Of(c[0], c[2]), outForms[n%len(outForms)])
			right := n%2 == 0
			what := fmt.Sprintf("%v of %v in rows of %d, right %v, operands %s and %s", values.v.Shape, t, c[1], right, sorted.form, values.form)
			r.run(what, &device.Search{Out: out.v, Sorted: sorted.v, Values: values.v, Right: right})
			e, eb, v, vb := sorted.floats(), sorted.bits(), values.floats(), values.bits()
			var want []uint64
			for i := range v {
				place := uint64(0)
				for k := i / c[2] * c[1]; k < (i/c[2]+1)*c[1]; k++ {
					below, equal := e[k] < v[i] || v[i] != v[i], e[k] == v[i]
					if t == dtype.I64 {
						below, equal = int64(eb[k]) < int64(vb[i]), eb[k] == vb[i]
					}
					if below || right && equal {
						place++
					}
				}
				want = append(want, place)
			}
			out.equal(what, want)
			r.end()
		}
	}
}
