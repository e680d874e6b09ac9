package jit

import (
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
)

// Reads says how loads read the elements of a row. In each field, bit i stands for load i. A load
// for which no bit is set reads successive elements. Bits of Second and Back may only be set for
// loads that satisfy [Loop.CanStep].
type Reads struct {
	Once   uint64 // the load reads one element for each row
	Second uint64 // the load reads every second element
	Back   uint64 // the load reads successive elements in reverse order
}

// Add records that the elements of load i are step elements apart. It returns false if the load
// cannot read such rows.
func (r *Reads) Add(l *Loop, i, step int) bool {
	switch {
	case step == 1:
	case step == 0:
		r.Once |= 1 << i
	case !l.CanStep(i):
		return false
	case step == 2:
		r.Second |= 1 << i
	case step == -1:
		r.Back |= 1 << i
	default:
		return false
	}
	return true
}

// With returns a copy of the loop whose loads read rows as r says.
func (l *Loop) With(r Reads) *Loop {
	c := *l
	c.Loads = slices.Clone(l.Loads)
	for i := range c.Loads {
		x := &c.Loads[i]
		x.Once, x.Step = r.Once>>i&1 == 1, 1
		switch {
		case r.Second>>i&1 == 1:
			x.Step = 2
		case r.Back>>i&1 == 1:
			x.Step = -1
		}
	}
	return &c
}

// CanStep reports whether load i may read every second element, or elements in reverse order. This
// needs 32-bit words in whole vectors, and the register spare.
func (l *Loop) CanStep(i int) bool {
	switch l.Loads[i].Type {
	case dtype.F32, dtype.I32, dtype.U32:
		n := len(l.Loads) + len(l.Stores)
		if l.Fold != nil || len(l.Stores) == 0 { // the result of a fold needs an address too
			n++
		}
		return n <= directPointers && (!l.AVX2 || l.lanes() == 8)
	}
	return false
}

// order returns the index of the list of lane numbers for loads with the given step. It is 0 for
// every second element, and 1 for the reverse order.
func order(step int) int {
	if step < 0 {
		return 1
	}
	return 0
}

// countOrders returns how many registers hold lists of lane numbers. AVX2 needs none.
func (c *compiler) countOrders() (n int) {
	var used [2]bool
	if !c.wide {
		return 0
	}
	for _, l := range c.Loads {
		if k := order(l.Step); l.stepped() && !used[k] {
			used[k] = true
			n++
		}
	}
	return n
}

func (l *Load) stepped() bool { return !l.Once && (l.Step == 2 || l.Step == -1) }

// fillOrders writes the code that loads the lists of lane numbers. To read every second element, a
// loop loads two vectors. One begins at the first element and provides the first half of the lanes.
// The other ends at the last element and provides the other half. No load thus reads beyond the
// last element.
func (c *compiler) fillOrders() {
	for _, l := range c.Loads {
		if k := order(l.Step); c.wide && l.stepped() && !c.ordered[k] {
			var lanes [16]byte
			for i := range c.lanes {
				switch {
				case l.Step < 0:
					lanes[i] = byte(c.lanes - 1 - i)
				case i < c.lanes/2:
					lanes[i] = byte(2 * i)
				default:
					lanes[i] = byte(2*i + 1)
				}
			}
			c.ordered[k], c.orders[k] = true, uint8(c.take(accumulator))
			c.vector(widenByte, c.length(4), c.orders[k], 0, c.bytes16(lanes), options{})
			c.pinned = 0
		}
	}
}

// loadSteps writes the code that loads elements of load i into register r: every second element, or
// elements in reverse order.
func (c *compiler) loadSteps(i int, r uint8) {
	l, base := c.Loads[i], pointers[i]
	if !c.wide {
		c.loadStepsAVX2(l.Step, base, r)
		return
	}
	k, length := c.orders[order(l.Step)], c.length(4)
	last := 4 * int32(c.lanes-1)
	if c.tail {
		c.gatherSteps(l.Step, base, r)
		return
	}
	if l.Step == 2 {
		m := operand{memory: true, base: base, index: at, scale: 3, constant: -1}
		c.vector(moveVector[0], length, r, 0, m, options{})
		m.disp = last
		c.vector(permuteTwo, length, r, k, m, options{})
		return
	}
	c.zero(spare)
	c.subtract(spare, at)
	m := operand{memory: true, base: base, index: spare, scale: 2, disp: -last, constant: -1}
	c.vector(permute, length, r, k, m, options{})
}

// loadStepsAVX2 does what loadSteps does, with shuffles by immediates. In the tail it fills all
// lanes with one element.
func (c *compiler) loadStepsAVX2(step int, base gpr, r uint8) {
	m := operand{memory: true, base: base, index: at, scale: 3, constant: -1}
	if step < 0 {
		c.zero(spare)
		c.subtract(spare, at)
		m.index, m.scale = spare, 2
	}
	last := 4 * int32(c.lanes-1)
	switch {
	case c.tail:
		c.vector(spread[0], len256, r, 0, m, options{})
	case step == 2: // the halves of the two vectors alternate until the last shuffle
		c.vector(moveVector[0], len256, r, 0, m, options{})
		m.disp = last
		c.vector(shuffleTwo, len256, r, r, m, imm(0xd8))
		c.vector(permuteQuarters, len256, r, 0, register(r), imm(0xd8))
	default:
		m.disp = -last
		c.vector(permuteQuarters, len256, r, 0, m, imm(0x4e))
		c.vector(shuffle, len256, r, 0, register(r), imm(0x1b))
	}
}

// gatherSteps writes the code that loads the remaining elements of a row, one by one.
func (c *compiler) gatherSteps(step int, base gpr, r uint8) {
	var places [16]byte
	for i := range places {
		places[i] = byte(int8(i * step))
	}
	from, left, length := c.temp(), c.tempMask(), c.length(4)
	c.vector(widenInt8, length, from, 0, c.bytes16(places), options{})
	c.masks(maskMove, 0, left, 0, register(tailMask))
	c.vector(xor[0], length, r, r, register(r), options{})
	m := operand{memory: true, base: base, index: at, scale: 3, constant: -1}
	if step < 0 {
		c.zero(spare)
		c.subtract(spare, at)
		m.index, m.scale = spare, 2
	}
	c.address64(spare, m)
	// The index is a vector register, whose number has five bits. The field vvvv contains the
	// highest bit.
	m = operand{memory: true, base: spare, index: gpr(from & 15), scale: 2, constant: -1}
	c.vector(gatherWords, length, r, from&16, m, options{mask: left})
}
