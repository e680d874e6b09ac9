package cpu

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// rowTask is a fused row operation. Groups of rows are divided among the workers.
type rowTask struct {
	f     func(w *rowWorker, lo, n int)
	t     dtype.Type
	rows  int
	cols  int
	group int
}

func (r *rowTask) run(lo, hi int) {
	w := newRowWorker(r.t, r.cols, r.group)
	for g := lo; g < hi; g++ {
		at := g * w.group
		r.f(w, at, min(w.group, r.rows-at))
	}
	w.release()
}

// byRows calls f for groups of rows of x, in parallel.
func (d *Device) byRows(x *device.View, f func(w *rowWorker, lo, n int)) {
	rows, cols := x.Shape.At(0), x.Shape.At(1)
	if rows == 0 || cols == 0 {
		return
	}
	g := groupRows(x)
	groups := (rows + g - 1) / g
	d.workers.parallel(groups, max(1, groups/(8*d.workers.size())), &rowTask{f, x.Type.Compute(), rows, cols, g})
}

// softmax computes e^(x-m)/Σe^(x-m), or its logarithm (x-m) - log Σe^(x-m), where m is the row's
// maximum.
func (d *Device) softmax(o *device.Softmax) {
	d.byRows(&o.X, func(w *rowWorker, lo, n int) {
		x, out, space := w.operand(&o.X, lo, n, 0), w.output(&o.Out, lo, 1), data(w.space[2])
		most, sum := w.each(w.row(0)), w.each(w.row(1))
		w.fold(device.Max, same, most.p, n, space, x)
		if o.Log {
			w.fold(device.Sum, expLess, sum.p, n, space, x, most)
			w.log.apply(w.rl, w.row(2), sum.p, w.size, n)
			w.compute(lessTwice, n, out, x, most, w.each(w.row(2)))
		} else {
			e := w.matrix(w.target(&o.Out, lo, n, 1))
			w.compute(expLess, n, e, x, most)
			w.fold(device.Sum, same, sum.p, n, space, e)
			w.compute(quotient, n, out, e, sum)
		}
		w.store(&o.Out, lo, n, out.p)
	})
}

// softmaxGrad computes (g - Σg·y)·y. If Log is set, it computes g - e^y·Σg.
func (d *Device) softmaxGrad(o *device.SoftmaxGrad) {
	d.byRows(&o.Y, func(w *rowWorker, lo, n int) {
		y, g, out := w.operand(&o.Y, lo, n, 0), w.operand(&o.G, lo, n, 1), w.output(&o.DX, lo, 2)
		sum, space := w.each(w.row(0)), data(w.space[2])
		if o.Log {
			w.fold(device.Sum, same, sum.p, n, space, g)
			w.compute(lessScaled, n, out, g, y, sum)
		} else {
			w.fold(device.Sum, times, sum.p, n, space, g, y)
			w.compute(scaledLess, n, out, g, sum, y)
		}
		w.store(&o.DX, lo, n, out.p)
	})
}
