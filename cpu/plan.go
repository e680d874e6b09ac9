package cpu

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/cpu/internal/asm/calls"
	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// plan is a program that is prepared to compute blocks of elements. It has a kernel for each
// instruction. A value of the program is stored in a slot, a piece of temporary memory. Values that
// are the same for all elements are called uniform: constants, params, broadcast operands with a
// single element, and values computed from these. Each runner computes the uniform values once and
// keeps them in slots of their own.
type plan struct {
	p     *expr.Program
	key   planKey
	block int // number of elements in a block
	arena int // number of bytes of temporary memory of a runner
	// byte offset of each value's slot in the arena; -1 if the value has no slot
	slot []int
	// offset in the arena of memory for conversions of elements from or to the form in which they
	// are stored
	stage   int
	stage2  int // offset in the arena of a second piece of memory for conversions
	consts  []leaf
	params  []leaf
	scalar  []leaf // operands with a single element that is broadcast
	loads   []leaf // the operands that are not in scalar
	index   []leaf
	uniform []step // steps that run once for a runner
	body    []step // steps that run for every block
	outs    []result
	lastUse []int       // for each operand, the last step of body that reads it; -1 if none
	fused   *fusedBody  // how the body runs as compiled loops; nil if there are no loops
	folded  *foldedBody // loops that reduce rows of the first result; nil if there are none
	pool    sync.Pool

	limits    []leaf // params that are operands of a minimum or maximum of floats in loops
	limitOnce sync.Once
	limited   *plan // plan to use if no param in limits is NaN or 0

	wordsOnce sync.Once
	words     *expr.Program // program that computes four truth values at once; nil if there is none

	dense, scattered pace // measured times with contiguous operands, and with other operands
}

// leaf is a value that the program does not compute: an operand or a param.
type leaf struct {
	val  int32
	from int // index of the operand or param
	typ  dtype.Type
	bits uint64
	// conversion from the form in which elements are stored to the form in which programs compute;
	// nil if both are the same
	conv kernel
	// the value is also a result; it needs a slot, because another result may overwrite the
	// operand's memory
	keep bool
}

type step struct {
	k          kernel
	code       *jit.Code // compiled loop that runs in place of k; nil if there is none
	d, a, b, c int32
	bounded    bool // whether k accepts at most maxBlock elements
}

type result struct {
	val int32
	typ dtype.Type // stored type
	// conversion to the form in which elements are stored; nil if it changes nothing
	conv kernel
	// step of body that computes the result; -1 if that step may not write to the result's memory
	def int
}

type planKey struct {
	program string
	scalars uint64 // bit i is set if operand i is a single element that is broadcast
	form    form
	// variant of the block primitives; not every variant has kernels for all functions
	variant string
	fused   bool // whether the body runs as compiled loops
	limited bool // whether no param in limits is NaN or 0
}

// form says which operands and results of a plan are in the form in which programs compute. The
// others are in the form in which elements are stored.
type form uint8

const (
	stored      form = iota // neither operands nor results
	rawOperands             // the operands
	rawResults              // the results
)

var plans struct {
	sync.RWMutex
	m map[planKey]*plan
}

// recentPlans caches recently used plans by the program's address. A search in it takes a tenth of
// the time of a search in the map.
var recentPlans [256]atomic.Pointer[plan]

// planFor returns the plan of p. If bit i of scalars is set, operand i has a single element, which
// is broadcast.
func planFor(p *expr.Program, scalars uint64, f form) *plan {
	k := planKey{p.Key(), scalars, f, asm.Active(), fusing(), false}
	last := &recentPlans[(uintptr(unsafe.Pointer(p))>>6^uintptr(scalars))%uintptr(len(recentPlans))]
	pl := last.Load()
	if pl != nil && pl.key == k {
		return pl
	}
	plans.RLock()
	pl = plans.m[k]
	plans.RUnlock()
	if pl == nil {
		pl = compile(p, k)
		plans.Lock()
		// Clear the map if it is large. Otherwise a program that always uses new constants would
		// fill the memory
		if plans.m == nil || len(plans.m) >= 1<<14 {
			plans.m = map[planKey]*plan{}
		}
		plans.m[k] = pl
		plans.Unlock()
	}
	last.Store(pl)
	return pl
}

// specialized returns the plan for these params. If no param of a minimum or maximum is NaN or 0,
// this is a plan whose loops compute a minimum or maximum in one instruction. In other plans a
// minimum or maximum takes about six instructions.
func (pl *plan) specialized(params []uint64) *plan {
	if len(pl.limits) == 0 {
		return pl
	}
	for _, l := range pl.limits {
		if v := expr.Decode(l.typ, params[l.from]); v == 0 || v != v {
			return pl
		}
	}
	pl.limitOnce.Do(func() {
		k := pl.key
		k.limited = true
		pl.limited = compile(pl.p, k)
	})
	return pl.limited
}

// findLimits finds the params that are operands of a minimum or maximum of floats.
func (pl *plan) findLimits() {
	for _, c := range pl.p.Code {
		if c.Op != expr.OpMin && c.Op != expr.OpMax || !c.Type.IsFloat() {
			continue
		}
		for _, l := range pl.params {
			if l.val == c.A || l.val == c.B {
				pl.limits = append(pl.limits, l)
			}
		}
	}
}

func compile(p *expr.Program, k planKey) *plan {
	n := len(p.Code)
	pl := &plan{p: p, key: k, slot: make([]int, n), lastUse: make([]int, len(p.In))}
	// for each value, the value whose slot it uses; a value and its cast may use the same slot
	root := make([]int32, n)
	uniform := make([]bool, n)
	operand := make([]int, n) // operand that each value loads, or -1
	var bodyVals []int32      // value that each step of body computes
	for i := range pl.lastUse {
		pl.lastUse[i] = -1
	}
	var found []calls.Call
	fuse := k.fused && fusable(p, k.form)
	if !fuse {
		found = calls.Find(p, func(name string) bool { return asm.Function(name) != nil })
	}
	live := calls.Live(p, found)
	for i, c := range p.Code {
		v := int32(i)
		root[i], pl.slot[i], operand[i] = v, -1, -1
		if !live[i] {
			continue
		}
		for len(found) > 0 && found[0].Root < v {
			found = found[1:]
		}
		if len(found) > 0 && found[0].Root == v { // one kernel computes a whole function
			a := root[found[0].Arg]
			s := step{k: unary(asm.Function(found[0].Name)), d: v, a: a, b: a, c: a}
			if uniform[i] = uniform[a]; uniform[i] {
				pl.uniform = append(pl.uniform, s)
			} else {
				pl.body = append(pl.body, s)
				bodyVals = append(bodyVals, v)
			}
			continue
		}
		switch c.Op {
		case expr.OpConst:
			pl.consts = append(pl.consts, leaf{val: v, typ: c.Type, bits: c.Imm})
			uniform[i] = true
			continue
		case expr.OpParam:
			pl.params = append(pl.params, leaf{val: v, typ: c.Type, from: int(c.Imm)})
			uniform[i] = true
			continue
		case expr.OpIndex:
			pl.index = append(pl.index, leaf{val: v, typ: c.Type})
			continue
		case expr.OpX:
			t := p.In[c.Imm]
			l := leaf{val: v, typ: t, from: int(c.Imm), conv: loads[t]}
			if k.form == rawOperands {
				l.conv = nil
			}
			if k.scalars>>c.Imm&1 == 1 {
				pl.scalar = append(pl.scalar, l)
				uniform[i] = true
			} else {
				pl.loads = append(pl.loads, l)
				operand[i] = int(c.Imm)
			}
			continue
		}
		s := step{d: v, a: -1, b: -1, c: -1}
		same := true
		arity := c.Op.Arity()
		for k, o := range [3]*int32{&s.a, &s.b, &s.c} {
			if k < arity {
				*o = root[[3]int32{c.A, c.B, c.C}[k]]
				same = same && uniform[*o]
			}
		}
		if s.b < 0 { // kernels need two pointers, so use the first operand twice
			s.b = s.a
		}
		if s.c < 0 {
			s.c = s.a
		}
		uniform[i] = same
		from := p.Code[c.A].Type
		switch {
		case c.Op == expr.OpBitcast:
			root[i] = s.a
			continue
		case c.Op == expr.OpCvt:
			if s.k = casts[from][c.Type]; s.k == nil {
				root[i] = s.a
				continue
			}
			s.bounded = c.Type == dtype.Bool
		case c.Op.IsCompare():
			s.k = ops[c.Op][from]
		case c.Op == expr.OpPhilox:
			shared := uniform[s.a] && uniform[s.b]
			if s.k = philox[uint32](c.Draw(), shared); c.Type == dtype.U64 {
				s.k = philox[uint64](c.Draw(), shared)
			}
		default:
			s.k = ops[c.Op][c.Type]
			s.bounded = c.Op == expr.OpNot && c.Type == dtype.Bool
		}
		if s.k == nil && !fuse {
			panic(fmt.Sprintf("cpu: no kernel for %v of %v (from %v)", c.Op, c.Type, from))
		}
		if same {
			pl.uniform = append(pl.uniform, s)
		} else {
			pl.body = append(pl.body, s)
			bodyVals = append(bodyVals, v)
		}
	}
	if fuse && pl.fuse(root, uniform) {
		if !k.limited {
			pl.findLimits()
		}
		pl.pool.New = func() any { return pl.newRunner() }
		return pl
	}
	if fuse { // the system has refused executable memory, so make a plan without loops
		kernels := k
		kernels.fused = false
		pl = compile(p, kernels)
		pl.key = k
		return pl
	}
	pl.results(root, uniform, bodyVals)
	pl.allocate(uniform)
	if k.fused && k.form == rawResults {
		pl.foldValue(uniform)
	}
	for k, s := range pl.body {
		for _, o := range [3]int32{s.a, s.b, s.c} {
			if operand[o] >= 0 {
				pl.lastUse[operand[o]] = k
			}
		}
	}
	for _, o := range pl.outs { // results that are operands are loaded after all computations
		if operand[o.val] >= 0 {
			pl.lastUse[operand[o.val]] = len(pl.body)
			for i := range pl.loads {
				if l := &pl.loads[i]; l.val == o.val {
					l.keep = len(pl.outs) > 1
				}
			}
		}
	}
	pl.pool.New = func() any { return pl.newRunner() }
	return pl
}

func (pl *plan) results(root []int32, uniform []bool, bodyVals []int32) {
	seen := map[int32]bool{}
	for k, o := range pl.p.Outs {
		r := result{val: root[o], typ: pl.p.Out[k], conv: stores[pl.p.Out[k]], def: -1}
		if r.conv == nil && !uniform[r.val] && !seen[r.val] {
			for i, v := range bodyVals {
				if v == r.val {
					r.def = i
				}
			}
		}
		seen[r.val] = true
		pl.outs = append(pl.outs, r)
	}
}

// allocate assigns a slot to every value. It reuses the slots of values that are no longer needed.
func (pl *plan) allocate(uniform []bool) {
	code := pl.p.Code
	end := len(pl.body)
	last := make([]int, len(code))
	for k, s := range pl.body {
		for _, o := range [3]int32{s.a, s.b, s.c} {
			last[o] = k
		}
	}
	for _, o := range pl.outs {
		last[o.val] = end
	}
	w := 4
	for _, c := range code {
		w = max(w, width(c.Type))
	}
	slots := 0
	fresh := func() int { slots++; return slots - 1 }
	for i, u := range uniform {
		if u {
			pl.slot[i] = fresh()
		}
	}
	var free []int
	for _, l := range [][]leaf{pl.loads, pl.index} {
		for _, x := range l {
			pl.slot[x.val] = fresh()
		}
	}
	for k, s := range pl.body {
		var dead []int
		for j, o := range [3]int32{s.a, s.b, s.c} {
			if uniform[o] || last[o] != k || j > 0 && o == s.a || j > 1 && o == s.b {
				continue
			}
			if width(code[o].Type) == width(code[s.d].Type) {
				// a kernel may overwrite its operand, so the operand's slot is free now
				free = append(free, pl.slot[o])
			} else {
				dead = append(dead, pl.slot[o])
			}
		}
		if n := len(free); n > 0 {
			pl.slot[s.d], free = free[n-1], free[:n-1]
		} else {
			pl.slot[s.d] = fresh()
		}
		free = append(free, dead...)
	}
	pl.place(slots, w)
}

// place computes the offsets of slots in the arena, for the given number of slots with elements of
// w bytes. It adds two slots for conversions.
func (pl *plan) place(slots, w int) {
	stage, stage2 := slots, slots+1
	slots += 2
	// Most of the arena should stay in the first-level cache. The remaining part, mainly constants,
	// should stay in the second-level cache. In a reduction, the order of additions depends on the
	// size of the block. For a reduction, the size must therefore not depend on the number of
	// slots, because loops and kernels need different numbers of slots.
	pl.block = maxBlock
	for pl.key.form != rawResults && pl.block > 256 && slots*w*pl.block > 96<<10 {
		pl.block /= 2
	}
	// The distance between slots must not be a power of two. Otherwise a load would wait for an
	// earlier store whose address has the same low 12 bits.
	pitch := w*pl.block + 192
	for i, s := range pl.slot {
		if s >= 0 {
			pl.slot[i] = s * pitch
		}
	}
	pl.stage, pl.stage2 = stage*pitch, stage2*pitch
	pl.arena = slots * pitch
}

// runner is what one worker needs to run a plan: temporary memory, called the arena, and registers,
// which hold the addresses of values.
type runner struct {
	pl *plan
	// for each value, the address of its slot, or of its elements in an operand or result
	reg   []unsafe.Pointer
	base  unsafe.Pointer // start of the arena
	stage unsafe.Pointer
	// distances in bytes between rows, for a loop over rows: one for each load and each result
	strides []int
	jumps   []int // the distances that appendJumps appends, for each load and each result
}

func (pl *plan) newRunner() *runner {
	mem := make([]byte, pl.arena+63)
	base := unsafe.Pointer(&mem[0])
	base = unsafe.Add(base, -uintptr(base)&63)
	// reg holds two more addresses: that of the arena, and that of the results of a reduction
	r := &runner{pl: pl, reg: make([]unsafe.Pointer, len(pl.slot)+2), base: base, stage: unsafe.Add(base, pl.stage)}
	r.reg[len(pl.slot)] = base
	for i, s := range pl.slot {
		if s >= 0 {
			r.reg[i] = unsafe.Add(base, s)
		}
	}
	for _, c := range pl.consts {
		fillBits(r.reg[c.val], c.bits, width(c.typ), pl.copies(pl.block))
	}
	return r
}

// copies returns how many copies of a uniform value the steps read in a block of n elements.
func (pl *plan) copies(n int) int {
	switch {
	case pl.fused == nil || pl.fused.whole == nil:
		return n
	case pl.fused.whole.AVX2:
		return jit.Copies
	}
	return 1
}

// fillBits sets n elements to b. Each element has width bytes.
func fillBits(p unsafe.Pointer, b uint64, width, n int) {
	switch width {
	case 1:
		s := at[uint8](p, n)
		for i := range s {
			s[i] = uint8(b)
		}
	case 2:
		s := at[uint16](p, n)
		for i := range s {
			s[i] = uint16(b)
		}
	case 4:
		asm.FillU32(at[uint32](p, n), uint32(b))
	case 8:
		asm.FillU64(at[uint64](p, n), b)
	}
}

// readBits returns the element at p, which has width bytes.
func readBits(p unsafe.Pointer, width int) uint64 {
	switch width {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}

func writeBits(p unsafe.Pointer, width int, b uint64) {
	switch width {
	case 1:
		*(*uint8)(p) = uint8(b)
	case 2:
		*(*uint16)(p) = uint16(b)
	case 4:
		*(*uint32)(p) = uint32(b)
	default:
		*(*uint64)(p) = b
	}
}

// exec runs the steps, one after the other, on n elements.
func exec(reg []unsafe.Pointer, steps []step, n int) {
	for i := range steps {
		s := &steps[i]
		if s.code != nil {
			s.code.Run(reg, nil, n, 1)
			continue
		}
		s.k(reg[s.d], reg[s.a], reg[s.b], reg[s.c], n)
	}
}
