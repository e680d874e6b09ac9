package kernels

import (
	"math"

	"github.com/flambeau-go/flambeau/ptx"
)

// tensorCopier copies the tiles of one operand to the stages in shared memory, one after the other.
type tensorCopier struct {
	g   *tensorBuilder
	how tensorLoad
	// width is the number of elements that a thread stores in one access: a unit.
	width int
	units int // number of units that each thread copies in a tile
	// Threads with an index of at least spare have no unit in the last round. If all threads have
	// one, spare is 0.
	spare    int
	rows     int // number of rows of the tile that all threads together copy at a time
	rowBytes int
	// addresses of the thread's first units in the first stage, up to the unit after which the
	// swizzle repeats
	dst        []ptx.Ptr
	p          ptx.Ptr
	src        *ptx.Var    // address of this thread's first element of the next tile
	rowStep    ptx.Value   // distance in bytes between the units of a thread
	step       ptx.Value   // distance in bytes between the elements of a unit
	tileStep   ptx.Value   // distance in bytes between tiles
	outer      []ptx.Value // indices of the first unit's elements in the matrix, along outer
	k          []ptx.Value // indices of the first unit's elements in the tile, along k
	outerLimit ptx.Value
	oneBefore  bool // whether copies begin one element before each row
	firstTile  bool // whether fetch copies the first tile along k, in which the rows begin
}

// copier returns a copier for tiles of an operand. The argument length is the size of a tile along
// the outer dimension, and base is the tile's offset in a stage, in bytes. Elements outside of the
// matrix become zero.
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
		c.dst = append(c.dst, g.place(g.shared.At(num(base)), how.alongK, rowLength, row.Add(num(i*c.rows)), column))
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
	// The dimension with unit stride needs no multiplication.
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
	c.src = b.Var(start.Address())
	return c
}

func (c *tensorCopier) async() bool { return !c.g.s.singly(c.how) }

func (c *tensorCopier) advance() { c.src.Set(c.src.Get().Add(c.tileStep)) }

// fetch starts to copy one part of a tile into the stage at a byte offset. The tile begins at index
// k, and is copied in the given number of parts. Some elements go through registers. The caller
// must later call the returned function, which moves these elements into shared memory.
func (c *tensorCopier) fetch(part, parts int, k, stage ptx.Value) (store func()) {
	b, g, size := c.g.Builder, c.g, c.g.s.typ.Size()
	type unit struct {
		to   ptx.Ptr
		list []*ptx.Var
	}
	var units []unit
	address := c.src.Get()
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
			if c.oneBefore {
				outer, limit = outer.Add(num(1)), limit.Add(num(1))
			}
			return outer.Lt(limit).And(at.Lt(g.k))
		}
		period := len(c.dst)
		to := c.dst[i%period].At(num(i / period * period * c.rows * c.rowBytes)).At(stage)
		if c.async() { // a copy of 0 bytes reads nothing, whatever its address
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
			if c.firstTile && g.s.odd && c.how.alongK {
				outer, at := place(0)
				// This loads a zero instead of the element before the row.
				b.IfElse(at.Eq(num(math.MaxUint32)), func() {
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

// wholeUnits reports whether elements that go through registers are read a whole unit at a time.
func (c *tensorCopier) wholeUnits() bool {
	return c.how.wide && c.how.vector == c.width && !c.how.ragged
}

// word returns two neighbouring elements packed into a word for shared memory.
func (c *tensorCopier) word(lo, hi ptx.Value) ptx.Value {
	if c.how.wide {
		return c.g.Pack2(storage(c.g.s.typ), lo, hi)
	}
	return c.g.Join(ptx.B32, lo, hi)
}
