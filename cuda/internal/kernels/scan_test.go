package kernels

import (
	"fmt"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// slowScan scans one column. For a linear recurrence, b holds the terms that are added.
func slowScan(kind device.ScanKind, x, b []float64, reverse bool) []float64 {
	y := make([]float64, len(x))
	var s float64
	best := 0
	for k := range x {
		i := k
		if reverse {
			i = len(x) - 1 - k
		}
		v := x[i]
		switch kind {
		case device.ScanSum:
			s += v
		case device.ScanProd:
			if k == 0 {
				s = 1
			}
			s *= v
		case device.ScanLogSumExp:
			if k == 0 {
				s = v
			} else {
				m := math.Max(s, v)
				s = m + math.Log(math.Exp(s-m)+math.Exp(v-m))
			}
		case device.ScanLinear:
			if k == 0 {
				s = b[i]
			} else {
				s = v*s + b[i]
			}
		default:
			if k == 0 || v != v || kind == device.ScanMax && v >= x[best] || kind == device.ScanMin && v <= x[best] {
				best = i
			}
			s = float64(best)
		}
		y[i] = s
	}
	return y
}

var scanKinds = []device.ScanKind{device.ScanSum, device.ScanProd, device.ScanLogSumExp, device.ScanMax, device.ScanMin, device.ScanLinear}

func TestScan(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.I64, dtype.U8, dtype.Bool} {
		for _, d := range [][3]int{{2, 5, 1}, {3, 70, 1}, {2, 128, 1}, {1, 1100, 1}, {1, 2056, 1}, {2, 9, 40}, {2, 33, 3}, {0, 4, 2}} {
			long := d[1] > 1000
			for n, kind := range scanKinds {
				if !typ.IsFloat() && (kind == device.ScanLogSumExp || kind == device.ScanLinear) || long && (typ != dtype.F32 || d[1] == 2056 && kind != device.ScanSum && kind != device.ScanLinear) {
					continue
				}
				scans(t, kind, typ, d, n%2)
			}
		}
	}
}

// TestScanSegments scans columns that are long enough to be divided into segments.
func TestScanSegments(t *testing.T) {
	defer func(n int) { scanSplit = n }(scanSplit)
	scanSplit = 4
	scans(t, device.ScanSum, dtype.F32, [3]int{1, 9000, 1}, 0)
	// here a column has more segments than the method prefixes loads at once
	scans(t, device.ScanSum, dtype.F32, [3]int{1, 70000, 1}, 0)
	scans(t, device.ScanSum, dtype.Bool, [3]int{1, 8200, 2}, 1)
	scans(t, device.ScanMax, dtype.BF16, [3]int{1, 9001, 1}, 1)
	scans(t, device.ScanLinear, dtype.F32, [3]int{1, 8300, 1}, 0)
	scans(t, device.ScanLogSumExp, dtype.F32, [3]int{2, 2500, 1}, 1)
}

// scans runs a scan in both directions and compares the results with those of slowScan. The
// operands start skip elements after an aligned address.
func scans(t *testing.T, kind device.ScanKind, typ dtype.Type, d [3]int, skip int) {
	t.Helper()
	for _, reverse := range []bool{false, true} {
		m := newMachine(t)
		l := dense(d[0], d[1], d[2])
		if skip == 1 && d[2] == 3 {
			l = shape.Dense(shape.Of(d[2], d[1], d[0])).Transpose(0, 2)
		}
		x := m.random(m.tensor(typ, l, skip))
		ins := []Operand{x}
		var b []float64
		// products of these factors neither vanish nor overflow
		if kind == device.ScanLinear || kind == device.ScanProd {
			m.fill(x, func(i int) uint64 { return expr.Encode(typ, 1+math.Sin(float64(i*i))/8) })
		}
		if kind == device.ScanLinear {
			if len(m.decode(x)) > 0 {
				// a linear recurrence must not use its first factor
				m.fill(m.oneElement(x, 0), func(int) uint64 { return expr.Encode(typ, math.Inf(1)) })
			}
			ins = append(ins, m.random(m.tensor(typ, l, 0)))
			b = m.decode(ins[1])
		}
		result := dtype.I64
		if typ.IsFloat() && kind != device.ScanMax && kind != device.ScanMin {
			result = typ
		}
		y := m.tensor(result, dense(d[0], d[1], d[2]), 0)
		list, err := Scan(kind, y, ins, reverse && kind != device.ScanLinear, m.scratch)
		m.run(list, err)
		in := m.decode(x)
		want := make([]float64, len(in))
		for o := range d[0] {
			for j := range d[2] {
				column, terms := make([]float64, d[1]), make([]float64, d[1])
				at := func(i int) int { return (o*d[1]+i)*d[2] + j }
				for i := range column {
					column[i] = in[at(i)]
					if b != nil {
						terms[i] = b[at(i)]
					}
				}
				for i, v := range slowScan(kind, column, terms, reverse && kind != device.ScanLinear) {
					want[at(i)] = v
				}
			}
		}
		m.checkNear(fmt.Sprintf("scan %v of %v %v, reverse %v", kind, typ, d, reverse), y, want, 4*math.Max(roundings[typ], 1e-14))
	}
}

func TestScanPTX(t *testing.T) {
	plan := func(name string, kind device.ScanKind, typ dtype.Type, reverse bool, dims ...int) {
		x := fake(typ, dims...)
		ins := []Operand{x}
		if kind == device.ScanLinear {
			ins = append(ins, x)
		}
		result := typ
		if kind == device.ScanMax || !typ.IsFloat() {
			result = dtype.I64
		}
		list, err := Scan(kind, fake(result, dims...), ins, reverse, func(int) (uint64, error) { return 1 << 22, nil })
		golden(t, name, list, err)
	}
	plan("scan_sum_warp", device.ScanSum, dtype.F32, false, 100, 128, 1)
	plan("scan_sum_block", device.ScanSum, dtype.BF16, true, 8, 5000, 1)
	plan("scan_columns", device.ScanProd, dtype.F32, false, 8, 500, 1024)
	plan("scan_max", device.ScanMax, dtype.F64, false, 8, 2000, 1)
	plan("scan_logsumexp", device.ScanLogSumExp, dtype.F32, false, 8, 2000, 1)
	plan("scan_linear", device.ScanLinear, dtype.F64, true, 8, 2000, 1)
	plan("scan_i64", device.ScanSum, dtype.Bool, false, 1, 1<<20, 1)
}
