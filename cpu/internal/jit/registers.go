package jit

import "github.com/flambeau-go/flambeau/dtype"

// source says where the loop gets a value from.
type source uint8

const (
	computed source = iota
	constant
	same
	loaded
)

// value is the compiler's state of a value of the program. If several values have the same bits,
// only one of them, the root, has a state of its own.
type value struct {
	root      int32
	from      source
	load      int   // index in Loop.Loads of the load that reads the value
	offset    int32 // offset of the value in the arena, for a value of Loop.Same
	definedAt int   // position in Steps of the instruction that computes the value
	uses      []int32
	next      int  // number of uses that come before the current instruction
	hoisted   bool // the value stays in register reg in all iterations
	reg       int8 // register that holds the value; -1 if none
	slot      int32
	truth     int // for a truth value in a loop for AVX2: size in bytes of the lanes that hold it
}

// These numbers say what a register holds if it holds no value.
const (
	free        = -1
	taken       = -2 // the register holds a temporary of the current instruction
	accumulator = -3
)

// temporaries is the largest number of vector registers that the code of one instruction needs for
// temporaries, and for operands that are the same for all elements. longTemporaries is this number
// for loops of four lanes, because instructions on 64-bit integers for AVX2 need more.
const temporaries, longTemporaries = 4, 6

// size returns the size in bytes of an element of value i.
func (c *compiler) size(i int32) int {
	if t := c.Code[i].Type; t != dtype.Bool {
		return t.Size()
	}
	return 4
}

// length returns the length of vectors whose elements have the given size.
func (c *compiler) length(size int) int {
	switch c.lanes * size {
	case 64:
		return len512
	case 32:
		return len256
	}
	return len128
}

// take returns a vector register for value v, or for a temporary if v is the constant taken. Until
// the current instruction ends, no other value can get the register.
func (c *compiler) take(v int32) int8 {
	far, victim := int32(-1), -1
	for r, o := range c.vectors[:c.registers] {
		switch {
		case o == free:
			c.vectors[r] = v
			c.pinned |= 1 << r
			return int8(r)
		case o < 0 || c.pinned>>r&1 == 1 || c.values[o].hoisted:
		default:
			if u := c.nextUse(o); u > far {
				far, victim = u, r
			}
		}
	}
	if victim < 0 {
		panic("jit: too few registers for one instruction")
	}
	c.evict(c.vectors[victim])
	c.vectors[victim] = v
	c.pinned |= 1 << victim
	return int8(victim)
}

// takeMask returns a mask register for value v, or for a temporary if v is the constant taken. It
// uses neither K0, which cannot select lanes, nor tailMask.
func (c *compiler) takeMask(v int32) int8 {
	far, victim := int32(-1), -1
	for r := 1; r < tailMask; r++ {
		o := c.mask[r]
		switch {
		case o == free:
			c.mask[r] = v
			c.pins |= 1 << r
			return int8(r)
		case o < 0 || c.pins>>r&1 == 1:
		default:
			if u := c.nextUse(o); u > far {
				far, victim = u, r
			}
		}
	}
	if victim < 0 {
		panic("jit: too few mask registers for one instruction")
	}
	c.evict(c.mask[victim])
	c.mask[victim] = v
	c.pins |= 1 << victim
	return int8(victim)
}

// nextUse returns the position of the first instruction that uses value i, from the current
// instruction on. If there is none, it returns 1<<30.
func (c *compiler) nextUse(i int32) int32 {
	v := &c.values[i]
	for v.next < len(v.uses) && v.uses[v.next] < int32(c.step) {
		v.next++
	}
	if v.next == len(v.uses) {
		return 1 << 30
	}
	return v.uses[v.next]
}

// evict frees the register of value i. If the value cannot be loaded again from memory, evict first
// stores it in spill memory.
func (c *compiler) evict(i int32) {
	v := &c.values[i]
	r := uint8(v.reg)
	if v.slot < 0 && v.from != constant && v.from != same {
		v.slot = c.newSlot()
		m := c.spillMemory(v.slot)
		if c.wide && c.Code[i].Type == dtype.Bool {
			c.masks(maskStore, 0, r, 0, m)
		} else {
			c.vector(storeVector[0], c.full(), r, 0, m, options{})
		}
	}
	v.reg = -1
}

// newSlot returns the number of a free slot in spill memory.
func (c *compiler) newSlot() int32 {
	used := map[int32]bool{}
	for i := range c.values {
		if s := c.values[i].slot; s >= 0 && c.nextUse(int32(i)) < 1<<30 {
			used[s] = true
		}
	}
	s := int32(0)
	if !c.wide {
		s = foldSlot + 1
	}
	for used[s] {
		s++
	}
	c.spilled = max(c.spilled, int(s)+1)
	return s
}

func (c *compiler) spillMemory(slot int32) operand { return memory(arena, int32(c.Spill)+64*slot) }

// vec returns a register that holds value i, which must not be a truth value.
func (c *compiler) vec(i int32) uint8 {
	i = c.values[i].root
	v := &c.values[i]
	if v.reg < 0 {
		v.reg = c.take(i)
		c.fill(v, uint8(v.reg))
	}
	c.pinned |= 1 << v.reg
	return uint8(v.reg)
}

// fill writes the code that loads a value into register r, from spill memory or from its original
// place in memory.
func (c *compiler) fill(v *value, r uint8) {
	i := v.root
	size := c.size(i)
	switch {
	case v.slot >= 0:
		c.vector(moveVector[0], c.full(), r, 0, c.spillMemory(v.slot), options{})
	case v.from == loaded:
		c.loadVector(v.load, r)
	case c.wide:
		c.vector(spread.forSize(size), c.length(size), r, 0, c.scalar(v), options{})
	default:
		c.vector(moveVector[0], len256, r, 0, c.scalar(v), options{})
	}
}

// full returns the vector length of a whole register.
func (c *compiler) full() int {
	if c.wide {
		return len512
	}
	return len256
}

// scalar returns the memory operand of a constant, or of a value that is the same for all elements.
func (c *compiler) scalar(v *value) operand {
	if v.from == constant {
		return c.constant(c.Code[v.root].Imm, c.size(v.root))
	}
	return memory(arena, v.offset)
}

// operandOf returns value i as the last operand of an arithmetic instruction. The operand is the
// value's register. If the value is in no register and is the same for all elements, the operand is
// one element in memory.
func (c *compiler) operandOf(i int32) operand {
	v := &c.values[c.values[i].root]
	if v.reg < 0 && v.slot < 0 && (v.from == constant || v.from == same) {
		m := c.scalar(v)
		m.spread = c.wide
		return m
	}
	return register(c.vec(i))
}

// bits returns the constant v as the last operand of an instruction on lanes of the given size.
func (c *compiler) bits(v uint64, size int) operand {
	m := c.constant(v, size)
	m.spread = c.wide
	return m
}

// truth returns a mask register that holds truth value i. For AVX2 it returns a vector register, in
// which each lane has all bits set or no bits set.
func (c *compiler) truth(i int32) uint8 {
	if !c.wide {
		return c.truthVector(i)
	}
	i = c.values[i].root
	v := &c.values[i]
	if v.reg < 0 {
		v.reg = c.takeMask(i)
		k := uint8(v.reg)
		switch {
		case v.slot >= 0:
			c.masks(maskMove, 0, k, 0, c.spillMemory(v.slot))
		case v.from == loaded:
			t := c.temp()
			c.loadVector(v.load, t)
			c.vector(test[0], c.length(4), k, t, register(t), options{})
		case v.from == constant && c.Code[i].Imm == 0:
			c.masks(maskXor, 1, k, k, register(k))
		case v.from == constant:
			c.masks(maskXnor, 1, k, k, register(k))
		default:
			t, m := c.temp(), memory(arena, v.offset)
			c.vector(spread[0], c.length(4), t, 0, m, options{})
			c.vector(test[0], c.length(4), k, t, register(t), options{})
		}
	}
	c.pins |= 1 << v.reg
	return uint8(v.reg)
}

// truthFor returns what truth returns. For AVX2 the lanes of the vector have the given size.
func (c *compiler) truthFor(i int32, size int) uint8 {
	m := c.truth(i)
	if c.wide || c.values[c.values[i].root].truth == size {
		return m
	}
	t := c.temp()
	if size == 8 {
		c.vector(widenInt, len256, t, 0, register(m), options{})
	} else {
		c.narrow(t, m)
	}
	return t
}

// temp returns a register that only the current instruction uses.
func (c *compiler) temp() uint8 {
	r := uint8(c.take(taken))
	c.temps = append(c.temps, r)
	return r
}

// result returns a register for the value that the current instruction computes. The argument final
// says that the code reads no operand after it writes the result. Only then may the result use the
// register of an operand.
func (c *compiler) result(i int32, final bool) uint8 {
	if final {
		c.freeAfter(c.step)
	}
	v := &c.values[i]
	v.reg = c.take(i)
	return uint8(v.reg)
}

// dies reports whether no instruction after the current one uses value o. The result may then use
// its register.
func (c *compiler) dies(o int32) bool {
	v := &c.values[c.values[o].root]
	return !v.hoisted && v.uses[len(v.uses)-1] <= int32(c.step)
}

// inherit gives the register of value o to value i, the result of the current instruction.
func (c *compiler) inherit(i, o int32) uint8 {
	from, v := &c.values[c.values[o].root], &c.values[i]
	v.reg, from.reg = from.reg, -1
	c.vectors[v.reg] = i
	return uint8(v.reg)
}

// resultMask returns a mask register for the truth value that the current instruction computes.
func (c *compiler) resultMask(i int32) uint8 {
	c.freeAfter(c.step)
	v := &c.values[i]
	v.reg = c.takeMask(i)
	return uint8(v.reg)
}

// freeAfter frees the registers of values that are not used after the given position.
func (c *compiler) freeAfter(step int) {
	dead := func(o int32) bool {
		u := c.values[o].uses
		return !c.values[o].hoisted && (len(u) == 0 || u[len(u)-1] <= int32(step))
	}
	for r, o := range c.vectors[:c.registers] {
		if o >= 0 && dead(o) {
			c.vectors[r], c.values[o].reg = free, -1
		}
	}
	for r, o := range c.mask {
		if o >= 0 && dead(o) {
			c.mask[r], c.values[o].reg = free, -1
		}
	}
}

// endInstruction frees the registers that only the current instruction used.
func (c *compiler) endInstruction() {
	for _, r := range c.temps {
		c.vectors[r] = free
	}
	for _, k := range c.tempMasks {
		c.mask[k] = free
	}
	c.temps, c.tempMasks, c.pinned, c.pins = c.temps[:0], c.tempMasks[:0], 0, 0
	c.freeAfter(c.step)
}
