package jit

// columns reports whether the loop combines columns.
func (c *compiler) columns() bool { return c.Fold != nil && c.Fold.Columns }

// holdSteps loads strides into the registers that hold no address. A stride leads from one element
// of a column to the next. If there are too few such registers, the other strides stay in memory.
func (c *compiler) holdSteps() {
	n := c.addresses()
	for i := range c.Loads[:min(len(c.Loads), len(pointers)-n)] {
		c.load(pointers[n+i], strides, int32(8*(n+i)))
	}
}

// A loop of at most shortStepCount instructions goes down up to mostTogether vectors of columns
// together. With a single vector, each addition would wait for the previous one.
const (
	mostTogether   = 4  // vectors of columns
	shortStepCount = 16 // instructions of the loop
)

// chooseTogether decides how many vectors of columns the loop goes down together. Each vector needs
// an accumulator. busy is the greatest number of vector registers that the other values occupy.
func (c *compiler) chooseTogether(busy int) {
	if c.columns() && len(c.Steps) <= shortStepCount {
		c.together = max(1, min(mostTogether, c.registers-busy))
	}
}

// columnsTogether writes the loop over several vectors of columns at a time.
func (c *compiler) columnsTogether(vectors int) {
	n := int8(vectors * c.lanes)
	c.addImmediate(at, n)
	c.compare(whole, at)
	none := c.jump(below)
	again := len(c.code)
	c.addImmediate(at, -n)
	c.column(false, vectors)
	c.addImmediate(at, n)
	c.addImmediate(at, n)
	c.compare(whole, at)
	c.jumpBack(aboveEqual, again)
	none()
	c.addImmediate(at, -n)
}

// column writes the loop over the rows of some vectors of columns, and the stores of the combined
// values. The register strides points to three groups of distances, followed by the number of rows.
// The distances of the first group lead from one row of results to the next. Those of the second
// group lead from one row of operands to the next, and those of the third group lead back to the
// first row of operands.
func (c *compiler) column(tail bool, vectors int) {
	c.tail = tail
	c.beginFold()
	n := c.addresses()
	c.load(scratch, strides, int32(8*3*n))
	again := len(c.code)
	for c.vectorAt = range vectors {
		c.body(tail)
	}
	for i := range c.Loads {
		if n+i < len(pointers) {
			c.integer(0x03, pointers[i], register(uint8(pointers[n+i])))
		} else {
			c.addMemory(pointers[i], strides, int32(8*(n+i)))
		}
	}
	c.addImmediate(scratch, -1)
	c.jumpBack(notEqual, again)
	for i := range c.Loads {
		c.addMemory(pointers[i], strides, int32(8*(2*n+i)))
	}
	size := c.foldType().Size()
	o, length, opt := storeVector.forSize(size), c.length(size), c.masked(false)
	if tail && !c.wide {
		o, length = storeLow.forSize(size), len128
	}
	for c.vectorAt = range vectors {
		c.vector(o, length, c.accumulators[c.vectorAt], 0, c.address(n-1, size, false), opt)
		c.endInstruction()
	}
	c.vectorAt = 0
}
