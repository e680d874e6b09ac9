package kernels

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// slowOrder returns the positions of a row's elements in sorted order, as a reference.
func slowOrder(x []float64, descending bool) []int {
	at := make([]int, len(x))
	for i := range at {
		at[i] = i
	}
	key := func(v float64) float64 {
		if v != v {
			return math.Inf(1)
		}
		return min(max(v, -math.MaxFloat64), math.MaxFloat64) + 0
	}
	slices.SortStableFunc(at, func(i, j int) int {
		if descending {
			i, j = j, i
		}
		return cmp.Compare(key(x[i]), key(x[j]))
	})
	return at
}

func TestArgsort(t *testing.T) {
	argsorts(t, [][3]int{{3, 1, 1}, {2, 7, 7}, {2, 64, 5}, {1, 200, 200}, {1, 700, 700}, {1, 1100, 3}, {0, 5, 5}})
}

// TestArgsortLong sorts long rows, for which the kernels use digits of the keys. The rows have one
// tile, several tiles, or so many tiles that several blocks count the digits.
func TestArgsortLong(t *testing.T) {
	defer func(run, items int) { sortRun, radixItems = run, items }(sortRun, radixItems)
	sortRun, radixItems = 64, 2
	argsorts(t, [][3]int{{2, 512, 512}, {1, 1025, 1025}, {3, 700, 10}, {1, 3000, 3000}, {1, 17000, 40}, {2, 9000, 1}})
}

// TestArgsortLengths sorts rows whose lengths are near the largest lengths for one block and for
// one tile.
func TestArgsortLengths(t *testing.T) {
	for i, n := range []int{2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193} {
		m := newMachine(t)
		m.conflicts = n > sortRun
		typ := []dtype.Type{dtype.F32, dtype.I16, dtype.I64, dtype.F16}[i%4]
		x := m.fill(m.tensor(typ, dense(1, n), 0), func(i int) uint64 { return uint64(i) * 0x9e3779b97f4a7c15 >> 3 })
		y := m.tensor(dtype.I64, dense(1, n), 0)
		list, err := Argsort(y, x, false, m.scratch)
		m.run(list, err)
		in := m.decode(x)
		if typ == dtype.I64 { // all elements are different, even after conversion to float64
			for k, v := range m.read(x) {
				in[k] = float64(int64(v))
			}
		}
		want := slowOrder(in, false)
		m.compare(fmt.Sprintf("%d of %v in order", n, typ), y, func(i int) uint64 { return uint64(want[i]) })
	}
}

// TestSortLaunches counts the launches of sorting, for rows of several lengths and for the gradient
// of GPT-2's token embedding.
func TestSortLaunches(t *testing.T) {
	scratch := func(int) (uint64, error) { return 1 << 21, nil }
	for _, c := range []struct {
		typ  dtype.Type
		n, k int
		want int
	}{
		{dtype.F32, 1e3, 1e3, 1}, {dtype.F32, 4e3, 4e3, 1}, {dtype.F32, 1e6, 1e6, 6}, {dtype.F32, 5e7, 5e7, 6},
		{dtype.BF16, 8e3, 8e3, 1}, {dtype.BF16, 5e7, 5e7, 4}, {dtype.U8, 5e7, 5e7, 3}, {dtype.I64, 5e7, 5e7, 10},
		{dtype.F32, 50257, 50, 2}, {dtype.F32, 1e6, 50, 3}, {dtype.F32, 5e7, 50, 3},
	} {
		list, err := Argsort(fake(dtype.I64, 1, c.k), fake(c.typ, 1, c.n), false, scratch)
		if err != nil || len(list) != c.want {
			t.Errorf("the first %d of %d %v: %d launches, want %d; %v", c.k, c.n, c.typ, len(list), c.want, err)
		}
	}
	tokens := Operand{Addr: 1 << 20, Type: dtype.I64, Layout: strided([]int{8192, 768}, []int{1, 0})}
	list, err := Scatter(device.ScatterAdd, fake(dtype.F32, 50257, 768), fake(dtype.F32, 8192, 768), tokens, 0, false, 1<<20, 1, scratch)
	if err != nil || len(list) != 3 {
		t.Errorf("8192 tokens: %d launches, want 3; %v", len(list), err)
	}
}

func argsorts(t *testing.T, shapes [][3]int) {
	for _, typ := range dtype.Types() {
		for n, d := range shapes {
			if d[1] > 1100 && typ != dtype.F32 && typ != dtype.F64 {
				continue
			}
			descending := n%2 == 1
			m := newMachine(t)
			// bank conflicts occur, because the digits of the keys decide where elements are stored
			m.conflicts = d[1] > sortRun
			l := dense(d[0], d[1])
			if n%3 == 1 {
				l = shape.Dense(shape.Of(d[1], d[0])).Transpose(0, 1)
			}
			x := m.fill(m.tensor(typ, l, n%2), func(i int) uint64 {
				v := float64(i*7919%101 - 50) // many values occur several times
				if typ.Size() >= 4 && i%4 == 1 {
					v *= float64(i * i * 37) // the values differ in all digits
				}
				if typ.IsFloat() {
					switch i % 23 {
					case 5:
						v = math.NaN()
					case 6:
						v = math.Inf(1 - i%2*2)
					case 7:
						v = math.Copysign(0, -1)
					case 8:
						v = 0
					}
				} else {
					v = math.Abs(v)
				}
				if typ == dtype.I64 && i%9 == 4 {
					return 1<<63 - uint64(i%2) // the smallest and the greatest value alternate
				}
				return expr.Encode(typ, v)
			})
			y := m.tensor(dtype.I64, dense(d[0], d[2]), 0)
			list, err := Argsort(y, x, descending, m.scratch)
			m.run(list, err)
			in := m.decode(x)
			if typ == dtype.I64 {
				for i, b := range m.read(x) {
					in[i] = float64(int64(b))
				}
			}
			m.compare(fmt.Sprintf("argsort of %v %v, descending %v", typ, d, descending), y, func(i int) uint64 {
				row := i / d[2]
				return uint64(slowOrder(in[row*d[1]:row*d[1]+d[1]], descending)[i%d[2]])
			})
		}
	}
}

func TestSortPTX(t *testing.T) {
	scratch := func(int) (uint64, error) { return 1 << 21, nil }
	for _, c := range []struct {
		name       string
		typ        dtype.Type
		n          int
		descending bool
	}{{"sort_f32", dtype.F32, 1000, false}, {"sort_f64", dtype.F64, 2000, true}, {"sort_bf16_long", dtype.BF16, 50000, false}, {"sort_bf16_tile", dtype.BF16, 8000, false}, {"sort_f32_tile", dtype.F32, 4000, true}, {"sort_u8", dtype.U8, 10, false}} {
		list, err := Argsort(fake(dtype.I64, 4, c.n), fake(c.typ, 4, c.n), c.descending, scratch)
		if len(list) > 5 {
			list = append(list[:3:3], list[len(list)-1])
		}
		golden(t, c.name, list, err)
	}
	list, err := Argsort(fake(dtype.I64, 4, 50), fake(dtype.F32, 4, 50257), true, scratch)
	golden(t, "sort_top", list, err)
}
