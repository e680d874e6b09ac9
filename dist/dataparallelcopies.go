package dist

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Many tensors go to another device in few copies: those of one type lie behind one another in a
// buffer, and are views of it when they have arrived.

const (
	bucketBytes = 10 << 20 // of a buffer, as in PyTorch, unless a single tensor is larger
	alignBytes  = 256      // of a tensor in it, so that kernels may load vectors
)

// A bundle says which tensors of a list travel together, and where each begins, in elements.
type bundle struct {
	t      dtype.Type
	which  []int
	starts []int
	n      int
}

// bundlesOf puts tensors of one type together, in the order of the list.
func bundlesOf(list []*tensor.Tensor) (all []*bundle) {
	open := map[dtype.Type]*bundle{}
	for i, x := range list {
		if x == nil {
			continue
		}
		t := x.Type()
		b := open[t]
		if b == nil || (b.n+x.Size())*t.Size() > bucketBytes {
			b = &bundle{t: t}
			open[t] = b
			all = append(all, b)
		}
		b.which, b.starts = append(b.which, i), append(b.starts, b.n)
		align := alignBytes / t.Size()
		b.n += (x.Size() + align - 1) / align * align
	}
	return all
}

// pack returns the tensors of a bundle in one buffer on their device, in scope s. A single tensor
// is its own.
func (b *bundle) pack(s *tensor.Scope, list []*tensor.Tensor) *tensor.Tensor {
	first := list[b.which[0]]
	if len(b.which) == 1 {
		return first.In(s).Detach()
	}
	at := s.On(first.Device())
	flat := at.Typed(b.t).Empty(b.n)
	outs, ins := make([][]*tensor.Tensor, len(b.which)), make([][]*tensor.Tensor, len(b.which))
	for k, i := range b.which {
		outs[k], ins[k] = []*tensor.Tensor{b.piece(flat, k, list[i])}, []*tensor.Tensor{list[i]}
	}
	tensor.Update(opDataParallel, copying(b.t), outs, ins, at.Typed(dtype.I64).Empty(1), nil)
	return flat
}

// unpack puts views of what [bundle.pack] returned, or of its copy on another device, into out.
func (b *bundle) unpack(flat *tensor.Tensor, list, out []*tensor.Tensor) {
	if len(b.which) == 1 {
		out[b.which[0]] = flat
		return
	}
	for k, i := range b.which {
		out[i] = b.piece(flat, k, list[i])
	}
}

// piece is the place in flat of tensor x, the k-th of the bundle.
func (b *bundle) piece(flat *tensor.Tensor, k int, x *tensor.Tensor) *tensor.Tensor {
	return flat.Narrow(0, b.starts[k], x.Size()).View(x.Shape().Slice()...)
}

// carry returns a list of tensors of one device as they are on another, in scope s, which records
// no graph. nil stays nil.
func carry(s *tensor.Scope, list []*tensor.Tensor, to device.Device) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(list))
	for _, b := range bundlesOf(list) {
		flat := b.pack(s, list)
		there := flat.To(to)
		if there != flat {
			flat.Free()
		}
		b.unpack(there, list, out)
	}
	return out
}

// summed returns the sum of each list of tensors of one shape and type on one device, nil of none,
// in scope s: one launch for all of a type. That of one tensor is the tensor.
func summed(s *tensor.Scope, lists [][]*tensor.Tensor) []*tensor.Tensor {
	type kind struct {
		t dtype.Type
		n int
	}
	out := make([]*tensor.Tensor, len(lists))
	outs, ins := map[kind][][]*tensor.Tensor{}, map[kind][][]*tensor.Tensor{}
	var order []kind
	for i, l := range lists {
		switch len(l) {
		case 0:
			continue
		case 1:
			out[i] = l[0]
			continue
		}
		k := kind{l[0].Type(), len(l)}
		if !slices.Contains(order, k) {
			order = append(order, k)
		}
		out[i] = s.On(l[0].Device()).Typed(k.t).Empty(l[0].Shape().Slice()...)
		outs[k], ins[k] = append(outs[k], []*tensor.Tensor{out[i]}), append(ins[k], l)
	}
	for _, k := range order {
		slots := s.On(outs[k][0][0].Device()).Typed(dtype.I64).Empty(1)
		tensor.Update(opDataParallel, summing(k.t, k.n), outs[k], ins[k], slots, nil)
		slots.Free()
	}
	return out
}
