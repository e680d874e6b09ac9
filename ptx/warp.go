package ptx

import "fmt"

const fullWarp = 0xffffffff

// Barrier waits for all threads of the block, and orders their accesses to shared and global memory
// (`bar.sync 0`).
func (b *Builder) Barrier() { b.effect("bar.sync", "0") }

// NamedBarrier waits at barrier id (0 to 15) for the given number of threads, a
// multiple of 32.
func (b *Builder) NamedBarrier(id, threads int) {
	if id < 0 || id > 15 || threads < 32 || threads%32 != 0 {
		b.fail("bar.sync %d, %d: barriers are 0 to 15, threads a multiple of 32", id, threads)
		return
	}
	b.effect("bar.sync", fmt.Sprintf("%d, %d", id, threads))
}

// WarpBarrier waits for all lanes of the warp and orders their memory accesses.
func (b *Builder) WarpBarrier() { b.effect("bar.warp.sync", "0xffffffff") }

// Scope is the set of threads for which a fence orders accesses.
type Scope uint8

// These are the scopes: the calling thread's block, its device, and the whole system including the
// host.
const (
	BlockScope Scope = iota
	DeviceScope
	SystemScope
)

// Fence orders this thread's earlier accesses before its later ones, as observed by the threads in
// the scope.
func (b *Builder) Fence(s Scope) {
	b.effect("membar."+[...]string{"cta", "gl", "sys"}[s], "")
}

// ShuffleMode says from which lane a shuffle takes a value.
type ShuffleMode uint8

// These are the modes. The source lane is the caller's lane xor arg, lane + arg, lane - arg, or arg
// itself.
const (
	ShuffleXor ShuffleMode = iota
	ShuffleDown
	ShuffleUp
	ShuffleIndex
)

var shuffleNames = [...]string{"bfly", "down", "up", "idx"}

// Shuffle returns the value v of another lane of the full warp. If that lane is outside of the
// warp, it returns the caller's own v. All lanes must take part. 64-bit values are shuffled in two
// halves.
func (v Value) Shuffle(mode ShuffleMode, arg Operand) Value {
	return v.ShuffleWidth(mode, arg, 32)
}

// ShuffleWidth does the same as Shuffle within groups of lanes of the given width: the source lane
// counts within the caller's group. The width is a power of two, at most 32.
func (v Value) ShuffleWidth(mode ShuffleMode, arg Operand, width int) Value {
	b := v.b
	a := arg.as(b, U32)
	if !b.check("shfl", v, a) {
		return b.poison(v.t)
	}
	if width < 1 || width > 32 || width&(width-1) != 0 || a.t != U32 {
		b.fail("shfl: width %d (a power of two up to 32), lane %v (u32)", width, a.t)
		return b.poison(v.t)
	}
	switch {
	case v.t == Pred:
		one := b.constant(U32, 1)
		return v.Select(one, Int(0)).ShuffleWidth(mode, a, width).Ne(Int(0))
	case v.t.Bits() == 16:
		return v.Bitcast(U16).Cvt(U32).ShuffleWidth(mode, a, width).Cvt(U16).Bitcast(v.t)
	case v.t.Bits() == 64:
		lo, hi := v.Split(B32)
		return b.Join(v.t, lo.ShuffleWidth(mode, a, width), hi.ShuffleWidth(mode, a, width))
	}
	clamp := uint32(32-width)<<8 | 31
	if mode == ShuffleUp {
		clamp &^= 31
	}
	out := b.result(v.t)
	b.add(&node{op: "shfl.sync." + shuffleNames[mode], t: B32, dst: []*register{out.r},
		args:   []*register{v.r, a.r, b.U32(clamp).r, b.U32(fullWarp).r},
		effect: effectful})
	return out
}

// WarpReduce combines v over the lanes of the warp with the function combine. It combines pairs of
// lanes in a fixed order that gives all lanes equal bits.
func (v Value) WarpReduce(combine func(a, b Value) Value) Value {
	return v.WarpReduceWidth(32, combine)
}

// WarpReduceWidth combines v over groups of width consecutive lanes, as WarpReduce does over the
// warp.
func (v Value) WarpReduceWidth(width int, combine func(a, b Value) Value) Value {
	for d := width / 2; d > 0; d /= 2 {
		v = combine(v, v.ShuffleWidth(ShuffleXor, Int(d), 32))
	}
	return v
}

// Any returns whether v is true in some lane of the full warp.
func (v Value) Any() Value { return v.vote("any.pred", Pred) }

// All returns whether v is true in every lane of the full warp.
func (v Value) All() Value { return v.vote("all.pred", Pred) }

// Ballot returns a u32 whose bit i is the predicate v of lane i.
func (v Value) Ballot() Value { return v.vote("ballot.b32", U32) }

// AnyOfBlock returns whether v is true in some thread of the block (`bar.red.or`). Like
// [Builder.Barrier], it waits for all threads of the block and orders their accesses.
func (v Value) AnyOfBlock() Value {
	return v.combined("bar.red.or.pred", Pred, func(p *register) []*register { return []*register{v.b.U32(0).r, p} })
}

func (v Value) vote(op string, t Type) Value {
	return v.combined("vote.sync."+op, t, func(p *register) []*register { return []*register{p, v.b.U32(fullWarp).r} })
}

// combined emits an instruction that combines predicates of several threads.
func (v Value) combined(op string, t Type, args func(p *register) []*register) Value {
	b := v.b
	if !b.check(op, v) {
		return b.poison(t)
	}
	if v.t != Pred {
		b.fail("%s: the operand is %v, not pred", op, v.t)
		return b.poison(t)
	}
	out := b.result(t)
	b.add(&node{op: op, dst: []*register{out.r}, args: args(v.r), effect: effectful})
	return out
}

// ReduxOp is an operation on integers that one instruction performs over a warp.
type ReduxOp string

// These are the operations of [Value.Redux].
const (
	ReduxAdd ReduxOp = "add"
	ReduxMin ReduxOp = "min"
	ReduxMax ReduxOp = "max"
	ReduxAnd ReduxOp = "and"
	ReduxOr  ReduxOp = "or"
	ReduxXor ReduxOp = "xor"
)

// Redux combines a 32-bit integer over the full warp.
func (v Value) Redux(op ReduxOp) Value {
	b := v.b
	if !b.check("redux", v) {
		return b.poison(v.t)
	}
	t := v.t
	switch op {
	case ReduxAnd, ReduxOr, ReduxXor:
		t = t.bitsType()
	}
	if v.t != U32 && v.t != S32 {
		b.fail("redux.%s is not defined for %v", op, v.t)
		return b.poison(v.t)
	}
	out := b.result(v.t)
	b.add(&node{op: "redux.sync." + string(op), t: t, dst: []*register{out.r},
		args: []*register{v.r, b.U32(fullWarp).r}, effect: effectful})
	return out
}

// GridDependencyWait waits until the grids on which this grid depends have ended (programmatic
// dependent launch). It needs sm_90 and PTX 7.8.
func (b *Builder) GridDependencyWait() { b.effect("griddepcontrol.wait", "") }

// GridDependencyLaunch allows the grids that depend on this grid to start. It needs sm_90 and PTX
// 7.8.
func (b *Builder) GridDependencyLaunch() { b.effect("griddepcontrol.launch_dependents", "") }

// Clock returns the cycle counter of the multiprocessor that runs the thread.
func (b *Builder) Clock() Value {
	v := b.result(U64)
	b.add(&node{op: "mov", t: U64, form: formSpecial, text: "%clock64", dst: []*register{v.r}, effect: effectful})
	return v
}

// GlobalTimer returns the device's nanosecond counter.
func (b *Builder) GlobalTimer() Value {
	v := b.result(U64)
	b.add(&node{op: "mov", t: U64, form: formSpecial, text: "%globaltimer", dst: []*register{v.r}, effect: effectful})
	return v
}
