package kernels

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// fewQueries is the number of rows in the small tiles of queries that decoding uses. leastKeys is
// the least number of keys that a block reads if blocks divide the keys.
const (
	fewQueries = 16
	leastKeys  = 128
)

// grouped merges the heads of queries that share one head of keys. The merged heads become rows
// of one head, so that keys and values are read once for all of them. The method merges heads
// only if there are few queries and the strides allow it. With a single query the strides of Q
// and Out always allow it, but the strides of a mask may not.
func (o AttentionOperands) grouped() AttentionOperands {
	batch, heads, queries, keys := o.Q.Shape.At(0), o.Q.Shape.At(1), o.Q.Shape.At(2), o.K.Shape.At(2)
	shared := o.K.Shape.At(1)
	rows := heads / shared * queries
	if o.Causal || shared == heads || rows > fewQueries {
		return o
	}
	as := func(x *Operand, columns ...int) bool {
		l, ok := x.Layout.View(shape.Of(append([]int{batch, shared, rows}, columns...)...))
		x.Layout = l
		return ok
	}
	g := o
	if !as(&g.Q, o.Q.Shape.At(3)) || !as(&g.Out, o.Out.Shape.At(3)) ||
		o.LSE.Type != dtype.Invalid && !as(&g.LSE) || o.Mask.Type != dtype.Invalid && !as(&g.Mask, keys) {
		return o
	}
	return g
}

// few reports whether there are few queries and many keys. If so, tiles are small and blocks may
// divide the keys. The result is false for causal attention, where queries see no more keys than
// there are queries.
func (o AttentionOperands) few() bool {
	return !o.Causal && o.Q.Shape.At(2) <= fewQueries && o.K.Shape.At(2) >= leastKeys
}

// splitKeys returns the number of keys for one block. If the blocks already occupy the
// multiprocessors, or there are few keys, it returns all keys. Otherwise it returns a multiple of
// tile.
func splitKeys(g *GPU, blocks, keys, tile int) int {
	pieces := min(2*g.Cores/blocks, keys/leastKeys)
	if pieces < 2 {
		return keys
	}
	return ceilDiv(ceilDiv(keys, pieces), tile) * tile
}

// splitAttention plans attention in which blocks divide the keys. The argument chunk is the number
// of keys for each block. The blocks store partial results in float32, and the logarithm of each
// query's sum of exponentials. If a query sees none of a block's keys, the logarithm is -Inf.
func splitAttention(s attentionShape, o AttentionOperands, chunk int, scratch Scratch) ([]Launch, error) {
	n, rows, values := ceilDiv(o.K.Shape.At(2), chunk), o.Out.Shape.Head(3).Size(), o.Out.Shape.At(3)
	pieces := Operand{Type: dtype.F32, Layout: shape.Dense(o.Out.Shape)}
	sums := Operand{Type: dtype.F32, Layout: shape.Dense(shape.Of(n, rows))}
	var err error
	if pieces.Addr, err = scratch(max(1, n*rows*values) * 4); err != nil {
		return nil, err
	}
	if sums.Addr, err = scratch(n * rows * 4); err != nil {
		return nil, err
	}
	s.split, s.lse, s.out = true, true, headRowsOf(pieces)
	list, err := launchAttention(s, chooseAttention(s, o, o.Q.Shape.Head(2).Size(), o.Q.Shape.At(2)), o, pieces, sums, chunk)
	if err != nil {
		return nil, err
	}
	last, err := o.combine(pieces, sums)
	return append(list, last), err
}

// attentionCombine describes a kernel that adds up the partial results of blocks that have divided
// the keys. The weight of a partial result is its share of the query's sum of exponentials. A block
// combines one query, and a thread combines every 128th value.
type attentionCombine struct {
	out headRows
	lse bool
}

func (s attentionCombine) name() string {
	name := fmt.Sprintf("attention_combine_%v_%d", s.out.typ, s.out.columns)
	if !s.out.unit {
		name += "s"
	}
	if s.lse {
		name += "_lse"
	}
	return name
}

func (s attentionCombine) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	pieces, heads, queries := b.Param("pieces", ptx.U32), b.Param("heads", ptx.U32), b.Param("queries", ptx.U32)
	from, sums := b.Pointer("from", ptx.F32), b.Pointer("sums", ptx.F32)
	out := declareHeads(b, "out", s.out)
	row, rows := b.BlockID(0), b.GridDim(0)
	all, i := row.Div(queries), row.Rem(queries)
	out = out.atHead(all.Div(heads), all.Rem(heads))
	sum := func(piece ptx.Value) ptx.Value { return sums.At(row).At(piece.MulWide(rows)).Load() }
	infinite := b.F32(float32(math.Inf(-1)))
	most := b.Var(infinite)
	b.For(b.U32(0), pieces, num(1), func(p ptx.Value, _ ptx.Loop) { most.Set(most.Get().Max(sum(p))) })
	base := most.Get().Eq(infinite).Select(b.F32(0), most.Get())
	total := b.Var(b.F32(0))
	b.For(b.U32(0), pieces, num(1), func(p ptx.Value, _ ptx.Loop) {
		total.Set(total.Get().Add(call(b, "exp", sum(p).Sub(base))))
	})
	isZero := total.Get().Eq(num(0)) // false for a sum that is NaN, so that the result becomes NaN
	if s.lse {
		to := b.Pointer("lse", ptx.F32)
		b.If(b.ThreadID(0).Eq(num(0)), func() {
			lse := base.Add(call(b, "log", total.Get()))
			to.At(row).Store(isZero.Select(b.F32(float32(math.Inf(1))), lse))
		})
	}
	inverse := isZero.Select(b.F32(0), total.Get().Rcp())
	line := out.line(i)
	b.For(b.ThreadID(0), b.U32(uint32(s.out.columns)), num(floatThreads), func(c ptx.Value, _ ptx.Loop) {
		acc := b.Var(b.F32(0))
		b.For(b.U32(0), pieces, num(1), func(p ptx.Value, _ ptx.Loop) {
			at := p.MulWide(rows).Add(row.Cvt(ptx.U64)).Mul(b.U64(uint64(s.out.columns))).Add(c.Cvt(ptx.U64))
			acc.Set(from.At(at).Load().FMA(call(b, "exp", sum(p).Sub(base)), acc.Get()))
		})
		out.element(line, c).Store(narrow(b, s.out.typ, acc.Get().Mul(inverse)))
	})
	return [3]int{floatThreads, 1, 1}
}

// combine plans the launch that computes the results of o from partial results and the logarithms
// of their sums.
func (o AttentionOperands) combine(pieces, sums Operand) (Launch, error) {
	s := attentionCombine{out: headRowsOf(o.Out), lse: o.LSE.Type != dtype.Invalid}
	k, err := kernelOf(s)
	if err != nil {
		return Launch{}, err
	}
	p := make(packer, 0, 96)
	p.u32(uint32(sums.Shape.At(0)))
	p.u32(uint32(o.Q.Shape.At(1)))
	p.u32(uint32(o.Q.Shape.At(2)))
	p.u64(pieces.start())
	p.u64(sums.start())
	p.packHeads(o.Out)
	if s.lse {
		p.u64(o.LSE.start())
	}
	return p.launch(k, sums.Shape.At(1))
}
