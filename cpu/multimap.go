package cpu

import (
	"fmt"
	"sort"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

var _ device.MultiMapper = (*Device)(nil)

// multi is one program over groups of tensors; blocks are numbered through the groups.
type multi struct {
	groups []*binding
	first  []int // the number of each group's first block
}

// MultiMap runs p on each group of views; see [device.MultiMapper].
func (d *Device) MultiMap(s device.Stream, p *expr.Program, outs, ins [][]device.View, params device.View) error {
	const op = "multi-map"
	if len(outs) != len(ins) {
		return &ViewError{op, "outs", fmt.Sprintf("%d groups, but %d groups of operands", len(outs), len(ins))}
	}
	if err := d.checkIn(op, "params", &params); err != nil {
		return err
	}
	if params.Type.Size() != 8 || !params.Contiguous() || params.Size() < len(p.Params) {
		return &ViewError{op, "params", fmt.Sprintf("%v of %v, want at least %d contiguous slots of 8 bytes", params.Shape, params.Type, len(p.Params))}
	}
	var values []uint64
	if n := len(p.Params); n > 0 {
		values = append(values, at[uint64](pointer(&params), n)...)
	}
	for k := range outs {
		if err := d.checkMap(op, p, outs[k], ins[k], values); err != nil {
			return err
		}
	}
	if t := device.Tracing(); t != nil && s != nil && len(p.Out) > 0 {
		defer d.traced(t, s, op, device.MultiMapWork(p, outs, ins, params), p.Out[0], t.Wants().ShapesOf(outs...)).done()
	}
	m := &multi{}
	blocks, work := 0, 0
	for k := range outs {
		if len(outs[k]) == 0 || outs[k][0].Size() == 0 {
			continue
		}
		b := newBinding(p, ins[k], values)
		var space [shape.MaxRank]int
		b.arrange(outs[k][0].Shape, byStride(space[:], &outs[k][0]), nil, outs[k], ins[k])
		b.aliasing()
		b.choose()
		m.groups, m.first = append(m.groups, b), append(m.first, blocks)
		blocks += b.blocks()
		work += b.size * (2 + len(b.pl.body))
	}
	if work <= inlineWork {
		m.run(0, blocks)
	} else {
		d.crew.parallel(blocks, max(1, blocks/(8*d.crew.size)), m)
	}
	for _, b := range m.groups {
		b.release()
	}
	return nil
}

// run evaluates blocks lo … hi-1 of all groups together.
func (m *multi) run(lo, hi int) {
	k := sort.SearchInts(m.first, lo+1) - 1
	for ; lo < hi; k++ {
		b := m.groups[k]
		n := min(hi-m.first[k], b.blocks())
		b.run(lo-m.first[k], n)
		lo = m.first[k] + n
	}
}
