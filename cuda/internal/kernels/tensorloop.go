package kernels

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// A kernel may loop over tiles with as many blocks as fit the device at once. A block then begins
// the copies of its next tile before it stores the results of the last one. So the latency of a
// tile's first copies, and its stores, no longer leave the tensor cores idle. That matters where a
// multiprocessor holds a single block: no other block then uses the tensor cores meanwhile.

// loops reports whether the kernel of a form may loop over tiles: all copies are asynchronous, and
// the tile is large enough for them to matter. Parts of k, and rows of results that begin anywhere,
// leave no registers for the next tile's addresses.
func (s tensorSpec) loops() bool {
	return s.form.bm*s.form.bn >= 128*128 && s.to == storePieces && !s.parts && !s.odd && !s.singly(s.a) && !s.singly(s.b)
}

// looped returns the form with a loop, and the division with its workers. It returns false if the
// form may not loop, or if each block would have one tile.
func (g *GPU) looped(s tensorSpec, batch, m, n, k int) (tensorSpec, division, bool) {
	s.loop = true
	d := undivided(k)
	d.workers = g.Cores * g.resident(s)
	return s, d, s.loops() && batch == 1 && 0 < d.workers && d.workers < s.tiles(m, n)
}

// loopTiles computes tiles id, id + workers, id + 2·workers, … Each turn begins a tile's copies,
// stores the results of the tile before, and multiplies. The last turn has no tile, only results to
// store: its copies are of zero bytes.
func (g *tensorBuilder) loopTiles(q productParams) {
	b, f := g.Builder, g.s.form
	g.begin()
	if g.s.out != dtype.F32 {
		g.results = g.shared.At(num(g.s.stages() * g.stage))
	}
	tiles := g.m.Add(num(f.bm - 1)).Div(num(f.bm)).Mul(g.n.Add(num(f.bn - 1)).Div(num(f.bn)))
	workers := b.GridDim(0)
	lastM, lastN := b.Var(b.U32(0)), b.Var(b.U32(0))
	b.For(q.tile, tiles.Add(workers), workers, func(id ptx.Value, _ ptx.Loop) {
		g.k = id.Lt(tiles).Select(q.k, b.U32(0))
		row, column := tileOf(b, id.Min(tiles.Sub(num(1))), g.m, g.n, f.bm, f.bn, g.s.tune)
		g.tileM, g.tileN = row, column
		loads := g.copiers(q)
		g.fill(loads)
		b.If(id.Ge(workers), func() {
			b.Comment("the results of the tile before")
			g.tileM, g.tileN = lastM.Get(), lastN.Get()
			g.complete(q)
		})
		g.tileM, g.tileN = row, column
		for _, v := range slices.Concat(slices.Concat(g.acc...)...) {
			v.Set(b.F32(0))
		}
		readA, readB := g.readers()
		g.multiplyAll(loads, readA, readB)
		lastM.Set(row)
		lastN.Set(column)
	})
}
