package cpu

import (
	"math"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/gemm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// attentionTask is attention by blocks of queries: their weights stay in the cache between the two products. A unit is a block of a head; blocks
// follow from the shapes alone, and so do the sums.
type attentionTask struct {
	*device.Attention
	scale        float32
	rows, blocks int // of queries in a block, and of blocks in a head
}

func (d *Device) attention(o *device.Attention) {
	if o.Out.Size() == 0 {
		return
	}
	queries, keys := o.Q.Shape.At(2), o.K.Shape.At(2)
	t := &attentionTask{Attention: o, scale: float32(o.Scale)}
	t.rows = min(queries, max(16, min(128, 1<<16/max(1, keys))))
	t.blocks = (queries + t.rows - 1) / t.rows
	units := o.Q.Shape.At(0) * o.Q.Shape.At(1) * t.blocks
	work := t.rows * keys * (o.Q.Shape.At(3) + o.V.Shape.At(3) + 16)
	d.crew.parallel(units, max(1, inlineWork/max(1, work), units/(16*d.crew.size())), t)
}

func (t *attentionTask) run(lo, hi int) {
	heads, features, values := t.Q.Shape.At(1), t.Q.Shape.At(3), t.V.Shape.At(3)
	w := newRowWorker(dtype.F32, max(t.K.Shape.At(2), features, 1), t.rows)
	defer w.release()
	scale := uint64(math.Float32bits(t.scale))
	for u := lo; u < hi; u++ {
		sample, head, from := u/t.blocks/heads, u/t.blocks%heads, u%t.blocks*t.rows
		rows, cols := min(t.rows, t.Q.Shape.At(2)-from), t.K.Shape.At(2)
		if t.Causal {
			cols = min(cols, from+rows)
		}
		shared := head / (heads / t.K.Shape.At(1))
		q := t.matrix(&t.Q, sample, head, from, rows)
		k, v := t.matrix(&t.K, sample, shared, 0, cols), t.matrix(&t.V, sample, shared, 0, cols)
		out := t.matrix(&t.Out, sample, head, from, rows)
		scaled := at[float32](data(w.space[1]), rows*features)
		qs, qc := t.Q.Strides.At(2), t.Q.Strides.At(3)
		for i := 0; i < rows && features > 0; i++ {
			row := scaled[i*features : (i+1)*features]
			if qc == 1 {
				w.run(ops[expr.OpMul][dtype.F32], ptr(row), ptr(q[i*qs:]), scale, features)
				continue
			}
			for j := range row {
				row[j] = q[i*qs+j*qc] * t.scale
			}
		}
		p := at[float32](data(w.space[0]), rows*cols)
		gemm.F32(gemm.Serial, rows, cols, features, scaled, features, 1, k, t.K.Strides.At(3), t.K.Strides.At(2), p, cols, 1, false)
		if t.Causal {
			for i := range rows {
				for j := from + i + 1; j < cols; j++ { // set, not added: a product of NaN with a key that is not seen does not show
					p[i*cols+j] = float32(math.Inf(-1))
				}
			}
		}
		most, sums := at[float32](w.row(0), rows), at[float32](w.row(1), rows)
		if w.cols = cols; cols > 0 {
			x := ptr(p)
			w.fold(device.Max, w.row(0), x, rows)
			w.each(expr.OpSub, x, x, w.row(0), rows)
			w.exp.apply(w.re, x, x, w.size, rows*cols)
			w.fold(device.Sum, w.row(1), x, rows)
		}
		os, oc := t.Out.Strides.At(2), t.Out.Strides.At(3)
		gemm.F32(gemm.Serial, rows, values, cols, p, cols, 1, v, t.V.Strides.At(2), t.V.Strides.At(3), out, os, oc, false)
		for i := range rows {
			sum, nothing := sums[i], cols == 0 || most[i] == float32(math.Inf(-1))
			if oc == 1 && !nothing {
				row := ptr(out[i*os:])
				w.run(ops[expr.OpDiv][dtype.F32], row, row, uint64(math.Float32bits(sum)), values)
				continue
			}
			for j := range values {
				o := &out[i*os+j*oc]
				if nothing {
					*o = 0
				} else {
					*o /= sum
				}
			}
		}
	}
}

func ptr(x []float32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(x)) }

// matrix is what rows from from on of a sample's head span.
func (t *attentionTask) matrix(v *device.View, sample, head, from, rows int) []float32 {
	if rows == 0 || v.Shape.At(3) == 0 {
		return nil
	}
	at0 := unsafe.Add(pointer(v), (sample*v.Strides.At(0)+head*v.Strides.At(1)+from*v.Strides.At(2))*4)
	return at[float32](at0, (rows-1)*v.Strides.At(2)+(v.Shape.At(3)-1)*v.Strides.At(3)+1)
}
