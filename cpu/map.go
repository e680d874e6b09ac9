package cpu

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// inlineWork is the least amount of work that is divided among workers. Dividing it costs some
// microseconds. An amount of 1 is about one instruction on one element.
const inlineWork = 1 << 15

// elementwise runs a [device.Map]. Its arguments are the fields of the map, so the driver can call
// it without allocating a Map.
func (d *Device) elementwise(p *expr.Program, outs, ins []device.View, params []uint64) {
	if len(outs) == 0 || outs[0].Size() == 0 {
		return
	}
	if d.truth(p, outs, ins) || fewElements(p, outs, ins, params) {
		return
	}
	b := newBinding(p, stored, ins, params)
	var space [shape.MaxRank]int
	b.arrange(outs[0].Shape, byStride(space[:], &outs[0]), nil, outs, ins)
	b.aliasing()
	d.mapAll(b)
	b.release()
}

// cast copies one view to another and converts the type if necessary.
func (d *Device) cast(to, from *device.View) {
	d.elementwise(castProgram(to.Type, from.Type), []device.View{*to}, []device.View{*from}, nil)
}

// byStride returns the dimensions of v in descending order of their strides: the innermost in
// memory comes last. It stores the result in the memory of the argument order.
func byStride(order []int, v *device.View) []int {
	n := v.Shape.Rank()
	order = order[:n]
	for i := range order {
		order[i] = i
		for k := i; k > 0 && v.Strides.At(order[k]) > v.Strides.At(order[k-1]); k-- {
			order[k], order[k-1] = order[k-1], order[k]
		}
	}
	return order
}

// mapAll computes all elements of a binding.
func (d *Device) mapAll(b *binding) {
	b.choose()
	parts := b.pace().parts(b.size, len(b.pl.body), d.workers.size())
	if parts == 1 {
		b.run(0, b.blocks())
		return
	}
	if part := max(shortestSlotless, ((b.size-1)/parts/slotlessUnit+1)*slotlessUnit); b.loop != nil && b.across < 0 {
		b.divide(min(b.blk, part))
	} else if b.blk == longestSlotless {
		b.blk = part
	}
	d.workers.parallel(b.blocks(), (b.blocks()-1)/parts+1, b)
}

// pace returns the times of the plan that were measured for operands like those of b: contiguous
// ones, or others.
func (b *binding) pace() *pace {
	if b.across >= 0 || b.whole > 0 {
		return &b.pl.scattered
	}
	return &b.pl.dense
}

// choose sets the fields that say how the elements are visited: in tiles, by a loop on the
// operands' own memory, or in blocks. If the innermost dimension is long enough, each block ends
// where a row ends. Operands can then be used in place.
func (b *binding) choose() {
	b.loop = nil
	if b.chooseTiles(); b.across >= 0 || b.chooseLoop() {
		return
	}
	b.blk = b.pl.block
	if b.slotless() {
		b.blk = longestSlotless
	}
	b.whole = b.dims[b.rank-1]
	if b.rank == 1 || b.whole < b.pl.block/4 {
		b.whole = 0
	}
}

// These are sizes, in elements, of a block of a program without temporary memory. A block has
// longestSlotless elements, or fewer if that divides the work more equally. The smaller number is
// a multiple of slotlessUnit and at least shortestSlotless.
const (
	longestSlotless  = 16 << 10
	shortestSlotless = 1 << 10
	slotlessUnit     = 64
)

// slotless reports whether the program needs no temporary memory: it has at most one instruction,
// whose operands and result are used in place.
func (b *binding) slotless() bool {
	pl := b.pl
	if len(pl.body) > 1 || len(pl.outs) != 1 || pl.outs[0].conv != nil || !b.outs[0].dense ||
		len(pl.loads) == 0 || len(pl.consts)+len(pl.params)+len(pl.scalar)+len(pl.index) > 0 || len(pl.body) == 1 && !b.direct[0] {
		return false
	}
	for i := range pl.loads {
		l := &pl.loads[i]
		if l.conv != nil || l.keep || !b.ins[l.from].dense {
			return false
		}
	}
	return len(pl.body) == 0 || !pl.body[0].bounded
}

// blocks returns the number of units into which the work is divided. A unit is a tile, a block
// within a run, or a block of consecutive elements.
func (b *binding) blocks() int {
	if b.across >= 0 {
		return b.tiles()
	}
	if b.loop != nil {
		return b.loopUnits()
	}
	if b.whole > 0 {
		per := (b.whole + b.blk - 1) / b.blk
		return b.size / b.whole * per
	}
	return (b.size + b.blk - 1) / b.blk
}

// run computes the units with numbers lo to hi-1.
func (b *binding) run(lo, hi int) {
	p := b.pace()
	if !p.measures(b.size) {
		b.runUnits(lo, hi)
		return
	}
	began := clock()
	b.runUnits(lo, hi)
	p.add(b.size/b.blocks()*(hi-lo), clock()-began)
}

func (b *binding) runUnits(lo, hi int) {
	if b.across >= 0 {
		b.runTiles(lo, hi)
		return
	}
	if b.loop != nil {
		b.runLoop(lo, hi)
		return
	}
	r := b.begin(b.size)
	blk := b.blk
	if b.whole == 0 {
		for k := lo; k < hi; k++ {
			p := k * blk
			b.eval(r, p, min(blk, b.size-p))
		}
	} else {
		per := (b.whole + blk - 1) / blk
		for k := lo; k < hi; k++ {
			row := k / per
			c := (k - row*per) * blk
			b.eval(r, row*b.whole+c, min(blk, b.whole-c))
		}
	}
	b.end(r)
}

// eval computes the elements with numbers p to p+n-1 and stores the results.
func (b *binding) eval(r *runner, p, n int) {
	b.load(r, p, n)
	b.aim(r, p, n)
	exec(r.reg, b.pl.body, n)
	b.store(r, p, n)
}
