package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// AttentionGradOperands are the operands of [device.AttentionGrad]. An absent result has the type
// Invalid.
type AttentionGradOperands struct {
	DQ, DK, DV, G, Q, K, V, Out, LSE Operand
	AttentionWeighing
}

// AttentionGradReason explains why no kernel computes the gradient of attention for these operands.
// It returns "" if there is a kernel. It looks only at types and layouts.
func AttentionGradReason(o AttentionGradOperands) string {
	for _, x := range []Operand{o.DQ, o.DK, o.DV, o.G} {
		if x.Type != dtype.Invalid && !packable(x.Layout) {
			return fmt.Sprintf("strides %v", x.Strides)
		}
	}
	if o.K.Shape.At(0)*o.K.Shape.At(1) > 1<<28/max(1, o.K.Shape.At(2)) {
		return "more than 2²⁸ keys"
	}
	return AttentionReason(AttentionOperands{Out: o.Out, Q: o.Q, K: o.K, V: o.V, AttentionWeighing: o.AttentionWeighing})
}

// AttentionGrad plans the gradients of q, k and v, as [device.AttentionGrad] defines them. It takes
// 16-bit floats and F32, with at most 256 features and 256 values. The first launch sums g·out for
// every query. The second launch computes dk and dv: each block has a tile of keys and loops over
// the queries. The third launch computes dq: each block has a tile of queries and loops over the
// keys. So every sum is added in a fixed order.
//
// The weights are computed again from the scores and lse (T. Dao, FlashAttention-2,
// arXiv:2307.08691, algorithm 2). With 16-bit operands, the weights and the gradients of the scores
// are rounded to 16 bits before they are multiplied.
func AttentionGrad(o AttentionGradOperands, scratch Scratch) ([]Launch, error) {
	if why := AttentionGradReason(o); why != "" {
		return nil, fail("attention gradient", "%s", why)
	}
	delta := Operand{Type: dtype.F32, Layout: shape.Dense(o.Q.Shape.With(3, 1))}
	var list []Launch
	scored := o.DQ.Shape.Size() > 0 && o.DQ.Type != dtype.Invalid || o.DK.Shape.Size() > 0 && o.DK.Type != dtype.Invalid
	if n := delta.Shape.Size(); n > 0 && scored {
		var err error
		if delta.Addr, err = scratch(n * 4); err != nil {
			return nil, err
		}
		sum := &device.Reduction{Kind: device.Sum, Map: products[o.G.Type]}
		if list, err = Reduce(sum, delta, []Operand{o.G, o.Out}, nil, scratch); err != nil {
			return nil, err
		}
	}
	for _, byKey := range []bool{true, false} {
		l, err := planAttentionGrad(o, delta, byKey)
		if err != nil {
			return nil, err
		}
		list = append(list, l...)
	}
	return list, nil
}

// planAttentionGrad plans the launch for dk and dv if byKey is true, otherwise the launch for dq.
func planAttentionGrad(o AttentionGradOperands, delta Operand, byKey bool) ([]Launch, error) {
	d1, d2, own := o.DQ, Operand{}, o.Q
	if byKey {
		d1, d2, own = o.DK, o.DV, o.K
	}
	wanted := func(d Operand) bool { return d.Type != dtype.Invalid && d.Shape.Size() > 0 }
	if !wanted(d1) && !wanted(d2) {
		return nil, nil
	}
	s := attentionGrad{q: headRowsOf(o.Q), k: headRowsOf(o.K), v: headRowsOf(o.V), g: headRowsOf(o.G),
		w: weighingSpecOf(o.AttentionWeighing), byKey: byKey}
	list := []Operand{o.Q, o.K, o.V, o.G}
	if wanted(d1) {
		s.d1 = headRowsOf(d1)
		list = append(list, d1)
	}
	if wanted(d2) {
		s.d2 = headRowsOf(d2)
		list = append(list, d2)
	}
	f := s.form()
	k, err := f.kernel()
	if err != nil {
		return nil, err
	}
	rows, other := f.tile()
	blocks := ceilDiv(own.Shape.At(2), rows)
	p := make(packer, 0, 384)
	p.u32(uint32(blocks))
	p.u32(uint32(o.Q.Shape.At(1) / o.K.Shape.At(1)))
	p.packWeighing(s.w, o.AttentionWeighing, o.Q.Shape.With(3, o.K.Shape.At(2)))
	for _, x := range list {
		p.packHeads(x)
	}
	p.u64(o.LSE.start())
	if s.scored() {
		p.u64(delta.start())
	}
	l, err := p.launch(k, blocks*own.Shape.At(0)*own.Shape.At(1), f.columnParts())
	pairs := s.tilePairs(o.Q.Shape.At(2), o.K.Shape.At(2), rows, other)
	l.Tensor = own.Shape.At(0) * o.Q.Shape.At(1) * pairs * rows * f.tensor()
	return []Launch{l}, err
}
