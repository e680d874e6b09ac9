package cpu

import (
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

var (
	_ device.Softmaxer      = (*Device)(nil)
	_ device.CrossEntropyer = (*Device)(nil)
)

// rowTask is a fused row operation; a unit is a group of rows.
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

// byRows runs f on groups of rows of x.
func (d *Device) byRows(x *device.View, f func(w *rowWorker, lo, n int)) {
	rows, cols := x.Shape.At(0), x.Shape.At(1)
	if rows == 0 || cols == 0 {
		return
	}
	g := groupRows(x)
	groups := (rows + g - 1) / g
	d.crew.parallel(groups, max(1, groups/(8*d.crew.size)), &rowTask{f, x.Type.Compute(), rows, cols, g})
}

// Softmax sets out to softmax(x), or its logarithm, row by row: e^(x-m)/Σe^(x-m), or (x-m) - log Σe^(x-m), with m the row's
// maximum.
func (d *Device) Softmax(s device.Stream, out, x device.View, log bool) error {
	if err := d.checkRows("softmax", "out x", &out, &x); err != nil {
		return err
	}
	if t := device.Tracing(); t != nil && s != nil {
		defer d.traced(t, s, "softmax", device.SoftmaxWork(out, x), out.Type, t.Wants().ShapesOf([]device.View{out, x})).done()
	}
	d.byRows(&x, func(w *rowWorker, lo, n int) {
		src := w.load(&x, lo, n, 0)
		y := w.target(&out, lo, n, 1)
		w.fold(device.Max, w.row(0), src, n)
		w.each(expr.OpSub, y, src, w.row(0), n)
		if log {
			e := data(w.space[2])
			w.exp.apply(w.re, e, y, w.size, n*w.cols)
			w.fold(device.Sum, w.row(1), e, n)
			w.log.apply(w.rl, w.row(2), w.row(1), w.size, n)
			w.each(expr.OpSub, y, y, w.row(2), n)
		} else {
			w.exp.apply(w.re, y, y, w.size, n*w.cols)
			w.fold(device.Sum, w.row(1), y, n)
			w.each(expr.OpDiv, y, y, w.row(1), n)
		}
		w.store(&out, lo, n, y)
	})
	return nil
}

// SoftmaxGrad sets dx from the result y and its gradient g: (g - Σg·y)·y, or of the logarithm g - e^y·Σg.
func (d *Device) SoftmaxGrad(s device.Stream, dx, y, g device.View, log bool) error {
	if err := d.checkRows("softmax gradient", "dx y g", &dx, &y, &g); err != nil {
		return err
	}
	if t := device.Tracing(); t != nil && s != nil {
		defer d.traced(t, s, "softmax gradient", device.SoftmaxGradWork(dx, y, g, log), dx.Type, t.Wants().ShapesOf([]device.View{dx, y, g})).done()
	}
	d.byRows(&y, func(w *rowWorker, lo, n int) {
		fy, fg := w.load(&y, lo, n, 0), w.load(&g, lo, n, 1)
		tmp := data(w.space[2])
		if log {
			w.fold(device.Sum, w.row(0), fg, n)
			w.exp.apply(w.re, tmp, fy, w.size, n*w.cols)
			w.each(expr.OpMul, tmp, tmp, w.row(0), n)
			w.both(expr.OpSub, tmp, fg, tmp, n)
		} else {
			w.both(expr.OpMul, tmp, fg, fy, n)
			w.fold(device.Sum, w.row(0), tmp, n)
			w.each(expr.OpSub, tmp, fg, w.row(0), n)
			w.both(expr.OpMul, tmp, tmp, fy, n)
		}
		w.store(&dx, lo, n, tmp)
	})
	return nil
}

// CrossEntropy sets loss[i] = -log softmax(x)[i, target[i]], top[i] and rest[i]; see [device.CrossEntropyer]. A target outside the
// classes that is not ignore is reported at once; its loss is 0.
func (d *Device) CrossEntropy(s device.Stream, loss, top, rest, x, target device.View, ignore int64, tag uint32) error {
	const op = "cross-entropy"
	if err := d.checkIn(op, "x", &x); err != nil {
		return err
	}
	if x.Shape.Rank() != 2 || !x.Type.IsFloat() {
		return &ViewError{op, "x", "want [rows, classes] of a float type"}
	}
	rows, cols, t := x.Shape.At(0), x.Shape.At(1), x.Type.Compute()
	if err := d.checkColumn(op, "target", &target, dtype.I64, rows, false); err != nil {
		return err
	}
	if err := d.checkColumn(op, "loss", &loss, t, rows, true); err != nil {
		return err
	}
	if err := d.checkColumn(op, "top", &top, t, rows, true); err != nil {
		return err
	}
	if err := d.checkColumn(op, "rest", &rest, t, rows, true); err != nil {
		return err
	}
	if cols == 0 && rows > 0 {
		return &ViewError{op, "x", "no classes"}
	}
	if tr := device.Tracing(); tr != nil && s != nil {
		defer d.traced(tr, s, op, device.CrossEntropyWork(loss, top, rest, x, target), x.Type, tr.Wants().ShapesOf([]device.View{loss, x, target})).done()
	}
	var bad atomic.Int64
	bad.Store(int64(rows))
	d.byRows(&x, func(w *rowWorker, lo, n int) {
		src := w.load(&x, lo, n, 0)
		e := data(w.space[1])
		most, sum, logs, total := w.row(0), w.row(1), w.row(2), w.row(3)
		w.fold(device.Max, most, src, n)
		w.each(expr.OpSub, e, src, most, n)
		// What the targets name, before e is overwritten: x - m.
		for i := range n {
			c := *(*int64)(element(&target, lo+i))
			o := i * w.size
			switch {
			case uint64(c) < uint64(cols):
				writeBits(unsafe.Add(total, o), w.size, readBits(unsafe.Add(e, (i*cols+int(c))*w.size), w.size))
			case c != ignore:
				lower(&bad, int64(lo+i))
			}
		}
		w.exp.apply(w.re, e, e, w.size, n*cols)
		w.fold(device.Sum, sum, e, n)
		w.log.apply(w.rl, logs, sum, w.size, n)
		ops[expr.OpSub][w.t](total, total, logs, logs, n) // log p, whose 0 is +0 as torch's: the loss is -0 then
		ops[expr.OpNeg][w.t](total, total, total, total, n)
		for i := range n {
			o := i * w.size
			var b uint64
			if c := *(*int64)(element(&target, lo+i)); uint64(c) < uint64(cols) && c != ignore {
				b = readBits(unsafe.Add(total, o), w.size)
			}
			writeBits(element(&loss, lo+i), w.size, b)
			writeBits(element(&top, lo+i), w.size, readBits(unsafe.Add(most, o), w.size))
			writeBits(element(&rest, lo+i), w.size, readBits(unsafe.Add(logs, o), w.size))
		}
	})
	if p := bad.Load(); p < int64(rows) {
		return &device.IndexError{Tag: tag, Index: *(*int64)(element(&target, int(p))), Bound: int64(cols), Position: p}
	}
	return nil
}

// lower stores v if it is less.
func lower(a *atomic.Int64, v int64) {
	for {
		o := a.Load()
		if o <= v || a.CompareAndSwap(o, v) {
			return
		}
	}
}

// CrossEntropyGrad sets dx = (exp(x - top[i] - rest[i]) - onehot(target))·g[i]; rows whose target is ignore, or outside the classes, are 0.
func (d *Device) CrossEntropyGrad(s device.Stream, dx, x, top, rest, target, g device.View, ignore int64) error {
	const op = "cross-entropy gradient"
	if err := d.checkRows(op, "dx x", &dx, &x); err != nil {
		return err
	}
	rows, cols, t := x.Shape.At(0), x.Shape.At(1), x.Type.Compute()
	if err := d.checkColumn(op, "target", &target, dtype.I64, rows, false); err != nil {
		return err
	}
	if err := d.checkColumn(op, "top", &top, t, rows, false); err != nil {
		return err
	}
	if err := d.checkColumn(op, "rest", &rest, t, rows, false); err != nil {
		return err
	}
	if err := d.checkColumn(op, "g", &g, t, rows, false); err != nil {
		return err
	}
	if tr := device.Tracing(); tr != nil && s != nil {
		defer d.traced(tr, s, op, device.CrossEntropyGradWork(dx, x, top, rest, target, g), x.Type, tr.Wants().ShapesOf([]device.View{dx, x, target})).done()
	}
	one := expr.Encode(t, 1)
	d.byRows(&x, func(w *rowWorker, lo, n int) {
		src := w.load(&x, lo, n, 0)
		y := w.target(&dx, lo, n, 1)
		for i := range n {
			o := i * w.size
			writeBits(unsafe.Add(w.row(0), o), w.size, readBits(element(&top, lo+i), w.size))
			writeBits(unsafe.Add(w.row(1), o), w.size, readBits(element(&g, lo+i), w.size))
			writeBits(unsafe.Add(w.row(3), o), w.size, readBits(element(&rest, lo+i), w.size))
		}
		writeBits(w.row(2), w.size, one)
		w.each(expr.OpSub, y, src, w.row(0), n)
		w.each(expr.OpSub, y, y, w.row(3), n)
		w.exp.apply(w.re, y, y, w.size, n*cols)
		sub := ops[expr.OpSub][w.t]
		for i := range n {
			if c := *(*int64)(element(&target, lo+i)); uint64(c) < uint64(cols) {
				p := unsafe.Add(y, (i*cols+int(c))*w.size)
				sub(p, p, w.row(2), w.row(2), 1)
			}
		}
		w.each(expr.OpMul, y, y, w.row(1), n)
		clear(at8(w.row(2), n*w.size))
		w.each(expr.OpAdd, y, y, w.row(2), n) // +0 for -0: torch subtracts products from g
		for i := range n {
			if c := *(*int64)(element(&target, lo+i)); uint64(c) >= uint64(cols) || c == ignore {
				clear(at8(unsafe.Add(y, i*cols*w.size), cols*w.size))
			}
		}
		w.store(&dx, lo, n, y)
	})
	return nil
}
