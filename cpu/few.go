package cpu

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
)

// fewElements runs p on few elements without a [binding], which would take longer to set up than
// the work itself. It does nothing and returns false if the plan is not a single loop, or if an
// operand is not contiguous.
func fewElements(p *expr.Program, outs, ins []device.View, params []uint64) bool {
	n := outs[0].Size()
	if n > inlineWork || len(ins) > maskBits {
		return false
	}
	scalars, row := uint64(0), outs[0].Shape.Contiguous()
	for i := range ins {
		if isScalar(&ins[i]) {
			scalars |= 1 << i
		} else if ins[i].Strides != row {
			return false
		}
	}
	pl := planFor(p, scalars, stored).specialized(params)
	if pl.fused == nil || pl.fused.whole == nil || n*max(1, len(pl.fused.whole.Steps)) > inlineWork {
		return false
	}
	l := pl.fused.whole
	for k := range outs {
		if outs[k].Strides != row {
			return false
		}
		for i := range ins {
			// an operand that is a scalar is read before the loop, so it may overlap
			if scalars>>i&1 == 0 && overlap(&outs[k], &ins[i], n) {
				return false
			}
		}
	}
	r := pl.pool.Get().(*runner)
	copies := pl.copies(1)
	for _, x := range pl.params {
		fillBits(r.reg[x.val], params[x.from], width(x.typ), copies)
	}
	for _, x := range pl.scalar {
		v := &ins[x.from]
		fillBits(r.reg[x.val], expr.Load(x.typ, readBits(pointer(v), v.Type.Size())), width(x.typ.Compute()), copies)
	}
	exec(r.reg, pl.uniform, copies)
	for i := range l.Loads {
		r.reg[l.Loads[i].Reg] = pointer(&ins[l.Code[l.Loads[i].Value].Imm])
	}
	for k := range outs {
		r.reg[l.Stores[k].Reg] = pointer(&outs[k])
	}
	pl.fused.plain.Run(r.reg, nil, n, 1)
	pl.putRunner(r)
	return true
}

// overlap reports whether the memory of a result of n elements overlaps that of the operand v. If
// both begin at the same address and their elements have the same size, it returns false, because
// the loop reads each element before it writes it.
func overlap(out, v *device.View, n int) bool {
	lo, at := uintptr(pointer(out)), uintptr(pointer(v))
	if lo == at && out.Type.Size() == v.Type.Size() {
		return false
	}
	return lo < at+uintptr(n*v.Type.Size()) && at < lo+uintptr(n*out.Type.Size())
}
