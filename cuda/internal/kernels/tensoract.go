package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// besideInPieces reports whether what stands beside a piece of 16 bytes of results, which leave
// that way, can be loaded at once.
func (o *ProductOperands) besideInPieces(to tensorStore) bool {
	switch to {
	case storePieces:
		return o.With.inPieces(8)
	case storeShifted:
		return o.likeOut(&o.With)
	}
	return false
}

// leave stores rounded results, one or words of two: as they are where that is wanted, and
// activated. beside is what With has there.
func (g *tensorBuilder) leave(to ptx.Ptr, beside []ptx.Value, v ...ptx.Value) {
	store := func(to ptx.Ptr) {
		if len(v) > 1 {
			to.StoreVec(v...)
		} else {
			to.Store(v[0])
		}
	}
	if g.s.pre {
		store(to.AtByte(g.act.pre))
	}
	if g.act.f != nil {
		n := 1
		if len(v) > 1 {
			n = 2 * len(v)
		}
		y := g.act.apply(widenVector(g.s.out, v, n), beside)
		if n == 1 {
			v = []ptx.Value{narrow(g.Builder, g.s.out, y[0])}
		} else {
			v = make([]ptx.Value, n/2)
			for i := range v {
				v[i] = g.Pack2(storage(g.s.out), y[2*i], y[2*i+1])
			}
		}
	}
	store(to)
}

// together is how many of With's pieces, or elements, a thread asks for at once of the steps in
// which it stores results.
func (g *tensorBuilder) together(steps, most int) int {
	if g.s.with == dtype.Invalid {
		return 1
	}
	return min(steps, most)
}

// besideAhead is how many pieces of With a thread asks for while it activates as many before them.
const besideAhead = 4

// askBeside loads what With has beside the pieces of results that a thread stores from row first of
// the block on. What is beyond an edge has the edge's, and is stored nowhere.
func (g *tensorBuilder) askBeside(first ptx.Value) {
	if g.s.with == dtype.Invalid || g.s.to != storePieces {
		return
	}
	row, col, step := g.piece()
	set := len(g.beside) > 0
	for i := range g.together(g.s.form.bm/step, besideAhead) {
		r := g.tileM.Add(row).Add(first).Add(num(i * step)).Min(g.m.Sub(num(1)))
		for k, v := range g.act.beside(r, g.tileN.Add(col).Min(g.n.Sub(num(8))), 8) {
			if set {
				g.beside[i][k].Set(v)
				continue
			}
			if k == 0 {
				g.beside = append(g.beside, nil)
			}
			g.beside[i] = append(g.beside[i], g.Var(v))
		}
	}
}
