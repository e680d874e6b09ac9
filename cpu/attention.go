package cpu

import (
	"math"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/gemm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// attentionTask computes attention. Its units are distributed among the workers. A unit is a block
// of queries of one head, with all keys that these queries see. The blocks and the order of
// additions depend only on the shapes.
type attentionTask struct {
	attentionBlocks
	o *device.Attention
}

func (d *Device) attention(o *device.Attention) {
	if o.Q.Shape.Head(3).Size() == 0 || o.Out.Size() == 0 && o.LSE.Absent() {
		return
	}
	t := &attentionTask{newAttentionShape(&o.Weighing, &o.Q, &o.K), o}
	t.draw()
	rows := min(128, 1<<16/max(1, t.keys))
	if t.Causal { // a query in the first half sees at most half of the keys
		rows = min(rows, t.queries/2)
	}
	t.cut(max(16, rows))
	units := o.Q.Shape.At(0) * t.heads * t.blocks
	work := t.rows * t.keys * (t.features + o.V.Shape.At(3) + 16)
	d.workers.parallel(units, max(1, inlineWork/max(1, work), units/(16*d.workers.size())), t)
}

func (t *attentionTask) run(lo, hi int) {
	values := t.o.V.Shape.At(3)
	w := newAttentionWorker(t.rows, t.keys, t.features, values)
	defer w.release()
	for u := lo; u < hi; u++ {
		c := block{sample: u / t.blocks / t.heads, head: u / t.blocks % t.heads, firstQuery: u % t.blocks * t.rows}
		c.rows = min(t.rows, t.queries-c.firstQuery)
		c.cols = t.seenKeys(c.sample, c.firstQuery+c.rows)
		p, q := at[float32](data(w.space[0]), c.rows*c.cols), at[float32](data(w.queries[0]), c.rows*t.features)
		t.scaleQueries(w, q, c)
		t.scores(w, p, q, c)
		most, sums := at[float32](w.row(0), c.rows), at[float32](w.row(1), c.rows)
		if w.cols = c.cols; c.cols > 0 {
			x, space := w.matrix(ptr(p)), data(w.space[2])
			w.fold(device.Max, same, w.row(0), c.rows, space, x)
			w.compute(expLess, c.rows, x, x, w.each(w.row(0)))
			w.fold(device.Sum, same, w.row(1), c.rows, space, x)
			if t.Drop > 0 {
				m := at[float32](data(w.space[1]), c.rows*c.cols)
				t.dropFactors(w, m, c)
				w.compute(times, c.rows, x, x, w.matrix(ptr(m)))
			}
		}
		v := headRows(&t.o.V, c.sample, c.head/(t.heads/t.shared), 0, c.cols)
		out := headRows(&t.o.Out, c.sample, c.head, c.firstQuery, c.rows)
		os, oc := t.o.Out.Strides.At(2), t.o.Out.Strides.At(3)
		gemm.F32(gemm.Serial, c.rows, values, c.cols, p, c.cols, 1, v, t.o.V.Strides.At(2), t.o.V.Strides.At(3), out, os, oc, false)
		t.divide(w, c, out, sums, most)
		if !t.o.LSE.Absent() {
			t.logs(w, c, most)
		}
	}
}

// divide completes the result of each query of a block: it divides the weighted sum of values by
// the sum of weights. The result of a query that sees no key is zero.
func (t *attentionTask) divide(w *attentionWorker, c block, out, sums, most []float32) {
	values, row, col := t.o.Out.Shape.At(3), t.o.Out.Strides.At(2), t.o.Out.Strides.At(3)
	if values == 0 {
		return
	}
	if col == 1 && c.rows >= shortestRow {
		w.cols = values
		y := rowOperand{ptr(out), dtype.F32, 4 * row, 4}
		w.compute(quotient, c.rows, y, y, w.each(ptr(sums)))
		w.cols = c.cols
	} else {
		for i, sum := range sums {
			if col == 1 {
				y := ptr(out[i*row:])
				w.run(ops[expr.OpDiv][dtype.F32], y, y, uint64(math.Float32bits(sum)), values)
				continue
			}
			for j := range values {
				out[i*row+j*col] /= sum
			}
		}
	}
	for i, m := range most {
		if c.cols == 0 || m == float32(math.Inf(-1)) {
			zero(out[i*row:], 1, values, row, col)
		}
	}
}

// logs stores, for each query of a block, the logarithm of the sum of the exponentials of its
// scores.
func (t *attentionTask) logs(w *attentionWorker, c block, most []float32) {
	to := at[float32](unsafe.Add(pointer(&t.o.LSE), ((c.sample*t.heads+c.head)*t.queries+c.firstQuery)*4), c.rows)
	w.log.apply(w.rl, ptr(to), w.row(1), w.size, c.rows)
	for i, m := range most {
		if to[i] += m; c.cols == 0 || m == float32(math.Inf(-1)) {
			to[i] = float32(math.Inf(1))
		}
	}
}
