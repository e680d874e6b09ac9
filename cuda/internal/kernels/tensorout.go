package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// finish is the one place where sums become results: what is to be done to them on the way belongs
// here, before they are rounded.
func (g *tensorBuilder) finish(c gemmOperand) {
	if g.s.out == dtype.F32 {
		g.writeSums(c)
	} else {
		g.writeOut(c)
	}
}

// writeSums stores float32 sums, whose rows are contiguous, as they lie in the registers.
func (g *tensorBuilder) writeSums(c gemmOperand) {
	b := g.Builder
	row := g.warpM.Add(g.lane.Shr(num(2)))
	col := g.tileN.Add(g.warpN).Add(g.lane.And(num(3)).Shl(num(1)))
	for i := range g.acc {
		for h := range 2 {
			r := row.Add(num(i*16 + h*8))
			at := g.tileM.Add(r)
			b.If(g.has(r, at), func() {
				line := c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1))
				for j, v := range g.acc[i] {
					k := col.Add(num(j * 8))
					lo, hi := v[2*h].Get(), v[2*h+1].Get()
					if g.s.to == storePieces {
						b.If(k.Lt(g.n), func() { line.At(k).StoreVec(lo, hi) })
						continue
					}
					b.If(k.Lt(g.n), func() { line.At(k).Store(lo) })
					b.If(k.Add(num(1)).Lt(g.n), func() { line.At(k).At(num(1)).Store(hi) })
				}
			})
		}
	}
}

// writeOut rounds the results and stores them through shared memory, so that they leave in 16-byte
// pieces.
func (g *tensorBuilder) writeOut(c gemmOperand) {
	b, s := g.Builder, g.s
	b.Comment("the results go through shared memory")
	t, pitch := storage(s.typ), s.pitch()
	row, col := g.warpM.Add(g.lane.Shr(num(2))), g.warpN.Add(g.lane.And(num(3)).Shl(num(1)))
	at := g.shared.As(t).At(row.Mul(num(pitch)).Add(col))
	for i := range g.acc {
		for h := range 2 {
			to := at.At(num((i*16 + h*8) * pitch))
			if s.to == storeShifted {
				to = to.At(g.late(c, row.Add(num(i*16+h*8))))
			}
			for j, v := range g.acc[i] {
				w := b.Pack2(t, v[2*h].Get(), v[2*h+1].Get())
				if s.to == storeShifted {
					lo, hi := w.Split(t)
					to.At(num(j * 8)).Store(lo)
					to.At(num(j*8 + 1)).Store(hi)
					continue
				}
				to.At(num(j * 8)).As(ptx.B32).Store(w)
			}
		}
	}
	b.Barrier()
	switch s.to {
	case storePieces:
		g.storePieces(c)
	case storeShifted:
		g.storeShifted(c)
	default:
		g.storeElements(c)
	}
}

// late is by how many elements the first of a row of the block comes after the last address of
// whole 16 bytes.
func (g *tensorBuilder) late(c gemmOperand, row ptx.Value) ptx.Value {
	line := c.p.At(g.tileM.Add(row).Bitcast(ptx.S32).MulWide(c.stride1)).At(g.tileN)
	return line.Address().Shr(num(1)).Cvt(ptx.U32).And(num(7))
}

// storeElements stores results one by one, wherever they belong.
func (g *tensorBuilder) storeElements(c gemmOperand) {
	b, f, t := g.Builder, g.s.form, storage(g.s.typ)
	b.For(b.ThreadID(0), b.U32(uint32(f.bm*f.bn)), num(f.threads()), func(e ptx.Value, _ ptx.Loop) {
		r, k := e.Div(num(f.bn)), e.Rem(num(f.bn))
		at, col := g.tileM.Add(r), g.tileN.Add(k)
		b.If(g.has(r, at).And(col.Lt(g.n)), func() {
			p := c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1)).At(col.Bitcast(ptx.S32).MulWide(c.stride2))
			p.Store(g.shared.As(t).At(r.Mul(num(g.s.pitch())).Add(k)).Load())
		})
	})
}

// storePieces stores rows that consist of pieces of 16 bytes.
func (g *tensorBuilder) storePieces(c gemmOperand) {
	b, f := g.Builder, g.s.form
	per := f.bn / 8
	thread := b.ThreadID(0)
	piece := thread.Rem(num(per)).Mul(num(8))
	for i := range ceilDiv(f.bm*per, f.threads()) {
		r := thread.Div(num(per)).Add(num(i * f.threads() / per))
		from := g.shared.AtByte(r.Mul(num(g.s.pitch())).Add(piece).Shl(num(1)))
		at, k := g.tileM.Add(r), g.tileN.Add(piece)
		b.If(g.has(r, at).And(k.Lt(g.n)), func() {
			line := c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1))
			line.At(k).As(ptx.B32).StoreVec(from.As(ptx.B32).LoadVec(4)...)
		})
	}
}

// storeShifted stores rows that begin anywhere. In shared memory they begin as late as in memory,
// so that pieces of 16 bytes there are pieces here; the two ends of a row go one by one.
func (g *tensorBuilder) storeShifted(c gemmOperand) {
	b, f, t := g.Builder, g.s.form, storage(g.s.typ)
	pieces := g.s.pitch() / 8
	count := g.n.Sub(g.tileN).Min(num(f.bn)) // columns of this block
	b.For(b.ThreadID(0), b.U32(uint32(f.bm*pieces)), num(f.threads()), func(e ptx.Value, _ ptx.Loop) {
		r, piece := e.Div(num(pieces)), e.Rem(num(pieces))
		at := g.tileM.Add(r)
		b.If(g.has(r, at), func() {
			late := g.late(c, r)
			line := c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1)).At(g.tileN)
			from := g.shared.As(t).At(r.Mul(num(g.s.pitch())).Add(piece.Shl(num(3))))
			// Of the piece's first element, from the row's first on: negative before it.
			first := piece.Shl(num(3)).Sub(late).Bitcast(ptx.S32)
			end := count.Bitcast(ptx.S32)
			whole := first.Ge(num(0)).And(first.Add(num(8)).Le(end))
			b.IfElse(whole, func() {
				line.At(first).As(ptx.B32).StoreVec(from.As(ptx.B32).LoadVec(4)...)
			}, func() {
				low, high := b.S32(0).Sub(first).Max(num(0)), end.Sub(first).Min(num(8))
				b.For(low, high, num(1), func(i ptx.Value, _ ptx.Loop) {
					line.At(first.Add(i)).Store(from.At(i).Load())
				})
			})
		})
	})
}
