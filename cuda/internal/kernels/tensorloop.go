package kernels

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// A kernel may loop over tiles, with as many blocks as fit on the device at once. A block then
// begins the copies of its next tile before it stores the results of the current one. This keeps
// the tensor cores busy while a tile's first copies arrive, and during stores. A loop helps if
// only one block fits on a multiprocessor, because then no other block uses the tensor cores in
// the meantime.

// loops reports whether the kernel may loop over tiles. All copies must be asynchronous, and the
// tile must be so large that a loop pays. A kernel that divides sums cannot loop, because it has no
// registers left for the next tile's addresses. If the rows of results may be misaligned, it can
// loop only if the results are plain sums.
func (s tensorSpec) loops() bool {
	simple := s.store == storeShifted && s.typ.IsHalf() && !s.a.wide && !s.b.wide && s.plain()
	return s.form.bm*s.form.bn >= 128*128 && (s.store == storePieces || simple) && !s.parts && !s.odd && !s.singly(s.a) && !s.singly(s.b)
}

// looped returns s with a loop, and a division that holds the number of blocks. It returns false if
// the kernel cannot loop, or if each block would have only one tile.
func (g *GPU) looped(s tensorSpec, batch, m, n, k int) (tensorSpec, division, bool) {
	s.loop = true
	d := undivided(k)
	d.workers = g.Cores * g.resident(s)
	return s, d, s.loops() && 0 < d.workers && d.workers < batch*s.tiles(m, n)
}

// storesLater reports whether a tile's results are stored while the next tile is multiplied. Until
// then they stay in a separate part of shared memory. If copies move less than 16 bytes, there are
// not enough registers for this.
func (s tensorSpec) storesLater() bool {
	return s.loop && s.store == storePieces && s.out != dtype.F32 && s.act == "" && s.a.vector == 8 && s.b.vector == 8
}

// laterPieces is the number of 16-byte stores of the previous tile's results that a thread makes in
// each iteration over k.
const laterPieces = 2

// laterBytes returns how many bytes of the previous tile's results the block stores in each
// iteration over k.
func (s tensorSpec) laterBytes() int { return laterPieces * 16 * s.form.threads() }

// storeLater emits code that stores a part of the previous tile's results, if any are left.
func (g *tensorBuilder) storeLater() {
	b := g.Builder
	b.If(g.later.Get().Lt(num(g.s.form.bm)), func() {
		row, piece, step := g.piece()
		tileM, tileN := g.tileM, g.tileN
		g.tileM, g.tileN = g.lastM.Get(), g.lastN.Get()
		out := g.out
		out.p = out.p.MovedTo(g.outAt.Get())
		for i := range laterPieces {
			g.storePiece(out, row.Add(g.later.Get()).Add(num(i*step)), piece, nil)
		}
		g.tileM, g.tileN = tileM, tileN
		g.later.Set(g.later.Get().Add(num(laterPieces * step)))
	})
}

// storeRest emits code that stores the results of the previous tile that storeLater has not stored
// yet.
func (g *tensorBuilder) storeRest() {
	g.Comment("the results that the turns have left")
	g.While(func() ptx.Value { return g.later.Get().Lt(num(g.s.form.bm)) }, func(ptx.Loop) { g.storeLater() })
}

// loopTiles emits a loop over the tiles id, id + workers, id + 2·workers, … of a common list of the
// tiles of all matrices. Each iteration begins a tile's copies, stores the results of the previous
// tile, and multiplies. The last iteration only stores results: it has no tile, so its copies move
// zero bytes.
func (g *tensorBuilder) loopTiles(q productParams) {
	b, f := g.Builder, g.s.form
	g.begin()
	if g.s.out != dtype.F32 {
		g.results = g.shared.At(num(g.s.stages() * g.stage))
	}
	each := g.m.Add(num(f.bm - 1)).Div(num(f.bm)).Mul(g.n.Add(num(f.bn - 1)).Div(num(f.bn)))
	tiles, workers := q.matrices.Mul(each), b.GridDim(0)
	lastMatrix := b.Var(b.U32(0))
	g.lastM, g.lastN = b.Var(b.U32(0)), b.Var(b.U32(0))
	late := g.s.storesLater()
	if late {
		// Before the first tile there are no results to store.
		g.later, g.out = b.Var(b.U32(uint32(f.bm))), q.out()
		g.outAt = b.Var(g.out.p.Address())
	}
	b.For(q.tile, tiles.Add(workers), workers, func(id ptx.Value, _ ptx.Loop) {
		g.k = id.Lt(tiles).Select(q.k, b.U32(0))
		number := id.Min(tiles.Sub(num(1)))
		matrix := number.Div(each)
		row, column := tileOf(b, number.Sub(matrix.Mul(each)), g.m, g.n, f.bm, f.bn, g.s.tune)
		g.tileM, g.tileN = row, column
		loads := g.copiers(q.ofMatrix(func() ptx.Value { return matrix }))
		g.fill(loads)
		b.If(id.Ge(workers), func() {
			b.Comment("the results of the tile before")
			g.tileM, g.tileN = g.lastM.Get(), g.lastN.Get()
			before := q.withResultsAt(lastMatrix.Get)
			g.complete(before)
			if late {
				g.later.Set(b.U32(0))
				g.outAt.Set(before.out().p.Address())
			}
		})
		g.tileM, g.tileN = row, column
		for _, v := range slices.Concat(slices.Concat(g.acc...)...) {
			v.Set(b.F32(0))
		}
		readA, readB := g.readers()
		g.multiplyAll(loads, readA, readB)
		lastMatrix.Set(matrix)
		g.lastM.Set(row)
		g.lastN.Set(column)
	})
}
