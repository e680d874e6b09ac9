package dist

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// The functions of this file copy many tensors to another device with few transfers. They pack
// tensors of the same type into one buffer and copy the buffer. The results are views of its copy.

const (
	// size of a buffer in bytes, as in PyTorch; a larger tensor has a buffer of its own
	bucketBytes = 10 << 20
	// alignment in bytes of each tensor in a buffer, so that kernels can load vectors
	alignBytes = 256
)

// bundle lists tensors that are copied together in one buffer, and their offsets in the buffer in
// elements.
type bundle struct {
	t       dtype.Type
	indices []int
	starts  []int
	n       int
}

// bundlesOf groups tensors of the same type, in the order of the list.
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
		b.indices, b.starts = append(b.indices, i), append(b.starts, b.n)
		align := alignBytes / t.Size()
		b.n += (x.Size() + align - 1) / align * align
	}
	return all
}

// pack copies the tensors of a bundle into one buffer on their device, in scope s. If the bundle
// has only one tensor, pack returns that tensor itself.
func (b *bundle) pack(s *tensor.Scope, list []*tensor.Tensor) *tensor.Tensor {
	first := list[b.indices[0]]
	if len(b.indices) == 1 {
		return first.In(s).Detach()
	}
	at := s.On(first.Device())
	flat := at.Typed(b.t).Empty(b.n)
	outs, ins := make([][]*tensor.Tensor, len(b.indices)), make([][]*tensor.Tensor, len(b.indices))
	for k, i := range b.indices {
		outs[k], ins[k] = []*tensor.Tensor{b.piece(flat, k, list[i])}, []*tensor.Tensor{list[i]}
	}
	tensor.Update(opDataParallel, copying(b.t), outs, ins, at.Typed(dtype.I64).Empty(1), nil)
	return flat
}

// unpack stores views of the tensor flat in the slice out, one for each tensor of the bundle. The
// tensor flat is the result of pack, or a copy of it on another device.
func (b *bundle) unpack(flat *tensor.Tensor, list, out []*tensor.Tensor) {
	if len(b.indices) == 1 {
		out[b.indices[0]] = flat
		return
	}
	for k, i := range b.indices {
		out[i] = b.piece(flat, k, list[i])
	}
}

// piece returns the view of the buffer flat that holds x, tensor k of the bundle.
func (b *bundle) piece(flat *tensor.Tensor, k int, x *tensor.Tensor) *tensor.Tensor {
	return flat.Narrow(0, b.starts[k], x.Size()).View(x.Shape().Slice()...)
}

// copyToDevice copies the tensors of a list to dev. The copies belong to scope s, which must record
// no graph. For a nil tensor the result is nil.
func copyToDevice(s *tensor.Scope, list []*tensor.Tensor, dev device.Device) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(list))
	for _, b := range bundlesOf(list) {
		flat := b.pack(s, list)
		there := flat.To(dev)
		if there != flat {
			flat.Free()
		}
		b.unpack(there, list, out)
	}
	return out
}

// summed returns the sum of the tensors of each list. All tensors are on one device, and all
// tensors of a list have the same shape and type. Lists of the same type and length are summed in
// one launch. The sum of an empty list is nil. The sum of a list of one tensor is that tensor
// itself. New tensors belong to scope s.
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
