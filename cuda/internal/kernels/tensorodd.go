package kernels

import "github.com/flambeau-go/flambeau/ptx"

// Rows of an odd length begin at even and odd elements in turn, and what is copied in pairs must
// begin at even ones. The rows that do not are taken from one element before, apart from the
// others: all that meet in one instruction of the tensor cores are shifted alike.

// oddRows makes this block one of every second row of a, whose rows lie along k. Rows that begin
// at odd elements have a k more, before the first, which is zero for both operands.
func (g *tensorBuilder) oddRows(q *productParams) {
	b, f := g.Builder, g.s.form
	b.Comment("the rows of this block begin at even elements, or at odd ones")
	pairs := g.m.Add(num(1)).Shr(num(1)).Add(num(f.bm - 1)).Div(num(f.bm)) // of tiles
	row, column := tileOf(b, q.tile, pairs.Mul(num(2*f.bm)), g.n, f.bm, f.bn, g.s.tune)
	tile := row.Div(num(f.bm))
	g.odd = tile.And(num(1))
	g.tileM, g.tileN = tile.Shr(num(1)).Mul(num(f.bm)), column
	g.m = g.m.Add(num(1)).Sub(g.odd).Shr(num(1))
	q.a = g.second(q.a, g.odd)
}

// second is every second row of an operand, from row odd on.
func (g *tensorBuilder) second(o gemmOperand, odd ptx.Value) gemmOperand {
	o.p = o.p.At(odd.Bitcast(ptx.S32).MulWide(o.stride1))
	o.stride1 = o.stride1.Shl(num(1))
	return o
}

// ofBlock is where the rows lie that this block has, of all rows of results or of what lies beside.
func (g *tensorBuilder) ofBlock(o gemmOperand) gemmOperand {
	if g.s.odd && g.s.a.alongK {
		o = g.second(o, g.odd)
	}
	return o
}

// oddSums sums up the even rows of an a that lies along m, then the odd ones, whose tile begins one
// element before: the sums move on by a row between. The first row of the tile then has the odd
// ones' products alone, and the last is the next tile's.
func (g *tensorBuilder) oddSums(q productParams) {
	b, f, k := g.Builder, g.s.form, g.k
	for odd := range 2 {
		b.Comment("rows of k that begin at elements %d, %d, ... of memory", odd, odd+2)
		x, y := q.a, q.b
		rows := func(o gemmOperand, stride ptx.Value) (gemmOperand, ptx.Value) {
			if odd > 0 {
				o.p = o.p.At(stride.MulWide(num(1)))
			}
			return o, stride.Shl(num(1))
		}
		x, strideA := rows(x, x.stride2)
		y, strideB := rows(y, y.stride1)
		if odd > 0 {
			g.moveOn()
			g.tileM = g.tileM.Sub(num(1))
		}
		g.k = k.Add(num(1 - odd)).Shr(num(1))
		loadA := g.copier(g.s.a, x, x.stride1, strideA, g.tileM, g.m, f.bm, 0)
		loadA.before = odd > 0
		loadB := g.copier(g.s.b, y, y.stride2, strideB, g.tileN, g.n, f.bn, g.s.stagedA())
		g.sum([]*tensorCopier{loadA, loadB})
	}
	g.k = k
}

// moveOn moves the sums on by a row, through shared memory, eight columns of each warp at a time.
// Two places take turns, so that one barrier each suffices.
func (g *tensorBuilder) moveOn() {
	b, f := g.Builder, g.s.form
	b.Comment("the sums move on by a row")
	_, wn := f.warp()
	place := f.bm * 8 * f.warpsN // floats
	row := g.warpM.Add(g.lane.Shr(num(2)))
	column := g.warpN.Div(num(wn)).Mul(num(f.bm * 8)).Add(g.lane.And(num(3)).Shl(num(1)))
	for j := range g.acc[0] {
		p := g.shared.As(ptx.F32).At(num(j % 2 * place)).At(column)
		at := func(i, h, back int) ptx.Ptr {
			r := row.Add(num(i*16 + h*8))
			if i+h == 0 && back > 0 { // of the first row nothing is kept
				r = r.Max(num(1))
			}
			return p.At(r.Mul(num(8))).At(num(-8 * back))
		}
		for i := range g.acc {
			for h := range 2 {
				v := g.acc[i][j]
				at(i, h, 0).StoreVec(v[2*h].Get(), v[2*h+1].Get())
			}
		}
		b.Barrier()
		for i := range g.acc {
			for h := range 2 {
				set(g.acc[i][j][2*h:2*h+2], at(i, h, 1).LoadVec(2))
			}
		}
	}
	b.Barrier()
}

// has reports whether a row of the block, which is at in the matrix, is one of its results.
func (g *tensorBuilder) has(row, at ptx.Value) ptx.Value {
	inside := at.Lt(g.m)
	if g.s.odd && !g.s.a.alongK {
		inside = inside.And(row.Sub(num(1)).Lt(num(g.s.form.bm - 2)))
	}
	return inside
}
