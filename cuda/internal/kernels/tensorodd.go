package kernels

import "github.com/flambeau-go/flambeau/ptx"

// Rows of an odd length alternately begin at even and odd elements, but copies of pairs must begin
// at even elements. A row that begins at an odd element is therefore copied from the element before
// it. All rows of one mma instruction must be shifted by the same number of elements. For this
// reason, the rows at odd elements are multiplied separately from the rows at even elements.

// oddRows makes this block compute with every second row of the operand a, whose rows lie along
// k. A block computes either with all rows at even elements, or with all rows at odd elements.
// For rows at odd elements, the sum over k begins one index earlier, and both operands count as
// zero there.
func (g *tensorBuilder) oddRows(q *productParams) {
	b, f := g.Builder, g.s.form
	b.Comment("the rows of this block begin at even elements, or at odd ones")
	// number of pairs of tiles along m, one for even and one for odd rows
	pairs := g.m.Add(num(1)).Shr(num(1)).Add(num(f.bm - 1)).Div(num(f.bm))
	row, column := tileOf(b, q.tile, pairs.Mul(num(2*f.bm)), g.n, f.bm, f.bn, g.s.tune)
	tile := row.Div(num(f.bm))
	g.odd = tile.And(num(1))
	g.tileM, g.tileN = tile.Shr(num(1)).Mul(num(f.bm)), column
	g.m = g.m.Add(num(1)).Sub(g.odd).Shr(num(1))
	q.a = g.everySecondRow(q.a, g.odd)
}

// everySecondRow returns an operand with every second row of o, beginning with row 0, or with row 1
// if odd is 1.
func (g *tensorBuilder) everySecondRow(o gemmOperand, odd ptx.Value) gemmOperand {
	o.p = o.p.At(odd.Bitcast(ptx.S32).MulWide(o.stride1))
	o.stride1 = o.stride1.Shl(num(1))
	return o
}

// ofBlock returns the rows of o that this block computes. The operand o has the shape of the
// results.
func (g *tensorBuilder) ofBlock(o gemmOperand) gemmOperand {
	if g.s.odd && g.s.a.alongK {
		o = g.everySecondRow(o, g.odd)
	}
	return o
}

// oddSums emits the code for an operand a whose rows lie along m in memory, one row for each k. It
// first adds the products of even k. For odd k the tile begins one element earlier, so the sums are
// moved by one row. Then the products of odd k are added. After that, the first row of
// the tile has only products of odd k, and the last row belongs to the next tile.
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
		loadA.oneBefore = odd > 0
		loadB := g.copier(g.s.b, y, y.stride2, strideB, g.tileN, g.n, f.bn, g.s.stagedA())
		g.sum([]*tensorCopier{loadA, loadB})
	}
	g.k = k
}

// moveOn emits code that moves the sums by one row, through shared memory. Each step moves eight
// columns of each warp. The steps alternate between two buffers, so that a step needs only one
// barrier.
func (g *tensorBuilder) moveOn() {
	b, f := g.Builder, g.s.form
	b.Comment("the sums move on by a row")
	_, wn := f.warp()
	place := f.bm * 8 * f.warpsN // size of one buffer in floats
	row := g.warpM.Add(g.lane.Shr(num(2)))
	column := g.warpN.Div(num(wn)).Mul(num(f.bm * 8)).Add(g.lane.And(num(3)).Shl(num(1)))
	for j := range g.acc[0] {
		p := g.shared.As(ptx.F32).At(num(j % 2 * place)).At(column)
		at := func(i, h, back int) ptx.Ptr {
			r := row.Add(num(i*16 + h*8))
			if i+h == 0 && back > 0 { // there is no row before the first one, so any value works
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

// hasRow reports whether a row of the block belongs to its results. The argument matrixRow is the
// index of that row in the matrix.
func (g *tensorBuilder) hasRow(row, matrixRow ptx.Value) ptx.Value {
	inside := matrixRow.Lt(g.m)
	if g.s.odd && !g.s.a.alongK {
		inside = inside.And(row.Sub(num(1)).Lt(num(g.s.form.bm - 2)))
	}
	return inside
}
