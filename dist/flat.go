package dist

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// flat is one tensor with room for several tensors of one type. One collective moves them all.
type flat struct {
	all   *tensor.Tensor // the elements of all tensors, in one dimension
	at    []int          // offset of each tensor
	dims  [][]int
	slots *tensor.Tensor // tensor of scalars, empty because a program that copies has none
}

// aligned is the alignment of tensors in bytes, so that kernels can use wide loads.
const aligned = 64

// newFlat allocates room on a device for tensors with the shapes of like, which have one type.
func newFlat(dev device.Device, typ dtype.Type, like []*tensor.Tensor) *flat {
	f := &flat{}
	n, unit := 0, aligned/typ.Size()
	for _, t := range like {
		f.at = append(f.at, n)
		f.dims = append(f.dims, t.Shape().Slice())
		n += (t.Size() + unit - 1) / unit * unit
	}
	m := tensor.Root().On(dev)
	f.all = m.Typed(typ).Zeros(n)
	f.slots = m.Typed(dtype.I64).Zeros(1)
	return f
}

// view returns a handle on the room for tensor i, in its shape.
func (f *flat) view(i int) *tensor.Tensor {
	n := 1
	for _, d := range f.dims[i] {
		n *= d
	}
	v := f.all.Narrow(0, f.at[i], n)
	x := v.Reshape(f.dims[i]...)
	if x != v {
		v.Free()
	}
	return x
}

// put copies tensors of the flat's type to their places, and skips nil; get copies the places to
// tensors. Each is one launch if the device supports it. s is the scope of a capture that records
// it, nil if there is none.
func (f *flat) put(s *tensor.Scope, list []*tensor.Tensor) { f.copies(s, list, true) }

func (f *flat) get(s *tensor.Scope, list []*tensor.Tensor) { f.copies(s, list, false) }

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
		tensor.Update("flatten", copying(f.all.Type()), outs, ins, slots, nil)
	}
}

func (f *flat) free() {
	f.all.Free()
	f.slots.Free()
}

// packs divides a list of tensors into runs of one type. The limit of a run in bytes is first for
// the first run and rest for the others. A larger tensor is a run of its own.
func packs(list []*tensor.Tensor, first, rest int) (groups [][]int) {
	bytes, limit := 0, first
	for i, t := range list {
		n := t.Size() * t.Type().Size()
		last := len(groups) - 1
		if last < 0 || list[groups[last][0]].Type() != t.Type() || bytes+n > limit {
			if last >= 0 {
				limit = rest
			}
			groups, bytes = append(groups, nil), 0
			last++
		}
		groups[last] = append(groups[last], i)
		bytes += n
	}
	return groups
}
