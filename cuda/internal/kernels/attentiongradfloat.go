package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// gradFloat computes one launch of attention's gradient in float32 with multiply-adds. A group of
// 16 threads shares some of the block's own rows. Through shared memory, the threads of a warp
// exchange first the weights and then the gradients of the scores. Two operands consist of other
// rows, and their tiles alternate. While the block multiplies by one tile, it copies the next.
type gradFloat struct {
	attentionGrad
	rows  int // number of own rows of a thread; they are 8 rows of the tile apart
	other int // number of rows in a tile of other rows
	parts int // number of parts into which the results' columns are divided among blocks
}

// gradFloatFor chooses the largest tiles that fit the registers and 99 KiB of shared memory.
func gradFloatFor(s attentionGrad) gradFloat {
	wide, plain := max(s.q.columns, s.v.columns), s.w.mask == dtype.Invalid || !s.w.drop
	switch {
	case wide <= 64 && plain:
		return gradFloat{s, 8, 32, 1}
	case wide <= 64 && s.needsManyRegisters():
		return gradFloat{s, 4, 16, 1}
	case wide <= 128:
		return gradFloat{s, 4, 32, 1}
	case wide > 192 && s.byKey, s.needsManyRegisters():
		return gradFloat{s, 4, 16, 2}
	}
	return gradFloat{s, 4, 16, 1}
}

// needsManyRegisters reports whether the weights need many registers. They do if the own rows are
// keys and there are both dropout and a mask.
func (s attentionGrad) needsManyRegisters() bool {
	return s.byKey && s.w.drop && s.w.mask != dtype.Invalid
}

func (s gradFloat) kernel() (*Kernel, error) { return kernelOf(s) }
func (s gradFloat) tile() (own, other int)   { return 8 * s.rows, s.other }
func (s gradFloat) columnParts() int         { return s.parts }
func (s gradFloat) tensor() int              { return 0 } // the kernel uses no tensor cores
func (s gradFloat) name() string             { return s.kernelName(8*s.rows, s.other) }

// tiles returns the tiles of own rows, x1 and x2, and of other rows, y1 and y2. In a tile of other
// rows, each part of the columns has four columns for each of 16 threads. Tiles of own rows have at
// least 32 columns, and at least 64 where registers are scarce. With fewer columns the assembler
// would unroll the loops over columns, which takes more registers.
func (s gradFloat) tiles() (x1, x2, y1, y2 headTile) {
	wide := func(columns int) headTile {
		return headTileOf(s.other, max(1, ceilDiv(columns, 64*s.parts))*64*s.parts, dtype.F32)
	}
	own := func(columns int) headTile {
		least := 32
		if s.needsManyRegisters() {
			least = 64
		}
		return headTileOf(8*s.rows, max(columns, least), dtype.F32)
	}
	return own(s.q.columns), own(s.v.columns), wide(s.q.columns), wide(s.v.columns)
}

// pitch returns the distance between neighbouring rows of weights in shared memory, in elements. It
// puts neighbouring rows into different banks.
func (s gradFloat) pitch() int { return s.other/32*32 + 16 }

func (s gradFloat) shared() int {
	x1, x2, y1, y2 := s.tiles()
	return x1.bytes() + x2.bytes() + y1.bytes() + y2.bytes() + 8*s.rows*s.pitch()*4 + 8*s.other
}

func (s gradFloat) dynamicShared() int { return beyondStatic(s.shared(), 0) }

// gradFloatWriter is the state of gradFloat.build while it emits the code of a kernel.
type gradFloatWriter struct {
	gradBlock
	s                gradFloat
	x, y             ptx.Value // indices of the thread's first other row and of its first own row
	ownX1, ownX2     ptx.Ptr
	otherY1, otherY2 ptx.Ptr
	// pointers to the weights of the thread's first own row, and to lse and delta of the tile's
	// queries
	mine, numbers ptx.Ptr
	sum1, sum2    [][]*ptx.Var
}

func (s gradFloat) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	b.MinBlocks(2)
	g := &gradFloatWriter{gradBlock: declareGrad(b, s.attentionGrad, 8*s.rows, s.other), s: s}
	g.x, g.y = b.ThreadID(0).And(num(15)), b.ThreadID(0).Shr(num(4))
	tileX1, tileX2, tileY1, tileY2 := s.tiles()
	g.ownX1 = sharedTiles(b, ptx.U8, s.shared(), s.dynamicShared())
	g.ownX2 = g.ownX1.AtByte(num(tileX1.bytes()))
	g.otherY1 = g.ownX2.AtByte(num(tileX2.bytes()))
	g.otherY2 = g.otherY1.AtByte(num(tileY1.bytes()))
	weights := g.otherY2.AtByte(num(tileY2.bytes()))
	g.numbers = weights.AtByte(num(8 * s.rows * s.pitch() * 4))
	g.mine = weights.As(ptx.F32).At(g.y.Mul(num(s.pitch())))
	g.sum1, g.sum2 = g.sums(s.d1, tileY1), g.sums(s.d2, tileY2)
	x1, x2, limit, there := g.owned()
	tileX1.mover(b, x1, floatThreads).load(g.firstOwn, limit, g.ownX1)
	if s.scored() {
		tileX2.mover(b, x2, floatThreads).load(g.firstOwn, limit, g.ownX2)
	}
	b.CommitGroup()
	g.eachHead(g.pass)
	b.WaitGroup(0)
	g.results(g.d1, g.sum1, g.w.scale, there)
	rest := b.F32(1)
	if s.w.drop {
		rest = g.w.rest
	}
	g.results(g.d2, g.sum2, rest, there)
	return [3]int{floatThreads, 1, 1}
}

// sums declares registers for the thread's sums of the result d. The tile t has the columns of d.
// If d is absent, sums returns nil.
func (g *gradFloatWriter) sums(d headRows, t headTile) [][]*ptx.Var {
	if d.typ == dtype.Invalid {
		return nil
	}
	list := make([][]*ptx.Var, g.s.rows)
	for r := range list {
		for range t.width / 16 / g.s.parts {
			list[r] = append(list[r], g.Var(g.F32(0)))
		}
	}
	return list
}

// pieces returns the index of the thread's first group of four columns in a result. The argument
// sums holds the thread's sums of this result.
func (g *gradFloatWriter) pieces(sums [][]*ptx.Var) ptx.Value {
	if g.s.parts == 1 {
		return g.x
	}
	return g.BlockID(1).Mad(num(len(sums[0])*4), g.x)
}

// results scales and stores the sums of a result.
func (g *gradFloatWriter) results(o headOperand, sums [][]*ptx.Var, scale, there ptx.Value) {
	if sums == nil {
		return
	}
	o = o.atHead(g.batch, g.head)
	for r := range sums {
		row := g.firstOwn.Add(g.y).Add(num(8 * r))
		storeFloats(g.Builder, o, o.line(row), row.Lt(there), sums[r], scale, g.pieces(sums))
	}
}

// pass emits the loop over the other rows of one head of queries.
func (g *gradFloatWriter) pass(p gradPass) {
	b, s := g.Builder, g.s
	tileX1, tileX2, tileY1, tileY2 := s.tiles()
	mover1, mover2 := tileY1.mover(b, p.y1, floatThreads), tileY2.mover(b, p.y2, floatThreads)
	load2 := func(first ptx.Value) {
		mover2.load(first, p.end, g.otherY2)
		b.CommitGroup()
	}
	own := g.firstOwn.Add(g.y)
	rows := make([]gradRow, s.rows)
	if !s.byKey {
		for r := range rows {
			i := own.Add(num(8 * r))
			at := i.Min(p.w.queries.Sub(num(1)))
			rows[r] = gradRow{p.w.row(i), p.lse.At(at).Load(), p.delta.At(at).Load()}
		}
	}
	load2(p.start)
	b.For(p.start, p.end, num(s.other), func(j ptx.Value, _ ptx.Loop) {
		b.Comment("the second tile has arrived, and everyone is done with the first before it")
		b.WaitGroup(0)
		b.Barrier()
		mover1.load(j, p.end, g.otherY1)
		if s.byKey {
			p.loadNumbers(j, g.numbers)
		}
		b.CommitGroup()
		var dp [][]*ptx.Var
		if s.scored() {
			dp = floatScores(b, s.rows, s.other/16, tileX2, g.ownX2, tileY2, g.otherY2)
		}
		b.Comment("the first tile has arrived")
		b.WaitGroup(0)
		b.Barrier()
		if !s.valued() {
			load2(j.Add(num(s.other)))
		}
		score := floatScores(b, s.rows, s.other/16, tileX1, g.ownX1, tileY1, g.otherY1)
		kept, changes := g.weigh(p.w, rows, j, score, dp)
		if s.valued() {
			g.share(kept)
			addWeighted(b, g.sum2, g.mine, s.pitch(), s.other, tileY2, g.otherY2, g.pieces(g.sum2))
			b.Comment("everyone is done with the second tile")
			b.Barrier()
			load2(j.Add(num(s.other)))
		}
		if s.scored() {
			g.share(changes)
			addWeighted(b, g.sum1, g.mine, s.pitch(), s.other, tileY1, g.otherY1, g.pieces(g.sum1))
		}
	})
	b.WaitGroup(0)
	b.Barrier()
}

// share stores the thread's values of the tile in shared memory. The threads that have the same own
// rows read the values there.
func (g *gradFloatWriter) share(v [][]ptx.Value) {
	for r := range v {
		for n := range v[r] {
			g.mine.At(num(8*r*g.s.pitch() + 16*n)).At(g.x).Store(v[r][n])
		}
	}
	g.WarpBarrier()
}

// weigh returns the weights that dropout keeps, and the gradients of the scores without their
// common factors. The results are indexed [own row][other row].
func (g *gradFloatWriter) weigh(w *weighing, rows []gradRow, j ptx.Value, score, dp [][]*ptx.Var) (kept, changes [][]ptx.Value) {
	b, s := g.Builder, g.s
	own, zero := g.firstOwn.Add(g.y), b.F32(0)
	kept, changes = make([][]ptx.Value, s.rows), make([][]ptx.Value, s.rows)
	var stays func(r, n int) ptx.Value
	switch {
	case s.w.drop && s.byKey:
		stays = w.keptOwn(own, j.Add(g.x), s.rows, s.other)
	case s.w.drop:
		weighed := make([]weighingRow, s.rows)
		for r := range rows {
			weighed[r] = rows[r].weighingRow
		}
		stays = w.keptEach(weighed, g.x, j, s.other)
	}
	for n := range s.other / 16 {
		other := j.Add(g.x).Add(num(16 * n))
		var passing gradRow
		if s.byKey {
			at := g.numbers.As(ptx.F32).At(g.x)
			passing = gradRow{weighingRow: w.row(other), lse: at.At(num(16 * n)).Load()}
			if s.scored() {
				passing.delta = at.At(num(s.other + 16*n)).Load()
			}
		}
		for r := range rows {
			row, key := passing, own.Add(num(8*r))
			if !s.byKey {
				row, key = rows[r], other
			}
			sees := row.sees(key)
			if s.byKey {
				sees = sees.And(row.i.Lt(w.queries))
			}
			x := row.masked(key, score[r][n].Get().Mul(w.scale))
			p := sees.Select(call(b, "exp", x.Sub(row.lse)), zero)
			weight := p
			var keeps ptx.Value
			if s.w.drop {
				keeps = stays(r, n)
				weight = keeps.Select(p, zero)
			}
			kept[r] = append(kept[r], weight)
			if !s.scored() {
				continue
			}
			d := dp[r][n].Get()
			if s.w.drop {
				d = keeps.Select(d.Mul(w.rest), zero)
			}
			changes[r] = append(changes[r], sees.Select(d.Sub(row.delta).Mul(p), zero))
		}
	}
	return kept, changes
}
