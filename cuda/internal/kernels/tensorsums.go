package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// The tensor cores sum rows of a and columns of b as products with a matrix of ones. Rows of a are
// summed by the warps that compute the first columns of the result, because they load fragments of
// all rows of a. Columns of b are summed by the warps that compute the first rows of the result.

// tensorSums is the state of a tensor-core kernel that also sums rows of a or columns of b.
type tensorSums struct {
	p      ptx.Ptr
	stride ptx.Value
	mine   ptx.Value // whether this warp computes sums of rows or of columns
	// acc has an entry for each 16 rows or columns. It is nil if there are no sums.
	acc [][]*ptx.Var
}

// declareSums declares the kernel parameters and the registers of the sums.
func (g *tensorBuilder) declareSums() {
	declare := func(name string, n int, other ptx.Value) tensorSums {
		r := tensorSums{p: g.Pointer(name, ptx.F32), stride: g.Param(name+"r", ptx.S32), mine: other.Eq(num(0))}
		for range n {
			var v []*ptx.Var
			for range 4 {
				v = append(v, g.Var(g.F32(0)))
			}
			r.acc = append(r.acc, v)
		}
		return r
	}
	if g.s.sums.rows {
		g.rowSums = declare("sums", len(g.acc), g.tileN.Add(g.warpN))
	}
	if g.s.sums.columns {
		g.columnSums = declare("columns", len(g.acc[0])/2, g.tileM.Add(g.warpM))
	}
}

// addSums adds the fragments of one step to the sums. Two fragments of 8 columns of b with
// interleaved registers have the layout of one fragment of 16 rows of a.
func (g *tensorBuilder) addSums(f fragments) {
	ones := uint64(0x3f803f80)
	if g.s.typ == dtype.F16 {
		ones = 0x3c003c00
	}
	add := func(r *tensorSums, fragment func(i int) []ptx.Value) {
		if r.acc == nil {
			return
		}
		one := g.Bits(ptx.B32, ones)
		g.If(r.mine, func() {
			for i, v := range r.acc {
				set(v, g.MMA(storage(g.s.typ), fragment(i), []ptx.Value{one, one}, get(v)))
			}
		})
	}
	add(&g.rowSums, func(i int) []ptx.Value { return get(f.a[i]) })
	add(&g.columnSums, func(i int) []ptx.Value {
		x, y := get(f.b[2*i]), get(f.b[2*i+1])
		return []ptx.Value{x[0], y[0], x[1], y[1]}
	})
}

// storeSums stores the sums. Each sum is in the lane that holds the first column of its fragment.
func (g *tensorBuilder) storeSums() {
	store := func(what string, r *tensorSums, first, count ptx.Value) {
		if r.acc == nil {
			return
		}
		g.Comment("the sums of %s", what)
		g.If(r.mine.And(g.lane.And(num(3)).Eq(num(0))), func() {
			row := first.Add(g.lane.Shr(num(2)))
			for i, v := range r.acc {
				for h := range 2 {
					at := row.Add(num(i*16 + h*8))
					g.If(at.Lt(count), func() {
						r.p.At(at.Bitcast(ptx.S32).MulWide(r.stride)).Store(v[2*h].Get())
					})
				}
			}
		})
	}
	store("rows", &g.rowSums, g.tileM.Add(g.warpM), g.m)
	store("columns", &g.columnSums, g.tileN.Add(g.warpN), g.n)
}
