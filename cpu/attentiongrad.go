package cpu

import (
	"math"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/gemm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// attentionGradTask computes the gradient of attention by blocks of queries and keys. The blocks of
// queries that use the same head of keys are divided into parts, which are distributed among the
// workers. A part computes the gradients of its queries, and a partial sum of the gradients of keys
// and values. If a head has several parts, these sums are kept in memory and added in order at the
// end. Blocks and parts depend only on the shapes.
type attentionGradTask struct {
	attentionBlocks
	o          *device.AttentionGrad
	values     int
	cols       int // number of keys in a block
	parts      int // number of parts for each head of keys
	sumK, sumV []float32
}

// These constants determine the sizes of blocks and parts. The three blocks of weights of a worker
// fit together into a second-level cache. There are enough parts for about gradUnits workers.
const (
	gradRows  = 64
	gradCols  = 512
	gradUnits = 32
)

func newAttentionGradTask(o *device.AttentionGrad) *attentionGradTask {
	t := &attentionGradTask{attentionBlocks: newAttentionShape(&o.Weighing, &o.Q, &o.K), o: o, values: o.V.Shape.At(3), parts: 1}
	t.cols = min(t.keys, gradCols)
	if pairs := o.K.Shape.Head(2).Size(); pairs > 0 && t.queries > 0 && (!o.DK.Absent() || !o.DV.Absent()) {
		t.cut(gradRows)
		t.parts = max(1, min(t.heads/t.shared*t.blocks, (gradUnits+pairs-1)/pairs))
	} else if t.queries > 0 {
		t.cut(gradRows)
	}
	return t
}

func (d *Device) attentionGrad(o *device.AttentionGrad) error {
	temps, err := temporaries(d, o)
	defer release(temps[:])
	if err != nil {
		return err
	}
	t := newAttentionGradTask(o)
	t.draw()
	for i, sum := range []*[]float32{&t.sumK, &t.sumV} {
		if v := &temps[i]; !v.Absent() && v.Size() > 0 {
			*sum = at[float32](pointer(v), v.Size())
		}
	}
	pairs := o.K.Shape.Head(2).Size()
	d.workers.parallel(pairs*t.parts, 1, t)
	if t.parts > 1 {
		const rows = 64
		pieces := (t.keys + rows - 1) / rows
		d.workers.parallel(pairs*pieces, max(1, inlineWork/max(1, t.parts*rows*(t.features+t.values))), each(func(u int) {
			pair, from := u/pieces, u%pieces*rows
			n := min(rows, t.keys-from)
			t.add(&o.DK, t.sumK, pair, from, n)
			t.add(&o.DV, t.sumV, pair, from, n)
		}))
	}
	return nil
}

// sums returns the memory in which a part sums the gradient d of keys or values, from key firstKey
// on. It also returns the strides. If a head has only one part, this is the memory of d itself.
func (t *attentionGradTask) sums(d *device.View, parts []float32, part, pair, firstKey, n int) (at []float32, row, col int) {
	if t.parts == 1 {
		return headRows(d, pair/t.shared, pair%t.shared, firstKey, n), d.Strides.At(2), d.Strides.At(3)
	}
	cols := d.Shape.At(3)
	from := part*d.Size() + (pair*t.keys+firstKey)*cols
	return parts[from : from+n*cols], cols, 1
}

// add stores n rows of the gradient d, from firstRow on. Each row is the sum of the rows that the
// parts have computed for it.
func (t *attentionGradTask) add(d *device.View, parts []float32, pair, firstRow, n int) {
	if d.Absent() || d.Size() == 0 {
		return
	}
	cols := d.Shape.At(3)
	sum, _, _ := t.sums(d, parts, 0, pair, firstRow, n)
	for p := 1; p < t.parts; p++ {
		x, _, _ := t.sums(d, parts, p, pair, firstRow, n)
		ops[expr.OpAdd][dtype.F32](ptr(sum), ptr(sum), ptr(x), ptr(x), n*cols)
	}
	out, row, col := headRows(d, pair/t.shared, pair%t.shared, firstRow, n), d.Strides.At(2), d.Strides.At(3)
	for i := range n {
		spread(ptr(out[i*row:]), ptr(sum[i*cols:]), 4, 4*col, cols)
	}
}

func (t *attentionGradTask) run(lo, hi int) {
	w := newAttentionWorker(max(1, t.rows), t.cols, t.features, t.values)
	defer w.release()
	group := t.heads / t.shared
	for u := lo; u < hi; u++ {
		pair, part := u/t.parts, u%t.parts
		for i, d := range []*device.View{&t.o.DK, &t.o.DV} {
			if !d.Absent() && d.Size() > 0 {
				x, row, col := t.sums(d, [][]float32{t.sumK, t.sumV}[i], part, pair, 0, t.keys)
				zero(x, t.keys, d.Shape.At(3), row, col)
			}
		}
		// Neighbouring blocks go to different parts. With Causal, a block near the beginning has
		// less work, so each part gets a mix of short and long blocks.
		for b := part; b < group*t.blocks; b += t.parts {
			c := block{sample: pair / t.shared, head: pair%t.shared*group + b/t.blocks, firstQuery: b % t.blocks * t.rows}
			c.rows = min(t.rows, t.queries-c.firstQuery)
			t.queryBlock(w, c, pair, part)
		}
	}
}

// zero sets a strided matrix to zeros.
func zero(x []float32, rows, cols, row, col int) {
	for i := range rows {
		if col == 1 {
			clear(x[i*row : i*row+cols])
			continue
		}
		for j := range cols {
			x[i*row+j*col] = 0
		}
	}
}

// queryBlock computes the gradients of a block of queries. It adds what the block contributes to
// the gradients of keys and values.
func (t *attentionGradTask) queryBlock(w *attentionWorker, c block, pair, part int) {
	q, dq := at[float32](data(w.queries[0]), c.rows*t.features), at[float32](data(w.queries[1]), c.rows*t.features)
	t.scaleQueries(w, q, c)
	g := headRows(&t.o.G, c.sample, c.head, c.firstQuery, c.rows)
	gs, gc := t.o.G.Strides.At(2), t.o.G.Strides.At(3)
	t.products(w, g, gs, gc, c)
	copy(at[float32](w.row(1), c.rows), at[float32](unsafe.Add(pointer(&t.o.LSE), ((c.sample*t.heads+c.head)*t.queries+c.firstQuery)*4), c.rows))
	clear(dq)
	end := t.seenKeys(c.sample, c.firstQuery+c.rows)
	for c.firstKey = 0; c.firstKey < end; c.firstKey += t.cols {
		c.cols = min(t.cols, end-c.firstKey)
		w.cols = c.cols
		n := c.rows * c.cols
		p, d, m := at[float32](data(w.space[0]), n), at[float32](data(w.space[1]), n), at[float32](data(w.space[2]), n)
		t.scores(w, p, q, c)
		weights, gradient, factors := w.matrix(ptr(p)), w.matrix(ptr(d)), w.matrix(ptr(m))
		w.compute(expLess, c.rows, weights, weights, w.each(w.row(1)))
		if t.Drop > 0 {
			t.dropFactors(w, m, c)
		}
		if scores := !t.o.DQ.Absent() || !t.o.DK.Absent(); scores {
			v := headRows(&t.o.V, pair/t.shared, pair%t.shared, c.firstKey, c.cols)
			gemm.F32(gemm.Serial, c.rows, c.cols, t.values, g, gs, gc, v, t.o.V.Strides.At(3), t.o.V.Strides.At(2), d, c.cols, 1, false)
			if t.Drop > 0 {
				w.compute(times, c.rows, gradient, gradient, factors)
			}
			w.compute(scaledLess, c.rows, gradient, gradient, w.each(w.row(0)), weights)
			if !t.o.DQ.Absent() {
				k := headRows(t.k, pair/t.shared, pair%t.shared, c.firstKey, c.cols)
				gemm.F32(gemm.Serial, c.rows, t.features, c.cols, d, c.cols, 1, k, t.k.Strides.At(2), t.k.Strides.At(3), dq, t.features, 1, true)
			}
			if !t.o.DK.Absent() {
				dk, row, col := t.sums(&t.o.DK, t.sumK, part, pair, c.firstKey, c.cols)
				gemm.F32(gemm.Serial, c.cols, t.features, c.rows, d, 1, c.cols, q, t.features, 1, dk, row, col, true)
			}
		}
		if !t.o.DV.Absent() {
			if t.Drop > 0 {
				w.compute(times, c.rows, weights, weights, factors)
			}
			dv, row, col := t.sums(&t.o.DV, t.sumV, part, pair, c.firstKey, c.cols)
			gemm.F32(gemm.Serial, c.cols, t.values, c.rows, p, 1, c.cols, g, gs, gc, dv, row, col, true)
		}
	}
	if t.o.DQ.Absent() || t.features == 0 {
		return
	}
	out, row, col := headRows(&t.o.DQ, c.sample, c.head, c.firstQuery, c.rows), t.o.DQ.Strides.At(2), t.o.DQ.Strides.At(3)
	if col == 1 && row == t.features {
		w.run(ops[expr.OpMul][dtype.F32], ptr(out), ptr(dq), uint64(math.Float32bits(float32(t.Scale))), len(dq))
		return
	}
	for i := range c.rows {
		for j, x := range dq[i*t.features : (i+1)*t.features] {
			out[i*row+j*col] = x * float32(t.Scale)
		}
	}
}

// products stores one number for each query of a block, in row 0 of w: the dot product of the
// query's result and g, the gradient of that result. This number equals Σ p·dp, where p are the
// attention weights of the query, and dp are the gradients of the weights.
func (t *attentionGradTask) products(w *attentionWorker, g []float32, gs, gc int, c block) {
	y := headRows(&t.o.Out, c.sample, c.head, c.firstQuery, c.rows)
	ys, yc := t.o.Out.Strides.At(2), t.o.Out.Strides.At(3)
	sums := at[float32](w.row(0), c.rows)
	// Compute four sums at a time. Each addition to a sum waits for the previous one; in the
	// meantime the processor adds to the other sums.
	for i := 0; i < c.rows; i += 4 {
		var sum [4]float64
		var at [4]int
		for k := range at {
			at[k] = min(i+k, c.rows-1)
		}
		if gc == 1 && yc == 1 && t.values > 0 {
			n := t.values
			g0, g1, g2, g3 := g[at[0]*gs:][:n], g[at[1]*gs:][:n], g[at[2]*gs:][:n], g[at[3]*gs:][:n]
			y0, y1, y2, y3 := y[at[0]*ys:][:n], y[at[1]*ys:][:n], y[at[2]*ys:][:n], y[at[3]*ys:][:n]
			var s0, s1, s2, s3 float64
			for j := range n {
				s0 += float64(g0[j]) * float64(y0[j])
				s1 += float64(g1[j]) * float64(y1[j])
				s2 += float64(g2[j]) * float64(y2[j])
				s3 += float64(g3[j]) * float64(y3[j])
			}
			sum = [4]float64{s0, s1, s2, s3}
		} else {
			for j := range t.values {
				for k, i := range at {
					sum[k] += float64(g[i*gs+j*gc]) * float64(y[i*ys+j*yc])
				}
			}
		}
		for k, i := range at {
			sums[i] = float32(sum[k])
		}
	}
}
