package ptxvm

import (
	"fmt"
	"math/bits"
)

type warpState uint8

const (
	warpReady warpState = iota
	warpWaiting
	warpDone
)

// frame is an entry of the reconvergence stack. Its lanes continue at pc when the lanes of all
// entries above it have reached pc.
type frame struct {
	pc, rpc int32
	mask    uint32
	depth   int32 // number of calls in progress
	parked  bool  // whether the lanes wait for lanes of another group
}

// warp is the state of 32 threads that execute the same instructions.
type warp struct {
	// r holds the registers.
	r []lanes
	// wm holds, for each register, the mask of the lanes that have written it.
	wm []uint32
	// junk holds, for each register, the mask of the lanes that have loaded it from the padding of
	// a struct, which was never written. It is nil if the kernel has no local memory and calls
	// no functions.
	junk []uint32
	// p holds the predicates, with one bit for each lane.
	p []uint32
	// pm holds, for each predicate, the mask of the lanes that have written it.
	pm []uint32
	// cc is the carry flag of instructions such as add.cc, with one bit for each lane.
	cc uint32

	// The embedded struct frame is the top entry of the reconvergence stack.
	frame
	stack []frame // other entries of the reconvergence stack
	calls []activation
	live  uint32 // lanes that exist and have not exited

	id         int
	state      warpState
	cta        *cta
	steps      int64
	addr       [32]uint64 // addresses of the memory instruction that is being executed
	tmp        lanes
	lastRegion *region // region of the last access to global memory

	// local is the local memory of 32 lanes, with stride bytes for each lane. localInit has a 1 for
	// each byte of local that was written, and a 0 if the value came from bytes never written.
	local, localInit []byte
	stride           int // bytes of one lane: Entry.Local, or more if functions need more

	// These clocks order the warp's accesses for the search for races.
	clocks
	// The embedded struct beyond holds what the warp knows about other blocks.
	beyond
	pending []asyncCopy
	// groups is the number of committed cp.async groups of each lane.
	groups  [32]uint32
	view    int32 // index of the warp's view in the globalLog, plus 1; 0 if there is none
	touched bool  // whether the warp has accessed global memory since the last barrier of all threads
	barrier int   // index of the barrier at which the warp waits
	barInst *inst
}

// fault panics with a *Fault, which ends the kernel.
func (w *warp) fault(k FaultKind, in *inst, lane int, format string, args ...any) {
	w.faultAt(k, in, lane, 0, format, args...)
}

// faultAt is fault with an address.
func (w *warp) faultAt(k FaultKind, in *inst, lane int, addr uint64, format string, args ...any) {
	f := &Fault{Kind: k, Kernel: w.cta.entry.Name, CTA: w.cta.id, Addr: addr, Msg: fmt.Sprintf(format, args...)}
	f.Line, f.Source = int(in.line), w.cta.entry.mod.line(int(in.line))
	f.Thread = w.cta.thread(w.id*32 + lane)
	panic(f)
}

// requireWritten faults unless all lanes of m have written the registers.
func (w *warp) requireWritten(in *inst, m uint32, slots ...int32) {
	for _, s := range slots {
		if bad := m &^ w.wm[s]; bad != 0 {
			w.uninitialised(in, s, bad)
		}
	}
}

func (w *warp) uninitialised(in *inst, slot int32, bad uint32) {
	w.fault(UninitialisedRegister, in, bits.TrailingZeros32(bad), "%s is read before it is written%s", w.cta.entry.registerName(slot, false), lanesText(bad))
}

func lanesText(m uint32) string {
	if n := bits.OnesCount32(m); n > 1 {
		return fmt.Sprintf(" in %d lanes", n)
	}
	return ""
}

// dest marks a register as written in the lanes of m, and returns the register.
func (w *warp) dest(slot int32, m uint32) *lanes {
	w.wm[slot] |= m
	return &w.r[slot]
}

// write stores v in a register, in the lanes of m.
func (w *warp) write(slot int32, v *lanes, m uint32) {
	r := w.dest(slot, m)
	if m == fullMask {
		*r = *v
		return
	}
	for ; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m)
		r[l] = v[l]
	}
}

// pred returns a predicate. It faults unless all lanes of m have written the predicate.
func (w *warp) pred(in *inst, slot int32, m uint32) uint32 {
	if bad := m &^ w.pm[slot]; bad != 0 {
		w.fault(UninitialisedRegister, in, bits.TrailingZeros32(bad), "predicate %s is read before it is written%s", w.cta.entry.registerName(slot, true), lanesText(bad))
	}
	return w.p[slot]
}

func (w *warp) extraPred(in *inst, m uint32) uint32 {
	v := w.pred(in, in.x.p, m)
	if in.x.pn {
		v = ^v
	}
	return v
}

func (w *warp) setPred(slot int32, v, m uint32) {
	w.p[slot] = w.p[slot]&^m | v&m
	w.pm[slot] |= m
}

// run executes up to budget instructions. It stops earlier if the warp waits at a barrier or has
// ended.
func (w *warp) run(budget int) {
	code := w.cta.entry.code
	st := &w.cta.stats
	start := budget
	for budget > 0 && w.state == warpReady {
		if w.pc == w.rpc {
			w.pop()
			continue
		}
		in := &code[w.pc]
		budget--
		if w.cta.lines != nil {
			w.cta.lines[w.pc].Instructions++
		}
		m := w.mask
		if in.guard != 0 {
			g := w.pred(in, in.guard, m)
			if in.not {
				g = ^g
			}
			if m &= g; m == 0 && in.kind != kBranch && in.kind != kTable {
				w.pc++
				continue
			}
		}
		if w.cta.lines != nil {
			w.cta.lines[w.pc].Lanes += int64(bits.OnesCount32(m))
		}
		switch in.kind {
		case kALU:
			if bad := m &^ (w.wm[in.a] & w.wm[in.b] & w.wm[in.c]); bad != 0 {
				w.requireWritten(in, m, in.a, in.b, in.c)
			}
			if m == fullMask {
				in.alu(&w.r[in.d], &w.r[in.a], &w.r[in.b], &w.r[in.c])
				w.wm[in.d] = fullMask
			} else {
				in.alu(&w.tmp, &w.r[in.a], &w.r[in.b], &w.r[in.c])
				w.write(in.d, &w.tmp, m)
			}
			if in.fma {
				st.FMA++
			}
		case kCmp:
			w.requireWritten(in, m, in.a, in.b)
			v := in.cmp(&w.r[in.a], &w.r[in.b])
			n := ^v
			if in.x != nil {
				c := w.extraPred(in, m)
				v, n = combine(in.x.combine, v, c), combine(in.x.combine, n, c)
			}
			if in.p >= 0 {
				w.setPred(in.p, v, m)
			}
			if in.q != 0 {
				w.setPred(in.q, n, m)
			}
		case kSelp:
			w.requireWritten(in, m, in.a, in.b)
			p := w.pred(in, in.p, m)
			a, b := &w.r[in.a], &w.r[in.b]
			for l := range w.tmp {
				v := b[l]
				if p>>l&1 != 0 {
					v = a[l]
				}
				w.tmp[l] = v
			}
			w.write(in.d, &w.tmp, m)
		case kBranch:
			w.branch(in, m)
			continue
		case kExit:
			w.exit(m)
			continue
		case kTable:
			w.jump(in, m)
			continue
		case kCall:
			w.call(in, m)
			continue
		case kReturn:
			w.leave()
			continue
		case kRun:
			in.run(w, in, m)
		case kSync:
			if !w.gathered(in, m) {
				continue
			}
			in.run(w, in, m)
		}
		w.pc++
	}
	start -= budget
	st.Instructions += int64(start)
	w.steps += int64(start)
	if w.steps > w.cta.maxSteps {
		w.fault(Runaway, &code[min(int(w.pc), len(code)-1)], bits.TrailingZeros32(w.mask), "the warp has executed more than %d instructions", w.cta.maxSteps)
	}
}

func (w *warp) branch(in *inst, taken uint32) {
	rest := w.mask &^ taken
	switch {
	case taken == 0:
		w.pc++
		return
	case rest == 0:
		w.pc = in.target
		return
	case in.uni:
		w.fault(UniformBranchDivergence, in, bits.TrailingZeros32(rest), "bra.uni is taken by %d of %d lanes", bits.OnesCount32(taken), bits.OnesCount32(w.mask))
	}
	if in.rpc != w.rpc {
		// The whole group continues at rpc when the lanes of both branches have reached it.
		w.stack = append(w.stack, frame{pc: in.rpc, rpc: w.rpc, mask: w.mask, depth: w.depth})
		if in.rpc < 0 {
			// The branch has no reconvergence point, because both paths end in exit.
			w.stack = w.stack[:len(w.stack)-1]
		}
	}
	// Lanes that branch directly to rpc wait in the next lower entry of the stack. Its mask
	// already includes them.
	switch fall := w.pc + 1; {
	case in.target == in.rpc:
		w.frame = frame{pc: fall, rpc: in.rpc, mask: rest, depth: w.depth}
	case fall == in.rpc:
		w.frame = frame{pc: in.target, rpc: in.rpc, mask: taken, depth: w.depth}
	default:
		w.stack = append(w.stack, frame{pc: in.target, rpc: in.rpc, mask: taken, depth: w.depth})
		w.frame = frame{pc: fall, rpc: in.rpc, mask: rest, depth: w.depth}
	}
}

// pop continues with the next group of lanes that have not exited. If there is none, the warp has
// ended.
func (w *warp) pop() {
	for n := len(w.stack); n > 0; n-- {
		w.frame = w.stack[n-1]
		w.stack = w.stack[:n-1]
		if w.mask &= w.live; w.mask != 0 {
			w.calls = w.calls[:w.depth]
			return
		}
	}
	w.mask = 0
	w.state = warpDone
	w.rpc = -1
	w.cta.global.ended = w.cta.global.ended || w.touched
	w.cta.warpEnded()
}

func (w *warp) exit(m uint32) {
	w.live &^= m
	if w.mask &^= m; w.mask != 0 {
		w.pc++
		return
	}
	w.pop()
}

// converged faults unless all lanes of the warp that have not exited execute the instruction
// together.
func (w *warp) converged(in *inst, m uint32, k FaultKind) {
	if m != w.live {
		w.fault(k, in, bits.TrailingZeros32(w.live&^m), "%d of the warp's %d live lanes execute it, this thread does not", bits.OnesCount32(m), bits.OnesCount32(w.live))
	}
}

// members checks the member mask operand of a .sync instruction. Each executing lane must be in its
// own mask. Every lane of that mask that has not exited must execute the instruction now.
func (w *warp) members(in *inst, m uint32, slot int32) (mask uint32) {
	w.requireWritten(in, m, slot)
	r := &w.r[slot]
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		v := uint32(r[l])
		mask |= v
		if v>>l&1 == 0 {
			w.fault(ShuffleDivergence, in, l, "the executing lane %d is not in its member mask %#x", l, v)
		}
		if miss := v & w.live &^ m; miss != 0 {
			w.fault(ShuffleDivergence, in, bits.TrailingZeros32(miss), "lane %d is in the member mask %#x but does not execute it together with lane %d (active lanes %#x)", bits.TrailingZeros32(miss), v, l, m)
		}
	}
	return mask
}

func (e *Entry) registerName(slot int32, pred bool) string {
	if n, ok := e.names[regKey{slot, pred}]; ok {
		return n
	}
	return "a register"
}

type regKey struct {
	slot int32
	pred bool
}

func (w *warp) readClock(sr special) uint64 {
	c := uint64(w.cta.stats.Instructions + w.steps)
	switch sr {
	case srClock:
		return c & 0xffffffff
	case srClockHi:
		return c >> 32
	case srClock64:
		return c
	}
	t := uint64(w.cta.start.UnixNano()) + c
	switch sr {
	case srGlobaltimerLo:
		return t & 0xffffffff
	case srGlobaltimerHi:
		return t >> 32
	}
	return t
}
