package jit

// The processor's own prefetching is a few cache lines ahead of a loop, and stops where a page of
// 4 KiB ends. If the operands come from memory, a loop waits there. So loops ask for cache lines
// themselves. A loop on 4M elements then takes 0.45 to 1 of the time.

// ahead is the distance in bytes between an access and the line that the loop asks for. Lines after
// the end of a row are fetched in vain, unless they belong to the next row, so it is not longer.
const ahead = 2 << 10

// These are the opcodes of prefetch instructions, after the byte 0F. The field reg of their operand
// is 1. Reads ask for the line in all caches. Writes ask for the right to change it too. Processors
// that do not know the second one ignore it.
const (
	prefetchRead  = 0x18
	prefetchWrite = 0x0d
)

// prefetch asks for the line at src.
func (a *assembler) prefetch(op byte, src operand) {
	x, b := byte(0), byte(src.base)>>3
	if src.index != none {
		x = byte(src.index) >> 3
	}
	a.bytes(0x40|x<<1|b, 0x0f, op)
	a.modrm(1, src, 0)
}

// prefetches asks for the lines that a later iteration accesses. A loop over columns accesses rows
// that are far apart, so it asks for none.
func (c *compiler) prefetches() {
	if c.columns() {
		return
	}
	ask := func(op byte, i, size int) {
		m := c.address(i, size, false)
		m.disp = ahead
		c.prefetch(op, m)
	}
	for i, l := range c.Loads {
		if !l.Once && !l.stepped() {
			ask(prefetchRead, i, l.Type.Size())
		}
	}
	for i, s := range c.Stores {
		ask(prefetchWrite, len(c.Loads)+i, s.Type.Size())
	}
}
