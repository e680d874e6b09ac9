package train

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// A keeper holds copies of a model's buffers from the beginning of a batch.
type keeper struct {
	buffers []*tensor.Tensor
	copies  []*tensor.Tensor
	// slots has an unused scalar on each device, because every launch needs a tensor of scalars.
	slots map[device.Device]*tensor.Tensor
	taken bool
}

// save copies the buffers, unless it has done so since the last successful attempt. It needs one
// launch for all buffers of the same device and type.
func (k *keeper) save() {
	if k.taken || len(k.buffers) == 0 {
		return
	}
	if k.copies == nil {
		k.copies, k.slots = make([]*tensor.Tensor, len(k.buffers)), map[device.Device]*tensor.Tensor{}
	}
	type kind struct {
		dev device.Device
		t   dtype.Type
	}
	outs, ins := map[kind][][]*tensor.Tensor{}, map[kind][][]*tensor.Tensor{}
	var order []kind
	for i, b := range k.buffers {
		at := kind{b.Device(), b.Type()}
		if c := k.copies[i]; c != nil && (c.Device() != at.dev || c.Type() != at.t || c.Shape() != b.Shape()) {
			c.Free()
			k.copies[i] = nil
		}
		if k.copies[i] == nil {
			k.copies[i] = tensor.Root().On(at.dev).Typed(at.t).Empty(b.Shape().Slice()...)
		}
		if k.slots[at.dev] == nil {
			k.slots[at.dev] = tensor.Root().On(at.dev).Typed(dtype.I64).Zeros(1)
		}
		if outs[at] == nil {
			order = append(order, at)
		}
		outs[at], ins[at] = append(outs[at], []*tensor.Tensor{k.copies[i]}), append(ins[at], []*tensor.Tensor{b})
	}
	for _, at := range order {
		p := expr.MustLower([]*expr.Expr{expr.X(0)}, []dtype.Type{at.t}, []dtype.Type{at.t}, -1)
		tensor.Update("keep buffers", p, outs[at], ins[at], k.slots[at.dev], []uint64{0})
	}
	k.taken = true
}

// restore writes the copies back. It allocates nothing.
func (k *keeper) restore() {
	if !k.taken {
		return
	}
	for i, b := range k.buffers {
		tensor.Youngest(b, k.copies[i]).Do(func(s *tensor.Scope) { b.In(s).Copy(k.copies[i]) }, tensor.NoGrad())
	}
}

func (k *keeper) free() {
	for _, c := range k.copies {
		if c != nil {
			c.Free()
		}
	}
	for _, s := range k.slots {
		s.Free()
	}
	k.copies, k.slots, k.taken = nil, nil, false
}
