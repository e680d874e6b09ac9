package cpu

import (
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// rowTask is a fused row operation. A unit of work is a group of rows.
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

// byRows runs f on groups of rows of x, in parallel.
func (d *Device) byRows(x *device.View, f func(w *rowWorker, lo, n int)) {
	rows, cols := x.Shape.At(0), x.Shape.At(1)
	if rows == 0 || cols == 0 {
		return
	}
	g := groupRows(x)
	groups := (rows + g - 1) / g
	d.crew.parallel(groups, max(1, groups/(8*d.crew.size())), &rowTask{f, x.Type.Compute(), rows, cols, g})
}

// softmax computes e^(x-m)/Σe^(x-m), or the logarithm (x-m) - log Σe^(x-m), where m is the row's
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

// softmaxGrad computes (g - Σg·y)·y. For the logarithm it computes g - e^y·Σg.
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

// crossEntropy computes the losses. It returns the error for a target that is not a class
// immediately.
func (d *Device) crossEntropy(o *device.CrossEntropy) error {
	rows, cols := o.X.Shape.At(0), o.X.Shape.At(1)
	var bad atomic.Int64
	bad.Store(int64(rows))
	d.byRows(&o.X, func(w *rowWorker, lo, n int) {
		x := w.operand(&o.X, lo, n, 0)
		most, sum, logs, total := w.row(0), w.row(1), w.row(2), w.row(3)
		w.fold(device.Max, same, most, n, data(w.space[1]), x)
		for i := range n {
			c, b := *(*int64)(element(&o.Target, lo+i)), uint64(0)
			switch {
			case uint64(c) < uint64(cols):
				b = expr.Load(x.t, readBits(unsafe.Add(x.p, i*x.row+int(c)*x.col), x.t.Size()))
			case c != o.Ignore:
				lower(&bad, int64(lo+i))
			}
			writeBits(unsafe.Add(total, i*w.size), w.size, b)
		}
		w.fold(device.Sum, expLess, sum, n, data(w.space[1]), x, w.each(most))
		w.log.apply(w.rl, logs, sum, w.size, n)
		// if log p is 0, it must be +0 as in torch, so that the loss is -0
		sub := ops[expr.OpSub][w.t]
		sub(total, total, most, most, n)
		sub(total, total, logs, logs, n)
		ops[expr.OpNeg][w.t](total, total, total, total, n)
		for i := range n {
			off := i * w.size
			var b uint64
			if c := *(*int64)(element(&o.Target, lo+i)); uint64(c) < uint64(cols) && c != o.Ignore {
				b = readBits(unsafe.Add(total, off), w.size)
			}
			writeBits(element(&o.Loss, lo+i), w.size, b)
			writeBits(element(&o.Top, lo+i), w.size, readBits(unsafe.Add(most, off), w.size))
			writeBits(element(&o.Rest, lo+i), w.size, readBits(unsafe.Add(logs, off), w.size))
		}
	})
	if p := bad.Load(); p < int64(rows) {
		return &device.IndexError{Tag: o.Tag, Index: *(*int64)(element(&o.Target, int(p))), Bound: int64(cols), Position: p}
	}
	if o.Mean.Absent() {
		return nil
	}
	return d.meanOfTargets(o)
}

// sumsOfLosses holds the reductions that sum losses, for float32 and float64.
var sumsOfLosses = map[dtype.Type]*device.Reduction{}

func init() {
	for _, t := range []dtype.Type{dtype.F32, dtype.F64} {
		list := []dtype.Type{t}
		sumsOfLosses[t] = &device.Reduction{Map: expr.MustLower([]*expr.Expr{expr.X(0)}, list, list, -1)}
	}
}

func (d *Device) meanOfTargets(o *device.CrossEntropy) error {
	t, n := o.Mean.Type, int64(0)
	for i := range o.Target.Size() {
		if *(*int64)(element(&o.Target, i)) != o.Ignore {
			n++
		}
	}
	*(*int64)(pointer(&o.Count)) = n
	if err := d.reduce(&device.Reduce{Reduction: sumsOfLosses[t], Out: o.Mean, Ins: []device.View{o.Loss}}); err != nil {
		return err
	}
	var count uint64
	by, mean := unsafe.Pointer(&count), pointer(&o.Mean)
	writeBits(by, width(t), expr.Encode(t, float64(n)))
	ops[expr.OpDiv][t](mean, mean, by, by, 1)
	return nil
}

// lower stores v in a if v is less than the value of a.
func lower(a *atomic.Int64, v int64) {
	for {
		o := a.Load()
		if o <= v || a.CompareAndSwap(o, v) {
			return
		}
	}
}

func (d *Device) crossEntropyGrad(o *device.CrossEntropyGrad) {
	t := o.X.Type.Compute()
	cols, one := o.X.Shape.At(1), expr.Encode(t, 1)
	by := one
	if !o.Count.Absent() {
		by = expr.Encode(t, float64(*(*int64)(pointer(&o.Count))))
	}
	d.byRows(&o.X, func(w *rowWorker, lo, n int) {
		x, out := w.operand(&o.X, lo, n, 0), w.output(&o.DX, lo, 1)
		y := w.target(&o.DX, lo, n, 1)
		for i := range n {
			off := i * w.size
			writeBits(unsafe.Add(w.row(0), off), w.size, readBits(element(&o.Top, lo+i), w.size))
			g := one
			if !o.G.Absent() {
				g = readBits(element(&o.G, lo+i), w.size)
			}
			scale := unsafe.Add(w.row(1), off)
			if writeBits(scale, w.size, g); !o.Count.Absent() {
				writeBits(w.row(2), w.size, by)
				ops[expr.OpDiv][w.t](scale, scale, w.row(2), w.row(2), 1)
			}
			writeBits(unsafe.Add(w.row(3), off), w.size, readBits(element(&o.Rest, lo+i), w.size))
		}
		writeBits(w.row(2), w.size, one)
		w.compute(expTwice, n, w.matrix(y), x, w.each(w.row(0)), w.each(w.row(3)))
		sub := ops[expr.OpSub][w.t]
		for i := range n {
			if c := *(*int64)(element(&o.Target, lo+i)); uint64(c) < uint64(cols) {
				p := unsafe.Add(y, (i*cols+int(c))*w.size)
				sub(p, p, w.row(2), w.row(2), 1)
			}
		}
		// turn -0 into +0, as in torch, which subtracts products from g
		w.compute(scaledPlus, n, out, w.matrix(y), w.each(w.row(1)))
		for i := range n {
			if c := *(*int64)(element(&o.Target, lo+i)); uint64(c) >= uint64(cols) || c == o.Ignore {
				clear(at8(unsafe.Add(out.p, i*out.row), cols*out.t.Size()))
			}
		}
		w.store(&o.DX, lo, n, out.p)
	})
}
