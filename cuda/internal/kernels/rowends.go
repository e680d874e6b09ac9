package kernels

import (
	"fmt"
	"math/bits"

	"github.com/flambeau-go/flambeau/ptx"
)

// rowForm is how the columns of rows are accessed.
type rowForm struct {
	vector int  // neighbouring columns of an access
	odd    bool // a row begins anywhere: see rowEnds
}

func (f rowForm) String() string {
	if f.odd {
		return fmt.Sprintf("v%dodd", f.vector)
	}
	return fmt.Sprintf("v%d", f.vector)
}

// rowVectors returns how the rows of operands of one type can be read. Rows that begin anywhere are
// read in vectors where those of all operands begin as far from a multiple of 16 bytes.
func rowVectors(list ...Operand) rowForm {
	x, v := list[0], 16/list[0].Type.Size()
	if !unitColumns(list...) {
		return rowForm{vector: 1}
	}
	odd := x.Shape.At(1)%v != 0
	for _, o := range list {
		if o.start()%16 != x.start()%16 || o.Shape.At(0) > 1 && (o.Strides.At(0)-x.Strides.At(0))%v != 0 {
			return rowForm{vector: 1}
		}
		odd = odd || o.start()%16 != 0 || o.Shape.At(0) > 1 && o.Strides.At(0)%v != 0
	}
	if odd && x.Shape.At(1) < 32*v {
		return rowForm{vector: 1}
	}
	return rowForm{v, odd}
}

// rowEnds are the columns of an odd row that lie in no vector: those ahead of the first multiple of
// 32 bytes, so that a warp's vectors fill sectors, and those after the last vector. They are fewer
// than a warp's lanes, and a thread keeps the one that it has in registers.
type rowEnds struct {
	first  ptx.Value // column of the first vector
	column ptx.Value // of this thread
	inside ptx.Value // whether it has one
	kept   []*ptx.Var
	now    bool // what is written is for the ends: there is one column, and its index is its number
}

// access makes the kernel take the columns of x's row in form f.
func (w *rowWork) access(f rowForm, x rowOperand) {
	v := f.vector
	if v == 1 {
		return
	}
	w.vector, w.unroll = v, max(1, min(2, 8/v)) // a function of the values is there unroll·v times
	if !f.odd {
		w.columns = w.columns.Div(num(v))
		return
	}
	size := x.t.Size()
	first := w.U32(0).Sub(x.p.Address().Cvt(ptx.U32)).And(num(31)).Shr(num(bits.TrailingZeros(uint(size))))
	behind := w.columns.Sub(first) // there are more columns than these: see rowVectors
	w.columns = behind.Div(num(v))
	vectors := w.columns.Mul(num(v))
	w.ends = &rowEnds{
		first:  first,
		column: w.lane.Lt(first).Select(w.lane, w.lane.Add(vectors)),
		inside: w.lane.Lt(first.Add(behind).Sub(vectors)),
	}
}

// atEnds runs f for the column that a thread has at an end of the row.
func (w *rowWork) atEnds(f func(i ptx.Value)) {
	if w.ends == nil {
		return
	}
	v := w.vector
	w.vector, w.ends.now = 1, true
	w.If(w.ends.inside, func() { f(w.ends.column) })
	w.vector, w.ends.now = v, false
}

// first is the number of the first column of vector i.
func (w *rowWork) first(i ptx.Value) ptx.Value {
	switch {
	case w.ends == nil:
		return i.Mul(num(w.vector))
	case w.ends.now:
		return i
	}
	return i.Mad(num(w.vector), w.ends.first)
}
