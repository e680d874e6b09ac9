package cpu

import (
	"math"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

func (d *Device) norm(o *device.Norm) {
	t, cols := o.X.Type.Compute(), o.X.Shape.At(1)
	w, b := newRowWeights(&o.Weight, t, o.RowNorm, cols), newRowWeights(&o.Bias, t, o.RowNorm, cols)
	d.byRows(&o.X, func(k *rowWorker, lo, rows int) {
		src := k.load(&o.X, lo, rows, 0)
		y, from := k.target(&o.Out, lo, rows, 1), src
		if !o.RMS {
			m := column(&o.Mean, lo)
			k.fold(device.Sum, m, src, rows)
			divide(m, k.t, rows, k.cols)
			k.each(expr.OpSub, y, src, m, rows)
			from = y
		}
		r := column(&o.Rstd, lo)
		squares := data(k.space[2])
		k.both(expr.OpMul, squares, from, from, rows)
		k.fold(device.Sum, r, squares, rows)
		inverseRoot(r, k.t, rows, k.cols, o.Eps)
		k.each(expr.OpMul, y, from, r, rows)
		if w.v != nil && w.inner == 1 && b.v != nil {
			fma := ops[expr.OpFMA][k.t]
			for i := range rows {
				p, at := unsafe.Add(y, i*k.cols*k.size), (lo+i)%w.period*k.cols*k.size
				fma(p, p, unsafe.Add(w.v, at), unsafe.Add(b.v, at), k.cols)
			}
		} else {
			w.apply(k, expr.OpMul, y, y, lo, rows)
			b.apply(k, expr.OpAdd, y, y, lo, rows)
		}
		if o.Zero && b.v == nil {
			clear(k.rows[0])
			k.each(expr.OpAdd, y, y, k.row(0), rows)
		}
		k.store(&o.Out, lo, rows, y)
	})
}

func (d *Device) normGrad(o *device.NormGrad) {
	w := newRowWeights(&o.Weight, o.X.Type.Compute(), o.RowNorm, o.X.Shape.At(1))
	d.byRows(&o.X, func(k *rowWorker, lo, rows int) {
		z, from := data(k.space[2]), k.load(&o.X, lo, rows, 0)
		if !o.RMS {
			k.each(expr.OpSub, z, from, column(&o.Mean, lo), rows)
			from = z
		}
		k.each(expr.OpMul, z, from, column(&o.Rstd, lo), rows)
		h := k.load(&o.G, lo, rows, 1)
		y := k.target(&o.DX, lo, rows, 1)
		if w.v != nil {
			w.apply(k, expr.OpMul, y, h, lo, rows)
			h = y
		}
		product := data(k.space[0])
		k.both(expr.OpMul, product, h, z, rows)
		k.fold(device.Sum, k.row(0), product, rows)
		divide(k.row(0), k.t, rows, k.cols)
		k.each(expr.OpMul, z, z, k.row(0), rows)
		if !o.RMS {
			k.fold(device.Sum, k.row(1), h, rows)
			divide(k.row(1), k.t, rows, k.cols)
		}
		k.both(expr.OpSub, y, h, z, rows)
		if !o.RMS {
			k.each(expr.OpSub, y, y, k.row(1), rows)
		}
		k.each(expr.OpMul, y, y, column(&o.Rstd, lo), rows)
		k.store(&o.DX, lo, rows, y)
	})
}

// column returns where the value of row lo is.
func column(v *device.View, lo int) unsafe.Pointer {
	return unsafe.Add(pointer(v), lo*v.Type.Size())
}

// divide divides n values by a count.
func divide(p unsafe.Pointer, t dtype.Type, n, by int) {
	if t == dtype.F64 {
		for i := range at[float64](p, n) {
			at[float64](p, n)[i] /= float64(by)
		}
		return
	}
	for i := range at[float32](p, n) {
		at[float32](p, n)[i] /= float32(by)
	}
}

// inverseRoot replaces n sums v by 1/√(v/by + eps). Rounding a root from float64 to float32 is rounding it once.
func inverseRoot(p unsafe.Pointer, t dtype.Type, n, by int, eps float64) {
	if t == dtype.F64 {
		v := at[float64](p, n)
		for i := range v {
			v[i] = 1 / math.Sqrt(float64(v[i]/float64(by))+eps)
		}
		return
	}
	v := at[float32](p, n)
	for i := range v {
		mean := float32(v[i] / float32(by))
		v[i] = 1 / float32(math.Sqrt(float64(mean+float32(eps))))
	}
}

// rowWeights are one value for each run of inner columns of period rows that repeat, in computing type.
type rowWeights struct {
	v             unsafe.Pointer // nil: none
	keep          []byte
	period, inner int
}

// shortRun is up to how many columns that share a value are written out.
const shortRun = 64

func newRowWeights(v *device.View, t dtype.Type, n device.RowNorm, cols int) rowWeights {
	r := rowWeights{period: n.Period, inner: n.Inner}
	if v.Absent() || cols == 0 {
		return r
	}
	r.v = pointer(v)
	count, size := n.Affine(cols), t.Size()
	if v.Type != t {
		r.keep = grown(nil, count*size)
		for i := 0; i < count; i += maxBlock {
			loads[v.Type](unsafe.Add(data(r.keep), i*size), unsafe.Add(r.v, i*v.Type.Size()), nil, nil, min(maxBlock, count-i))
		}
		r.v = data(r.keep)
	}
	if r.inner > 1 && r.inner < shortRun {
		all := grown(nil, n.Period*cols*size)
		for i := range n.Period * cols {
			copy(all[i*size:(i+1)*size], at8(unsafe.Add(r.v, i/r.inner*size), size))
		}
		r.keep, r.v, r.inner = all, data(all), 1
	}
	return r
}

// apply computes dst = op(src, weight) for n rows of which the first is lo.
func (r *rowWeights) apply(w *rowWorker, op expr.Op, dst, src unsafe.Pointer, lo, n int) {
	if r.v == nil {
		return
	}
	k := ops[op][w.t]
	for i := range n {
		row := (lo + i) % r.period * w.cols
		o := i * w.cols * w.size
		if r.inner == 1 {
			v := unsafe.Add(r.v, row*w.size)
			k(unsafe.Add(dst, o), unsafe.Add(src, o), v, v, w.cols)
			continue
		}
		for c := 0; c < w.cols; c += r.inner {
			w.run(k, unsafe.Add(dst, o+c*w.size), unsafe.Add(src, o+c*w.size), readBits(unsafe.Add(r.v, (row+c)/r.inner*w.size), w.size), r.inner)
		}
	}
}
