package kernels

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// slowOrder returns the positions of a row in order.
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

// Rows of several runs.
func TestArgsortMerged(t *testing.T) {
	defer func(n int) { sortRun = n }(sortRun)
	sortRun = rowThreads
	argsorts(t, [][3]int{{2, 300, 300}, {1, 1000, 1000}, {2, 700, 10}})
}

func argsorts(t *testing.T, shapes [][3]int) {
	for _, typ := range dtype.Types() {
		for n, d := range shapes {
			if d[1] > 64 && typ != dtype.F32 && (typ != dtype.I64 || d[1] > 300) {
				continue
			}
			descending := n%2 == 1
			m := newMachine(t)
			l := dense(d[0], d[1])
			if n%3 == 1 {
				l = shape.Dense(shape.Of(d[1], d[0])).Transpose(0, 1)
			}
			x := m.fill(m.tensor(typ, l, n%2), func(i int) uint64 {
				v := float64(i*7919%101 - 50) // many are equal
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
					return 1<<63 - uint64(i%2) // the least and the greatest
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
	}{{"sort_f32", dtype.F32, 1000, false}, {"sort_f64", dtype.F64, 2000, true}, {"sort_bf16_long", dtype.BF16, 10000, false}, {"sort_i64_long", dtype.I64, 10000, false}, {"sort_u8", dtype.U8, 10, false}} {
		list, err := Argsort(fake(dtype.I64, 4, c.n), fake(c.typ, 4, c.n), c.descending, scratch)
		if len(list) > 3 {
			list = append(list[:2:2], list[len(list)-1])
		}
		golden(t, c.name, list, err)
	}
}
