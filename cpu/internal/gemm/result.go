package gemm

import (
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/dtype"
)

// result says where the sums of a product go. If rounds is false, they are stored in c, or added to
// c if accumulate is true. If rounds is true, they are rounded to bfloat16 and stored in low. They
// then begin with the bias if accumulate is true.
type result[T float] struct {
	c          operand[T]
	accumulate bool
	rounds     bool
	low        operand[uint16]
	bias       operand[T]
}

func (r *result[T]) distances() (rs, cs int) {
	if r.rounds {
		return r.low.rs, r.low.cs
	}
	return r.c.rs, r.c.cs
}

func (r result[T]) transposed() result[T] {
	r.c, r.low, r.bias = r.c.transposed(), r.low.transposed(), r.bias.transposed()
	return r
}

// put stores the sum s as element (i, j) of the result.
func (r *result[T]) put(i, j int, s T) {
	at := i*r.c.rs + j*r.c.cs
	switch {
	case r.rounds:
		if r.accumulate {
			s += r.bias.data[i*r.bias.rs+j*r.bias.cs]
		}
		r.low.data[i*r.low.rs+j*r.low.cs] = uint16(dtype.ToBFloat16(float32(s)))
	case r.accumulate:
		r.c.data[at] += s
	default:
		r.c.data[at] = s
	}
}

// target is the memory in which the sums of a group are computed. Element (i, j) of the group is
// element (i-row, j-col) of that memory.
type target[T float] struct {
	operand[T]
	row, col int
}

func (t *target[T]) at(i, j int) int { return (i-t.row)*t.rs + (j-t.col)*t.cs }

// begin stores the bias as the first value of some sums: rows r0 to r1-1 and columns c0 to c1-1 of
// the group that begins at (m0, n0).
func (r *result[T]) begin(t *target[T], m0, n0, r0, r1, c0, c1 int) {
	for i := r0; i < r1; i++ {
		row := t.data[t.at(i, c0):][:c1-c0]
		from := r.bias.data[(m0+i)*r.bias.rs+(n0+c0)*r.bias.cs:]
		if r.bias.cs == 1 {
			copy(row, from)
			continue
		}
		// the product is transposed, so all elements of a row have the same bias
		for j := range row {
			row[j] = from[0]
		}
	}
}

// end rounds some sums and stores them in the result: rows r0 to r1-1 and columns c0 to c1-1 of the
// group that begins at (m0, n0).
func (r *result[T]) end(t *target[T], m0, n0, r0, r1, c0, c1 int) {
	for i := r0; i < r1; i++ {
		row := t.data[t.at(i, c0):][:c1-c0]
		to := r.low.data[(m0+i)*r.low.rs+(n0+c0)*r.low.cs:]
		if r.low.cs == 1 { // T is float32, because only float32 results are rounded
			asm.CvtF32ToBF16(to[:len(row)], unsafe.Slice((*float32)(unsafe.Pointer(&row[0])), len(row)))
			continue
		}
		for j, s := range row {
			to[j*r.low.cs] = uint16(dtype.ToBFloat16(float32(s)))
		}
	}
}
