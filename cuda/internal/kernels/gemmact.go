package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// finishing returns s with the bias, sums and activation that o requests.
func (s gemmSpec) finishing(o ProductOperands) gemmSpec {
	s.bias, s.sums, s.actSpec = o.Bias.Type, o.summing(), o.acting()
	if s.with != dtype.Invalid {
		s.vectorOut = s.vectorOut && o.With.inPieces(16/s.typ.Size())
	}
	return s
}

// writeActivated applies the activation to a thread's results and stores them. The results start at
// row, col. Each thread first stores several rows in its own part of shared memory, where the tiles
// were. A loop then applies the activation to one vector at a time. So the long code of an
// activation is emitted only once, and not for every register. The argument thread is this thread's
// index among the threads that have results.
func (g *gemmBuilder) writeActivated(c gemmOperand, shared ptx.Ptr, thread ptx.Value, threads int, row, col ptx.Value, acc [][]*ptx.Var) {
	g.Comment("store the activated results")
	if g.s.with != dtype.Invalid {
		g.act.with = g.act.with.ofBatch(g.BlockID(1))
	}
	chunks := len(acc[0]) / g.chunk // number of vectors in a row
	mine := shared.At(thread.Mul(num(g.chunk)))
	for first := 0; first < len(acc); first += g.chunk {
		for i := range g.chunk {
			for j := range chunks {
				mine.At(num((i*chunks + j) * threads * g.chunk)).StoreVec(get(acc[first+i][j*g.chunk : (j+1)*g.chunk])...)
			}
		}
		place := func(i ptx.Value) (r, k ptx.Value) {
			return row.Add(num(first * 4)).Add(i.Div(num(chunks))), col.Add(i.Rem(num(chunks)).Mul(num(g.chunk * 8)))
		}
		var next [][]*ptx.Var
		for _, v := range g.loadWith(place(g.U32(0))) {
			var list []*ptx.Var
			for _, v := range v {
				list = append(list, g.Var(v))
			}
			next = append(next, list)
		}
		g.For(g.U32(0), num(g.chunk*chunks), num(1), func(i ptx.Value, _ ptx.Loop) {
			r, k := place(i)
			var beside [][]ptx.Value
			for _, v := range next {
				beside = append(beside, get(v))
			}
			if g.s.with != dtype.Invalid {
				for e, v := range g.loadWith(place(i.Add(num(1)).Min(num(g.chunk*chunks - 1)))) {
					set(next[e], v)
				}
			}
			values := mine.At(i.Mul(num(threads * g.chunk))).LoadVec(g.chunk)
			g.If(r.Lt(g.m), func() {
				g.storeChunk(c, c.p.At(r.Bitcast(ptx.S32).MulWide(c.stride1)), k, values, beside)
			})
		})
	}
}

// loadWith loads the elements of the operand With for a vector of results, as a vector or one by
// one. For results beyond an edge, which are never stored, it loads the elements at the edge.
func (g *gemmBuilder) loadWith(row, col ptx.Value) (list [][]ptx.Value) {
	n := 1
	if g.s.vectorOut {
		n = g.chunk
	}
	for e := 0; e < g.chunk; e += n {
		offset := col.Add(num(e)).Min(g.n.Sub(num(n)))
		list = append(list, g.act.loadWith(row.Min(g.m.Sub(num(1))), offset, n))
	}
	return list
}

// storeChunk stores a vector of a row's activated results. The vector begins at column col. If the
// operand Pre is present, storeChunk also stores the results before the activation.
func (g *gemmBuilder) storeChunk(c gemmOperand, line ptx.Ptr, col ptx.Value, values []ptx.Value, withValues [][]ptx.Value) {
	store := func(to ptx.Ptr, values, withValues []ptx.Value) {
		if g.s.pre {
			storeVector(g.Builder, to.AtByte(g.act.pre), g.s.out, values)
		}
		storeVector(g.Builder, to, g.s.out, g.act.apply(values, withValues))
	}
	if g.s.vectorOut {
		g.If(col.Lt(g.n), func() { store(line.AtByte(col.Mul(num(g.s.out.Size()))), values, withValues[0]) })
		return
	}
	for e := range values {
		at := col.Add(num(e))
		g.If(at.Lt(g.n), func() { store(line.At(at.Bitcast(ptx.S32).MulWide(c.stride2)), values[e:e+1], withValues[e]) })
	}
}
