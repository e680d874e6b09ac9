package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// attentionGrad describes the operands of one launch of attention's gradient. In the launch for dk
// and dv a block owns a tile of rows of k and v, and loops over the rows of q and g in tiles. In
// the launch for dq a block owns rows of q and g, and loops over the rows of k and v. Comments call
// the rows that a block owns "own rows", and the rows over which it loops "other rows".
type attentionGrad struct {
	q, k, v, g headRows
	// In the launch for dk and dv, d1 is dk and d2 is dv. In the launch for dq, d1 is dq and d2 is
	// absent. Absent results have the type Invalid.
	d1, d2 headRows
	w      weighingSpec
	byKey  bool // whether this is the launch for dk and dv, in which a block's own rows are keys
}

// gradForm is a kernel for one launch of the gradient: one that uses tensor cores, or one that uses
// multiply-adds.
type gradForm interface {
	kernel() (*Kernel, error)
	tile() (own, other int) // number of rows in a tile of own rows, and in a tile of other rows
	// number of parts into which the results' columns are divided among blocks
	columnParts() int
	// number of tensor-core operations for one own row and one tile of other rows
	tensor() int
}

func (s attentionGrad) form() gradForm {
	if s.q.typ == dtype.F32 {
		return gradFloatFor(s)
	}
	return gradTensorFor(s)
}

func (s attentionGrad) scored() bool { return s.d1.typ != dtype.Invalid }
func (s attentionGrad) valued() bool { return s.d2.typ != dtype.Invalid }

// kernelName returns the name of a kernel with the given numbers of rows in a tile of own rows and
// a tile of other rows.
func (s attentionGrad) kernelName(own, other int) string {
	name := fmt.Sprintf("attention_grad_%v_%dx%d_", s.q.typ, s.q.columns, s.v.columns)
	for i, o := range []headRows{s.q, s.k, s.v, s.g, s.d1, s.d2} {
		if o.typ == dtype.Invalid {
			continue
		}
		name += fmt.Sprintf("%c%d", "qkvgde"[i], o.vector)
		if !o.unit {
			name += "s"
		}
	}
	if s.byKey {
		name += "_bykey"
	}
	return fmt.Sprintf("%s%v_%dx%d", name, s.w, own, other)
}

// tilePairs returns the number of pairs of tiles that all blocks together multiply for one head of
// queries. A pair is a tile of own rows and a tile of other rows. The number is an upper limit: a
// sample whose length is less than keys has fewer pairs.
func (s attentionGrad) tilePairs(queries, keys, own, other int) int {
	if !s.byKey {
		return keyTiles(s.w.causal, queries, keys, own, other)
	}
	n := 0
	for first := 0; first < keys; first += own {
		start := 0
		if s.w.causal {
			start = min(first/other*other, queries)
		}
		n += ceilDiv(queries-start, other)
	}
	return n
}

// gradBlock holds the parameters of a gradient kernel, and the position of the block.
type gradBlock struct {
	*ptx.Builder
	attentionGrad
	own, other int       // numbers of rows in a tile of own rows and in a tile of other rows
	w          *weighing // the weighing, with pointers to its first sample and head
	// If byKey is true, head is a head of the keys, otherwise one of the queries.
	group, batch, head ptx.Value
	firstOwn           ptx.Value // index of the block's first own row
	q, k, v, g, d1, d2 headOperand
	lse, delta         ptx.Ptr
}

// declareGrad declares the kernel's parameters in the order in which planAttentionGrad packs them.
func declareGrad(b *ptx.Builder, s attentionGrad, own, other int) gradBlock {
	blocks := b.Param("blocks", ptx.U32)
	g := gradBlock{Builder: b, attentionGrad: s, own: own, other: other, group: b.Param("group", ptx.U32), w: declareWeighing(b, s.w)}
	g.q, g.k = declareHeads(b, "q", s.q), declareHeads(b, "k", s.k)
	g.v, g.g = declareHeads(b, "v", s.v), declareHeads(b, "g", s.g)
	if s.scored() {
		g.d1 = declareHeads(b, "d", s.d1)
	}
	if s.valued() {
		g.d2 = declareHeads(b, "e", s.d2)
	}
	g.lse = b.Pointer("lse", ptx.F32)
	if s.scored() {
		g.delta = b.Pointer("delta", ptx.F32)
	}
	id := b.BlockID(0)
	block, all := id.Rem(blocks), id.Div(blocks)
	heads := g.w.heads
	if s.byKey {
		heads = heads.Div(g.group)
	}
	if s.w.causal && !s.byKey { // the blocks with the most keys start first
		block = blocks.Sub(num(1)).Sub(block)
	}
	g.batch, g.head = all.Div(heads), all.Rem(heads)
	g.firstOwn = block.Mul(num(own))
	return g
}

// owned returns the two operands that contain the block's own rows, and two numbers. The first,
// limit, is the number of rows of these operands to read. The second, there, is the number of rows
// of the block's results, which are dk and dv, or dq.
func (g *gradBlock) owned() (x1, x2 headOperand, limit, there ptx.Value) {
	w := *g.w
	w.moveToHead(g.batch, g.head)
	if g.byKey {
		return g.k.atHead(g.batch, g.head), g.v.atHead(g.batch, g.head), w.limit, w.keys
	}
	return g.q.atHead(g.batch, g.head), g.g.atHead(g.batch, g.head), w.queries, w.queries
}

// eachHead calls pass for each head of queries that the block processes. The gradPass p holds the
// weighing and the operands of that head.
func (g *gradBlock) eachHead(pass func(p gradPass)) {
	one := func(head ptx.Value) {
		w := *g.w
		w.moveToHead(g.batch, head)
		p := gradPass{gradBlock: g, w: &w, y1: g.q.atHead(g.batch, head), y2: g.g.atHead(g.batch, head)}
		if !g.byKey {
			shared := head.Div(g.group)
			p.y1, p.y2 = g.k.atHead(g.batch, shared), g.v.atHead(g.batch, shared)
		}
		row := g.batch.Mad(w.heads, head).MulWide(w.queries)
		p.lse, p.delta = g.lse.At(row), g.delta
		if g.scored() {
			p.delta = p.delta.At(row)
		}
		p.start, p.end = g.U32(0), w.queries
		if g.byKey {
			p.end = g.firstOwn.Lt(w.limit).Select(w.queries, g.U32(0))
			if g.attentionGrad.w.causal {
				p.start = g.firstOwn.Div(num(g.other)).Mul(num(g.other))
			}
		} else {
			p.end = w.lastKey(g.firstOwn.Add(num(g.own)).Min(w.queries).Sub(num(1)))
		}
		pass(p)
	}
	if !g.byKey {
		one(g.head)
		return
	}
	g.For(g.U32(0), g.group, num(1), func(h ptx.Value, _ ptx.Loop) { one(g.head.Mad(g.group, h)) })
}

// gradPass holds the operands of one head of queries. The block multiplies its own rows by the
// other rows with the indices start to end-1.
type gradPass struct {
	*gradBlock
	w          *weighing
	y1, y2     headOperand
	lse, delta ptx.Ptr
	start, end ptx.Value
}

// loadNumbers starts an asynchronous copy of lse and delta to shared memory at p, for a tile of
// queries that starts at query. In shared memory delta follows lse.
func (g *gradPass) loadNumbers(query ptx.Value, p ptx.Ptr) {
	thread := g.ThreadID(0)
	g.If(thread.Lt(num(g.other)), func() {
		i := query.Add(thread)
		size := i.Lt(g.end).Select(g.U32(4), num(0))
		p := p.AtByte(thread.Shl(num(2)))
		p.CopyAsyncPartial(g.lse.At(i), 4, size)
		if g.scored() {
			p.AtByte(num(4*g.other)).CopyAsyncPartial(g.delta.At(i), 4, size)
		}
	})
}

// gradRow holds what the gradient needs to weigh the keys for one query. The field lse is the
// logarithm of the sum of the query's exponentials, scaled as the kernel needs it. The field delta
// is the query's sum of g·out.
type gradRow struct {
	weighingRow
	lse, delta ptx.Value
}
