package kernels

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// AttentionOperands are the operands of [device.Attention]. Out, Q, K and V have the shape [batch,
// heads, length, columns]. LSE, the logarithm of each query's sum of exponentials, may be absent.
type AttentionOperands struct {
	Out, LSE, Q, K, V Operand
	AttentionWeighing
}

// attentionForm is a kernel for attention: one that uses tensor cores, or one that uses float32
// multiply-adds.
type attentionForm interface {
	kernel() (*Kernel, error)
	tile() (queries, keys int)
	tensor() int // number of tensor-core operations for one query and one tile of keys
}

// attentionShape holds the properties of the operands that every attentionForm needs.
type attentionShape struct {
	q, k, v, out headRows
	w            weighingSpec
	lse          bool
	split        bool // whether each block computes partial results, for a part of the keys
}

func (s attentionShape) String() string {
	name := fmt.Sprintf("%v_%dx%d_", s.q.typ, s.q.columns, s.v.columns)
	for i, o := range []headRows{s.q, s.k, s.v, s.out} {
		name += fmt.Sprintf("%c%d", "qkvo"[i], o.vector)
		if !o.unit {
			name += "s"
		}
	}
	name += s.w.String()
	if s.lse {
		name += "_lse"
	}
	if s.split {
		name += "_split"
	}
	return name
}

// AttentionReason explains why no kernel computes attention for these operands. It returns "" if
// there is a kernel. It looks only at types and layouts.
func AttentionReason(o AttentionOperands) string {
	switch {
	case o.Q.Type != dtype.F32 && !o.Q.Type.IsHalf():
		return fmt.Sprintf("operands of %v", o.Q.Type)
	case max(o.Q.Shape.At(3), o.V.Shape.At(3)) > 256:
		return fmt.Sprintf("%d features and %d values: 256 at most", o.Q.Shape.At(3), o.V.Shape.At(3))
	case o.Q.Shape.At(0)*o.Q.Shape.At(1) > 1<<28/max(1, o.Q.Shape.At(2)):
		return "more than 2²⁸ queries"
	}
	for _, x := range []Operand{o.Out, o.Q, o.K, o.V, o.Mask} {
		if x.Shape.Rank() == 4 && !packable(x.Layout) {
			return fmt.Sprintf("strides %v", x.Strides)
		}
	}
	return ""
}

// Attention plans out = softmax(scale·q·kᵀ + mask)·v, as [device.Attention] defines it. Operands
// are of a 16-bit float type or of F32, with at most 256 features and 256 values. Each block
// computes some queries. It loops over the keys in tiles, and keeps the running maximum and sum of
// each query's exponentials (T. Dao, FlashAttention-2, arXiv:2307.08691). With 16-bit operands,
// each weight exp(score - maximum) is rounded to 16 bits before it multiplies the values.
//
// A few queries with many keys, as in decoding, would leave multiprocessors of g idle. In that case
// blocks divide the keys among themselves, and a second launch combines their results (T. Dao and
// others, Flash-Decoding, 2023, pytorch.org/blog/flash-decoding).
func Attention(g *GPU, o AttentionOperands, scratch Scratch) ([]Launch, error) {
	if why := AttentionReason(o); why != "" {
		return nil, fail("attention", "%s", why)
	}
	if o.K.Shape.At(1) > 0 {
		o = o.grouped()
	}
	batch, heads, queries, keys := o.Q.Shape.At(0), o.Q.Shape.At(1), o.Q.Shape.At(2), o.K.Shape.At(2)
	if batch*heads*queries == 0 || o.Out.Shape.Size() == 0 && o.LSE.Type == dtype.Invalid {
		return nil, nil
	}
	s := attentionShape{q: headRowsOf(o.Q), k: headRowsOf(o.K), v: headRowsOf(o.V), out: headRowsOf(o.Out),
		w: weighingSpecOf(o.AttentionWeighing), lse: o.LSE.Type != dtype.Invalid}
	f := chooseAttention(s, o, batch*heads, queries)
	if o.few() {
		rows, tile := f.tile()
		if chunk := splitKeys(g, batch*heads*ceilDiv(queries, rows), keys, tile); chunk < keys {
			return splitAttention(s, o, chunk, scratch)
		}
	}
	return launchAttention(s, f, o, o.Out, o.LSE, keys)
}

// launchAttention plans the launch of the kernel f. The argument chunk is the number of keys for
// each block. The blocks write their results to the operands out and lse.
func launchAttention(s attentionShape, f attentionForm, o AttentionOperands, out, lse Operand, chunk int) ([]Launch, error) {
	batch, heads, queries, keys := o.Q.Shape.At(0), o.Q.Shape.At(1), o.Q.Shape.At(2), o.K.Shape.At(2)
	rows, tile := f.tile()
	blocks := ceilDiv(queries, rows)
	k, err := f.kernel()
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 256)
	p.u32(uint32(blocks))
	p.u32(uint32(batch * heads))
	p.u32(uint32(heads / o.K.Shape.At(1)))
	p.packWeighing(s.w, o.AttentionWeighing, o.Q.Shape.With(3, keys))
	if s.split {
		p.u32(uint32(chunk))
	}
	for _, x := range []Operand{out, o.Q, o.K, o.V} {
		p.packHeads(x)
	}
	if s.lse {
		p.u64(lse.start())
	}
	l, err := p.launch(k, blocks*batch*heads, max(1, ceilDiv(keys, max(1, chunk))))
	l.Tensor = batch * heads * keyTiles(s.w.causal, queries, keys, rows, tile) * rows * f.tensor()
	return []Launch{l}, err
}

// keyTiles returns the number of tiles of keys that all blocks of one head read together. The
// argument rows is the number of queries of a block. If causal is true, a block skips the tiles
// that none of its queries sees. The result is an upper bound: a sample with fewer keys than the
// argument keys reads fewer tiles.
func keyTiles(causal bool, queries, keys, rows, tile int) int {
	n := 0
	for first := 0; first < queries; first += rows {
		end := keys
		if causal {
			end = min(keys, first+rows, queries)
		}
		n += ceilDiv(end, tile)
	}
	return n
}

func chooseAttention(s attentionShape, o AttentionOperands, heads, queries int) attentionForm {
	if s.q.typ == dtype.F32 {
		return attentionFloatFor(s, o.few())
	}
	return attentionTensorFor(s, o.Scale, heads, queries, o.few())
}

// attentionBlock holds the parameters of every attention kernel, for the sample and head that the
// block computes.
type attentionBlock struct {
	w           *weighing
	batch, head ptx.Value
	firstQuery  ptx.Value // index of the block's first query
	// range of the keys that the block reads, from begin to end-1; at least one query of the block
	// sees each of these keys
	begin, end   ptx.Value
	q, k, v, out headOperand
	lse          ptx.Ptr // pointer to the LSE of the block's head
}

// emptyLSE is the value stored in LSE for a query that sees no key. Without split keys it is +Inf.
// With split keys it is -Inf, so that attentionCombine gives a part without visible keys the weight
// 0.
func (s attentionShape) emptyLSE() float32 {
	if s.split {
		return float32(math.Inf(-1))
	}
	return float32(math.Inf(1))
}

// declareAttention declares the parameters in the order in which launchAttention packs them. The
// argument rows is the number of queries that a block computes.
func declareAttention(b *ptx.Builder, s attentionShape, rows int) attentionBlock {
	blocks, heads, group := b.Param("blocks", ptx.U32), b.Param("all", ptx.U32), b.Param("group", ptx.U32)
	a := attentionBlock{w: declareWeighing(b, s.w), begin: b.U32(0)}
	var chunk ptx.Value
	if s.split {
		chunk = b.Param("chunk", ptx.U32)
	}
	out, q := declareHeads(b, "out", s.out), declareHeads(b, "q", s.q)
	k, v := declareHeads(b, "k", s.k), declareHeads(b, "v", s.v)
	id := b.BlockID(0)
	block, all := id.Rem(blocks), id.Div(blocks)
	if s.w.causal {
		b.Comment("those with the most keys go first")
		block, all = blocks.Sub(id.Div(heads)).Sub(num(1)), id.Rem(heads)
	}
	a.firstQuery = block.Mul(num(rows))
	a.batch, a.head = all.Div(a.w.heads), all.Rem(a.w.heads)
	shared := a.head.Div(group)
	a.w.moveToHead(a.batch, a.head)
	a.q, a.k, a.v, a.out = q.atHead(a.batch, a.head), k.atHead(a.batch, shared), v.atHead(a.batch, shared), out.atHead(a.batch, a.head)
	if s.lse {
		a.lse = b.Pointer("lse", ptx.F32).At(all.MulWide(a.w.queries))
	}
	a.end = a.w.lastKey(a.firstQuery.Add(num(rows)).Min(a.w.queries).Sub(num(1)))
	if s.split {
		piece := b.BlockID(1)
		a.begin = piece.Mul(chunk)
		a.end = a.end.Min(a.begin.Add(chunk))
		at := piece.MulWide(heads).Mul(a.w.queries.Cvt(ptx.U64))
		a.lse = a.lse.At(at)
		a.out.p = a.out.p.At(at.Mul(b.U64(uint64(s.out.columns))))
	}
	return a
}
