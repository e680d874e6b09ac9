package kernels

import (
	"github.com/flambeau-go/flambeau/ptx"
)

// tileLoader moves tiles of one operand: fetch reads the next one into registers, store puts those into shared memory as
// rows along the outer dimension, one for each k.
type tileLoader struct {
	g      *gemmBuilder
	mode   tileLoad
	units  []loadUnit
	step   ptx.Value // bytes from one tile to the next
	ld     int
	shared ptx.Ptr
}

// loadUnit is a vector or an element that this thread moves in each tile.
type loadUnit struct {
	from   ptx.Ptr
	at     *ptx.Var  // its address in the next tile
	inside ptx.Value // the outer coordinate is inside the matrix
	k      ptx.Value // within the tile
	to     ptx.Ptr   // in the first buffer
	regs   []*ptx.Var
}

// loader prepares to load tiles of extent outer (bo elements from first on) by k. count is the size of the outer
// dimension; the strides count elements.
func (g *gemmBuilder) loader(mode tileLoad, p ptx.Ptr, first, count, outerStride, kStride ptx.Value, bo, ld int, shared ptx.Ptr) *tileLoader {
	b, bk := g.Builder, g.s.tile.bk
	l := &tileLoader{g: g, mode: mode, ld: ld, shared: shared}
	l.step = kStride.MulWide(num(bk * g.s.typ.Size())).Bitcast(ptx.U64)
	v := 1
	if mode.vectors() {
		v = vectorElements(g.s.typ)
	}
	n := bo * bk / v / g.threads
	thread := b.ThreadID(0)
	for i := range n {
		u := thread.Add(num(i * g.threads))
		var outer, k ptx.Value
		switch mode {
		case vectorsAlongOuter, scalarsAlongOuter:
			per := bo / v
			outer, k = u.Rem(num(per)).Mul(num(v)), u.Div(num(per))
		case vectorsAlongK:
			// Two vectors a row, sixteen rows a warp: with the rows' padding no two lanes store to one bank.
			outer = u.Div(num(2)).Rem(num(bo))
			k = u.Div(num(2 * bo)).Mul(num(2)).Add(u.Rem(num(2))).Mul(num(v))
		case scalarsAlongK:
			width := 32 / g.compute.Size()
			outer = u.Div(num(width)).Rem(num(bo))
			k = u.Div(num(width * bo)).Mul(num(width)).Add(u.Rem(num(width)))
		}
		at := first.Add(outer)
		unit := loadUnit{inside: at.Lt(count), k: k}
		unit.from = p.At(at.Bitcast(ptx.S32).MulWide(outerStride)).At(k.Bitcast(ptx.S32).MulWide(kStride))
		unit.at = b.Var(unit.from.Address())
		unit.to = shared.At(k.Mad(num(ld), outer))
		for range v {
			unit.regs = append(unit.regs, b.Var(b.Const(g.compute, num(0))))
		}
		l.units = append(l.units, unit)
	}
	return l
}

// fetch reads the tile that starts at k into registers and moves on; what is outside of the matrix becomes zero.
func (l *tileLoader) fetch(k ptx.Value) {
	b := l.g.Builder
	for _, u := range l.units {
		for _, r := range u.regs {
			r.Set(num(0))
		}
		b.If(u.inside.And(k.Add(u.k).Lt(l.g.k)), func() {
			for i, v := range loadVector(b, u.from.MovedTo(u.at), l.g.s.typ, len(u.regs)) {
				u.regs[i].Set(v)
			}
		})
		u.at.Set(u.at.Get().Add(l.step))
	}
}

// store puts the registers into the given buffer.
func (l *tileLoader) store(buffer ptx.Value) {
	for _, u := range l.units {
		to := u.to.At(buffer.Mul(num(l.g.s.tile.bk * l.ld)))
		if l.mode == vectorsAlongOuter {
			list := make([]ptx.Value, len(u.regs))
			for i, r := range u.regs {
				list[i] = r.Get()
			}
			to.StoreVec(list...)
			continue
		}
		for i, r := range u.regs {
			to.At(num(i * l.ld)).Store(r)
		}
	}
}
