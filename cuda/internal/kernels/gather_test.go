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

// reach returns the row-major position of an element of a tensor with shape dims. Its coordinate
// along axis is position. Its other coordinates are those of element i of a tensor with the shape
// index.
func reach(dims, index shape.Dims, axis, i, position int) int {
	out, stride := 0, 1
	for d := index.Rank() - 1; d >= 0; d-- {
		c := i % index.At(d)
		i /= index.At(d)
		if d == axis {
			c = position
		}
		out += c * stride
		stride *= dims.At(d)
	}
	return out
}

type indexCase struct {
	what       string
	big        shape.Layout // layout of the operand that is indexed
	small      shape.Layout // layout of the operand that has the shape of the index
	index      shape.Layout
	axis, skip int
}

var indexCases = []indexCase{
	{"vector", dense(20), dense(7), dense(7), 0, 0},
	{"long vector", dense(20), dense(100), dense(100), 0, 0},
	{"rows", dense(9, 32), dense(6, 32), strided([]int{6, 32}, []int{1, 0}), 0, 0},
	{"odd rows", dense(9, 31), dense(6, 31), strided([]int{6, 31}, []int{1, 0}), 0, 1},
	{"columns", dense(5, 9), dense(5, 7), strided([]int{5, 7}, []int{0, 1}), 1, 0},
	{"each", dense(4, 9, 5), dense(4, 6, 5), dense(4, 6, 5), 1, 0},
	{"smaller", dense(6, 9, 8), dense(4, 6, 5), dense(4, 6, 5), 1, 0},
	{"strided", strided([]int{6, 9}, []int{1, 6}), strided([]int{6, 4}, []int{1, 6}), strided([]int{6, 4}, []int{8, 2}), 1, 0},
	{"many rows", dense(5, 8), dense(600, 8), strided([]int{600, 8}, []int{1, 0}), 0, 0},
	{"many of each", dense(4, 9, 5), dense(4, 80, 5), dense(4, 80, 5), 1, 0},
	{"many of each, strided", strided([]int{6, 9}, []int{1, 6}), strided([]int{6, 90}, []int{1, 6}), strided([]int{6, 90}, []int{180, 2}), 1, 0},
	{"one for many", dense(90, 1), dense(2100, 1), dense(2100, 1), 0, 0},
	{"empty", dense(5, 8), dense(0, 8), strided([]int{0, 8}, []int{1, 0}), 0, 0},
}

// indices fills the index operand with indices below n. If wild is true, two of them are out of
// bounds.
func (m *machine) indices(o Operand, n int, wild bool) Operand {
	seen := map[uint64]uint64{}
	var last uint64
	forEach(o, func(i int, addr uint64) { last = addr })
	forEach(o, func(i int, addr uint64) {
		if _, ok := seen[addr]; ok {
			return
		}
		v := uint64(m.rng.IntN(n))
		if wild && (i == 0 || addr == last) {
			v = uint64(n)
			if i == 0 {
				v = ^uint64(0)
			}
		}
		seen[addr] = v
		m.fill(Operand{Addr: addr, Type: o.Type, Layout: dense()}, func(int) uint64 { return v })
	})
	return o
}

func signed(o Operand, v uint64) int {
	if o.Type == dtype.I32 {
		return int(int32(v))
	}
	return int(v)
}

// checkFault checks that the fault record has a fault if wild is true, and no fault otherwise. The
// fault must contain a position whose index is out of bounds.
func (m *machine) checkFault(what string, fault Operand, wild bool, index Operand, bound int) {
	m.t.Helper()
	e := ReadFault(m.faultBytes(fault))
	at := m.read(index)
	if len(at) == 0 || !wild {
		if e != nil {
			m.t.Errorf("%s: a fault without reason: %v", what, e)
		}
		return
	}
	if e == nil || e.Tag != 5 || e.Bound != int64(bound) || e.Index != -1 && e.Index != int64(bound) ||
		e.Position < 0 || e.Position >= int64(len(at)) || signed(index, at[e.Position]) != int(e.Index) {
		m.t.Errorf("%s: fault %+v", what, e)
	}
}

func TestGather(t *testing.T) {
	defer func(n int) { narrowLimit = n }(narrowLimit)
	for round := range 2 {
		for _, c := range indexCases {
			for _, typ := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F64, dtype.U8} {
				wild := typ == dtype.F32
				m := newMachine(t)
				it := []dtype.Type{dtype.I64, dtype.I32}[round]
				src, out := m.random(m.tensor(typ, c.big, c.skip)), m.tensor(typ, c.small, c.skip)
				index := m.indices(m.tensor(it, c.index, 0), c.big.Shape.At(c.axis), wild)
				fault := m.fault()
				list, err := Gather(out, src, index, c.axis, fault.Addr, 5)
				m.run(list, err)
				from, at := m.read(src), m.read(index)
				what := fmt.Sprintf("gather %s of %v", c.what, typ)
				m.compare(what, out, func(i int) uint64 {
					k := signed(index, at[i])
					if k < 0 || k >= c.big.Shape.At(c.axis) {
						return 0
					}
					return from[reach(c.big.Shape, c.index.Shape, c.axis, i, k)]
				})
				m.checkFault(what, fault, wild, index, c.big.Shape.At(c.axis))
			}
		}
		narrowLimit = 0
	}
}

func TestScatter(t *testing.T) {
	defer func(n int) { narrowLimit = n }(narrowLimit)
	for round := range 2 {
		n := round
		for _, c := range indexCases {
			for _, typ := range []dtype.Type{dtype.F32, dtype.BF16, dtype.F64, dtype.I64, dtype.U8} {
				n++
				testScatter(t, device.ScatterAdd, c, typ, []dtype.Type{dtype.I64, dtype.I32}[round])
				testScatter(t, []device.ScatterKind{device.ScatterSet, device.ScatterProd, device.ScatterMax, device.ScatterMin}[n%4], c, typ, dtype.I64)
			}
		}
		narrowLimit = 0
	}
}

func testScatter(t *testing.T, kind device.ScatterKind, c indexCase, typ, it dtype.Type) {
	wild := typ == dtype.F32
	m := newMachine(t)
	// bank conflicts occur, because the digits of the keys decide where elements are stored
	m.conflicts = c.index.Shape.At(c.axis) > sortRun
	dst, src := m.random(m.tensor(typ, c.big, c.skip)), m.random(m.tensor(typ, c.small, c.skip))
	index := m.indices(m.tensor(it, c.index, 0), c.big.Shape.At(c.axis), wild)
	fault := m.fault()
	at := m.read(index)
	want := m.decode(dst)
	size := make([]float64, len(want))
	for i, v := range want {
		size[i] = math.Abs(v)
	}
	hits := make([]int, len(want))
	for i, v := range m.decode(src) {
		k := signed(index, at[i])
		if k < 0 || k >= c.big.Shape.At(c.axis) {
			continue
		}
		to := reach(c.big.Shape, c.index.Shape, c.axis, i, k)
		hits[to]++
		switch kind {
		case device.ScatterSet:
			want[to] = v
		case device.ScatterMax:
			want[to] = max(want[to], v)
		case device.ScatterMin:
			want[to] = min(want[to], v)
		case device.ScatterProd:
			want[to] *= v
			size[to] *= math.Abs(v)
		default:
			want[to] += v
			size[to] += math.Abs(v)
		}
		if !typ.IsFloat() {
			want[to] = expr.Decode(typ, expr.Store(typ, uint64(int64(want[to]))))
		}
	}
	list, err := Scatter(kind, dst, src, index, c.axis, false, fault.Addr, 5, m.scratch)
	m.run(list, err)
	what := fmt.Sprintf("scatter-%v %s of %v", kind, c.what, typ)
	eps := map[dtype.Type]float64{dtype.F32: 0x1p-24, dtype.F64: 0x1p-53, dtype.BF16: 0x1p-8}[typ]
	if kind != device.ScatterAdd && kind != device.ScatterProd {
		eps = 0
	}
	for i, got := range m.read(dst) {
		if g := expr.Decode(typ, got); math.Abs(g-want[i]) > float64(hits[i]+1)*eps*size[i] {
			t.Errorf("%s: element %d is %v, want %v", what, i, g, want[i])
		}
	}
	m.checkFault(what, fault, wild, index, c.big.Shape.At(c.axis))
}

func TestIndexGolden(t *testing.T) {
	scratch := func(int) (uint64, error) { return 1 << 30, nil }
	rows := Operand{Addr: 1 << 20, Type: dtype.I64, Layout: strided([]int{100, 64}, []int{1, 0})}
	list, err := Gather(fake(dtype.F32, 100, 64), fake(dtype.F32, 1000, 64), rows, 0, 1<<20, 1)
	golden(t, "gather_rows", list, err)
	list, err = Scatter(device.ScatterAdd, fake(dtype.F32, 1000, 64), fake(dtype.F32, 100, 64), rows, 0, false, 1<<20, 1, scratch)
	golden(t, "scatteradd_rows", list, err)
	list, err = Scatter(device.ScatterAdd, fake(dtype.F32, 1000, 64), fake(dtype.F32, 50, 64), fake(dtype.I64, 50, 64), 0, false, 1<<20, 1, scratch)
	golden(t, "scatteradd_lines", list, err)
	list, err = Scatter(device.ScatterAdd, fake(dtype.F32, 100, 64), fake(dtype.F32, 100, 64), fake(dtype.I64, 100, 64), 1, true, 1<<20, 1, scratch)
	golden(t, "scatteradd_distinct", list, err)
	list, err = Scatter(device.ScatterMax, fake(dtype.BF16, 1000, 64), fake(dtype.BF16, 100, 64), fake(dtype.I64, 100, 64), 0, false, 1<<20, 1, scratch)
	golden(t, "scattermax_samples", list, err)
	tokens := Operand{Addr: 1 << 20, Type: dtype.I64, Layout: strided([]int{8192, 768}, []int{1, 0})}
	list, err = Scatter(device.ScatterAdd, fake(dtype.BF16, 50257, 768), fake(dtype.BF16, 8192, 768), tokens, 0, false, 1<<20, 1, scratch)
	golden(t, "scatteradd_tokens", list[1:], err) // all launches except the last one sort the index
	for _, bad := range []Operand{fake(dtype.F32, 100, 64), fake(dtype.I64, 100)} {
		if _, err := Gather(fake(dtype.F32, 100, 64), fake(dtype.F32, 1000, 64), bad, 0, 0, 0); err == nil {
			t.Errorf("no error for index %v %v", bad.Type, bad.Shape)
		}
		if _, err := Scatter(device.ScatterAdd, fake(dtype.F32, 1000, 64), fake(dtype.F32, 100, 64), bad, 0, false, 0, 0, scratch); err == nil {
			t.Errorf("no error for index %v %v", bad.Type, bad.Shape)
		}
	}
}

// TestScatterParts combines elements with equal indices by Scatter and by plain loops in the
// documented order. The bits must be equal. Long runs of equal indices are first combined in parts.
func TestScatterParts(t *testing.T) {
	defer func(n int) { partLeast = n }(partLeast)
	partLeast = 16
	for _, c := range []struct {
		bound, count, lines int
		of                  func(i int) int // the index at position i
		samples             bool
	}{
		{5, 300, 8, func(i int) int { return i * i % 7 % 5 }, false},
		// the index has runs of 100, 100 and 56 equal elements
		{3, 256, 3, func(i int) int { return i / 100 }, false},
		{2, 130, 1, func(i int) int { return 1 }, false}, // the whole index is one run of equal elements
		// runs of the length of one part, and a run of a single element
		{9, 81, 12, func(i int) int { return i / 16 }, false},
		// the index is sorted by digits, and some indices lie outside of the axis
		{100, 2500, 4, func(i int) int { return i * i % 113 }, false},
		// each column has its own indices
		{40, 150, 3, func(i int) int { return i * i * i % 61 % (i%3*20 + 1) }, true},
	} {
		for _, typ := range []dtype.Type{dtype.F32, dtype.BF16, dtype.I8} {
			m := newMachine(t)
			m.conflicts = c.count > sortRun
			dst, src := m.random(m.tensor(typ, dense(c.bound, c.lines), 0)), m.random(m.tensor(typ, dense(c.count, c.lines), 0))
			index := m.tensor(dtype.I64, strided([]int{c.count, c.lines}, []int{1, 0}), 0)
			at := func(i, line int) int { return c.of(i) }
			if c.samples {
				index = m.tensor(dtype.I64, dense(c.count, c.lines), 0)
				at = func(i, line int) int { return c.of(i + line) }
			}
			m.fill(index, func(i int) uint64 { return uint64(at(i/c.lines, i%c.lines)) })
			want, add, part := m.decode(dst), m.decode(src), partOf(c.count)
			sum := func(x, y float64) float64 {
				if typ == dtype.I8 {
					return x + y
				}
				return float64(float32(x) + float32(y))
			}
			for line := range c.lines {
				for k := range c.bound {
					var parts []float64
					n := 0
					for i := range c.count {
						if at(i, line) != k {
							continue
						}
						v := add[i*c.lines+line]
						switch {
						case n == 0:
							parts = append(parts, sum(want[k*c.lines+line], v))
						case n%part == 0:
							parts = append(parts, v)
						default:
							parts[len(parts)-1] = sum(parts[len(parts)-1], v)
						}
						n++
					}
					for i, v := range parts {
						if i == 0 {
							want[k*c.lines+line] = v
						} else {
							want[k*c.lines+line] = sum(want[k*c.lines+line], v)
						}
					}
				}
			}
			list, err := Scatter(device.ScatterAdd, dst, src, index, 0, false, m.fault().Addr, 5, m.scratch)
			m.run(list, err)
			m.compare(fmt.Sprintf("%d positions of %v into %d", c.count, typ, c.bound), dst, func(i int) uint64 {
				if typ == dtype.I8 {
					return expr.Store(typ, uint64(int64(want[i])))
				}
				return expr.Encode(typ, want[i])
			})
		}
	}
}
