package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// attentionGrad is what both forms of half of attention's gradient know of the operands. A block
// owns a tile of rows of keys and values, and those of queries and results' gradients pass by in
// tiles, or the other way round.
type attentionGrad struct {
	q, k, v, g headRows
	d1, d2     headRows // of dk and dv, or of dq; those that are absent have no type
	w          weighingSpec
	byKey      bool // keys are own
}

// gradForm is a way to compute half of the gradient: on tensor cores, or with multiply-adds.
type gradForm interface {
	kernel() (*Kernel, error)
	tile() (own, other int) // rows
	columnParts() int       // of the results' columns, one a block
	tensor() int            // operations of tensor cores for an own row and a tile of others
}

func (s attentionGrad) form() gradForm {
	if s.q.typ == dtype.F32 {
		return gradFloatFor(s)
	}
	return gradTensorFor(s)
}

func (s attentionGrad) scored() bool { return s.d1.typ != dtype.Invalid }
func (s attentionGrad) valued() bool { return s.d2.typ != dtype.Invalid }

// kernelName is the name of the kernel with such tiles.
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

// tilePairs is how many tiles of others pass by all tiles of own rows, for a head of queries.
// Samples that are shorter have fewer.
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

// gradBlock is where a block is: the parameters that both forms share.
type gradBlock struct {
	*ptx.Builder
	attentionGrad
	own, other         int       // rows of tiles
	w                  *weighing // of no head yet
	group, batch, head ptx.Value // head of keys, or of queries
	first              ptx.Value // own row
	q, k, v, g, d1, d2 headOperand
	lse, delta         ptx.Ptr
}

// declareGrad declares the parameters as planAttentionGrad packs them.
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
	if s.w.causal && !s.byKey { // those with the most keys go first
		block = blocks.Sub(num(1)).Sub(block)
	}
	g.batch, g.head = all.Div(heads), all.Rem(heads)
	g.first = block.Mul(num(own))
	return g
}

// owned are the operands whose rows the block owns, how many of them are read, and how many have
// results.
func (g *gradBlock) owned() (x1, x2 headOperand, limit, there ptx.Value) {
	w := *g.w
	w.of(g.batch, g.head)
	if g.byKey {
		return g.k.of(g.batch, g.head), g.v.of(g.batch, g.head), w.limit, w.keys
	}
	return g.q.of(g.batch, g.head), g.g.of(g.batch, g.head), w.queries, w.queries
}

// eachHead calls pass for the heads of queries whose rows pass by, with the weighing and the
// operands of each.
func (g *gradBlock) eachHead(pass func(p gradPass)) {
	one := func(head ptx.Value) {
		w := *g.w
		w.of(g.batch, head)
		p := gradPass{gradBlock: g, w: &w, y1: g.q.of(g.batch, head), y2: g.g.of(g.batch, head)}
		if !g.byKey {
			shared := head.Div(g.group)
			p.y1, p.y2 = g.k.of(g.batch, shared), g.v.of(g.batch, shared)
		}
		row := g.batch.Mad(w.heads, head).MulWide(w.queries)
		p.lse, p.delta = g.lse.At(row), g.delta
		if g.scored() {
			p.delta = p.delta.At(row)
		}
		p.start, p.end = g.U32(0), w.queries
		if g.byKey {
			p.end = g.first.Lt(w.limit).Select(w.queries, g.U32(0))
			if g.attentionGrad.w.causal {
				p.start = g.first.Div(num(g.other)).Mul(num(g.other))
			}
		} else {
			p.end = w.lastKey(g.first.Add(num(g.own)).Min(w.queries).Sub(num(1)))
		}
		pass(p)
	}
	if !g.byKey {
		one(g.head)
		return
	}
	g.For(g.U32(0), g.group, num(1), func(h ptx.Value, _ ptx.Loop) { one(g.head.Mad(g.group, h)) })
}

// gradPass is a head of queries: other rows, from start to end, pass by the block's own.
type gradPass struct {
	*gradBlock
	w          *weighing
	y1, y2     headOperand
	lse, delta ptx.Ptr
	start, end ptx.Value
}

// loadNumbers starts to bring lse and, after it, delta of a tile of queries to shared memory at p.
func (g *gradPass) loadNumbers(first ptx.Value, p ptx.Ptr) {
	thread := g.ThreadID(0)
	g.If(thread.Lt(num(g.other)), func() {
		i := first.Add(thread)
		size := i.Lt(g.end).Select(g.U32(4), num(0))
		p := p.AtByte(thread.Shl(num(2)))
		p.CopyAsyncPartial(g.lse.At(i), 4, size)
		if g.scored() {
			p.AtByte(num(4*g.other)).CopyAsyncPartial(g.delta.At(i), 4, size)
		}
	})
}

// gradRow is a query's part of the weighing, with the logarithm of its sum, as a form needs it, and
// the sum of its g·out.
type gradRow struct {
	weighingRow
	lse, delta ptx.Value
}
