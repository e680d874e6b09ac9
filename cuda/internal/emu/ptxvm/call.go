package ptxvm

import "slices"

// activation is a call in progress.
type activation struct {
	to   *body
	site *callSite
	// bytes of stack that the registers of this call and its callers would need
	stack int
	// registers of the callee before this call, if the call is recursive
	saved        []lanes
	savedW       []uint32
	preds, predW []uint32
}

// maxStack is the largest stack of a thread in bytes. It applies to the frames in local memory, and
// separately to the registers of the calls in progress. On hardware the program sets this limit
// (CU_LIMIT_STACK_SIZE).
const maxStack = 64 << 10

// call makes the lanes of m execute a function, while all other lanes wait. In a call by address,
// the lanes of m that call a different function wait too.
func (w *warp) call(in *inst, m uint32) {
	site, b := in.x.call, in.x.call.to
	w.stack = append(w.stack, frame{pc: w.pc + 1, rpc: w.rpc, mask: w.mask, depth: w.depth})
	if b == nil {
		var group uint32
		b, group = w.callee(in, m)
		if rest := m &^ group; rest != 0 {
			w.stack = append(w.stack, frame{pc: w.pc, rpc: w.pc + 1, mask: rest, depth: w.depth})
		}
		m = group
	}
	f := b.fn
	base := &w.r[w.cta.entry.base]
	need := 0
	for l := range lanesOf(m) {
		need = max(need, int(base[l])+site.frame+f.size)
	}
	w.grow(in, m, need)
	for l := range lanesOf(m) {
		from := l*w.stride + int(base[l])
		to := from + site.frame
		clear(w.localInit[to : to+f.size])
		for i, v := range site.args {
			w.moveLocal(to+f.params[i].offset, from+v.offset, v.size)
		}
		base[l] += uint64(site.frame)
	}
	a := activation{to: b, site: site, stack: 16}
	if n := len(w.calls); n > 0 {
		a.stack += w.calls[n-1].stack
	}
	for _, c := range w.calls {
		if c.to == b {
			a.stack += 8 * len(b.regs)
			w.save(&a)
			break
		}
	}
	if a.stack > maxStack {
		w.overflow(in, m)
	}
	for _, s := range b.regs {
		w.wm[s] &^= m
	}
	for _, s := range b.preds {
		w.pm[s] &^= m
	}
	w.calls = append(w.calls, a)
	w.frame = frame{pc: b.start, rpc: -1, mask: m, depth: int32(len(w.calls))}
}

// lanesOf ranges over the lanes of a mask.
func lanesOf(m uint32) func(yield func(l int) bool) {
	return func(yield func(l int) bool) {
		for l := range 32 {
			if m>>l&1 != 0 && !yield(l) {
				return
			}
		}
	}
}

// callee returns the function whose address the first lane of m holds, and the lanes that hold the
// same address.
func (w *warp) callee(in *inst, m uint32) (b *body, group uint32) {
	w.requireWritten(in, m, in.a)
	r := &w.r[in.a]
	at := uint64(0)
	for l := range lanesOf(m) {
		if group == 0 {
			at = r[l]
		}
		if r[l] == at {
			group |= 1 << l
		}
	}
	first := 0
	for l := range lanesOf(group) {
		first = l
		break
	}
	for f, c := range w.cta.entry.bodies {
		if f.address() == at {
			b = c
		}
	}
	site := in.x.call
	if b == nil {
		w.fault(BadCall, in, first, "%#x is no function of the module", at)
	}
	if !sameSizes(b.fn.params, site.args) || !sameSizes(b.fn.rets, site.rets) {
		w.fault(BadCall, in, first, "%s takes other arguments or has other results", b.fn.name)
	}
	return b, group
}

// leave returns from the current call to its caller.
func (w *warp) leave() {
	a := &w.calls[len(w.calls)-1]
	m, base := w.mask, &w.r[w.cta.entry.base]
	for l := range lanesOf(m) {
		from := l*w.stride + int(base[l])
		base[l] -= uint64(a.site.frame)
		to := l*w.stride + int(base[l])
		for i, v := range a.site.rets {
			w.moveLocal(to+v.offset, from+a.to.fn.rets[i].offset, v.size)
		}
	}
	if a.saved != nil || a.preds != nil {
		w.restore(a, m)
	}
	w.pop()
}

func (w *warp) moveLocal(to, from, n int) {
	copy(w.local[to:to+n], w.local[from:from+n])
	copy(w.localInit[to:to+n], w.localInit[from:from+n])
}

// save stores the registers of a function that is called recursively.
func (w *warp) save(a *activation) {
	a.saved, a.preds = []lanes{}, []uint32{}
	for _, s := range a.to.regs {
		a.saved, a.savedW = append(a.saved, w.r[s]), append(a.savedW, w.wm[s])
	}
	for _, s := range a.to.preds {
		a.preds, a.predW = append(a.preds, w.p[s]), append(a.predW, w.pm[s])
	}
}

func (w *warp) restore(a *activation, m uint32) {
	for i, s := range a.to.regs {
		w.write(s, &a.saved[i], m)
		w.wm[s] = w.wm[s]&^m | a.savedW[i]&m
	}
	for i, s := range a.to.preds {
		w.setPred(s, a.preds[i], m)
		w.pm[s] = w.pm[s]&^m | a.predW[i]&m
	}
}

// grow makes local memory large enough for frames of the given size.
func (w *warp) grow(in *inst, m uint32, need int) {
	if need <= w.stride {
		return
	}
	if need > w.cta.entry.Local+maxStack {
		w.overflow(in, m)
	}
	stride := int(roundUp(uint64(max(need, 2*w.stride)), frameAlign))
	local, ready := make([]byte, 32*stride), make([]byte, 32*stride)
	fill(local, poison)
	for l := range 32 {
		copy(local[l*stride:], w.local[l*w.stride:(l+1)*w.stride])
		copy(ready[l*stride:], w.localInit[l*w.stride:(l+1)*w.stride])
	}
	w.local, w.localInit, w.stride = local, ready, stride
}

func (w *warp) overflow(in *inst, m uint32) {
	for l := range lanesOf(m) {
		w.fault(BadCall, in, l, "%d calls deep, functions need more than the %d bytes of a thread's stack", len(w.calls)+1, maxStack)
	}
}

// frameEnd returns the end of the local memory that a lane may use.
func (w *warp) frameEnd(l int) int {
	if n := len(w.calls); n > 0 {
		return int(w.r[w.cta.entry.base][l]) + w.calls[n-1].to.fn.size
	}
	return w.cta.entry.Local
}

// assertFailed executes a call of __assertfail(message, file, line, function, size of a character).
// CUDA's assert makes this call.
func (w *warp) assertFailed(in *inst, m uint32) {
	for l := range lanesOf(m) {
		at := l * w.stride
		if b := w.cta.entry.base; b != 0 {
			at += int(w.r[b][l])
		}
		args := in.x.call.args
		arg := func(i int) uint64 {
			if i >= len(args) {
				return 0
			}
			switch args[i].size {
			case 1, 2, 4, 8:
			default: // compilers pass only values of the sizes above
				return 0
			}
			return loadLE(w.local[at+args[i].offset:], args[i].size)
		}
		w.fault(Trap, in, l, "assertion %q failed at %s:%d, in %s", w.text(arg(0)), w.text(arg(1)), uint32(arg(2)), w.text(arg(3)))
	}
}

// text returns the C string at an address of global memory.
func (w *warp) text(addr uint64) string {
	r := w.cta.launch.Mem.reach(addr)
	if r == nil {
		return "?"
	}
	b := r.data[addr-r.base:]
	if i := slices.Index(b[:min(len(b), 512)], 0); i >= 0 {
		b = b[:i]
	}
	return string(b[:min(len(b), 512)])
}

// jump sends the first lane of m to its target, together with all lanes of m that have this target.
// Lanes of m with a different target execute the instruction again.
func (w *warp) jump(in *inst, m uint32) {
	if m == 0 {
		w.pc++
		return
	}
	w.requireWritten(in, m, in.a)
	r := &w.r[in.a]
	var group uint32
	target := int32(-1)
	for l := range lanesOf(m) {
		i := uint32(r[l])
		if int(i) >= len(in.x.table) {
			w.fault(OutOfBounds, in, l, "index %d of a list of %d targets", i, len(in.x.table))
		}
		if target < 0 {
			target = in.x.table[i]
		}
		if in.x.table[i] == target {
			group |= 1 << l
		}
	}
	rest := w.mask &^ group
	if rest == 0 {
		w.pc = target
		return
	}
	if in.uni {
		w.fault(UniformBranchDivergence, in, 0, "brx.idx.uni goes to several targets")
	}
	if in.rpc != w.rpc && in.rpc >= 0 {
		w.stack = append(w.stack, frame{pc: in.rpc, rpc: w.rpc, mask: w.mask, depth: w.depth})
	}
	// out holds the lanes that do not take the branch.
	if out := rest &^ m; out != 0 {
		w.stack = append(w.stack, frame{pc: w.pc + 1, rpc: in.rpc, mask: out, depth: w.depth})
	}
	if again := rest & m; again != 0 {
		w.stack = append(w.stack, frame{pc: w.pc, rpc: in.rpc, mask: again, depth: w.depth})
	}
	w.frame = frame{pc: target, rpc: in.rpc, mask: group, depth: w.depth}
}
