package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// Tensor cores multiply float32 as tf32, which has the exponent of float32 and ten bits of
// mantissa. Tiles have as many bytes as tiles of 16-bit floats, and so half as many elements along
// k. Copies, stages and fragments are the same as for 16-bit floats. This file contains the code
// that is different.

// forType returns the form for factors of type t. For float32, a step has half as many indices of
// k.
func (f tensorForm) forType(t dtype.Type) tensorForm {
	f.bk = f.bk * 2 / t.Size()
	return f
}

// staged returns the size of a stage in bytes.
func (s tensorSpec) staged() int { return s.stagedA() + s.form.bn*s.form.bk*s.typ.Size() }

// stagedA returns the size of a's tile in a stage, in bytes. The tile of b follows it.
func (s tensorSpec) stagedA() int { return s.form.bm * s.form.bk * s.typ.Size() }

// steps returns the number of mma instructions along k for one stage. Each multiplies 32 bytes of a
// row.
func (s tensorSpec) steps() int { return s.form.bk * s.typ.Size() / 32 }

// unit returns the number of elements that a thread stores in one access, which has at least 4
// bytes.
func (s tensorSpec) unit(l tensorLoad) int { return max(l.vector, 4/s.typ.Size()) }

// singly reports whether an operand is copied through registers. This is the case if its accesses
// have fewer bytes than the smallest asynchronous copy, or if its elements are rounded when they
// are loaded.
func (s tensorSpec) singly(l tensorLoad) bool { return l.wide || l.vector*s.typ.Size() < 4 }

// memory returns the type that a factor has in memory, for products in type t.
func (l tensorLoad) memory(t dtype.Type) dtype.Type {
	if l.wide {
		return dtype.F32
	}
	return t
}

// tf32Slots returns how many more instructions a warp issues in a step of k than for 16-bit floats.
// These additional instructions round to tf32, and read single words.
func (s tensorSpec) tf32Slots() int {
	wm, wn := s.form.warp()
	n := wm/4 + wn/4
	for _, o := range []struct {
		load  tensorLoad
		outer int
	}{{s.a, wm}, {s.b, wn}} {
		if !o.load.alongK {
			n += 3 * o.outer / 16
		}
	}
	return s.steps() * n
}

// factors returns fragments as operands of an mma instruction. It rounds float32 to tf32, ties away
// from zero.
func (g *tensorBuilder) factors(f [][]*ptx.Var) [][]ptx.Value {
	list := make([][]ptx.Value, len(f))
	for i := range f {
		list[i] = get(f[i])
		if g.s.typ == dtype.F32 {
			for e, v := range list[i] {
				list[i][e] = v.Bitcast(ptx.F32).TF32()
			}
		}
	}
	return list
}

// place returns the pointer to an element of a tile. The argument length is the number of elements
// of a row. The rows lie along k if alongK is true, and along the outer dimension otherwise.
func (g *tensorBuilder) place(tile ptx.Ptr, alongK bool, length int, row, column ptx.Value) ptx.Ptr {
	size := g.s.typ.Size()
	each := 16 / size // number of elements in a 16-byte piece
	piece := column.Div(num(each))
	var start ptx.Value
	if g.s.typ == dtype.F32 && !alongK {
		start = row.Mul(num(4 * length)).Add(piece.Xor(turnedRows(length, row)).Shl(num(4)))
	} else {
		start = swizzle(length*size/2, row, piece)
	}
	return tile.At(start).At(column.Rem(num(each)).Mul(num(size)))
}

// turnedRows returns the swizzle of row k of a tile of 32-bit words. Piece p of the row is stored
// at index p xor the swizzle. Four rows, with eight words each, therefore use every bank once.
func turnedRows(length int, k ptx.Value) ptx.Value {
	if length < 32 { // two rows use all banks
		return k.And(num(2))
	}
	return k.And(num(3)).Shl(num(1))
}

// wordReader returns a function like [tensorBuilder.reader], for rows of 32-bit words along the
// outer dimension. The instruction ldmatrix cannot transpose words, so each lane reads its own
// words.
func (g *tensorBuilder) wordReader(length int, start ptx.Value, base int, operandB bool) func(stage ptx.Value, step, i int) []ptx.Value {
	outer, k := g.lane.Shr(num(2)), g.lane.And(num(3))
	return func(stage ptx.Value, step, i int) []ptx.Value {
		v := make([]ptx.Value, 4)
		// h is 0 for outer elements 0 to 7, and 1 for outer elements 8 to 15.
		for h := range 2 {
			// The swizzle exchanges pieces only within 32 elements. The same piece of the next 32
			// elements is therefore 128 bytes further.
			p := g.place(g.shared.At(num(base)), false, length, k, start.Add(outer).Add(num(i%2*16+h*8)))
			p = p.At(stage).At(num(i / 2 * 128))
			// q is 0 for k from 0 to 3, and 1 for k from 4 to 7.
			for q := range 2 {
				to := 2*q + h
				if operandB {
					to = 2*h + q
				}
				v[to] = p.At(num((step*8 + q*4) * length * 4)).As(ptx.B32).Load()
			}
		}
		return v
	}
}
