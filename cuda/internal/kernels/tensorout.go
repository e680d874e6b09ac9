package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// finish is the one place where sums become results: what is to be done to them on the way belongs
// here, before they are rounded.
func (g *tensorBuilder) finish(q productParams) {
	if g.s.bias != dtype.Invalid {
		inFirstPart(g.Builder, func() { g.addBias(q.bias) })
	}
	c := g.outOf(q)
	if g.s.out == dtype.F32 {
		g.writeSums(c)
	} else {
		g.writeOut(c)
	}
}

// inFirstPart is where a bias is added: in the blocks of the first part of k, so that the sum of
// all parts has it once.
func inFirstPart(b *ptx.Builder, add func()) {
	b.Comment("the bias")
	b.If(b.BlockID(2).Eq(num(0)), add)
}

// ofColumn is what an operand of one row has for a column, as float32 where it has 16 bits. What is
// beyond its last column has the last one's, and is stored nowhere.
func (o gemmOperand) ofColumn(b *ptx.Builder, t dtype.Type, column, columns ptx.Value) ptx.Value {
	at := column.Min(columns.Sub(num(1)))
	return loadVector(b, o.p.At(at.Bitcast(ptx.S32).MulWide(o.stride2)), t, 1)[0]
}

// addBias adds the bias to all sums.
func (g *tensorBuilder) addBias(o gemmOperand) {
	col := g.tileN.Add(g.warpN).Add(g.lane.And(num(3)).Shl(num(1)))
	for j := range g.acc[0] {
		for e := range 2 {
			v := o.ofColumn(g.Builder, g.s.bias, col.Add(num(j*8+e)), g.n)
			for i := range g.acc {
				for h := range 2 {
					sum := g.acc[i][j][2*h+e]
					sum.Set(sum.Get().Add(v))
				}
			}
		}
	}
}

// writeSums stores float32 sums as they lie in the registers.
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
					one := func(k, v ptx.Value) {
						to := k
						if g.s.to == storeElements {
							to = k.Bitcast(ptx.S32).MulWide(c.stride2)
						}
						b.If(k.Lt(g.n), func() { line.At(to).Store(v) })
					}
					one(k, lo)
					one(k.Add(num(1)), hi)
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
			g.leave(p, g.shared.As(t).At(r.Mul(num(g.s.pitch())).Add(k)).Load())
		})
	})
}

// storePieces stores rows that consist of pieces of 16 bytes.
func (g *tensorBuilder) storePieces(c gemmOperand) {
	b, f := g.Builder, g.s.form
	per := f.bn / 8
	thread := b.ThreadID(0)
	piece := thread.Rem(num(per)).Mul(num(8))
	rows := func(first ptx.Value) {
		r := thread.Div(num(per)).Add(first)
		from := g.shared.AtByte(r.Mul(num(g.s.pitch())).Add(piece).Shl(num(1)))
		at, k := g.tileM.Add(r), g.tileN.Add(piece)
		b.If(g.has(r, at).And(k.Lt(g.n)), func() {
			line := c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1))
			g.leave(line.At(k).As(ptx.B32), from.As(ptx.B32).LoadVec(4)...)
		})
	}
	if step := f.threads() / per; g.act != nil { // which is long: it stands in the text once
		b.For(b.U32(0), b.U32(uint32(f.bm)), num(step), func(first ptx.Value, _ ptx.Loop) { rows(first) })
	} else {
		for i := range ceilDiv(f.bm, step) {
			rows(b.U32(uint32(i * step)))
		}
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
				g.leave(line.At(first).As(ptx.B32), from.As(ptx.B32).LoadVec(4)...)
			}, func() {
				low, high := b.S32(0).Sub(first).Max(num(0)), end.Sub(first).Min(num(8))
				b.For(low, high, num(1), func(i ptx.Value, _ ptx.Loop) {
					g.leave(line.At(first.Add(i)), from.At(i).Load())
				})
			})
		})
	})
}
