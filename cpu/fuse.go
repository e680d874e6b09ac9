package cpu

import (
	"slices"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// On processors with AVX-512 or AVX2, a plan runs as loops that package jit compiles at run time. A
// loop keeps the values between its instructions in registers. It converts stored types as it loads
// and stores them. An instruction that package jit does not support, such as a random number, runs
// as a kernel between two loops. The first loop stores the kernel's operands in temporary memory,
// and the second reads the kernel's result there.
//
// If a plan is a single loop, it can also run on the operands' own memory, and compute many rows in
// one call (see [binding.chooseLoop]).

// fusedBody holds the loops that compute the body of a plan.
type fusedBody struct {
	// whole is the loop that computes the whole body; nil if the body has several steps
	whole *jit.Loop
	plain *jit.Code // machine code of that loop for operands whose rows are contiguous
	// variants holds machine code of that loop for operands with other strides; it is made on
	// demand
	variants lookup[jit.Reads, *jit.Code]
}

// fusing reports whether plans run as compiled loops. The processor and the system must allow it,
// and the variable FLAMBEAU_JIT must not be "off".
func fusing() bool { return asm.Active() != "generic" && !unfused && jit.Why() == nil }

// interpreted returns the reason why plans do not run as compiled loops, or "" if they do.
func interpreted() string {
	if err := jit.Why(); err != nil {
		return err.Error()
	}
	if !fusing() {
		return "the processor has no AVX2"
	}
	return ""
}

// unfused makes new plans run as kernels and not as compiled loops. Tests set it.
var unfused bool

// fusable reports whether it pays to compile a plan to loops. The plan must compute or convert
// something, or fill memory with one value. Copies have faster implementations.
func fusable(p *expr.Program, f form) bool {
	if len(p.In) > maskBits {
		return false
	}
	for _, c := range p.Code {
		if c.Op.Arity() > 0 {
			return true
		}
	}
	for k, o := range p.Outs {
		if c := p.Code[o]; c.Op == expr.OpConst || c.Op == expr.OpParam || c.Op == expr.OpX && (p.In[c.Imm] != p.Out[k] || f == rawResults && loads[p.In[c.Imm]] != nil) {
			return true
		}
	}
	return false
}

var madeByAMD = asm.AMD()

// avx2Only reports whether loops are compiled for AVX2.
func avx2Only() bool { return asm.Active() == "avx2" }

// counts reports whether c converts the index to a 32-bit integer. A kernel makes this conversion.
// In a loop, the 64-bit index would reduce the number of lanes.
func counts(c expr.Instr, code []expr.Instr) bool {
	return c.Op == expr.OpCvt && code[c.A].Op == expr.OpIndex && c.Type.Size() == 4 && c.Type.IsInteger() &&
		code[c.A].Type.Size() == 8
}

// maskBits is the maximum number of operands of a plan. A plan describes each operand by one bit of
// a word.
const maskBits = 64

// fuse replaces the body of a plan by loops, and sets all fields that depend on the body. It
// returns false if the system refuses executable memory.
func (pl *plan) fuse(root []int32, uniform []bool) bool {
	p, n := pl.p, len(pl.p.Code)
	f := &fusion{plan: pl, root: root, uniform: uniform, segment: make([]int, n), inMemory: map[int32]bool{}}
	f.divide()
	pl.body = nil
	pl.slot = make([]int, n+len(p.Outs))
	for i := range pl.slot {
		pl.slot[i] = -1
	}
	for k := range p.Outs {
		r := result{val: int32(n + k), typ: p.Out[k]}
		if pl.key.form == rawResults {
			r.conv = stores[r.typ]
		}
		pl.outs = append(pl.outs, r)
	}
	for s := range f.loops { // first pass: find the values that several loops use
		f.describe(s)
	}
	f.allocate()
	pl.fused = &fusedBody{}
	for s := range f.loops {
		l := f.describe(s)
		l.Arena, l.Spill = len(pl.slot), pl.arena
		if len(l.Stores) > 0 {
			code, err := jit.Compile(l)
			if err != nil {
				return false
			}
			if f.oneLoop() {
				pl.fused.whole, pl.fused.plain = l, code
			}
			f.spill = max(f.spill, code.Spill())
			pl.body = append(pl.body, step{code: code})
		}
		pl.body = append(pl.body, f.laterKernels[s]...)
	}
	pl.body = append(f.firstKernels, pl.body...)
	if pl.key.form == rawResults && len(f.loops) == 1 && len(f.firstKernels) == 0 {
		pl.foldLoop(f.describe(0))
	}
	pl.arena += f.spill + foldSpill
	for k := range pl.outs {
		pl.outs[k].def = len(pl.body) - 1
	}
	for i := range pl.lastUse {
		pl.lastUse[i] = len(pl.body) - 1
	}
	for i := range pl.loads {
		pl.loads[i].conv = nil
	}
	return true
}

// fusion holds the state of [plan.fuse].
type fusion struct {
	*plan
	root         []int32
	uniform      []bool
	segment      []int // for each value, the loop that computes it; -1 if none
	loops        [][]int32
	firstKernels []step         // kernels that run before all loops
	laterKernels [][]step       // kernels that run after each loop
	inMemory     map[int32]bool // values that are in memory between steps
	spill        int
}

// divide assigns each instruction to a loop or to a kernel. A kernel runs before all loops if its
// operands are known by then. Otherwise the current loop ends, and the kernel runs after it.
func (f *fusion) divide() {
	code := f.p.Code
	outside := make([]bool, len(code)) // values computed before all loops or read from memory
	f.loops, f.laterKernels = [][]int32{nil}, [][]step{nil}
	for i, c := range code {
		f.segment[i] = -1
		outside[i] = f.uniform[i] || c.Op.Arity() == 0
		if outside[i] {
			continue
		}
		if jit.SameBits(c, code) && outside[c.A] {
			outside[i] = true
			continue
		}
		if jit.Can(c) && !counts(c, code) {
			last := len(f.loops) - 1
			f.segment[i] = last
			f.loops[last] = append(f.loops[last], int32(i))
			continue
		}
		s := f.kernel(int32(i))
		if outside[s.a] && outside[s.b] && outside[s.c] {
			f.firstKernels = append(f.firstKernels, s)
			outside[i] = true
			continue
		}
		f.laterKernels[len(f.loops)-1] = []step{s}
		f.loops, f.laterKernels = append(f.loops, nil), append(f.laterKernels, nil)
	}
}

// kernel returns a step that computes instruction i with a kernel. It records that the kernel's
// operands and its result must be in memory.
func (f *fusion) kernel(i int32) step {
	c := f.p.Code[i]
	s := step{d: i, a: f.root[c.A]}
	if c.Op == expr.OpCvt {
		s.b, s.c, s.k = s.a, s.a, casts[f.p.Code[c.A].Type][c.Type]
	} else {
		s.b, s.c = f.root[c.B], f.root[c.C]
		shared := f.uniform[c.A] && f.uniform[c.B]
		if s.k = philox[uint32](c.Draw(), shared); c.Type == dtype.U64 {
			s.k = philox[uint64](c.Draw(), shared)
		}
	}
	for _, o := range []int32{s.a, s.b, s.c} {
		f.inMemory[o] = true
	}
	f.inMemory[i] = true
	return s
}

// describe returns a description of loop s for package jit to compile.
func (f *fusion) describe(s int) *jit.Loop {
	code := f.p.Code
	l := &jit.Loop{Name: f.p.Name(), AVX2: avx2Only(), AMD: madeByAMD, Limited: f.key.limited, Code: code, Steps: f.loops[s]}
	done := make([]bool, len(code))
	var need func(i int32)
	need = func(i int32) {
		c := code[i]
		if done[i] || c.Op == expr.OpConst || f.segment[i] == s {
			return
		}
		done[i] = true
		switch {
		case f.uniform[i]:
			f.inMemory[f.root[i]] = true
			l.Same = append(l.Same, jit.Same{Value: i, Offset: f.slot[f.root[i]]})
		case c.Op == expr.OpX:
			t, wide := f.p.In[c.Imm], f.key.form == rawOperands
			if wide {
				t = c.Type
			}
			l.Loads = append(l.Loads, jit.Load{Value: i, Type: t, Wide: wide, Reg: int(i)})
		case jit.SameBits(c, code):
			need(c.A)
		default:
			f.inMemory[i] = true
			l.Loads = append(l.Loads, jit.Load{Value: i, Type: c.Type, Wide: true, Reg: int(i)})
		}
	}
	for _, i := range l.Steps {
		c := code[i]
		for k, o := range [3]int32{c.A, c.B, c.C} {
			if k < c.Op.Arity() {
				need(o)
			}
		}
		if f.inMemory[i] {
			l.Stores = append(l.Stores, jit.Store{Value: i, Type: c.Type, Wide: true, Reg: int(i)})
		}
	}
	if s == len(f.loops)-1 { // only the last loop stores results, when all operands have been read
		for k, o := range f.p.Outs {
			need(o)
			t, wide := f.p.Out[k], f.key.form == rawResults
			if wide {
				t = code[o].Type
			}
			l.Stores = append(l.Stores, jit.Store{Value: o, Type: t, Wide: wide, Reg: len(code) + k})
		}
	}
	return l
}

// allocate gives a place in temporary memory to each value that is in memory between steps. If one
// loop is the whole body, values that are equal for all elements get small places after the others.
func (f *fusion) allocate() {
	pl, code := f.plan, f.p.Code
	needed := f.inMemory
	for _, list := range [][]step{pl.uniform, f.firstKernels, f.kernels()} {
		for _, s := range list {
			needed[s.d], needed[s.a], needed[s.b], needed[s.c] = true, true, true, true
		}
	}
	for _, list := range [][]leaf{pl.params, pl.scalar} {
		for _, x := range list {
			needed[x.val] = true
		}
	}
	pl.consts = slices.DeleteFunc(pl.consts, func(x leaf) bool { return !needed[x.val] })
	w, slots := 4, 0
	for _, c := range code {
		w = max(w, width(c.Type))
	}
	take := func(v int) { pl.slot[v] = slots; slots++ }
	for _, list := range [][]leaf{pl.loads, pl.index} {
		for _, x := range list {
			take(int(x.val))
		}
	}
	for k := range pl.outs {
		take(len(code) + k)
	}
	for i := range code {
		if needed[int32(i)] && pl.slot[i] < 0 && !(f.oneLoop() && f.uniform[i]) {
			take(i)
		}
	}
	pl.place(slots, w)
	for i := range code {
		if needed[int32(i)] && pl.slot[i] < 0 {
			pl.slot[i] = pl.arena
			pl.arena += 64
		}
	}
}

// oneLoop reports whether one loop computes the whole body of the plan.
func (f *fusion) oneLoop() bool {
	return len(f.loops) == 1 && len(f.firstKernels) == 0 && len(f.index) == 0
}

// kernels returns the steps that run as kernels after a loop.
func (f *fusion) kernels() (all []step) {
	for _, s := range f.laterKernels {
		all = append(all, s...)
	}
	return all
}

// loopFor returns machine code of the loop that computes the whole body. The argument r says how
// the code loads the elements of a row. The result is nil if there is no such code.
func (pl *plan) loopFor(r jit.Reads) *jit.Code {
	if r == (jit.Reads{}) {
		return pl.fused.plain
	}
	if c, ok := pl.fused.variants.load(r); ok {
		return c
	}
	c, err := jit.Compile(pl.fused.whole.With(r))
	if err != nil || c.Spill() > pl.fused.plain.Spill() {
		return nil
	}
	pl.fused.variants.store(r, c)
	return c
}

// These constants limit loops that run on the operands' own memory. A unit of work has at most
// longestUnit elements, or fewer if the program is long, because Go cannot preempt a goroutine
// within a unit. Rows of fewer than shortestRow elements are not run in this way: blocks of several
// rows are faster, because they fill whole vectors.
const (
	longestUnit    = 16 << 10
	shortestRow    = 8
	unitOfAProgram = 1 << 20 // limit of a unit's elements times its instructions
)

// chooseLoop decides whether a loop runs on the operands' own memory. The rows of the results must
// be contiguous. The stride within a row of an operand must be one that the loop can load.
func (b *binding) chooseLoop() bool {
	pl := b.pl
	if pl.fused == nil || pl.fused.whole == nil {
		return false
	}
	l, in := pl.fused.whole, b.rank-1
	n := b.dims[in]
	if b.rank > 1 && (n < shortestRow || len(l.Loads)+len(l.Stores) > jit.MostPointers) {
		return false
	}
	for k := range b.outs {
		if a := &b.outs[k]; !b.direct[k] || a.inner != a.size && n > 1 {
			return false
		}
	}
	var reads jit.Reads
	for i := range l.Loads {
		if a := b.loaded(l, i); n > 1 && !reads.Add(l, i, a.inner/a.size) {
			return false
		}
	}
	if b.loop = pl.loopFor(reads); b.loop == nil {
		return false
	}
	b.blk = max(shortestSlotless, min(longestUnit, unitOfAProgram/max(1, len(l.Steps))))
	b.divide(b.blk)
	return true
}

// loaded returns the operand that load i of the loop reads.
func (b *binding) loaded(l *jit.Loop, i int) *access { return &b.ins[l.Code[l.Loads[i].Value].Imm] }

// divide sets the size of units so that a unit has about n elements.
func (b *binding) divide(n int) {
	row := b.dims[b.rank-1]
	b.cols, b.rows = min(row, n), 1
	if b.rank > 1 {
		b.rows = min(b.dims[b.rank-2], max(1, n/row))
	}
}

// unitCounts returns the number of units along each of the two innermost dimensions.
func (b *binding) unitCounts() (rows, cols int) {
	rows, cols = 1, (b.dims[b.rank-1]-1)/b.cols+1
	if b.rank > 1 {
		rows = (b.dims[b.rank-2]-1)/b.rows + 1
	}
	return rows, cols
}

func (b *binding) loopUnits() int {
	rows, cols := b.unitCounts()
	n := rows * cols
	for k := range b.rank - 2 {
		n *= b.dims[k]
	}
	return n
}

// runLoop runs the loop for the units with numbers lo to hi-1.
func (b *binding) runLoop(lo, hi int) {
	r := b.begin(1)
	l := b.pl.fused.whole
	in := b.rank - 1
	nr, nc := b.unitCounts()
	r.strides = r.strides[:0]
	var c cursor
	q := lo / nc
	c[in] = lo % nc * b.cols
	if in > 0 {
		c[in-1], q = q%nr*b.rows, q/nr
	}
	for k := in - 2; k >= 0; k-- {
		c[k], q = q%b.dims[k], q/b.dims[k]
	}
	address := func(a *access, reg int) {
		r.reg[reg] = unsafe.Add(a.base, a.offset(&c, b.rank))
		if in > 0 {
			r.strides = append(r.strides, a.stride[in-1])
		}
		if hi-lo > 1 {
			r.jumps = b.appendJumps(r.jumps, a)
		}
	}
	r.jumps = r.jumps[:0]
	for i := range l.Loads {
		address(b.loaded(l, i), l.Loads[i].Reg)
	}
	for k := range b.outs {
		address(&b.outs[k], l.Stores[k].Reg)
	}
	for u := lo; ; {
		rows := 1
		if in > 0 {
			rows = min(b.rows, b.dims[in-1]-c[in-1])
		}
		b.loop.Run(r.reg, r.strides, min(b.cols, b.dims[in]-c[in]), rows)
		if u++; u == hi {
			break
		}
		at := b.nextUnit(&c)
		for i := range l.Loads {
			r.reg[l.Loads[i].Reg] = unsafe.Add(r.reg[l.Loads[i].Reg], r.jumps[at])
			at += b.rank
		}
		for k := range b.outs {
			r.reg[l.Stores[k].Reg] = unsafe.Add(r.reg[l.Stores[k].Reg], r.jumps[at])
			at += b.rank
		}
	}
	b.end(r)
}

// appendJumps appends, for each dimension, a distance in bytes from the first element of a unit to
// the first element of the next unit. The distance for a dimension applies if the next unit is one
// step further in this dimension.
func (b *binding) appendJumps(jumps []int, a *access) []int {
	n, back := len(jumps), 0
	jumps = slices.Grow(jumps, b.rank)[:n+b.rank]
	for k := b.rank - 1; k >= 0; k-- {
		step := 1
		switch k {
		case b.rank - 1:
			step = b.cols
		case b.rank - 2:
			step = b.rows
		}
		jumps[n+k] = step*a.stride[k] - back
		back += (b.dims[k] - 1) / step * step * a.stride[k]
	}
	return jumps
}

// nextUnit moves c from the first element of a unit to that of the next. It returns the dimension
// in which the next unit is one step further. Computing c from the number of the unit would need
// divisions, which take as long as a short unit.
func (b *binding) nextUnit(c *cursor) int {
	in := b.rank - 1
	if c[in] += b.cols; c[in] < b.dims[in] || in == 0 {
		return in
	}
	c[in], c[in-1] = 0, c[in-1]+b.rows
	k := in - 1
	for ; k > 0 && c[k] >= b.dims[k]; k-- {
		c[k] = 0
		c[k-1]++
	}
	return k
}
