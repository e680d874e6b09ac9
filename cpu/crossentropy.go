package cpu

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// crossEntropy computes the losses. If a target is not a class, it returns the error at once, and
// not at the next wait.
func (d *Device) crossEntropy(o *device.CrossEntropy) error {
	rows, cols := o.X.Shape.At(0), o.X.Shape.At(1)
	var bad atomic.Int64
	bad.Store(int64(rows))
	if o.Top.Absent() {
		d.pickLosses(o, &bad)
	} else {
		d.losses(o, &bad)
	}
	if p := bad.Load(); p < int64(rows) {
		return &device.IndexError{Tag: o.Tag, Index: *(*int64)(element(&o.Target, int(p))), Bound: int64(cols), Position: p}
	}
	if o.Mean.Absent() {
		return nil
	}
	return d.meanOfTargets(o)
}

// losses computes the losses of logits. If a row's target is not a class, it stores the first such
// row in the variable bad.
func (d *Device) losses(o *device.CrossEntropy, bad *atomic.Int64) {
	cols := uint64(o.X.Shape.At(1))
	d.byRows(&o.X, func(w *rowWorker, lo, n int) {
		x, sum := w.operand(&o.X, lo, n, 0), w.row(1)
		most, logs, total := w.values(&o.Top, lo, 0), w.values(&o.Rest, lo, 2), w.values(&o.Loss, lo, 3)
		w.fold(device.Max, same, most, n, data(w.space[1]), x)
		w.picked(&o.Target, lo, n, total, x)
		w.fold(device.Sum, expLess, sum, n, data(w.space[1]), x, w.each(most))
		w.log.apply(w.rl, logs, sum, w.size, n)
		// if log p is 0, make it +0: the loss is then -0 as in torch
		sub := ops[expr.OpSub][w.t]
		sub(total, total, most, most, n)
		sub(total, total, logs, logs, n)
		ops[expr.OpNeg][w.t](total, total, total, total, n)
		target, step := element(&o.Target, lo), o.Target.Strides.At(0)*8
		for i := range n {
			c := *(*int64)(unsafe.Add(target, i*step))
			if uint64(c) < cols && c != o.Ignore {
				continue
			}
			if c != o.Ignore {
				storeMin(bad, int64(lo+i))
			}
			writeBits(unsafe.Add(total, i*w.size), w.size, 0)
		}
		w.storeValues(&o.Top, lo, n, most)
		w.storeValues(&o.Rest, lo, n, logs)
		w.storeValues(&o.Loss, lo, n, total)
	})
}

// picked stores one element of each row of x, in the worker's type. The row's target is the index
// of this element. If the target is not a class, picked stores 0.
func (w *rowWorker) picked(targets *device.View, lo, n int, to unsafe.Pointer, x rowOperand) {
	target, step, cols := element(targets, lo), targets.Strides.At(0)*8, uint64(w.cols)
	if x.t == dtype.F32 {
		for i, d := 0, at[float32](to, n); i < len(d); i++ {
			d[i] = 0
			if c := *(*int64)(unsafe.Add(target, i*step)); uint64(c) < cols {
				d[i] = *(*float32)(unsafe.Add(x.p, i*x.row+int(c)*x.col))
			}
		}
		return
	}
	for i := range n {
		b := uint64(0)
		if c := *(*int64)(unsafe.Add(target, i*step)); uint64(c) < cols {
			b = expr.Load(x.t, readBits(unsafe.Add(x.p, i*x.row+int(c)*x.col), x.t.Size()))
		}
		writeBits(unsafe.Add(to, i*w.size), w.size, b)
	}
}

// pickLosses computes the losses from logarithms of probabilities. If a row's target is not a
// class, it stores the first such row in the variable bad.
func (d *Device) pickLosses(o *device.CrossEntropy, bad *atomic.Int64) {
	x, t := &o.X, o.Loss.Type
	cols, size := uint64(x.Shape.At(1)), x.Type.Size()
	sign := expr.Encode(t, math.Copysign(0, -1))
	from, targets, losses := pointer(x), pointer(&o.Target), pointer(&o.Loss)
	row, col, target, loss := x.Strides.At(0)*size, x.Strides.At(1)*size, o.Target.Strides.At(0)*8, o.Loss.Strides.At(0)*t.Size()
	// Reading one element of a row takes as long as dozens of instructions, because each row is in
	// another place in memory.
	d.workers.parallel(x.Shape.At(0), inlineWork/64, each(func(i int) {
		c, b := *(*int64)(unsafe.Add(targets, i*target)), uint64(0)
		switch {
		case c == o.Ignore:
		case uint64(c) >= cols:
			storeMin(bad, int64(i))
		case x.Type == dtype.F32: // the operands are used without conversion
			b = uint64(*(*uint32)(unsafe.Add(from, i*row+int(c)*col))) ^ sign
		default:
			b = expr.Load(x.Type, readBits(unsafe.Add(from, i*row+int(c)*col), size)) ^ sign
		}
		writeBits(unsafe.Add(losses, i*loss), t.Size(), b)
	}))
}

// sumsOfLosses holds the reductions that sum losses, by type: float32 and float64.
var sumsOfLosses = map[dtype.Type]*device.Reduction{}

func init() {
	for _, t := range []dtype.Type{dtype.F32, dtype.F64} {
		list := []dtype.Type{t}
		sumsOfLosses[t] = &device.Reduction{Map: expr.MustLower([]*expr.Expr{expr.X(0)}, list, list, -1)}
	}
}

func (d *Device) meanOfTargets(o *device.CrossEntropy) error {
	t, n := o.Mean.Type, int64(0)
	targets, stride := pointer(&o.Target), o.Target.Strides.At(0)*8
	for i := range o.Target.Size() {
		if *(*int64)(unsafe.Add(targets, i*stride)) != o.Ignore {
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

// storeMin sets a to the smaller one of its value and v.
func storeMin(a *atomic.Int64, v int64) {
	for {
		o := a.Load()
		if o <= v || a.CompareAndSwap(o, v) {
			return
		}
	}
}

func (d *Device) crossEntropyGrad(o *device.CrossEntropyGrad) {
	if o.X.Absent() {
		d.pickLossesGrad(o)
		return
	}
	t, cols := o.X.Type.Compute(), uint64(o.X.Shape.At(1))
	by, div := expr.Encode(t, 1), ops[expr.OpDiv][t]
	if !o.Count.Absent() {
		by = expr.Encode(t, float64(*(*int64)(pointer(&o.Count))))
	}
	d.byRows(&o.X, func(w *rowWorker, lo, n int) {
		x, out := w.operand(&o.X, lo, n, 0), w.output(&o.DX, lo, 1)
		most, logs, scale := w.loadValues(&o.Top, lo, n, 0), w.loadValues(&o.Rest, lo, n, 1), w.row(2)
		g := w.row(3)
		if o.G.Absent() {
			fillBits(g, expr.Encode(t, 1), w.size, n)
		} else {
			g = w.loadValues(&o.G, lo, n, 3)
		}
		fillBits(scale, by, w.size, n)
		div(scale, g, scale, scale, n)
		// the gradient of the target is computed first, because out may be the memory of x
		line := func(p unsafe.Pointer, t dtype.Type) rowOperand {
			return rowOperand{p, t, n * t.Size(), t.Size()}
		}
		hit := line(w.row(3), out.t)
		w.picked(&o.Target, lo, n, hit.p, x)
		w.cols = n
		w.compute(hitGradient, 1, hit, line(hit.p, t), line(most, t), line(logs, t), line(scale, t))
		w.cols = int(cols)
		w.compute(missGradient, n, out, x, w.each(most), w.each(logs), w.each(scale))
		target, step, size := element(&o.Target, lo), o.Target.Strides.At(0)*8, out.t.Size()
		for i := range n {
			row := unsafe.Add(out.p, i*out.row)
			if c := *(*int64)(unsafe.Add(target, i*step)); uint64(c) >= cols || c == o.Ignore {
				clear(at8(row, int(cols)*size))
			} else {
				writeBits(unsafe.Add(row, int(c)*size), size, readBits(unsafe.Add(hit.p, i*size), size))
			}
		}
		w.store(&o.DX, lo, n, out.p)
	})
}

// pickLossesGrad computes the gradient of the loss with respect to logarithms of probabilities.
func (d *Device) pickLossesGrad(o *device.CrossEntropyGrad) {
	t, ct, size := o.DX.Type, o.DX.Type.Compute(), o.DX.Type.Size()
	cols, strides := o.DX.Shape.At(1), o.DX.Strides
	d.workers.parallel(o.DX.Shape.At(0), inlineWork/max(8, cols), each(func(i int) {
		row := unsafe.Add(pointer(&o.DX), i*strides.At(0)*size)
		if strides.At(1) == 1 {
			clear(at8(row, cols*size))
		} else {
			for c := range cols {
				writeBits(unsafe.Add(row, c*strides.At(1)*size), size, 0)
			}
		}
		c := *(*int64)(element(&o.Target, i))
		if c == o.Ignore || uint64(c) >= uint64(cols) {
			return
		}
		g := 1.0
		if !o.G.Absent() {
			g = expr.Decode(ct, readBits(element(&o.G, i), ct.Size()))
		}
		if !o.Count.Absent() {
			g /= expr.Decode(ct, expr.Encode(ct, float64(*(*int64)(pointer(&o.Count)))))
			g = expr.Decode(ct, expr.Encode(ct, g))
		}
		// if g is 0, store +0: torch adds to zeros, which gives +0
		writeBits(unsafe.Add(row, int(c)*strides.At(1)*size), size, expr.Encode(t, 0-g))
	}))
}
