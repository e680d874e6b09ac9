package cpu

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/shape"
)

// multi runs one program on groups of tensors. The blocks of all groups are numbered consecutively.
type multi struct {
	groups []*binding
	first  []int // number of the first block of each group
}

func (d *Device) multiMap(o *device.MultiMap) {
	var values []uint64
	if n := len(o.Program.Params); n > 0 {
		values = append(values, at[uint64](pointer(&o.Params), n)...)
	}
	m := &multi{make([]*binding, 0, len(o.Outs)), make([]int, 0, len(o.Outs))}
	blocks, work := 0, 0
	for k, outs := range o.Outs {
		if len(outs) == 0 || outs[0].Size() == 0 {
			continue
		}
		b := newBinding(o.Program, stored, o.Ins[k], values)
		var space [shape.MaxRank]int
		b.arrange(outs[0].Shape, byStride(space[:], &outs[0]), nil, outs, o.Ins[k])
		b.aliasing()
		b.choose()
		m.groups, m.first = append(m.groups, b), append(m.first, blocks)
		blocks += b.blocks()
		work += b.size * (2 + len(b.pl.body))
	}
	if work <= inlineWork {
		m.run(0, blocks)
	} else {
		d.workers.parallel(blocks, max(1, blocks/(8*d.workers.size())), m)
	}
	for _, b := range m.groups {
		b.release()
	}
}

// run computes the blocks with numbers lo to hi-1, counted over all groups.
func (m *multi) run(lo, hi int) {
	next, _ := slices.BinarySearch(m.first, lo+1)
	for k := next - 1; lo < hi; k++ {
		b := m.groups[k]
		n := min(hi-m.first[k], b.blocks())
		b.run(lo-m.first[k], n)
		lo = m.first[k] + n
	}
}
