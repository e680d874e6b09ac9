package kernels

import (
	"math/bits"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
	"github.com/flambeau-go/flambeau/shape"
)

// headTile is a tile of rows in shared memory. A row is one token of a head, with its number of
// elements rounded up to a multiple of 16. The order of the 16-byte pieces of a row differs from
// row to row (swizzling). So piece i of eight neighbouring rows lies in eight different groups of
// banks. Copies and ldmatrix therefore have no bank conflicts.
type headTile struct {
	// width is the number of elements of a row.
	rows, width int
	size        int // bytes of an element: 2 or 4
}

// headTileOf returns a tile with room for the given numbers of rows and columns.
func headTileOf(rows, columns int, t dtype.Type) headTile {
	return headTile{rows, max(16, ceilDiv(columns, 16)*16), t.Size()}
}

func (t headTile) rowBytes() int { return t.width * t.size }
func (t headTile) bytes() int    { return t.rows * t.rowBytes() }
func (t headTile) pieces() int   { return t.rowBytes() / 16 }

// swap returns the number of pieces in a group of neighbouring 16-byte pieces of a row. The swizzle
// exchanges pieces within a group. The number is a power of two.
func (t headTile) swap() int { return min(8, t.pieces()&-t.pieces()) }

// offset returns the byte offset of a 16-byte piece of a row in the tile.
func (t headTile) offset(row, piece ptx.Value) ptx.Value {
	n := t.swap()
	turn := row.Shr(num(bits.TrailingZeros(uint(8 / n)))).And(num(n - 1))
	return row.Mul(num(t.rowBytes())).Add(piece.Xor(turn).Shl(num(4)))
}

// fragments returns a function that reads operands of [ptx.Builder.MMA] with ldmatrix from the tile
// of 16-bit elements at p. An operand has 16 outer elements by 16 elements of k. The argument step
// is the operand's index along k, and i is its index along the outer dimension. If alongK is true,
// the tile's rows are the outer dimension, its columns are k, and the argument start is a row.
// Otherwise the rows are k, the columns are the outer dimension, and the argument start is a
// column.
//
// For the first operand of MMA the four registers are the matrices (outer, k) = (0,0), (8,0),
// (0,8), (8,8). For the second operand (operandB is true) they are (0,0), (0,8), (8,0), (8,8),
// which are two fragments.
func (t headTile) fragments(b *ptx.Builder, alongK bool, start ptx.Value, operandB bool) func(p ptx.Ptr, step, i int) []ptx.Value {
	lane := b.LaneID()
	outerBit, kBit := lane.Shr(num(3)).And(num(1)), lane.Shr(num(4))
	if operandB {
		outerBit, kBit = kBit, outerBit
	}
	r := lane.And(num(7))
	// The swizzle only exchanges pieces within a group. The offset of a group is a constant, which
	// costs no instruction.
	columns := func(i int) (within, bytes int) {
		return 2 * i % t.swap(), 2 * i / t.swap() * t.swap() * 16
	}
	return func(p ptx.Ptr, step, i int) []ptx.Value {
		if alongK {
			row := start.Add(outerBit.Mad(num(8), r))
			c, bytes := columns(step)
			return p.AtByte(t.offset(row, kBit.Or(num(c)))).AtByte(num(i*16*t.rowBytes()+bytes)).LoadMatrix(4, false)
		}
		c, bytes := columns(i)
		piece := start.Shr(num(3)).Add(outerBit).Add(num(c))
		return p.AtByte(t.offset(kBit.Mad(num(8), r), piece)).AtByte(num(step*16*t.rowBytes()+bytes)).LoadMatrix(4, true)
	}
}

// rowVector returns how many neighbouring elements of a row one access can always move. The
// elements fill 16, 8 or 4 bytes, unless the result is 1. The operand has rank 4, and its rows lie
// along the last dimension.
func rowVector(o Operand) int {
	for v := 16 / o.Type.Size(); v > 1 && o.Strides.At(3) == 1; v /= 2 {
		whole := o.Shape.At(3)%v == 0 && o.start()%uint64(v*o.Type.Size()) == 0
		for d := range 3 {
			// Kernels compute addresses beyond the last row too, so the row stride matters even for
			// a single row.
			whole = whole && (o.Strides.At(d)%v == 0 || d < 2 && o.Shape.At(d) <= 1)
		}
		if whole {
			return v
		}
	}
	return 1
}

// unitRows reports whether the last dimension of a rank-4 operand has stride 1 or size at most 1.
func unitRows(o Operand) bool { return o.Strides.At(3) == 1 || o.Shape.At(3) <= 1 }

// headRows describes the rows of an operand [batch, heads, length, columns] to a kernel.
type headRows struct {
	typ     dtype.Type
	columns int  // number of columns of the operand; a tile may have more
	vector  int  // number of neighbouring elements that one access moves
	unit    bool // whether the stride of the columns is 1
}

func headRowsOf(o Operand) headRows {
	return headRows{o.Type, o.Shape.At(3), rowVector(o), unitRows(o)}
}

// headOperand holds the kernel parameters of an operand [batch, heads, length, columns].
type headOperand struct {
	headRows
	p ptx.Ptr
	// batch, head, row and column are strides in elements.
	batch, head ptx.Value
	row, column ptx.Value
}

// declareHeads declares the parameters of an operand, in the order in which packHeads packs them.
func declareHeads(b *ptx.Builder, name string, h headRows) headOperand {
	o := headOperand{headRows: h, p: b.Pointer(name, storage(h.typ))}
	o.batch, o.head = b.Param(name+"b", ptx.S64), b.Param(name+"h", ptx.S64)
	o.row, o.column = b.Param(name+"r", ptx.S32), b.Param(name+"c", ptx.S32)
	return o
}

func (p *packer) packHeads(o Operand) {
	p.u64(o.start())
	p.u64(uint64(o.Strides.At(0)))
	p.u64(uint64(o.Strides.At(1)))
	p.u32(uint32(o.Strides.At(2)))
	p.u32(uint32(o.Strides.At(3)))
}

// packable reports whether the strides of rows and columns, and the indices of a head's elements,
// fit the 32-bit parameters of packHeads.
func packable(l shape.Layout) bool {
	const most = 1<<31 - 1
	for d := 2; d < 4; d++ {
		if s := l.Strides.At(d); l.Shape.At(d) > most>>2 || s > most || s < -most {
			return false
		}
	}
	return true
}

// atHead returns the operand with its pointer moved to one head of one sample.
func (o headOperand) atHead(batch, head ptx.Value) headOperand {
	o.p = o.p.At(o.batch.Mul(batch.Cvt(ptx.S64))).At(o.head.Mul(head.Cvt(ptx.S64)))
	return o
}

// line returns the pointer to the first element of a row.
func (o headOperand) line(row ptx.Value) ptx.Ptr { return o.p.At(row.Bitcast(ptx.S32).MulWide(o.row)) }

// element returns the pointer to an element of the row that begins at line.
func (o headOperand) element(line ptx.Ptr, column ptx.Value) ptx.Ptr {
	if o.unit {
		return line.At(column)
	}
	return line.At(column.Bitcast(ptx.S32).MulWide(o.column))
}

// headMover moves tiles between an operand's rows and shared memory, with all threads of a block.
type headMover struct {
	b       *ptx.Builder
	t       headTile
	o       headOperand
	threads int
	// line returns the pointer to a row of the operand, which must exist.
	line func(row ptx.Value) ptx.Ptr

	across     int // number of threads that move one row together
	down       int // number of rows that all threads together move at once
	row, piece ptx.Value
}

// mover returns a headMover for tiles of o, whose pointer must be at a head ([headOperand.atHead]).
func (t headTile) mover(b *ptx.Builder, o headOperand, threads int) *headMover {
	across := min(32, t.pieces()&-t.pieces())
	m := &headMover{b: b, t: t, o: o, threads: threads, line: o.line, across: across, down: threads / across}
	m.row, m.piece = b.ThreadID(0).Div(num(across)), b.ThreadID(0).Rem(num(across))
	return m
}

// forEach calls f for each 16-byte piece of the tile that this thread moves. The piece begins at
// column column+constant. Its first byte in shared memory is at offset+plus. The function newRow
// runs before the pieces of each row.
func (m *headMover) forEach(newRow func(row ptx.Value), f func(column ptx.Value, constant int, offset ptx.Value, plus int)) {
	all := func() {
		period := max(1, 8/m.down)
		for i := range max(1, m.t.rows/m.down) {
			row := m.row.Add(num(i * m.down))
			newRow(row)
			offset := m.t.offset(m.row.Add(num(i%period*m.down)), m.piece)
			for k := range m.t.pieces() / m.across {
				per := 16 / m.t.size
				f(m.piece.Mul(num(per)), k*m.across*per, offset, i/period*period*m.down*m.t.rowBytes()+k*m.across*16)
			}
		}
	}
	if m.down > m.t.rows { // threads beyond the tile's rows have nothing to do
		m.b.If(m.row.Lt(num(m.t.rows)), all)
		return
	}
	all()
}

// load starts to copy rows of the operand into the tile at p. The first of these rows has the index
// start, and limit is the end of the operand's rows. Elements beyond the rows and columns are not
// read, and the tile gets zeros. The copies are asynchronous, except for 16-bit elements that are
// moved one by one. To wait for all copies, a caller waits for the group of asynchronous copies and
// then at a barrier.
func (m *headMover) load(start, limit ptx.Value, p ptx.Ptr) {
	b, per := m.b, 16/m.t.size
	var there ptx.Value
	var line ptx.Ptr
	m.forEach(func(row ptx.Value) {
		offset := start.Add(row)
		there, line = offset.Lt(limit), m.line(offset)
	}, func(column ptx.Value, constant int, offset ptx.Value, plus int) {
		dst := p.AtByte(offset).AtByte(num(plus))
		inside := func(e int) ptx.Value {
			if constant+(m.across-1)*per+e < m.o.columns {
				return there
			}
			return there.And(column.Add(num(constant + e)).Lt(num(m.o.columns)))
		}
		v := m.o.vector
		if m.t.size*v < 4 {
			m.single(line, column, constant, inside, dst)
			return
		}
		for e := 0; e < per; e += v {
			from := m.o.element(line, column.Add(num(constant+e)))
			dst.AtByte(num(e*m.t.size)).CopyAsyncPartial(from, v*m.t.size, inside(e).Select(b.U32(uint32(v*m.t.size)), num(0)))
		}
	})
}

// single copies eight 16-bit elements one by one through registers.
func (m *headMover) single(line ptx.Ptr, column ptx.Value, constant int, inside func(e int) ptx.Value, to ptx.Ptr) {
	b, t := m.b, storage(m.o.typ)
	var elements []*ptx.Var
	for e := range 8 {
		x := b.Var(b.Bits(t, 0))
		b.If(inside(e), func() { x.Set(m.o.element(line, column.Add(num(constant+e))).Load()) })
		elements = append(elements, x)
	}
	words := make([]ptx.Value, 4)
	for k := range words {
		words[k] = b.Join(ptx.B32, elements[2*k].Get(), elements[2*k+1].Get())
	}
	to.As(ptx.B32).StoreVec(words...)
}

// store writes the tile at p to rows of the operand. The first of these rows has the index start.
// Rows from index limit on are not written.
func (m *headMover) store(start, limit ptx.Value, p ptx.Ptr) {
	b, per := m.b, 16/m.t.size
	var there ptx.Value
	var line ptx.Ptr
	m.forEach(func(row ptx.Value) {
		offset := start.Add(row)
		there, line = offset.Lt(limit), m.line(offset)
	}, func(column ptx.Value, constant int, offset ptx.Value, plus int) {
		src := p.AtByte(offset).AtByte(num(plus))
		v := m.o.vector
		for e := 0; e < per; e += v {
			if constant+e >= m.o.columns {
				break
			}
			c := column.Add(num(constant + e))
			b.If(there.And(c.Lt(num(m.o.columns))), func() {
				dst, x := m.o.element(line, c), src.AtByte(num(e*m.t.size))
				if bytes := v * m.t.size; bytes > 4 {
					dst.As(ptx.B32).StoreVec(x.As(ptx.B32).LoadVec(bytes / 4)...)
				} else if bytes == 4 {
					dst.As(ptx.B32).Store(x.As(ptx.B32).Load())
				} else {
					dst.Store(x.As(storage(m.o.typ)).Load())
				}
			})
		}
	})
}
