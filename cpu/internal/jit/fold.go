package jit

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
)

// foldType returns the type of a fold's accumulators. Truth values are combined as numbers.
func (c *compiler) foldType() dtype.Type {
	if t := c.Code[c.Fold.Value].Type; t != dtype.Bool {
		return t
	}
	return dtype.U32
}

// countAccumulators returns how many vector registers hold the accumulators of the fold.
func (c *compiler) countAccumulators() int {
	if c.Fold == nil {
		return 0
	}
	t := c.foldType()
	switch {
	case c.Fold.Columns:
		return max(1, c.together)
	case c.Fold.Short:
		return 8 / c.lanes
	// integers and extremes have the same result in every order, so few accumulators suffice
	case !c.wide && (c.Fold.Kind >= Max || !t.IsFloat()):
		return 4
	case t.Size() == 8:
		return 32 / c.lanes
	}
	return 64 / c.lanes
}

// beginFold writes the code that initialises the accumulators at the start of a row.
func (c *compiler) beginFold() {
	if c.Fold == nil {
		return
	}
	t := c.foldType()
	size := t.Size()
	first := c.constant(neutral(c.Fold.Kind, t), size)
	c.eachRow(func() {
		for c.pinned = 0; len(c.accumulators) < c.countAccumulators(); {
			c.accumulators = append(c.accumulators, uint8(c.take(accumulator)))
		}
		c.pinned = 0
		for _, r := range c.accumulators {
			c.vector(spread.forSize(size), c.length(size), r, 0, first, options{})
		}
	})
	if c.findsNaN() {
		c.masks(maskXor, 1, nanMask, nanMask, register(nanMask))
	}
	if !c.wide && !c.Fold.Columns {
		c.vector(storeVector[0], len256, c.accumulators[0], 0, c.spillMemory(foldSlot), options{})
	}
}

// neutral returns the bits of the neutral element of a kind: combining it with a value gives the
// value.
func neutral(k FoldKind, t dtype.Type) uint64 {
	size := t.Size()
	float, signed := t.IsFloat(), t == dtype.I32 || t == dtype.I64
	least, most := uint64(0), uint64(math.MaxUint64) // the least and the greatest unsigned integer
	switch {
	case float:
		least, most = floatBits(math.Inf(-1), size), floatBits(math.Inf(1), size)
	case signed:
		least = 1 << (8*size - 1)
		most = least - 1
	}
	switch {
	case k == Sum:
		return 0
	case k == Prod && float:
		return floatBits(1, size)
	case k == Prod:
		return 1
	case k == Max:
		return least
	}
	return most
}

// longestUnrolled is the largest number of instructions of a loop that unroll unrolls.
const longestUnrolled = 8

// unroll writes a loop with several vectors in an iteration. The next loop handles the vectors that
// remain. In a fold, an iteration has one vector for each accumulator, so the accumulators need not
// be rotated. Other loops for AVX2 have four vectors in an iteration. Short loops then take up to a
// third less time, and a fill takes half the time.
func (c *compiler) unroll() {
	n := c.countAccumulators()
	if c.Fold == nil {
		n = 4
	}
	stepped := func(l Load) bool { return l.stepped() } // such loads have no displacement
	if c.wide && c.Fold == nil || c.columns() || n < 2 || len(c.Steps) > longestUnrolled || slices.ContainsFunc(c.Loads, stepped) {
		return
	}
	c.move(scratch, whole)
	c.andImmediate(scratch, int8(-n*c.lanes))
	c.compare(at, scratch)
	none := c.jump(aboveEqual)
	again := len(c.code)
	c.unrolled = true
	for c.vectorAt = range n {
		c.eachRow(func() { c.iterate(false) })
	}
	c.addImmediate(at, int8(n*c.lanes))
	c.unrolled, c.vectorAt = false, 0
	c.compare(at, scratch)
	c.jumpBack(below, again)
	none()
}

// findsNaN reports whether the loop tests for NaNs separately. It does so for a maximum or minimum
// of floats with AVX-512. One instruction then combines two vectors, instead of extremeOf's six.
func (c *compiler) findsNaN() bool {
	return c.wide && c.Fold != nil && !c.Fold.Columns && !c.Fold.Short && c.Fold.Kind >= Max && c.foldType().IsFloat()
}

// foldExtreme writes the code that combines x with the accumulator r in a fold for which findsNaN
// returns true. In the unrolled loop one comparison tests two vectors for NaN.
func (c *compiler) foldExtreme(r, x uint8, size int) {
	length, opt, y := c.length(size), imm(rangeOf[c.Fold.Kind]), x
	if c.tail {
		opt.mask = tailMask
	}
	c.vector(floatRange.forSize(size), length, r, r, register(x), opt)
	if c.unrolled && c.vectorAt%2 == 0 {
		c.before = uint8(c.take(accumulator)) // the register stays until the next vector
		c.vector(moveVector[0], c.full(), c.before, 0, register(x), options{})
		return
	}
	if c.unrolled {
		y = c.before
		c.vectors[y] = free
	}
	k := c.tempMask()
	opt.imm = floatUnordered
	c.vector(compareFloat.forSize(size), length, k, y, register(x), opt)
	c.masks(maskOr, 1, nanMask, nanMask, register(k))
}

// fold writes the code that combines the current vector with the first accumulator. Then it rotates
// the list of accumulators: the second becomes the first. It does not matter which accumulator is
// the first at the end, because endFold combines accumulators by their distance.
func (c *compiler) fold() {
	f, t := c.Fold, c.foldType()
	size := t.Size()
	var x uint8
	if c.Code[f.Value].Type == dtype.Bool {
		x = c.temp()
		c.fromTruth(x, c.truthFor(f.Value, size), size)
	} else {
		x = c.vec(f.Value)
	}
	if f.Columns {
		r := c.accumulators[c.vectorAt]
		c.combine(r, r, x)
		return
	}
	// the loop that tailLoop writes stores one value at a time; the values are combined later
	if c.tail && !c.wide {
		c.move(scratch, at)
		c.subtract(scratch, whole)
		m := c.spillMemory(foldSlot)
		if m.index, m.scale = scratch, 2; size == 8 {
			m.scale = 3
		}
		c.vector(storeLow.forSize(size), len128, x, 0, m, options{})
		return
	}
	first := c.accumulators[0]
	r := first
	if c.tail {
		r = c.temp()
	}
	if c.findsNaN() {
		c.foldExtreme(first, x, size)
	} else if c.combine(r, first, x); c.tail {
		c.vector(moveVector.forSize(size), c.length(size), first, 0, register(r), options{mask: tailMask})
	}
	if c.tail {
		return
	}
	if c.unrolled {
		c.accumulators = append(c.accumulators[1:len(c.accumulators):len(c.accumulators)], first)
		return
	}
	if last := len(c.accumulators) - 1; last > 0 {
		t := c.temp()
		c.vector(moveVector[0], c.full(), t, 0, register(first), options{})
		for i := range last {
			c.vector(moveVector[0], c.full(), c.accumulators[i], 0, register(c.accumulators[i+1]), options{})
		}
		c.vector(moveVector[0], c.full(), c.accumulators[last], 0, register(t), options{})
	}
}

// combine writes the code that sets r to x combined with y. r may be x.
func (c *compiler) combine(r, x, y uint8) { c.combineLanes(r, x, y, c.length(c.foldType().Size())) }

func (c *compiler) combineLanes(r, x, y uint8, length int) {
	t := c.foldType()
	size := t.Size()
	float, signed := t.IsFloat(), t == dtype.I32 || t == dtype.I64
	p := either(float, addFloat, addInt)
	switch k := c.Fold.Kind; {
	case c.findsNaN():
		c.vector(floatRange.forSize(size), length, r, x, register(y), imm(rangeOf[k]))
		return
	case !c.wide && size == 8 && !float && k == Prod:
		c.mulLong(r, x, y, c.temp(), c.temp(), length)
		return
	case !c.wide && size == 8 && !float && k >= Max:
		c.extremeLong(r, x, y, k == Max, signed, length)
		return
	case k == Prod:
		p = either(float, mulFloat, mulInt)
	case k == Max && float:
		c.extremeOf(maxFloat, r, x, y, size, length)
		return
	case k == Min && float:
		c.extremeOf(minFloat, r, x, y, size, length)
		return
	case k == Max:
		p = either(signed, maxSigned, maxUnsigned)
	case k == Min:
		p = either(signed, minSigned, minUnsigned)
	}
	c.vector(p.forSize(size), length, r, x, register(y), options{})
}

// endFold writes the code that combines the accumulators at the end of a row and stores the result.
func (c *compiler) endFold() {
	if c.Fold == nil {
		return
	}
	c.eachRow(c.endRow)
}

// endRow writes the code that combines the accumulators of a row and stores the result.
func (c *compiler) endRow() {
	size, result := c.foldType().Size(), c.addresses()-1
	for n := len(c.accumulators); n > 1; n /= 2 {
		for i := range n / 2 {
			c.combine(c.accumulators[i], c.accumulators[i], c.accumulators[i+n/2])
			c.endInstruction()
		}
	}
	r := c.accumulators[0]
	for lanes := c.lanes; lanes > 1; lanes /= 2 {
		t, length := c.temp(), len128
		switch lanes * size {
		case 64:
			c.vector(upperHalf, len512, r, 0, register(t), imm(1))
			length = len256
		case 32:
			c.vector(upperQuarter, len256, r, 0, register(t), imm(1))
		case 16:
			c.vector(shuffle, len128, t, 0, register(r), imm(0x0e))
		default:
			c.vector(shuffle, len128, t, 0, register(r), imm(0x01))
		}
		c.combineLanes(r, r, t, length)
		c.endInstruction() // the next step needs the temporaries again
	}
	if c.findsNaN() {
		c.masks(maskTest, 0, nanMask, 0, register(nanMask))
		none := c.jump(equal)
		c.vector(spread.forSize(size), c.full(), r, 0, c.constant(floatBits(math.NaN(), size), size), options{})
		none()
	}
	c.vector(storeLow.forSize(size), len128, r, 0, c.address(result, size, true), options{})
	if len(c.sets) > 0 {
		c.addMemory(pointers[result], strides, int32(8*result))
	}
	c.endInstruction()
}
