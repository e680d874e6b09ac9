package jit

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// Loop describes the loop that [Compile] compiles. A value is identified by the index of its
// instruction in Code.
type Loop struct {
	Name string
	AVX2 bool // the code is for processors without AVX-512
	AMD  bool // AMD made the processor
	// Limited is true if params that are operands of a minimum or maximum of floats are neither NaN
	// nor 0
	Limited bool
	Code    []expr.Instr
	Steps   []int32 // the instructions that the loop runs, in order
	Loads   []Load
	Same    []Same
	// Stores are the values that the loop writes at the end of an iteration.
	Stores []Store
	Fold   *Fold
	Arena  int // index of the address of the arena, temporary memory that holds the values of Same
	Spill  int // offset in the arena at which spill memory begins, in bytes
}

// Load is a value whose elements the loop reads from memory, one after the other.
type Load struct {
	Value int32
	Type  dtype.Type // type of the element in memory
	Wide  bool       // for truth values: they have 32 bits in memory, as in kernels of package asm
	Once  bool       // all elements of a row are equal to the one element at the address
	// distance between successive elements of a row, in elements: 2, -1 or 1; 0 also means 1
	Step int
	Reg  int // index of the address in the slice reg of Code.Run
}

// Same is a value that is the same for all elements. It is stored at an offset in the arena, in the
// form in which the loop computes. For AVX2 the arena holds [Copies] copies of it.
type Same struct {
	Value  int32
	Offset int
}

// Copies is the number of copies of a [Same] value that a loop for AVX2 needs.
const Copies = 8

// Store is a value whose elements the loop writes to memory, one after the other.
type Store struct {
	Value int32
	Type  dtype.Type // type of the element in memory
	Wide  bool       // for truth values: they have 32 bits in memory, as for Load
	Reg   int
}

// Fold is a value that the loop combines over each row. The loop writes one result for each row. In
// a fold, truth values have 32 bits. Rows must not be empty.
//
// Element i is combined with accumulator i mod 64 (32 for types of 64 bits), or i mod 8 if Short is
// set. At the end of a row, the upper half of the accumulators is combined with the lower half,
// until one accumulator is left. Package asm sums in the same order.
//
// If Columns is set, the loop combines columns and not rows. A result combines the elements with
// the same index of several rows, from the first row to the last. See [Code.RunColumns].
type Fold struct {
	Value   int32
	Kind    FoldKind
	Short   bool
	Columns bool
	Reg     int // index of the result's address; its stride comes after the strides of the stores
}

// FoldKind says how values are combined. For truth values Max is "or", and Min is "and".
type FoldKind uint8

// These are the kinds of folds.
const (
	Sum FoldKind = iota
	Prod
	Max
	Min
)

// These are the general-purpose registers of a loop. The registers in the list pointers hold the
// addresses of loads, stores and results. If there are more addresses than registers in that list,
// only the first directPointers addresses are in registers. The code loads any further address into
// the register spare for each access.
const (
	regs    = rdi
	arena   = rsi
	whole   = rdx // number of elements of a row that are in whole vectors
	rows    = rcx
	strides = r8
	at      = r9
)

var pointers = [...]gpr{rax, rbx, r10, r11, r12, r13, r15, regs}

const (
	// number of addresses in registers, if not all addresses fit
	directPointers = 6
	spare          = r15
)

// MostPointers is the largest number of loads, stores and folds of a loop that runs over several
// rows.
const MostPointers = len(pointers)

// tailMask is the mask register for the elements after the last whole vector. In a fold for which
// findsNaN returns true, nanMask has the lanes in which an element of the row was NaN.
const tailMask, nanMask = 7, 6

// compiler holds the state of one compilation.
type compiler struct {
	assembler
	*Loop
	lanes  int
	values []value
	tail   bool // the code that is being written is for the remaining elements of a row

	vectors      [32]int32 // for each register: free, taken, or the number of the value in it
	mask         [8]int32
	registers    int    // number of vector registers
	pinned       uint32 // set of the vector registers that the current instruction uses
	pins         uint8  // set of the mask registers that the current instruction uses
	step         int    // position of the current instruction in Steps; stores come after it
	spilled      int    // number of spill slots in use
	accumulators []uint8
	unrolled     bool      // whether the compiler is writing several vectors of an iteration
	later        []func()  // functions that write rarely needed code after the end of the loop
	before       uint8     // register with the first of two vectors that are tested for NaN together
	together     int       // number of vectors of columns that a loop over columns handles at a time
	abreast      int       // number of rows that a fold combines side by side
	sets         [][]uint8 // accumulators of the rows that the compiler is writing the code for
	rowAt        int       // number of the row, among several side by side
	vectorAt     int       // number of the vector, among several of an iteration
	chains       map[int32]chain
	inner        []bool    // for each instruction, whether it belongs to a chain of remainder steps
	short        *shortcut // shorter body of the loop; nil if there is none
	shorter      bool      // whether the compiler is writing the shorter body
	depart       func()    // sets the target of the jump from the shorter body to the whole body
	orders       [2]uint8  // registers with lists of lane numbers, which fillOrders loads
	ordered      [2]bool
	// registers that only the current instruction uses
	temps, tempMasks []uint8
}

// Compile makes the machine code of a loop. It returns an error if the system refuses executable
// memory. All instructions must satisfy [Can].
func Compile(l *Loop) (*Code, error) {
	b, spill := translate(l)
	c, err := install(l.Name, b)
	if err != nil {
		return nil, err
	}
	c.spill = spill
	return c, nil
}

// translate returns the bytes of a loop and the size of its spill memory.
func translate(l *Loop) ([]byte, int) {
	c := &compiler{Loop: l, lanes: 16, values: make([]value, len(l.Code)), registers: 32}
	if c.wide = !l.AVX2; !c.wide {
		c.registers, c.spilled = 16, foldSlot+1
	}
	c.analyse()
	c.prologue()
	row, end := len(c.code), func() {}
	if c.abreast > 1 {
		end = c.rowsAbreast()
	}
	c.row()
	if n := c.addresses(); n <= MostPointers {
		c.addImmediate(rows, -1)
		last := c.jump(equal)
		for i := range n {
			c.addMemory(pointers[i], strides, int32(8*i))
		}
		c.jumpTo(row)
		last()
	}
	end()
	c.bytes(0xc5, 0xf8, 0x77, 0xc3) // VZEROUPPER and RET
	for _, write := range c.later {
		write()
	}
	return c.finish(), 64 * c.spilled
}

// row writes the loop over the elements of a row, or of several rows side by side.
func (c *compiler) row() {
	if !c.columns() {
		c.beginFold()
	}
	c.zero(at)
	for n := c.together; n > 1; n /= 2 {
		c.columnsTogether(n)
	}
	c.unroll()
	c.compare(at, whole)
	none := c.jump(aboveEqual)
	again := len(c.code)
	c.eachRow(func() { c.iterate(false) })
	c.addImmediate(at, int8(c.lanes))
	c.compare(at, whole)
	c.jumpBack(below, again)
	none()
	if c.wide {
		c.masks(maskTest, 0, tailMask, 0, register(tailMask))
		done := c.jump(equal)
		c.eachRow(func() { c.iterate(true) })
		done()
	} else {
		c.tailLoop()
	}
	if !c.columns() {
		c.endFold()
	}
}

// prologue loads the addresses, the number of elements in whole vectors, and the mask of the
// remaining elements. It also loads the values that stay in registers.
func (c *compiler) prologue() {
	c.load(arena, regs, int32(8*c.Arena))
	if c.wide {
		c.zero(at)
		c.bytes(0x49, 0xff, 0xc9) // DEC R9, which sets all bits to 1
		c.move(rax, whole)
		c.andImmediate(rax, int8(c.lanes-1))
		c.bytes(0xc4, 0xc2, 0xf8, 0xf5, 0xc1) // BZHI RAX, R9, RAX
		c.masks(maskFromInt, 0, tailMask, 0, register(uint8(rax)))
	} else {
		c.store64(whole, arena, c.spillMemory(countSlot).disp)
	}
	c.andImmediate(whole, int8(-c.lanes))
	for i := range c.addresses() {
		if i < directPointers || c.held() {
			c.load(pointers[i], regs, int32(8*c.number(i)))
		}
	}
	if c.columns() {
		c.holdSteps()
	}
	for i := range c.registers {
		c.vectors[i] = free
	}
	for i := range c.values {
		if v := &c.values[i]; v.hoisted {
			if c.Code[i].Type == dtype.Bool {
				c.truthVector(int32(i))
			} else {
				v.reg = c.take(int32(i))
				c.fill(v, uint8(v.reg))
			}
			c.pinned = 0
		}
	}
	c.fillOrders()
}

// addresses returns the number of addresses in the slice reg that the loop uses. The loads, the
// stores and the fold have one each.
func (c *compiler) addresses() int {
	n := len(c.Loads) + len(c.Stores)
	if c.Fold != nil {
		n++
	}
	return n
}

// held reports whether all addresses are in registers.
func (c *compiler) held() bool { return c.addresses() <= len(pointers) }

// number returns the index in the slice reg of address number i. The addresses are numbered in the
// order loads, stores, fold.
func (c *compiler) number(i int) int {
	if i < len(c.Loads) {
		return c.Loads[i].Reg
	}
	if i -= len(c.Loads); i < len(c.Stores) {
		return c.Stores[i].Reg
	}
	return c.Fold.Reg
}

// address returns the memory operand for the address with number i. The argument size is the size
// of an element there. If repeated is true, all elements of a row are at this address.
func (c *compiler) address(i, size int, repeated bool) operand {
	m := memory(spare, 0)
	switch {
	case c.rowAt > 0 && i < len(c.Loads):
		m.base = c.pointerOf(i, c.rowAt)
	case i < directPointers || c.held():
		m.base = pointers[i]
	default:
		c.load(spare, regs, int32(8*c.number(i)))
	}
	if !repeated {
		m.index = at
		for s := size; s > 1; s /= 2 {
			m.scale++
		}
		m.disp += int32(c.vectorAt * c.lanes * size)
	}
	return m
}

// iterate writes the code for one vector, or for the remaining elements of a row.
func (c *compiler) iterate(tail bool) {
	if !tail {
		c.prefetches()
	}
	if c.columns() {
		c.column(tail, 1)
		return
	}
	if c.short != nil && !(tail && c.wide) {
		c.bodies(tail)
		return
	}
	c.body(tail)
}

// body writes the instructions of one iteration of the loop.
func (c *compiler) body(tail bool) {
	c.tail = tail
	for i := range c.registers {
		if v := c.vectors[i]; v != accumulator && (v < 0 || !c.values[v].hoisted) {
			c.vectors[i] = free
		}
	}
	for i := range c.mask {
		c.mask[i] = free
	}
	if c.findsNaN() {
		c.mask[nanMask] = taken
	}
	for i := range c.values {
		v := &c.values[i]
		if v.next = 0; !v.hoisted {
			v.reg, v.slot = -1, -1
		}
	}
	for k, i := range c.Steps {
		c.step = k
		c.emit(i, c.Code[i])
		if c.shorter && i == c.short.when {
			c.guess()
		}
		c.endInstruction()
	}
	c.step = len(c.Steps)
	for i := range c.Stores {
		c.store(i)
		c.endInstruction()
		c.step++
	}
	if c.Fold != nil {
		c.fold()
		c.endInstruction()
	}
}

// analyse finds which instruction computes each value and which instructions use it. It chooses a
// shorter body, if there is one, and the values that stay in registers.
func (c *compiler) analyse() {
	c.trace()
	c.findShortcut()
	c.hoist()
}

// trace finds which instruction or load computes each value, and which instructions use it.
func (c *compiler) trace() {
	c.lanes = min(c.lanes, c.Loop.lanes())
	for i := range c.values {
		v := &c.values[i]
		*v = value{root: int32(i), reg: -1, slot: -1, load: -1}
		in := c.Code[i]
		switch {
		case in.Op == expr.OpConst:
			v.from = constant
		case SameBits(in, c.Code):
			v.root = c.values[in.A].root
		}
	}
	for _, s := range c.Same {
		v := &c.values[s.Value]
		v.from, v.root, v.offset = same, s.Value, int32(s.Offset)
	}
	for i, l := range c.Loads {
		v := &c.values[l.Value]
		v.from, v.root, v.load = loaded, l.Value, i
	}
	if !c.wide {
		c.sizeTruths()
	}
	c.findChains()
	use := func(i int32, step int) {
		v := &c.values[c.values[i].root]
		v.uses = append(v.uses, int32(step))
	}
	for k, i := range c.Steps {
		in := c.Code[i]
		if c.values[i].root != i || c.inner[i] {
			continue
		}
		c.values[i].definedAt = k
		if s, ok := c.chains[i]; ok {
			use(s.r, k)
			use(s.y, k)
			if s.second {
				use(s.float, k)
				c.values[s.ends[0]].definedAt = k
			}
			continue
		}
		for n, o := range [3]int32{in.A, in.B, in.C} {
			if n < in.Op.Arity() {
				use(o, k)
			}
		}
	}
	for i, s := range c.Stores {
		use(s.Value, len(c.Steps)+i)
	}
	if f := c.Fold; f != nil {
		use(f.Value, len(c.Steps)+len(c.Stores))
	}
}

// SameBits reports whether an instruction only reinterprets the bits of its operand as another
// type.
func SameBits(in expr.Instr, code []expr.Instr) bool {
	switch in.Op {
	case expr.OpBitcast:
		return true
	case expr.OpCvt:
		from := code[in.A].Type
		return from == in.Type || from.Size() == in.Type.Size() && isInt(from) && isInt(in.Type)
	}
	return false
}

// isInt reports whether t is an integer type in which the processor computes.
func isInt(t dtype.Type) bool {
	return t == dtype.I32 || t == dtype.U32 || t == dtype.I64 || t == dtype.U64
}

// hoist chooses the values that stay in registers through all iterations. These are the values that
// are used most often. Enough registers remain for the values of an iteration.
func (c *compiler) hoist() {
	var list []int32
	busiest := 0
	live := make([]int, len(c.Steps)+len(c.Stores)+2)
	for i := range c.values {
		v := &c.values[i]
		if len(v.uses) == 0 || v.root != int32(i) || c.wide && c.Code[i].Type == dtype.Bool {
			continue
		}
		if v.from == constant || v.from == same {
			list = append(list, int32(i))
			continue
		}
		first := int(v.uses[0]) // a value from memory is loaded at its first use
		if v.from == computed {
			first = v.definedAt
		}
		for k := first; k <= int(v.uses[len(v.uses)-1]); k++ {
			live[k]++
			busiest = max(busiest, live[k])
		}
	}
	busy := busiest + temporaries + c.countOrders()
	if c.lanes == 4 {
		busy += longTemporaries - temporaries
	}
	c.chooseTogether(busy)
	c.chooseAbreast()
	room := c.registers - busy - c.countAccumulators()*max(1, c.abreast)
	for room > 0 && len(list) > 0 {
		best := 0
		for k, i := range list {
			if c.weight(i) > c.weight(list[best]) {
				best = k
			}
		}
		c.values[list[best]].hoisted = true
		list = append(list[:best], list[best+1:]...)
		room--
	}
}

// weight returns how much it helps to keep value i in a register: the number of its uses, weighted.
func (c *compiler) weight(i int32) int {
	n := len(c.values[i].uses)
	if c.short != nil {
		n += shortWeight * len(c.short.values[i].uses)
	}
	return n
}
