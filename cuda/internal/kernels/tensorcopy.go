package kernels

import (
	"math"

	"github.com/flambeau-go/flambeau/ptx"
)

// tensorCopier brings one operand's tiles into the stages of a [tensorSpec]'s kernel, one after the
// other.
type tensorCopier struct {
	g        *tensorBuilder
	how      tensorLoad
	width    int // elements of a unit, which a thread stores at once
	units    int // of a thread and tile
	spare    int // threads from this one on have nothing to bring in the last unit; 0: none
	rows     int // of the tile that all threads bring at once
	rowBytes int
	// of the first units in the first stage, as many as the swizzle takes to repeat
	to         []ptx.Ptr
	p          ptx.Ptr
	at         *ptx.Var    // the address of this thread's first element in the next tile
	rowStep    ptx.Value   // bytes from a unit to the next
	step       ptx.Value   // bytes from an element of a unit to the next
	tileStep   ptx.Value   // bytes from one tile to the next
	outer, k   []ptx.Value // of the elements of the first unit, in the matrix and within the tile
	outerLimit ptx.Value
	before     bool // the element before the first of a row is brought too
	first      bool // the tile that is fetched is that with the beginnings of rows along k
}

// copier prepares to bring tiles of an operand, of that length along the outer dimension, to where
// base lies in each stage. What lies outside of the matrix becomes zero.
func (g *tensorBuilder) copier(how tensorLoad, o gemmOperand, outerStride, kStride, first, count ptx.Value, length, base int) *tensorCopier {
	b, bk, p := g.Builder, g.s.form.bk, o.p
	size, from := g.s.typ.Size(), how.memory(g.s.typ).Size()
	c := &tensorCopier{g: g, how: how, width: g.s.unit(how), p: p, outerLimit: count}
	rowLength, rows := length, bk
	if how.alongK {
		rowLength, rows = bk, length
	}
	threads := g.s.form.threads()
	perRow := rowLength / c.width
	c.rows, c.rowBytes, c.units = threads/perRow, rowLength*size, ceilDiv(rows*perRow, threads)
	if rows < c.rows {
		c.spare = rows * perRow
	}
	thread := b.ThreadID(0)
	row, column := thread.Div(num(perRow)), thread.Rem(num(perRow)).Mul(num(c.width))
	for i := range max(1, 8/c.rows) { // the swizzle repeats after 8 rows
		c.to = append(c.to, g.place(g.shared.At(num(base)), how.alongK, rowLength, row.Add(num(i*c.rows)), column))
	}
	rowStride, stride := kStride, outerStride
	if how.alongK {
		rowStride, stride = outerStride, kStride
	}
	for e := range c.width {
		outer, k := first.Add(row), column.Add(num(e))
		if !how.alongK {
			outer, k = first.Add(column.Add(num(e))), row
		}
		if g.s.odd && g.s.a.alongK {
			k = k.Sub(g.odd)
		}
		c.outer, c.k = append(c.outer, outer), append(c.k, k)
	}
	bytes := func(stride ptx.Value, n int) ptx.Value { return stride.MulWide(num(from * n)).Bitcast(ptx.U64) }
	c.rowStep, c.step, c.tileStep = bytes(rowStride, c.rows), bytes(stride, 1), bytes(kStride, bk)
	// The unit stride needs no multiplication.
	start := p
	for _, d := range []struct {
		at, stride ptx.Value
		unit       bool
	}{{c.outer[0], outerStride, how.vector > 1 && !how.alongK}, {c.k[0], kStride, how.vector > 1 && how.alongK}} {
		if d.unit {
			start = start.At(d.at.Bitcast(ptx.S32))
		} else {
			start = start.At(d.at.Bitcast(ptx.S32).MulWide(d.stride))
		}
	}
	c.at = b.Var(start.Address())
	return c
}

func (c *tensorCopier) async() bool { return !c.g.s.singly(c.how) }

// advance moves on to the next tile.
func (c *tensorCopier) advance() { c.at.Set(c.at.Get().Add(c.tileStep)) }

// fetch starts a part of the parts of a tile at k into the stage at a byte offset. What it returns
// puts into shared memory what goes there through registers, when it is called.
func (c *tensorCopier) fetch(part, parts int, k, stage ptx.Value) (store func()) {
	b, g, size := c.g.Builder, c.g, c.g.s.typ.Size()
	type unit struct {
		to   ptx.Ptr
		list []*ptx.Var
	}
	var units []unit
	address := c.at.Get()
	for i := range c.units {
		if i > 0 {
			address = address.Add(c.rowStep)
		}
		if i*parts/c.units != part {
			continue
		}
		place := func(e int) (outer, at ptx.Value) {
			outer, at = c.outer[e], k.Add(c.k[e])
			if c.how.alongK {
				return outer.Add(num(i * c.rows)), at
			}
			return outer, at.Add(num(i * c.rows))
		}
		inside := func(e int) ptx.Value {
			outer, at := place(e)
			limit := c.outerLimit
			if c.before {
				outer, limit = outer.Add(num(1)), limit.Add(num(1))
			}
			return outer.Lt(limit).And(at.Lt(g.k))
		}
		period := len(c.to)
		to := c.to[i%period].At(num(i / period * period * c.rows * c.rowBytes)).At(stage)
		if c.async() { // of what is outside nothing is read, whatever its address
			bytes := b.U32(uint32(size * c.width))
			if c.how.ragged {
				outer, at := place(0)
				left := c.outerLimit.Sub(outer)
				if c.how.alongK {
					left = g.k.Sub(at)
				}
				bytes = left.Mul(num(size)).Min(bytes)
			}
			copies := func() {
				to.CopyAsyncPartial(c.p.MovedTo(address), size*c.width, inside(0).Select(bytes, num(0)))
			}
			if c.first && g.s.odd && c.how.alongK {
				outer, at := place(0)
				b.IfElse(at.Eq(num(math.MaxUint32)), func() { // nothing and the row's first element
					lo := b.Bits(storage(g.s.typ), 0)
					hi := b.Var(lo)
					b.If(outer.Lt(c.outerLimit).And(g.k.Gt(num(0))), func() { hi.Set(c.p.MovedTo(address.Add(c.step)).Load()) })
					to.As(ptx.B32).Store(b.Join(ptx.B32, lo, hi.Get()))
				}, copies)
			} else if c.spare > 0 {
				b.If(b.ThreadID(0).Lt(num(c.spare)), copies)
			} else {
				copies()
			}
			continue
		}
		u, from := unit{to: to}, address
		for e := range c.width {
			v := b.Var(b.Bits(c.p.Elem(), 0))
			u.list = append(u.list, v)
			if c.wholeUnits() {
				continue
			}
			if e > 0 {
				from = from.Add(c.step)
			}
			b.If(inside(e), func() { v.Set(c.p.MovedTo(from).Load()) })
		}
		if c.wholeUnits() {
			b.If(inside(0), func() { set(u.list, c.p.MovedTo(address).LoadVec(c.width)) })
		}
		units = append(units, u)
	}
	return func() {
		for _, u := range units {
			var words []ptx.Value
			for e := 0; e < len(u.list); e += 2 {
				words = append(words, c.word(u.list[e].Get(), u.list[e+1].Get()))
			}
			if len(words) == 1 {
				u.to.As(ptx.B32).Store(words[0])
			} else {
				u.to.As(ptx.B32).StoreVec(words...)
			}
		}
	}
}

// wholeUnits reports whether what goes through registers is read a unit at a time.
func (c *tensorCopier) wholeUnits() bool {
	return c.how.wide && c.how.vector == c.width && !c.how.ragged
}

// word is two neighbours as they lie in shared memory.
func (c *tensorCopier) word(lo, hi ptx.Value) ptx.Value {
	if c.how.wide {
		return c.g.Pack2(storage(c.g.s.typ), lo, hi)
	}
	return c.g.Join(ptx.B32, lo, hi)
}
