package kernels

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// gradTensor computes one launch of attention's gradient for 16-bit floats on tensor cores. A warp
// has 16 own rows. The scores and the gradients of the weights stay in the warp's registers, where
// they are the first operands of the next products.
type gradTensor struct {
	attentionGrad
	other int // number of rows in a tile of other rows
	parts int // number of parts into which the results' columns are divided among blocks
}

const gradWarps = 4

// gradTensorFor chooses the largest tiles that fit the registers and 99 KiB of shared memory.
func gradTensorFor(shape attentionGrad) gradTensor {
	s := gradTensor{attentionGrad: shape, parts: 1}
	wide, plain := max(s.q.columns, s.v.columns), s.w.mask == dtype.Invalid && !s.w.drop
	switch {
	case wide > 128:
		s.other = 16
		if s.byKey || wide > 192 {
			s.parts = 2
		}
		if s.byKey && wide > 192 && s.w.mask != dtype.Invalid {
			s.parts = 4
		}
	case wide > 96 && s.byKey: // each part of the columns computes the scores again
		s.other, s.parts = 32, 2
		if !plain {
			s.other = 16
		}
	case wide > 96 && !plain:
		s.other = 16
	case wide > 64 || !plain:
		s.other = 32
	default:
		s.other = 64
	}
	return s
}

func (s gradTensor) kernel() (*Kernel, error) { return kernelOf(s) }
func (s gradTensor) tile() (own, other int)   { return s.rows(), s.other }
func (s gradTensor) columnParts() int         { return s.parts }
func (s gradTensor) name() string             { return s.kernelName(s.rows(), s.other) }
func (s gradTensor) rows() int                { return 16 * gradWarps }

// tensor returns the number of tensor-core operations for one own row and one tile of other rows.
// The columns of the results are divided into parts, and each part computes the scores again.
func (s gradTensor) tensor() int {
	x1, x2, _, _ := s.tiles()
	n := s.parts * x1.width
	for _, d := range []headRows{s.d1, s.d2} {
		if d.typ != dtype.Invalid {
			n += 16 * ceilDiv(max(1, d.columns), 16)
		}
	}
	if s.scored() {
		n += s.parts * x2.width
	}
	return 2 * s.other * n
}

// tiles returns four tiles: x1 and x2 of own rows, and y1 and y2 of other rows. Tiles x1 and y1
// have the columns of q, and tiles x2 and y2 have the columns of v.
func (s gradTensor) tiles() (x1, x2, y1, y2 headTile) {
	t := s.q.typ
	return headTileOf(s.rows(), s.q.columns, t), headTileOf(s.rows(), s.v.columns, t),
		headTileOf(s.other, s.q.columns, t), headTileOf(s.other, s.v.columns, t)
}

// shared returns sizes of shared memory in bytes: own for the block's own rows, stage for one of
// the two buffers of other rows, and all for both buffers and the own rows. If the own rows are
// keys, a buffer also holds lse and delta of its queries.
func (s gradTensor) shared() (own, stage, all int) {
	x1, x2, y1, y2 := s.tiles()
	own, stage = x1.bytes()+x2.bytes(), y1.bytes()+y2.bytes()
	if s.byKey {
		stage += 8 * s.other
	}
	return own, stage, own + 2*stage
}

func (s gradTensor) dynamicShared() int {
	_, _, all := s.shared()
	return beyondStatic(all, 0)
}

// gradWriter is the state of gradTensor.build while it emits the code of a kernel.
type gradWriter struct {
	gradBlock
	s gradTensor
	// The lane's index in its warp, and the first row of the warp in the tile.
	lane, warpRow  ptx.Value
	shared, stages ptx.Ptr

	sum1, sum2 [][]*ptx.Var // indexed [group of 8 columns][element of the fragment]
	part       int
}

func (s gradTensor) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	b.MinBlocks(2)
	g := &gradWriter{gradBlock: declareGrad(b, s.attentionGrad, s.rows(), s.other), s: s, lane: b.LaneID(), warpRow: b.WarpID().Mul(num(16))}
	own, _, bytes := s.shared()
	g.shared = sharedTiles(b, ptx.U8, bytes, s.dynamicShared())
	g.stages = g.shared.AtByte(num(own))
	for part := range s.parts {
		g.part = part
		if s.parts == 1 {
			g.write()
			break
		}
		b.If(b.BlockID(1).Eq(num(part)), g.write)
	}
	return [3]int{32 * gradWarps, 1, 1}
}

// columns says which columns of the result h the block computes. It returns the first of them
// (start), the number of fragments of 16 columns, and the number of columns.
func (g *gradWriter) columns(h headRows) (start, fragments, columns int) {
	if h.typ == dtype.Invalid {
		return 0, 0, 0
	}
	width := ceilDiv(max(1, h.columns), 16)
	per := ceilDiv(width, g.s.parts)
	start = g.part * per
	return 16 * start, max(0, min(per, width-start)), max(0, min(16*per, h.columns-16*start))
}

// write emits the code for part g.part of the results' columns.
func (g *gradWriter) write() {
	b, s := g.Builder, g.s
	tileX1, tileX2, _, _ := s.tiles()
	threads := 32 * gradWarps
	sums := func(h headRows) (list [][]*ptx.Var) {
		_, n, _ := g.columns(h)
		for range 2 * n {
			list = append(list, []*ptx.Var{b.Var(b.F32(0)), b.Var(b.F32(0)), b.Var(b.F32(0)), b.Var(b.F32(0))})
		}
		return list
	}
	g.sum1, g.sum2 = sums(s.d1), sums(s.d2)
	x1, x2, limit, there := g.owned()
	tileX1.mover(b, x1, threads).load(g.firstOwn, limit, g.shared)
	if s.scored() {
		tileX2.mover(b, x2, threads).load(g.firstOwn, limit, g.shared.AtByte(num(tileX1.bytes())))
	}
	b.CommitGroup()
	g.eachHead(g.pass)
	b.WaitGroup(0)
	b.Barrier()
	out1, out2 := g.shared, g.shared.AtByte(num(tileX1.bytes()))
	g.results(g.d1, g.sum1, g.w.scale, there, out1)
	rest := b.F32(1)
	if s.w.drop {
		rest = g.w.rest
	}
	g.results(g.d2, g.sum2, rest, there, out2)
}

// results scales and rounds the sums of a result, and stores them through shared memory at p.
func (g *gradWriter) results(o headOperand, sums [][]*ptx.Var, scale, there ptx.Value, p ptx.Ptr) {
	first, n, columns := g.columns(o.headRows)
	if n == 0 {
		return
	}
	b := g.Builder
	o = o.atHead(g.batch, g.head)
	o.p = o.element(o.p, b.U32(uint32(first)))
	o.headRows.columns = columns
	tile := headTile{g.s.rows(), 16 * n, 2}
	for k, v := range sums {
		for h := range 2 {
			row := g.warpRow.Add(g.lane.Shr(num(2))).Add(num(8 * h))
			at := p.AtByte(tile.offset(row, b.U32(uint32(k)))).AtByte(g.lane.And(num(3)).Shl(num(2)))
			at.As(ptx.B32).Store(b.Pack2(storage(o.typ), v[2*h].Get().Mul(scale), v[2*h+1].Get().Mul(scale)))
		}
	}
	b.Barrier()
	tile.mover(b, o, 32*gradWarps).store(g.firstOwn, there, p)
}

// pass emits the loop over the other rows of one head of queries.
func (g *gradWriter) pass(p gradPass) {
	b, s, w := g.Builder, g.s, p.w
	tileX1, tileX2, tileY1, tileY2 := s.tiles()
	_, stage, _ := s.shared()
	threads := 32 * gradWarps
	load1, load2 := tileY1.mover(b, p.y1, threads), tileY2.mover(b, p.y2, threads)
	own := g.firstOwn.Add(g.warpRow)
	numbers := tileY1.bytes() + tileY2.bytes()
	load := func(first, at ptx.Value) {
		to := g.stages.AtByte(at)
		load1.load(first, p.end, to)
		load2.load(first, p.end, to.AtByte(num(tileY1.bytes())))
		if s.byKey {
			p.loadNumbers(first, to.AtByte(num(numbers)))
		}
		b.CommitGroup()
	}
	load(p.start, b.U32(0))
	var rows []gradRow
	if !s.byKey {
		for h := range 2 {
			i := own.Add(g.lane.Shr(num(2))).Add(num(8 * h))
			at := i.Min(w.queries.Sub(num(1)))
			rows = append(rows, gradRow{w.row(i), p.lse.At(at).Load().Mul(real(-math.Log2E)), p.delta.At(at).Load()})
		}
	}
	readX1, readX2 := tileX1.fragments(b, true, g.warpRow, false), tileX2.fragments(b, true, g.warpRow, false)
	alongY1, alongY2 := tileY1.fragments(b, true, b.U32(0), true), tileY2.fragments(b, true, b.U32(0), true)
	from1, _, _ := g.columns(s.d1)
	from2, _, _ := g.columns(s.d2)
	acrossY1 := tileY1.fragments(b, false, b.U32(uint32(from1)), true)
	acrossY2 := tileY2.fragments(b, false, b.U32(uint32(from2)), true)
	ownX1, ownX2 := g.shared, g.shared.AtByte(num(tileX1.bytes()))
	read := b.Var(b.U32(0))
	b.For(p.start, p.end, num(s.other), func(j ptx.Value, _ ptx.Loop) {
		b.Comment("this tile has arrived, and everyone is done with the one before it")
		b.WaitGroup(0)
		b.Barrier()
		next := b.U32(uint32(stage)).Sub(read.Get())
		load(j.Add(num(s.other)), next)
		y1 := g.stages.AtByte(read.Get())
		y2 := y1.AtByte(num(tileY1.bytes()))
		score := g.product(ownX1, y1, readX1, alongY1, tileX1.width/16)
		var dp [][]ptx.Value
		if s.scored() {
			dp = g.product(ownX2, y2, readX2, alongY2, tileX2.width/16)
		}
		weights, ds := g.weigh(w, score, dp, j, own, rows, y1.AtByte(num(numbers)).As(ptx.F32))
		g.multiply(g.sum2, weights, y2, acrossY2)
		g.multiply(g.sum1, ds, y1, acrossY1)
		read.Set(next)
	})
	b.WaitGroup(0)
	b.Barrier()
}

// product multiplies own rows by other rows and returns the sums. The first index of the sums
// counts groups of 8 other rows. The second index is the element of the fragment.
func (g *gradWriter) product(x, y ptx.Ptr, readX, readY func(p ptx.Ptr, step, i int) []ptx.Value, steps int) [][]ptx.Value {
	var acc [][]ptx.Value
	for range g.s.other / 8 {
		zero := g.F32(0)
		acc = append(acc, []ptx.Value{zero, zero, zero, zero})
	}
	for step := range steps {
		fx := readX(x, step, 0)
		for n := range g.s.other / 16 {
			fy := readY(y, step, n)
			acc[2*n] = g.MMA(storage(g.s.q.typ), fx, fy[:2], acc[2*n])
			acc[2*n+1] = g.MMA(storage(g.s.q.typ), fx, fy[2:], acc[2*n+1])
		}
	}
	return acc
}

// multiply multiplies the first operands x by the other rows at y, and adds the products to sums.
// The list x has one operand for every 16 other rows.
func (g *gradWriter) multiply(sums [][]*ptx.Var, x [][]ptx.Value, y ptx.Ptr, readY func(p ptx.Ptr, step, i int) []ptx.Value) {
	for step := range x {
		for n := range len(sums) / 2 {
			fy := readY(y, step, n)
			for e, f := range [][]ptx.Value{fy[:2], fy[2:]} {
				v := sums[2*n+e]
				r := g.MMA(storage(g.s.q.typ), x[step], f, []ptx.Value{v[0].Get(), v[1].Get(), v[2].Get(), v[3].Get()})
				for k := range v {
					v[k].Set(r[k])
				}
			}
		}
	}
}

// weigh returns the weights that dropout keeps, and the gradients of the scores without their
// common factors. Both have the register layout of accumulators. Element e of fragment n belongs to
// own row 8(e/2) + lane/4 and to other row 8n + 2(lane%4) + e%2. If the own rows are keys, the
// argument numbers points to lse and delta of the tile's queries.
func (g *gradWriter) weigh(w *weighing, score, dp [][]ptx.Value, j, own ptx.Value, rows []gradRow, numbers ptx.Ptr) (p, ds [][]ptx.Value) {
	b, s := g.Builder, g.s
	column := g.lane.And(num(3)).Shl(num(1))
	type place struct {
		row gradRow
		key ptx.Value
	}
	places := make([][]place, len(score))
	for n := range score {
		other := j.Add(column).Add(num(8 * n))
		var lse, delta []ptx.Value
		if s.byKey {
			lse = numbers.At(column).At(num(8 * n)).LoadVec(2)
			if s.scored() {
				delta = numbers.At(column).At(num(8*n + s.other)).LoadVec(2)
			}
		}
		for e := range 4 {
			if !s.byKey {
				places[n] = append(places[n], place{rows[e/2], other.Add(num(e % 2))})
				continue
			}
			r := gradRow{weighingRow: w.row(other.Add(num(e % 2))), lse: lse[e%2].Mul(real(-math.Log2E))}
			if s.scored() {
				r.delta = delta[e%2]
			}
			places[n] = append(places[n], place{r, own.Add(g.lane.Shr(num(2))).Add(num(e / 2 * 8))})
		}
	}
	weights, grads := make([][]*ptx.Var, len(score)), make([][]*ptx.Var, len(score))
	scale := w.scale.Mul(real(math.Log2E))
	for n := range score {
		for e, x := range score[n] {
			at := places[n][e]
			if s.w.mask == dtype.Invalid {
				x = x.FMA(scale, at.row.lse)
			} else {
				x = at.row.masked(at.key, x.Mul(w.scale)).FMA(real(math.Log2E), at.row.lse)
			}
			weights[n] = append(weights[n], b.Var(x.Ex2Approx()))
			if s.scored() {
				grads[n] = append(grads[n], b.Var(dp[n][e]))
			}
		}
	}
	b.If(g.edge(w, j, own), func() {
		for n := range score {
			for e := range score[n] {
				at := places[n][e]
				sees := at.row.sees(at.key)
				if s.byKey {
					sees = sees.And(at.row.i.Lt(w.queries))
				}
				weights[n][e].Set(sees.Select(weights[n][e].Get(), b.F32(0)))
				if s.scored() {
					grads[n][e].Set(sees.Select(grads[n][e].Get(), b.F32(0)))
				}
			}
		}
	})
	kept, changes := make([][]ptx.Value, len(score)), make([][]ptx.Value, len(score))
	keeps := g.keeps(w, j, own, rows)
	for n := range score {
		for e := range score[n] {
			at, x := places[n][e], weights[n][e].Get()
			kept[n] = append(kept[n], x)
			var d ptx.Value
			if s.scored() {
				d = grads[n][e].Get()
			}
			if s.w.drop {
				keeps := keeps(n, e)
				kept[n][e] = keeps.Select(x, b.F32(0))
				if s.scored() {
					d = keeps.Select(d.Mul(w.rest), b.F32(0))
				}
			}
			if s.scored() {
				changes[n] = append(changes[n], d.Sub(at.row.delta).Mul(x))
			}
		}
	}
	if s.valued() {
		p = g.operands(kept)
	}
	if s.scored() {
		ds = g.operands(changes)
	}
	return p, ds
}

// keeps returns a function that reports whether dropout keeps the weight that is element e of
// fragment n in the register layout of weigh. It returns nil if there is no dropout.
func (g *gradWriter) keeps(w *weighing, j, own ptx.Value, rows []gradRow) func(n, e int) ptx.Value {
	switch {
	case !g.s.w.drop:
		return nil
	case g.s.byKey:
		return w.keptAcross(g.lane, j, own, g.s.other)
	}
	first, second := rows[0].keptAlong(g.lane, j, g.s.other), rows[1].keptAlong(g.lane, j, g.s.other)
	return func(n, e int) ptx.Value {
		if e < 2 {
			return first(n, e)
		}
		return second(n, e%2)
	}
}

// edge reports whether the tile contains a key that one of the tile's queries does not see. The
// lengths or the causal order can hide a key.
func (g *gradWriter) edge(w *weighing, j, own ptx.Value) ptx.Value {
	end := j.Add(num(g.s.other))
	if !g.s.byKey {
		return end.Gt(w.lastKey(own))
	}
	last := own.Add(num(16))
	p := end.Gt(w.queries).Or(last.Gt(w.limit))
	if g.s.w.causal {
		p = p.Or(last.Sub(num(1)).Gt(j))
	}
	return p
}

// operands rounds values in the register layout of accumulators, and returns them as first operands
// of products. The list has one operand for every 16 other rows.
func (g *gradWriter) operands(v [][]ptx.Value) (list [][]ptx.Value) {
	half := storage(g.s.q.typ)
	for n := 0; n < len(v); n += 2 {
		x, y := v[n], v[n+1]
		list = append(list, []ptx.Value{g.Pack2(half, x[0], x[1]), g.Pack2(half, x[2], x[3]),
			g.Pack2(half, y[0], y[1]), g.Pack2(half, y[2], y[3])})
	}
	return list
}
