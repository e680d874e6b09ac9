package kernels

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/ptx"
)

// Tensor cores multiply float32 as tf32, which has its exponent and ten bits of mantissa. Tiles
// have the bytes of those of 16-bit floats, so half as many of k: copies, stages and fragments are
// the same. What differs is here.

// of is the form for factors of type t: a step of float32 has half as many of k.
func (f tensorForm) of(t dtype.Type) tensorForm {
	f.bk = f.bk * 2 / t.Size()
	return f
}

// staged is the bytes of a stage.
func (s tensorSpec) staged() int { return s.stagedA() + s.form.bn*s.form.bk*s.typ.Size() }

// stagedA is how many of them are a's tile, which lies before b's.
func (s tensorSpec) stagedA() int { return s.form.bm * s.form.bk * s.typ.Size() }

// steps is how many instructions along k a stage takes: each multiplies 32 bytes of a row.
func (s tensorSpec) steps() int { return s.form.bk * s.typ.Size() / 32 }

// unit is how many elements a thread stores at once: 4 bytes at least.
func (s tensorSpec) unit(l tensorLoad) int { return max(l.vector, 4/s.typ.Size()) }

// singly reports whether elements go through registers, as they are smaller than any asynchronous
// copy, or are rounded there.
func (s tensorSpec) singly(l tensorLoad) bool { return l.wide || l.vector*s.typ.Size() < 4 }

// memory is the type in memory of a factor that is multiplied in type t.
func (l tensorLoad) memory(t dtype.Type) dtype.Type {
	if l.wide {
		return dtype.F32
	}
	return t
}

// tf32Slots is how many more instructions than for 16-bit floats a warp issues in a step of k:
// what rounds, and what reads single words.
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

// factors are fragments as an instruction takes them: float32 rounded to tf32, ties away from zero.
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

// place is where in a tile an element of a row of that length lies.
func (g *tensorBuilder) place(tile ptx.Ptr, alongK bool, length int, row, column ptx.Value) ptx.Ptr {
	size := g.s.typ.Size()
	each := 16 / size // elements of a piece
	piece := column.Div(num(each))
	var start ptx.Value
	if g.s.typ == dtype.F32 && !alongK {
		start = row.Mul(num(4 * length)).Add(piece.Xor(turnedRows(length, row)).Shl(num(4)))
	} else {
		start = swizzle(length*size/2, row, piece)
	}
	return tile.At(start).At(column.Rem(num(each)).Mul(num(size)))
}

// turnedRows is by what the pieces of row k of words are exchanged: eight words of each of four
// rows then lie in all banks.
func turnedRows(length int, k ptx.Value) ptx.Value {
	if length < 32 { // two rows fill the banks
		return k.And(num(2))
	}
	return k.And(num(3)).Shl(num(1))
}

// wordReader is [tensorBuilder.reader] for rows of words along the outer dimension, which ldmatrix
// cannot transpose: each lane reads its own words.
func (g *tensorBuilder) wordReader(length int, first ptx.Value, base int, second bool) func(stage ptx.Value, step, i int) []ptx.Value {
	outer, k := g.lane.Shr(num(2)), g.lane.And(num(3))
	return func(stage ptx.Value, step, i int) []ptx.Value {
		v := make([]ptx.Value, 4)
		for h := range 2 { // rows from 8 on
			// Pieces are exchanged within eight: what is 32 elements on is so many bytes on.
			p := g.place(g.shared.At(num(base)), false, length, k, first.Add(outer).Add(num(i%2*16+h*8)))
			p = p.At(stage).At(num(i / 2 * 128))
			for q := range 2 { // k from 4 on
				to := 2*q + h
				if second {
					to = 2*h + q
				}
				v[to] = p.At(num((step*8 + q*4) * length * 4)).As(ptx.B32).Load()
			}
		}
		return v
	}
}
