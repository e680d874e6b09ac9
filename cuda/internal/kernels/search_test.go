package kernels

import (
	"fmt"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

func TestSearch(t *testing.T) {
	for k, typ := range dtype.Types() {
		// number of rows, and the numbers of elements and of searched values in a row
		for _, d := range [][3]int{{1, 70, 300}, {3, 33, 40}, {2, 1, 5}, {2, 0, 3}, {0, 4, 4}} {
			right := k%2 == 0
			m := newMachine(t)
			x := m.tensor(typ, dense(d[0], d[1]), 1)
			m.fill(x, func(i int) uint64 {
				c := i % d[1]
				if typ.IsFloat() && c > d[1]*9/10 {
					return expr.Encode(typ, math.NaN())
				}
				return expr.Encode(typ, math.Floor(float64(c)/3)*float64(min(1, c/20)))
			})
			v := m.fill(m.tensor(typ, shape.Dense(shape.Of(d[2], d[0])).Transpose(0, 1), 0), func(i int) uint64 {
				if typ.IsFloat() && i%7 == 3 {
					return expr.Encode(typ, []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[i%3])
				}
				return expr.Encode(typ, float64(i*31%40))
			})
			y := m.tensor(dtype.I64, dense(d[0], d[2]), 0)
			list, err := Search(y, x, v, right)
			m.run(list, err)
			sorted, values := m.decode(x), m.decode(v)
			m.compare(fmt.Sprintf("search in %v %v, right %v", typ, d, right), y, func(i int) uint64 {
				n, row := uint64(0), i/d[2]*d[1]
				for _, e := range sorted[row : row+d[1]] {
					if w := values[i]; w != w || e < w || right && e == w {
						n++
					}
				}
				return n
			})
		}
	}
}

func TestSearchPTX(t *testing.T) {
	list, err := Search(fake(dtype.I64, 4, 100), fake(dtype.F32, 4, 1000), fake(dtype.F32, 4, 100), true)
	golden(t, "search_f32", list, err)
}
