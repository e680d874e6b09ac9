package kernels

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// attentionTensor computes attention of 16-bit floats on tensor cores. A warp has 16 or 32 queries.
// Sums, scores and weights stay in the warp's registers. The weights already have the register
// layout that the second product needs for its first operand.
type attentionTensor struct {
	attentionShape
	// whether the scale is part of the factor in the exponent. This is possible if the scale is
	// positive and nothing is added to the scores.
	fold  bool
	warps int
	high  int // a warp has 16·high queries
	keys  int // number of keys in a tile
	keepQ bool
}

func (s attentionTensor) name() string {
	name := fmt.Sprintf("attention_%v_%dx%d", s.attentionShape, s.tileRows(), s.keys)
	if s.fold {
		name += "_fold"
	}
	return name
}

func (s attentionTensor) kernel() (*Kernel, error)  { return kernelOf(s) }
func (s attentionTensor) tile() (queries, keys int) { return s.tileRows(), s.keys }
func (s attentionTensor) tensor() int {
	q, _, v, _ := s.tiles()
	return 2 * s.keys * (q.width + v.width)
}

func (s attentionTensor) tileRows() int { return 16 * s.high * s.warps }

// attentionTensorFor chooses the size of the tiles.
func attentionTensorFor(s attentionShape, scale float64, heads, queries int, few bool) attentionTensor {
	f := attentionTensor{attentionShape: s, fold: scale > 0 && !s.w.adds(), warps: 4, high: 1, keys: 64, keepQ: true}
	wide, plain := max(s.q.columns, s.v.columns), s.w.mask == dtype.Invalid && !s.w.drop
	switch { // these tiles fit into a thread's registers
	case wide > 128:
		f.keys, f.keepQ = 32, false
	case wide > 64 && !plain, s.w.drop && (s.w.lengths || s.w.mask != dtype.Invalid):
		f.keys = 32
	case wide <= 64 && plain && heads*ceilDiv(queries, 128) >= 64:
		f.high, f.keepQ = 2, false
	}
	if few {
		f.warps, f.high = fewQueries/16, 1
		f.keepQ = f.keepQ && (s.w.mask == dtype.Invalid || !s.w.drop)
	}
	return f
}

func (s attentionTensor) tiles() (q, k, v, out headTile) {
	rows, t := s.tileRows(), s.q.typ
	return headTileOf(rows, s.q.columns, t), headTileOf(s.keys, s.q.columns, t), headTileOf(s.keys, s.v.columns, t),
		headTileOf(rows, s.v.columns, t)
}

// shared returns sizes of shared memory in bytes. The first is for the tile of queries, which later
// holds the results. The second is for one stage of keys and values. The third is for the queries
// and two stages.
func (s attentionTensor) shared() (queries, stage, total int) {
	q, k, v, out := s.tiles()
	queries, stage = max(q.bytes(), out.bytes()), k.bytes()+v.bytes()
	return queries, stage, queries + 2*stage
}

func (s attentionTensor) dynamicShared() int {
	_, _, all := s.shared()
	return beyondStatic(all, 0)
}

// attentionRow is the running maximum and sum of one query. A lane holds the maximum and sum of
// every eighth query of its warp.
type attentionRow struct {
	weighingRow
	most, sum *ptx.Var
}

// attentionWriter is the state of attentionTensor.build while it emits the code of a kernel.
type attentionWriter struct {
	*ptx.Builder
	s    attentionTensor
	a    attentionBlock
	lane ptx.Value
	rows []attentionRow // rows[2t+h] is row 16t + 8h + lane/4 of the warp
	acc  [][][]*ptx.Var // sums of the results, indexed [t][group of 8 values][element of the fragment]
	// factor of a score in the exponent of 2: log₂e, or log₂e times the attention's scale if fold
	// is true
	scale ptx.Value
}

func (s attentionTensor) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	threads := 32 * s.warps
	b.MinBlocks(max(1, 8/s.warps))
	g := &attentionWriter{Builder: b, s: s, lane: b.LaneID(), a: declareAttention(b, s.attentionShape, s.tileRows())}
	a := g.a
	tileQ, tileK, tileV, tileOut := s.tiles()
	outside, stage, all := s.shared()
	shared := sharedTiles(b, ptx.U8, all, s.dynamicShared())
	stages := shared.AtByte(num(outside))

	loadQ, loadK, loadV := tileQ.mover(b, a.q, threads), tileK.mover(b, a.k, threads), tileV.mover(b, a.v, threads)
	load := func(first, at ptx.Value) {
		loadK.load(first, a.end, stages.AtByte(at))
		loadV.load(first, a.end, stages.AtByte(at).AtByte(num(tileK.bytes())))
		b.CommitGroup()
	}
	loadQ.load(a.firstQuery, a.w.queries, shared)
	load(a.begin, b.U32(0))

	warpRow := b.WarpID().Mul(num(16 * s.high))
	readQ := tileQ.fragments(b, true, warpRow, false)
	readK := tileK.fragments(b, true, b.U32(0), true)
	readV := tileV.fragments(b, false, b.U32(0), true)
	steps := tileQ.width / 16
	var kept [][][]ptx.Value
	if s.keepQ {
		b.WaitGroup(0)
		b.Barrier()
		for step := range steps {
			kept = append(kept, nil)
			for t := range s.high {
				kept[step] = append(kept[step], readQ(shared, step, t))
			}
		}
	}
	queries := func(step, t int) []ptx.Value {
		if s.keepQ {
			return kept[step][t]
		}
		return readQ(shared, step, t)
	}
	g.start(a.firstQuery.Add(warpRow), tileV.width)

	// every query of the warp sees the keys with an index less than visible
	visible := a.w.lastKey(a.firstQuery.Add(warpRow))
	read := b.Var(b.U32(0))
	b.For(a.begin, a.end, num(s.keys), func(j ptx.Value, _ ptx.Loop) {
		b.Comment("this tile has arrived, and everyone is done with the one before it")
		b.WaitGroup(0)
		b.Barrier()
		next := b.U32(uint32(stage)).Sub(read.Get())
		load(j.Add(num(s.keys)), next)
		k := stages.AtByte(read.Get())
		v := k.AtByte(num(tileK.bytes()))
		b.Comment("the scores")
		score := make([][][]ptx.Value, s.high)
		for t := range score {
			for range s.keys / 8 {
				zero := b.F32(0)
				score[t] = append(score[t], []ptx.Value{zero, zero, zero, zero})
			}
		}
		for step := range steps {
			fq := make([][]ptx.Value, s.high)
			for t := range fq {
				fq[t] = queries(step, t)
			}
			for n := range s.keys / 16 {
				fk := readK(k, step, n)
				for t := range fq {
					score[t][2*n] = b.MMA(storage(s.q.typ), fq[t], fk[:2], score[t][2*n])
					score[t][2*n+1] = b.MMA(storage(s.q.typ), fq[t], fk[2:], score[t][2*n+1])
				}
			}
		}
		g.mask(score, j, j.Add(num(s.keys)).Gt(visible))
		weights := g.weigh(score, j)
		b.Comment("the results")
		for step := range s.keys / 16 {
			for n := range tileV.width / 16 {
				fv := readV(v, step, n)
				for t := range weights {
					for e, f := range [][]ptx.Value{fv[:2], fv[2:]} {
						g.add(g.acc[t][2*n+e], weights[t][step], f)
					}
				}
			}
		}
		read.Set(next)
	})
	b.WaitGroup(0)
	b.Barrier()
	g.finish()
	if s.split {
		g.writePieces()
		return [3]int{threads, 1, 1}
	}
	g.write(shared, tileOut, warpRow)
	b.Barrier()
	tileOut.mover(b, a.out, threads).store(a.firstQuery, a.w.queries, shared)
	return [3]int{threads, 1, 1}
}

// start prepares the rows of a warp. The argument query is the index of the warp's first query, and
// values is the padded number of columns of v.
func (g *attentionWriter) start(query ptx.Value, values int) {
	b := g.Builder
	for n := range 2 * g.s.high {
		row := g.a.w.row(query.Add(num(8 * n)).Add(g.lane.Shr(num(2))))
		g.rows = append(g.rows, attentionRow{row, b.Var(b.F32(float32(math.Inf(-1)))), b.Var(b.F32(0))})
	}
	g.acc = make([][][]*ptx.Var, g.s.high)
	for t := range g.acc {
		for range values / 8 {
			g.acc[t] = append(g.acc[t], []*ptx.Var{b.Var(b.F32(0)), b.Var(b.F32(0)), b.Var(b.F32(0)), b.Var(b.F32(0))})
		}
	}
	g.scale = b.F32(math.Log2E)
	if g.s.fold {
		g.scale = g.a.w.scale.Mul(g.scale)
	}
}

// add adds the product of the fragments x and y to an accumulator.
func (g *attentionWriter) add(acc []*ptx.Var, x, y []ptx.Value) {
	r := g.MMA(storage(g.s.q.typ), x, y, []ptx.Value{acc[0].Get(), acc[1].Get(), acc[2].Get(), acc[3].Get()})
	for e := range acc {
		acc[e].Set(r[e])
	}
}

// key returns the index of the key for element e of fragment n, in a tile whose first key is j.
func (g *attentionWriter) key(j ptx.Value, n, e int) ptx.Value {
	return j.Add(g.lane.And(num(3)).Shl(num(1))).Add(num(8*n + e%2))
}

// mask applies the scale to the scores, unless it is folded into the exponent, and then applies the
// mask. If edge is true, it also hides keys that the lengths or the causal order exclude.
func (g *attentionWriter) mask(score [][][]ptx.Value, j, edge ptx.Value) {
	b := g.Builder
	var vars []*ptx.Var
	for t := range score {
		for n := range score[t] {
			for e, x := range score[t][n] {
				if !g.s.fold {
					x = x.Mul(g.a.w.scale)
				}
				vars = append(vars, b.Var(g.rows[2*t+e/2].masked(g.key(j, n, e), x)))
			}
		}
	}
	all := func(f func(v *ptx.Var, t, n, e int)) {
		i := 0
		for t := range score {
			for n := range score[t] {
				for e := range score[t][n] {
					f(vars[i], t, n, e)
					i++
				}
			}
		}
	}
	b.If(edge, func() {
		all(func(v *ptx.Var, t, n, e int) { v.Set(g.rows[2*t+e/2].unseen(g.key(j, n, e), v.Get())) })
	})
	all(func(v *ptx.Var, t, n, e int) { score[t][n][e] = v.Get() })
}

// weigh updates the running state of the rows with a tile's scores. It returns the tile's weights,
// exp(score - maximum of the row), as first operands of products. The result is indexed [t][step],
// and each step has 16 keys.
func (g *attentionWriter) weigh(score [][][]ptx.Value, j ptx.Value) [][][]ptx.Value {
	b := g.Builder
	weights := make([][][]ptx.Value, len(score))
	for t := range score {
		for h := range 2 {
			r := g.rows[2*t+h]
			b.Comment("the running maximum and sum")
			before := r.most.Get()
			most := before
			for n := range score[t] {
				most = most.Max(score[t][n][2*h]).Max(score[t][n][2*h+1])
			}
			for _, d := range []int{1, 2} {
				most = most.Max(most.Shuffle(ptx.ShuffleXor, num(d)))
			}
			r.most.Set(most)
			base := most.Eq(real(math.Inf(-1))).Select(b.F32(0), most)
			power := func(x ptx.Value) ptx.Value { return x.Sub(base).Mul(g.scale).Ex2ApproxFlushed() }
			if g.s.fold {
				less := base.Mul(g.scale).Neg()
				power = func(x ptx.Value) ptx.Value { return x.FMA(g.scale, less).Ex2ApproxFlushed() }
			}
			less := power(before)
			var keeps func(n, e int) ptx.Value
			if g.s.w.drop {
				keeps = r.keptAlong(g.lane, j, g.s.keys)
			}
			var sum ptx.Value
			for n := range score[t] {
				for e := 2 * h; e < 2*h+2; e++ {
					p := power(score[t][n][e])
					score[t][n][e] = p
					if n == 0 && e == 2*h {
						sum = p
					} else {
						sum = sum.Add(p)
					}
					if g.s.w.drop {
						score[t][n][e] = keeps(n, e%2).Select(p, b.F32(0))
					}
				}
			}
			r.sum.Set(r.sum.Get().FMA(less, sum))
			for _, v := range g.acc[t] {
				for e := 2 * h; e < 2*h+2; e++ {
					v[e].Set(v[e].Get().Mul(less))
				}
			}
		}
		half := storage(g.s.q.typ)
		for step := range g.s.keys / 16 {
			x, y := score[t][2*step], score[t][2*step+1]
			weights[t] = append(weights[t], []ptx.Value{b.Pack2(half, x[0], x[1]), b.Pack2(half, x[2], x[3]),
				b.Pack2(half, y[0], y[1]), b.Pack2(half, y[2], y[3])})
		}
	}
	return weights
}

// finish divides the results by the sums and stores the logarithms of the sums in LSE.
func (g *attentionWriter) finish() {
	b := g.Builder
	for i, r := range g.rows {
		sum := r.sum.Get()
		for _, d := range []int{1, 2} {
			sum = sum.Add(sum.Shuffle(ptx.ShuffleXor, num(d)))
		}
		none := sum.Eq(num(0))
		if g.s.lse {
			most := r.most.Get()
			if g.s.fold {
				most = most.Mul(g.a.w.scale)
			}
			b.If(g.lane.And(num(3)).Eq(num(0)).And(r.i.Lt(g.a.w.queries)), func() {
				lse := most.Add(call(b, "log", sum))
				g.a.lse.At(r.i).Store(none.Select(b.F32(g.s.emptyLSE()), lse))
			})
		}
		inverse := sum.Rcp()
		if g.s.w.drop {
			inverse = inverse.Mul(g.a.w.rest)
		}
		inverse = none.Select(b.F32(0), inverse)
		for _, v := range g.acc[i/2] {
			for e := i % 2 * 2; e < i%2*2+2; e++ {
				v[e].Set(v[e].Get().Mul(inverse))
			}
		}
	}
}

// writePieces stores the float32 partial results of this block's keys, two elements at a time.
func (g *attentionWriter) writePieces() {
	out, b := g.a.out, g.Builder
	for i, r := range g.rows {
		line, there := out.line(r.i), r.i.Lt(g.a.w.queries)
		for n, v := range g.acc[i/2] {
			column := g.lane.And(num(3)).Shl(num(1)).Add(num(8 * n))
			list := []ptx.Value{v[i%2*2].Get(), v[i%2*2+1].Get()}
			vector := min(2, out.vector)
			for e := 0; e < 2; e += vector {
				b.If(there.And(column.Add(num(e)).Lt(num(out.columns))), func() {
					storeVector(b, out.element(line, column.Add(num(e))), dtype.F32, list[e:e+vector])
				})
			}
		}
	}
}

// write rounds the results and stores them in the tile at p, in shared memory.
func (g *attentionWriter) write(p ptx.Ptr, tile headTile, warpRow ptx.Value) {
	for t := range g.acc {
		for n, v := range g.acc[t] {
			for h := range 2 {
				row := warpRow.Add(g.lane.Shr(num(2))).Add(num(16*t + 8*h))
				at := p.AtByte(tile.offset(row, g.U32(uint32(n)))).AtByte(g.lane.And(num(3)).Shl(num(2)))
				at.As(ptx.B32).Store(g.Pack2(storage(g.s.q.typ), v[2*h].Get(), v[2*h+1].Get()))
			}
		}
	}
}
