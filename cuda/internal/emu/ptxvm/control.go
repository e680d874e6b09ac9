package ptxvm

import (
	"math/bits"
	"runtime"
)

func branch(d *decoder) {
	d.in.uni = d.modifier("uni")
	a := d.args(1)
	if a[0].kind != okWord || a[0].not || a[0].off != 0 {
		d.fail("bra needs a label")
	}
	d.in.kind, d.in.target = kBranch, d.label(a[0].name)
}

// label returns the index of the instruction at a label.
func (d *decoder) label(name string) int32 {
	pc, ok := d.stmt.scope.label(name)
	if !ok {
		d.fail("label %s is not defined", name)
	}
	if d.fn != nil {
		pc += int(d.fn.start)
	}
	return int32(pc)
}

func exitThread(d *decoder) {
	if d.base == "ret" {
		d.modifier("uni")
	}
	d.args(0)
	if d.in.kind = kExit; d.base == "ret" && d.fn != nil {
		d.in.kind, d.in.target = kBranch, d.fn.end
	}
}

func trap(d *decoder) {
	d.args(0)
	d.run(func(w *warp, i *inst, m uint32) {
		w.fault(Trap, i, bits.TrailingZeros32(m), "executed by %d lanes", bits.OnesCount32(m))
	})
}

// isSpace decodes isspacep.space p, a, which tests a generic address.
func isSpace(d *decoder) {
	i := d.oneOf("global", "shared", "shared::cta", "local", "const", "param")
	if i < 0 {
		d.fail("%s lacks a state space", d.stmt.op)
	}
	win := [...]uint64{0, 1, 1, 2, 3, 4}[i]
	a := d.args(2)
	d.in.p, d.in.a = d.predicate(a[0]), d.src(a[1], U64)
	d.in.kind = kCmp
	d.in.cmp = func(a, _ *lanes) (m uint32) {
		for l, v := range a {
			m |= bit(v>>windowShift == win) << l
		}
		return m
	}
}

func nop(d *decoder) {
	d.in.kind = kNop
	if d.base == "pmevent" {
		d.modifier("mask")
		d.args(1)
	} else {
		d.args(0)
	}
}

// nanosleep runs other blocks, because this thread may wait for one of them.
func nanosleep(d *decoder) {
	d.require(70, 6, 3)
	d.typIn(U32)
	d.in.a = d.src(d.args(1)[0], U32)
	d.run(func(w *warp, in *inst, m uint32) {
		w.requireWritten(in, m, in.a)
		runtime.Gosched()
	})
}

// gridDependency does nothing: emulated launches never overlap, so there is nothing to wait for.
func gridDependency(d *decoder) {
	d.require(90, 7, 8)
	if d.oneOf("wait", "launch_dependents") < 0 {
		d.fail("%s needs .wait or .launch_dependents", d.stmt.op)
	}
	d.args(0)
	d.in.kind = kNop
}

// setRegisters decodes setmaxnreg. It has no effect, because the emulator does not count registers.
func setRegisters(d *decoder) {
	d.require(90, 8, 0)
	if m := d.e.mod; m.arch[len(m.arch)-1] != 'a' {
		d.fail("%s needs a .target like sm_90a, the module has %s", d.stmt.op, m.arch)
	}
	if d.oneOf("inc", "dec") < 0 || !d.modifier("sync") || !d.modifier("aligned") {
		d.fail("%s needs .inc or .dec, and .sync.aligned", d.stmt.op)
	}
	d.typIn(U32)
	if n := d.number(d.args(1)[0], 256); n < 24 || n%8 != 0 {
		d.fail("%s: %d registers: a multiple of 8 from 24 to 256", d.stmt.op, n)
	}
	d.run(func(w *warp, in *inst, m uint32) { w.converged(in, m, BarrierDivergence) })
}

// fence decodes membar and fence. Blocks run on goroutines. Their atomic operations order accesses
// to device memory even without a fence. So a fence affects only accesses to host memory, and the
// search for races between blocks.
func fence(d *decoder) {
	d.args(0)
	scope := 0
	if d.base == "membar" {
		if scope = d.oneOf("cta", "gl", "sys"); scope < 0 {
			d.fail("membar needs .cta, .gl or .sys")
		}
	} else {
		d.require(70, 6, 0)
		d.oneOf("sc", "acq_rel")
		if scope = d.oneOf("cta", "cluster", "gpu", "sys"); scope < 0 {
			d.fail("fence needs a scope")
		}
	}
	d.run(func(w *warp, _ *inst, _ uint32) {
		w.cta.fence.Add(1)
		if scope > 0 && w.cta.blocks != nil {
			w.fenceBlocks()
		}
	})
}

// barrier decodes bar and barrier: .sync, .arrive, .red, and bar.warp.sync.
func barrier(d *decoder) {
	if d.modifier("cta") {
		d.require(70, 7, 8)
	}
	if d.base == "bar" && d.modifier("warp") {
		if !d.modifier("sync") {
			d.fail("bar.warp needs .sync")
		}
		d.in.a = d.src(d.args(1)[0], B32)
		d.gather(d.in.a, func(w *warp, i *inst, m uint32) { w.syncWarp(w.members(i, m, i.a), w.live) })
		return
	}
	d.modifier("aligned")
	i, x := d.in, d.extra()
	a := d.stmt.args
	counted := func(rest []operand) {
		if len(rest) == 1 {
			x.hasCnt, x.count = true, d.src(rest[0], U32)
		} else if len(rest) > 1 {
			d.fail("%s has too many operands", d.stmt.op)
		}
	}
	switch {
	case d.modifier("sync"):
		if len(a) == 0 {
			d.fail("%s needs a barrier number", d.stmt.op)
		}
		i.a = d.src(a[0], U32)
		counted(a[1:])
		x.mode = barSync
	case d.modifier("arrive"):
		if len(a) != 2 {
			d.fail("%s needs a barrier number and a thread count", d.stmt.op)
		}
		i.a = d.src(a[0], U32)
		counted(a[1:])
		x.mode = barArrive
	case d.modifier("red"):
		op := d.oneOf("popc", "and", "or")
		t := U32
		if op > 0 {
			t = Pred
		}
		if d.typIn(t); op < 0 || len(a) < 3 {
			d.fail("%s needs .popc.u32, .and.pred or .or.pred, a destination, a barrier and a predicate", d.stmt.op)
		}
		if op == 0 {
			i.d = d.dst(a[0], U32)
		} else {
			i.p = d.predicate(a[0])
		}
		i.a = d.src(a[1], U32)
		x.p, x.pn = d.condition(a[len(a)-1])
		counted(a[2 : len(a)-1])
		x.mode = barPopc + uint8(op)
	default:
		d.fail("%s needs .sync, .arrive or .red", d.stmt.op)
	}
	d.run((*warp).arrive)
}
