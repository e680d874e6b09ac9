package jit

import "slices"

// If a fold has one accumulator for a row, each of its operations waits for the one before. So with
// AVX-512 a short program combines several rows side by side. A product of rows then takes half of
// the time if the rows are in the second-level cache. It takes three quarters of the time if they
// are in the third-level cache, and 1.15 times the time if they come from memory.

// mostAbreast is the largest number of rows that a fold combines side by side.
const mostAbreast = 4

// chooseAbreast decides how many rows a fold combines side by side. Their addresses need registers.
func (c *compiler) chooseAbreast() {
	loads, n := len(c.Loads), c.addresses()
	stepped := func(l Load) bool { return l.stepped() }
	if !c.wide || c.Fold == nil || !c.Fold.Short || c.columns() || n > MostPointers || c.short != nil ||
		len(c.Stores) > 0 || len(c.Steps) > longestUnrolled || slices.ContainsFunc(c.Loads, stepped) {
		return
	}
	c.abreast = mostAbreast
	for (c.abreast-1)*loads > len(pointers)-n {
		c.abreast /= 2
	}
}

// pointerOf returns the register with the address of load i, in row r of the rows side by side.
func (c *compiler) pointerOf(i, r int) gpr {
	if r == 0 {
		return pointers[i]
	}
	return pointers[c.addresses()+(r-1)*len(c.Loads)+i]
}

// eachRow calls f for each of the rows side by side, with its accumulators.
func (c *compiler) eachRow(f func()) {
	if len(c.sets) == 0 {
		f()
		return
	}
	for c.rowAt = range c.sets {
		c.accumulators = c.sets[c.rowAt]
		f()
		c.sets[c.rowAt] = c.accumulators
	}
	c.rowAt = 0
}

// rowsAbreast writes the loop over groups of rows. The next loop handles the rows that remain. The
// returned function sets the target of the jump that is taken if no rows remain.
func (c *compiler) rowsAbreast() (end func()) {
	c.sets = make([][]uint8, c.abreast)
	again := len(c.code)
	c.compareImmediate(rows, int8(c.abreast))
	few := c.jump(below)
	for r := 1; r < c.abreast; r++ {
		for i := range c.Loads {
			c.move(c.pointerOf(i, r), c.pointerOf(i, r-1))
			c.addMemory(c.pointerOf(i, r), strides, int32(8*i))
		}
	}
	c.prefetchRows()
	c.row()
	for i := range c.Loads {
		c.move(pointers[i], c.pointerOf(i, c.abreast-1))
		c.addMemory(pointers[i], strides, int32(8*i))
	}
	c.addImmediate(rows, -int8(c.abreast))
	c.jumpBack(notEqual, again)
	end = c.jumpAlways()
	few()
	c.accumulators, c.sets = c.sets[0], nil
	return end
}

// prefetchRows writes instructions that fetch the first cache lines of the next group of rows,
// unless rows are short. The processor itself fetches the lines that follow.
func (c *compiler) prefetchRows() {
	c.compareImmediate(whole, 127)
	short := c.jump(below)
	for i := range c.Loads {
		c.move(scratch, c.pointerOf(i, c.abreast-1))
		for range c.abreast {
			c.addMemory(scratch, strides, int32(8*i))
			c.prefetch(prefetchRead, memory(scratch, 0))
			c.prefetch(prefetchRead, memory(scratch, 64))
		}
	}
	short()
}
