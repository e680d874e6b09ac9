package dist

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// flat is a one-dimensional tensor that holds several tensors of the same type. One collective
// moves them all.
type flat struct {
	buffer  *tensor.Tensor // elements of all tensors, one tensor after the other
	offsets []int          // offset of each tensor in buffer, in elements
	dims    [][]int
	slots   *tensor.Tensor // required by tensor.Update, although the copy has no scalars
}

// aligned is the alignment of each tensor in bytes. Kernels can then use wide loads.
const aligned = 64

// newFlat allocates a flat with elements of type typ. Its tensors have the shapes of the tensors in
// the argument like.
func newFlat(dev device.Device, typ dtype.Type, like []*tensor.Tensor) *flat {
	f := &flat{}
	n, unit := 0, aligned/typ.Size()
	for _, t := range like {
		f.offsets = append(f.offsets, n)
		f.dims = append(f.dims, t.Shape().Slice())
		n += (t.Size() + unit - 1) / unit * unit
	}
	m := tensor.Root().On(dev)
	f.buffer = m.Typed(typ).Zeros(n)
	f.slots = m.Typed(dtype.I64).Zeros(1)
	return f
}

// view returns a tensor that shares the memory of tensor i in the flat and has that tensor's shape.
func (f *flat) view(i int) *tensor.Tensor {
	n := 1
	for _, d := range f.dims[i] {
		n *= d
	}
	v := f.buffer.Narrow(0, f.offsets[i], n)
	x := v.Reshape(f.dims[i]...)
	if x != v {
		v.Free()
	}
	return x
}

// pack copies the tensors of a list into the flat; unpack copies them back. Both skip nil tensors.
// If the device supports it, the whole list is copied in one launch. During a capture, s is the
// scope that records; otherwise s is nil.
func (f *flat) pack(s *tensor.Scope, list []*tensor.Tensor) { f.copies(s, list, true) }

func (f *flat) unpack(s *tensor.Scope, list []*tensor.Tensor) { f.copies(s, list, false) }

func (f *flat) copies(s *tensor.Scope, list []*tensor.Tensor, in bool) {
	slots := f.slots
	if s != nil {
		slots = slots.In(s)
		defer slots.Free()
	}
	var outs, ins [][]*tensor.Tensor
	for i, t := range list {
		if t == nil || t.Size() == 0 {
			continue
		}
		v, d := f.view(i), t.Detach()
		defer v.Free()
		defer d.Free()
		if in {
			d, v = v, d
		}
		outs, ins = append(outs, []*tensor.Tensor{d}), append(ins, []*tensor.Tensor{v})
	}
	if len(outs) > 0 {
		tensor.Update("flatten", copying(f.buffer.Type()), outs, ins, slots, nil)
	}
}

func (f *flat) free() {
	f.buffer.Free()
	f.slots.Free()
}

// packs divides a list of tensors into groups of neighbours of the same type, and returns their
// indices. The first group has at most firstLimit bytes, and each later group at most laterLimit
// bytes. A tensor that exceeds the limit forms a group of its own.
func packs(list []*tensor.Tensor, firstLimit, laterLimit int) (groups [][]int) {
	bytes, limit := 0, firstLimit
	for i, t := range list {
		n := t.Size() * t.Type().Size()
		last := len(groups) - 1
		if last < 0 || list[groups[last][0]].Type() != t.Type() || bytes+n > limit {
			if last >= 0 {
				limit = laterLimit
			}
			groups, bytes = append(groups, nil), 0
			last++
		}
		groups[last] = append(groups[last], i)
		bytes += n
	}
	return groups
}
