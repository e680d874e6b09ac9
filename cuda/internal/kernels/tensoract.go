package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// withInPieces reports whether the elements of the operand With that belong to 16 bytes of results
// can be loaded in one access, or in several of 16 bytes if they have more bytes. The argument
// store says how the results are stored.
func (o *ProductOperands) withInPieces(store tensorStore) bool {
	switch store {
	case storePieces:
		return o.With.inPieces(8)
	case storeShifted:
		return o.likeOut(&o.With)
	}
	return false
}

// storeRounded stores rounded results: one result, or several words of two results. It stores the
// values after the activation. If Pre is present, it also stores the values before the
// activation. The argument withValues holds the elements of the operand With for these results.
func (g *tensorBuilder) storeRounded(dst ptx.Ptr, withValues []ptx.Value, v ...ptx.Value) {
	store := func(dst ptx.Ptr) {
		if len(v) > 1 {
			dst.StoreVec(v...)
		} else {
			dst.Store(v[0])
		}
	}
	if g.s.pre {
		store(dst.AtByte(g.act.pre))
	}
	if g.act.f != nil {
		n := 1
		if len(v) > 1 {
			n = 2 * len(v)
		}
		y := g.act.apply(widenVector(g.s.out, v, n), withValues)
		if n == 1 {
			v = []ptx.Value{narrow(g.Builder, g.s.out, y[0])}
		} else {
			v = make([]ptx.Value, n/2)
			for i := range v {
				v[i] = g.Pack2(storage(g.s.out), y[2*i], y[2*i+1])
			}
		}
	}
	store(dst)
}

// unitsInFlight returns the number of 16-byte pieces or elements that a thread loads from the
// operand With before it uses the first one. The argument steps is the number of steps in which the
// thread stores its results.
func (g *tensorBuilder) unitsInFlight(steps, limit int) int {
	if g.s.with == dtype.Invalid {
		return 1
	}
	return min(steps, limit)
}

// withPiecesAhead is the number of 16-byte pieces of the operand With that a thread loads ahead,
// while it applies the activation with earlier ones.
const withPiecesAhead = 4

// loadWithPieces loads the 16-byte pieces of the operand With for the results that a thread stores,
// beginning with row first of the block. Beyond an edge, where results are not stored, it loads the
// pieces at the edge.
func (g *tensorBuilder) loadWithPieces(first ptx.Value) {
	if g.s.with == dtype.Invalid || g.s.store != storePieces {
		return
	}
	row, col, step := g.piece()
	set := len(g.withPieces) > 0
	for i := range g.unitsInFlight(g.s.form.bm/step, withPiecesAhead) {
		r := g.tileM.Add(row).Add(first).Add(num(i * step)).Min(g.m.Sub(num(1)))
		for k, v := range g.act.loadWith(r, g.tileN.Add(col).Min(g.n.Sub(num(8))), 8) {
			if set {
				g.withPieces[i][k].Set(v)
				continue
			}
			if k == 0 {
				g.withPieces = append(g.withPieces, nil)
			}
			g.withPieces[i] = append(g.withPieces[i], g.Var(v))
		}
	}
}
