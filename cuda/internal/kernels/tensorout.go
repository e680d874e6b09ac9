package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// finish emits code that adds the bias, rounds the sums and stores the results.
func (g *tensorBuilder) finish(q productParams) {
	if g.s.bias != dtype.Invalid {
		g.Comment("the bias")
		g.addBias(q.bias)
	}
	c := g.ofBlock(q.out())
	if g.s.with != dtype.Invalid {
		g.act.with = g.ofBlock(g.act.with.ofBatch(q.matrix()))
	}
	if g.s.out == dtype.F32 {
		g.writeSums(c)
	} else {
		g.writeOut(c)
	}
}

// ofColumn returns the element of a one-row operand in a column, as float32. Beyond the last
// column, where results are never stored, it returns the last element.
func (o gemmOperand) ofColumn(b *ptx.Builder, t dtype.Type, column, columns ptx.Value) ptx.Value {
	at := column.Min(columns.Sub(num(1)))
	return loadVector(b, o.p.At(at.Bitcast(ptx.S32).MulWide(o.stride2)), t, 1)[0]
}

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

// writeSums stores float32 sums directly from the registers.
func (g *tensorBuilder) writeSums(c gemmOperand) {
	b := g.Builder
	row := g.warpM.Add(g.lane.Shr(num(2)))
	col := g.tileN.Add(g.warpN).Add(g.lane.And(num(3)).Shl(num(1)))
	for i := range g.acc {
		for h := range 2 {
			r := row.Add(num(i*16 + h*8))
			at := g.tileM.Add(r)
			b.If(g.hasRow(r, at), func() {
				line := c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1))
				for j, v := range g.acc[i] {
					g.storePair(c, line, col.Add(num(j*8)), v[2*h].Get(), v[2*h+1].Get())
				}
			})
		}
	}
}

// storePair stores two neighbouring sums of a row in columns k and k+1.
func (g *tensorBuilder) storePair(c gemmOperand, line ptx.Ptr, k, lo, hi ptx.Value) {
	b, t := g.Builder, c.p.Elem()
	half := g.s.out != dtype.F32
	if g.s.store == storePieces {
		b.If(k.Lt(g.n), func() {
			if half {
				line.At(k).As(ptx.B32).Store(b.Pack2(t, lo, hi))
			} else {
				line.At(k).StoreVec(lo, hi)
			}
		})
		return
	}
	if half {
		lo, hi = b.Pack2(t, lo, hi).Split(t)
	}
	one := func(k, v ptx.Value) {
		to := k
		if g.s.store == storeElements {
			to = k.Bitcast(ptx.S32).MulWide(c.stride2)
		}
		b.If(k.Lt(g.n), func() { line.At(to).Store(v) })
	}
	one(k, lo)
	one(k.Add(num(1)), hi)
}

// writeOut rounds the results and moves them through shared memory, so that they can be stored in
// 16-byte accesses.
func (g *tensorBuilder) writeOut(c gemmOperand) {
	b, s := g.Builder, g.s
	g.loadWithPieces(b.U32(0))
	b.Comment("the results go through shared memory")
	t, pitch := storage(s.typ), s.pitch()
	row, col := g.warpM.Add(g.lane.Shr(num(2))), g.warpN.Add(g.lane.And(num(3)).Shl(num(1)))
	at := g.results.As(t).At(row.Mul(num(pitch)).Add(col))
	for i := range g.acc {
		for h := range 2 {
			to := at.At(num((i*16 + h*8) * pitch))
			if s.store == storeShifted {
				to = to.At(g.rowShift(c, row.Add(num(i*16+h*8))))
			}
			for j, v := range g.acc[i] {
				w := b.Pack2(t, v[2*h].Get(), v[2*h+1].Get())
				if s.store == storeShifted {
					lo, hi := w.Split(t)
					to.At(num(j * 8)).Store(lo)
					to.At(num(j*8 + 1)).Store(hi)
					continue
				}
				to.At(num(j * 8)).As(ptx.B32).Store(w)
			}
		}
	}
	if s.storesLater() { // storeLater stores the results after the barriers of the next tile
		return
	}
	b.Barrier()
	switch s.store {
	case storePieces:
		g.storePieces(c)
	case storeShifted:
		g.storeShifted(c)
	default:
		g.storeElements(c)
	}
}

// rowShift returns the distance, in elements, from a multiple of 16 bytes to the start of a row of
// the block.
func (g *tensorBuilder) rowShift(c gemmOperand, row ptx.Value) ptx.Value {
	line := c.p.At(g.tileM.Add(row).Bitcast(ptx.S32).MulWide(c.stride1)).At(g.tileN)
	return line.Address().Shr(num(1)).Cvt(ptx.U32).And(num(7))
}

// storeElements stores results one by one, for any strides.
func (g *tensorBuilder) storeElements(c gemmOperand) {
	b, f, t := g.Builder, g.s.form, storage(g.s.typ)
	together := g.unitsInFlight(f.bm*f.bn/f.threads(), 8)
	b.For(b.ThreadID(0), b.U32(uint32(f.bm*f.bn)), num(f.threads()*together), func(e ptx.Value, _ ptx.Loop) {
		beside := make([][]ptx.Value, together)
		place := func(i int) (r, k, at, col ptx.Value) {
			e := e.Add(num(i * f.threads()))
			r, k = e.Div(num(f.bn)), e.Rem(num(f.bn))
			return r, k, g.tileM.Add(r), g.tileN.Add(k)
		}
		for i := range beside {
			_, _, at, col := place(i)
			beside[i] = g.act.loadWith(at.Min(g.m.Sub(num(1))), col.Min(g.n.Sub(num(1))), 1)
		}
		for i := range beside {
			r, k, at, col := place(i)
			b.If(g.hasRow(r, at).And(col.Lt(g.n)), func() {
				p := c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1)).At(col.Bitcast(ptx.S32).MulWide(c.stride2))
				g.storeRounded(p, beside[i], g.results.As(t).At(r.Mul(num(g.s.pitch())).Add(k)).Load())
			})
		}
	})
}

// storePieces stores aligned rows in 16-byte accesses.
func (g *tensorBuilder) storePieces(c gemmOperand) {
	b, f := g.Builder, g.s.form
	row, piece, step := g.piece()
	rows := func(first ptx.Value, beside []ptx.Value) { g.storePiece(c, row.Add(first), piece, beside) }
	if g.act.f == nil {
		for i := range f.bm / step {
			rows(b.U32(uint32(i*step)), nil)
		}
		return
	}
	// The code of the activation is long, so it is emitted as few times as possible.
	together := g.unitsInFlight(f.bm/step, withPiecesAhead)
	b.For(b.U32(0), b.U32(uint32(f.bm)), num(together*step), func(first ptx.Value, _ ptx.Loop) {
		beside := make([][]ptx.Value, together)
		for i := range g.withPieces {
			beside[i] = get(g.withPieces[i])
		}
		if next := first.Add(num(together * step)); len(g.withPieces) > 0 && together*step < f.bm {
			b.If(next.Lt(num(f.bm)), func() { g.loadWithPieces(next) })
		}
		for i := range beside {
			rows(first.Add(num(i*step)), beside[i])
		}
	})
}

// storePiece stores the 8 neighbouring results that begin at a row and column of the block.
func (g *tensorBuilder) storePiece(c gemmOperand, r, piece ptx.Value, beside []ptx.Value) {
	from := g.results.AtByte(r.Mul(num(g.s.pitch())).Add(piece).Shl(num(1)))
	at, k := g.tileM.Add(r), g.tileN.Add(piece)
	g.If(g.hasRow(r, at).And(k.Lt(g.n)), func() {
		line := c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1))
		g.storeRounded(line.At(k).As(ptx.B32), beside, from.As(ptx.B32).LoadVec(4)...)
	})
}

// piece returns the row and the column, within the block, of the first 8 neighbouring results that
// a thread stores together. The result step is the distance in rows to the next ones.
func (g *tensorBuilder) piece() (row, col ptx.Value, step int) {
	thread, per := g.ThreadID(0), g.s.form.bn/8
	return thread.Div(num(per)), thread.Rem(num(per)).Mul(num(8)), g.s.form.threads() / per
}

// storeShifted stores rows that may be misaligned. In shared memory a row is shifted so that its
// 16-byte units coincide with the aligned 16-byte units of global memory. The elements at the two
// ends of a row are stored one by one.
func (g *tensorBuilder) storeShifted(c gemmOperand) {
	b, f, t := g.Builder, g.s.form, storage(g.s.typ)
	pieces := g.s.pitch() / 8
	count := g.n.Sub(g.tileN).Min(num(f.bn)) // number of columns of this block within the matrix
	b.For(b.ThreadID(0), b.U32(uint32(f.bm*pieces)), num(f.threads()), func(e ptx.Value, _ ptx.Loop) {
		r, piece := e.Div(num(pieces)), e.Rem(num(pieces))
		at := g.tileM.Add(r)
		b.If(g.hasRow(r, at), func() {
			late := g.rowShift(c, r)
			line := c.p.At(at.Bitcast(ptx.S32).MulWide(c.stride1)).At(g.tileN)
			from := g.results.As(t).At(r.Mul(num(g.s.pitch())).Add(piece.Shl(num(3))))
			// start is the column of the first of the 8 elements. It is negative before the start
			// of the row.
			start := piece.Shl(num(3)).Sub(late).Bitcast(ptx.S32)
			end, col := count.Bitcast(ptx.S32), g.tileN.Bitcast(ptx.S32)
			whole := start.Ge(num(0)).And(start.Add(num(8)).Le(end))
			b.IfElse(whole, func() {
				g.storeRounded(line.At(start).As(ptx.B32), g.act.loadWith(at, col.Add(start), 8), from.As(ptx.B32).LoadVec(4)...)
			}, func() {
				low, high := b.S32(0).Sub(start).Max(num(0)), end.Sub(start).Min(num(8))
				b.For(low, high, num(1), func(i ptx.Value, _ ptx.Loop) {
					g.storeRounded(line.At(start.Add(i)), g.act.loadWith(at, col.Add(start).Add(i), 1), from.At(i).Load())
				})
			})
		})
	})
}
