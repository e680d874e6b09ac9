package kernels

import (
	"fmt"
	"math/bits"

	"github.com/flambeau-go/flambeau/ptx"
)

// rowForm says how a kernel accesses the columns of rows.
type rowForm struct {
	vector int  // number of neighbouring columns in one access
	odd    bool // whether rows may be misaligned, so that columns at their ends belong to no vector
}

func (f rowForm) String() string {
	if f.odd {
		return fmt.Sprintf("v%dodd", f.vector)
	}
	return fmt.Sprintf("v%d", f.vector)
}

// rowVectors returns how the rows of operands of one type can be read. Misaligned rows can be read
// in vectors if corresponding rows of all operands have the same distance from a multiple of 16
// bytes.
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

// rowEnds describes the columns of a misaligned row that belong to no vector. Vectors begin at the
// first multiple of 32 bytes, so that a warp's vectors fill whole sectors. Some of the remaining
// columns lie before the first vector, and the others after the last vector. Together they are
// fewer than the lanes of a warp. Each thread keeps at most one of these columns, in a register.
type rowEnds struct {
	start     ptx.Value // first column of the first vector
	column    ptx.Value // index of the end column that this thread handles
	hasColumn ptx.Value // whether this thread handles an end column
	kept      []*ptx.Var
	// writing says whether code for the ends of a row is being emitted. In that code, indices
	// count columns.
	writing bool
}

// access makes the kernel read the columns of x in the form f. The pointer of x is at the start of
// the row.
func (w *rowWork) access(f rowForm, x rowOperand) {
	v := f.vector
	if v == 1 {
		return
	}
	// The loop's code for one column is emitted unroll·v times, so wide vectors are unrolled less
	// often.
	w.vector, w.unroll = v, max(1, min(2, 8/v))
	if !f.odd {
		w.columns = w.columns.Div(num(v))
		return
	}
	size := x.t.Size()
	first := w.U32(0).Sub(x.p.Address().Cvt(ptx.U32)).And(num(31)).Shr(num(bits.TrailingZeros(uint(size))))
	// not negative, because the columns of a misaligned row with fewer than 32 vectors are read one
	// by one
	behind := w.columns.Sub(first)
	w.columns = behind.Div(num(v))
	vectors := w.columns.Mul(num(v))
	w.ends = &rowEnds{
		start:     first,
		column:    w.lane.Lt(first).Select(w.lane, w.lane.Add(vectors)),
		hasColumn: w.lane.Lt(first.Add(behind).Sub(vectors)),
	}
}

// atEnds runs f for the end column that this thread handles, if there is one.
func (w *rowWork) atEnds(f func(i ptx.Value)) {
	if w.ends == nil {
		return
	}
	v := w.vector
	w.vector, w.ends.writing = 1, true
	w.If(w.ends.hasColumn, func() { f(w.ends.column) })
	w.vector, w.ends.writing = v, false
}

// firstColumn returns the index of the first column of vector i.
func (w *rowWork) firstColumn(i ptx.Value) ptx.Value {
	switch {
	case w.ends == nil:
		return i.Mul(num(w.vector))
	case w.ends.writing:
		return i
	}
	return i.Mad(num(w.vector), w.ends.start)
}
