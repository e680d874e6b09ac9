package cpu

import (
	"math"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

func (d *Device) norm(o *device.Norm) {
	t, cols := o.X.Type.Compute(), o.X.Shape.At(1)
	w, b := newRowWeights(&o.Weight, t, o.RowNorm, cols), newRowWeights(&o.Bias, t, o.RowNorm, cols)
	simple := w.simple() && b.simple()
	d.byRows(&o.X, func(k *rowWorker, lo, rows int) {
		x, space := k.operand(&o.X, lo, rows, 0), data(k.space[2])
		r := k.each(column(&o.Rstd, lo))
		var ins [5]rowOperand
		list := append(ins[:0], x)
		if o.RMS {
			k.fold(device.Sum, square, r.p, rows, space, x)
		} else {
			m := k.each(column(&o.Mean, lo))
			k.fold(device.Sum, same, m.p, rows, space, x)
			divide(m.p, k.t, rows, k.cols)
			k.fold(device.Sum, deviation, r.p, rows, space, x, m)
			list = append(list, m)
		}
		inverseRoot(r.p, k.t, rows, k.cols, o.Eps)
		list = append(list, r)
		if inner := max(w.inner, b.inner); simple || inner > 1 {
			out, f := k.output(&o.Out, lo, 1), normed(!o.RMS, w.v != nil, b.v != nil, o.Zero)
			if simple {
				for _, v := range []rowWeights{w, b} {
					if v.v != nil {
						list = append(list, k.column(v.v))
					}
				}
				k.compute(f, rows, out, list...)
			} else {
				k.computeRuns(f, lo, rows, out, list, &w, &b)
			}
			k.store(&o.Out, lo, rows, out.p)
			return
		}
		y := k.target(&o.Out, lo, rows, 1)
		k.compute(normed(!o.RMS, false, false, false), rows, k.matrix(y), list...)
		if w.v != nil && b.v != nil {
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
			k.compute(plusZero, rows, k.matrix(y), k.matrix(y))
		}
		k.store(&o.Out, lo, rows, y)
	})
}

// normed returns the formula of a normalised row: (x - mean)·rstd·weight + bias. The operands are
// x, mean, rstd, weight and bias, in this order; absent operands are left out. A fused
// multiply-add applies weight and bias. If zero is true and there is no bias, the formula changes
// -0 to +0.
func normed(mean, weight, bias, zero bool) *formula {
	i := 0
	for _, b := range []bool{mean, weight, bias, zero} {
		if i *= 2; b {
			i++
		}
	}
	return normFormulas()[i]
}

var normFormulas = sync.OnceValue(func() (list [16]*formula) {
	for i := range list {
		mean, weight, bias, zero := i&8 != 0, i&4 != 0, i&2 != 0, i&1 != 0
		next := 0
		operand := func() *expr.Expr { next++; return expr.X(next - 1) }
		e := operand()
		if mean {
			e = e.Sub(operand())
		}
		e = e.Mul(operand())
		switch {
		case weight && bias:
			w := operand()
			e = e.FMA(w, operand())
		case weight:
			e = e.Mul(operand())
		case bias:
			e = e.Add(operand())
		}
		if zero && !bias {
			e = e.Add(expr.C(0))
		}
		list[i] = &formula{e: e}
	}
	return list
})

func (d *Device) normGrad(o *device.NormGrad) {
	t, rows, cols := o.X.Type.Compute(), o.X.Shape.At(0), o.X.Shape.At(1)
	if cols == 0 {
		return
	}
	n := &normGradTask{o: o, w: newRowWeights(&o.Weight, t, o.RowNorm, cols), group: groupRows(&o.X)}
	if !o.Sums() {
		d.byRows(&o.X, n.rows)
		return
	}
	n.part = (normPartRows + n.group - 1) / n.group * n.group
	parts := (rows + n.part - 1) / n.part
	tmp := scratches.Get().(*scratch)
	defer scratches.Put(tmp)
	tmp.parts = grown(tmp.parts, 2*parts*cols*t.Size())
	n.sums = data(tmp.parts)
	d.workers.parallel(parts, 1, n)
	blocks := (cols + maxBlock - 1) / maxBlock
	d.workers.parallel(2*blocks, max(1, inlineWork/max(1, parts*maxBlock)), each(func(i int) { n.join(i%2, i/2*maxBlock, parts) }))
}

// normPartRows is the least number of rows in a part. Each part has its own sums for the gradients
// of weight and bias. The parts and the order of additions depend only on the shape.
const normPartRows = 64

// normGradTask computes the gradient of a normalisation of rows. The rows are divided into parts.
// Each part has its own sums, and the parts are divided among the workers.
type normGradTask struct {
	o *device.NormGrad
	w rowWeights
	// number of rows that are computed at a time, and number of rows in a part
	group, part int
	sums        unsafe.Pointer // for each part, the sums of g·z, then the sums of g
}

func (n *normGradTask) run(lo, hi int) {
	rows, cols := n.o.X.Shape.At(0), n.o.X.Shape.At(1)
	k := newRowWorker(n.o.X.Type.Compute(), cols, n.group)
	defer k.release()
	for p := lo; p < hi; p++ {
		clear(at8(n.sum(p, 0), 2*cols*k.size))
		for at := p * n.part; at < min((p+1)*n.part, rows); at += n.group {
			n.rows(k, at, min(n.group, rows-at))
		}
	}
}

// sum returns the address of the sums of part p: the sums of g·z if kind is 0, and the sums of g if
// kind is 1.
func (n *normGradTask) sum(p, kind int) unsafe.Pointer {
	return unsafe.Add(n.sums, (2*p+kind)*n.o.X.Shape.At(1)*n.o.X.Type.Compute().Size())
}

// rows computes the gradient for some rows, from row lo on. It adds what these rows contribute to
// the sums of their part.
func (n *normGradTask) rows(k *rowWorker, lo, rows int) {
	o := n.o
	g, z := k.operand(&o.G, lo, rows, 1), k.matrix(data(k.space[2]))
	r := k.each(column(&o.Rstd, lo))
	if !o.DX.Absent() || !o.DWeight.Absent() {
		x := k.operand(&o.X, lo, rows, 0)
		if o.RMS {
			k.compute(times, rows, z, x, r)
		} else {
			k.compute(scaledLess, rows, z, x, k.each(column(&o.Mean, lo)), r)
		}
	}
	if n.sums != nil || n.w.v != nil && !n.w.simple() {
		g = k.matrix(k.load(&o.G, lo, rows, 1))
	}
	if n.sums != nil {
		fma, add := ops[expr.OpFMA][k.t], ops[expr.OpAdd][k.t]
		products, sums := n.sum(lo/n.part, 0), n.sum(lo/n.part, 1)
		for i := range rows {
			at := i * k.cols * k.size
			if !o.DWeight.Absent() {
				fma(products, unsafe.Add(g.p, at), unsafe.Add(z.p, at), products, k.cols)
			}
			if !o.DBias.Absent() {
				add(sums, sums, unsafe.Add(g.p, at), unsafe.Add(g.p, at), k.cols)
			}
		}
	}
	if o.DX.Absent() {
		return
	}
	weight := n.w.v != nil
	if weight && !n.w.simple() {
		y := k.target(&o.DX, lo, rows, 1)
		n.w.apply(k, expr.OpMul, y, g.p, lo, rows)
		g, weight = k.matrix(y), false
	}
	f := normGradient(!o.RMS, weight, !o.Add.Absent())
	var space [maxOperands]rowOperand
	list := append(space[:0], g)
	if weight {
		list = append(list, k.column(n.w.v))
	}
	scaled := k.row(1)
	if !o.RMS {
		k.fold(device.Sum, f.weighted, scaled, rows, data(k.space[0]), list...)
		divide(scaled, k.t, rows, k.cols)
	}
	k.fold(device.Sum, f.product, k.row(0), rows, data(k.space[0]), append(list, z)...)
	divide(k.row(0), k.t, rows, k.cols)
	list = append(list, z, k.each(k.row(0)), r)
	if !o.RMS {
		list = append(list, k.each(scaled))
	}
	if !o.Add.Absent() {
		list = append(list, k.operand(&o.Add, lo, rows, 0))
	}
	out := k.output(&o.DX, lo, 1)
	k.compute(f.gradient, rows, out, list...)
	k.store(&o.DX, lo, rows, out.p)
}

// normGradientFormulas holds the formulas of the gradient of a normalisation. With h = g·weight,
// they are h, h·z, and the gradient (h - z·mean(h·z) - mean(h))·rstd + add. The operands are g,
// weight, z, mean(h·z), rstd, mean(h) and add, in this order; absent operands are left out.
type normGradientFormulas struct{ weighted, product, gradient *formula }

func normGradient(mean, weight, add bool) normGradientFormulas {
	i := 0
	for _, b := range []bool{mean, weight, add} {
		if i *= 2; b {
			i++
		}
	}
	return gradientFormulas()[i]
}

var gradientFormulas = sync.OnceValue(func() (list [8]normGradientFormulas) {
	for i := range list {
		mean, weight, add := i&4 != 0, i&2 != 0, i&1 != 0
		next := 0
		operand := func() *expr.Expr { next++; return expr.X(next - 1) }
		h := operand()
		if weight {
			h = h.Mul(operand())
		}
		z, m, r := operand(), operand(), operand()
		e := h.Sub(z.Mul(m))
		if mean {
			e = e.Sub(operand())
		}
		if e = e.Mul(r); add {
			e = e.Add(operand())
		}
		list[i] = normGradientFormulas{&formula{e: h}, &formula{e: h.Mul(z)}, &formula{e: e}}
	}
	return list
})

// join adds the sums of all parts pairwise, for a block of columns that begins at column firstCol.
func (n *normGradTask) join(which, firstCol, parts int) {
	v := &n.o.DWeight
	if which == 1 {
		v = &n.o.DBias
	}
	if v.Absent() {
		return
	}
	t, count := v.Type, min(maxBlock, v.Size()-firstCol)
	to := unsafe.Add(pointer(v), firstCol*t.Size())
	if parts == 0 {
		clear(at8(to, count*t.Size()))
		return
	}
	add := ops[expr.OpAdd][t]
	for step := 1; step < parts; step *= 2 {
		for p := 0; p+step < parts; p += 2 * step {
			a, b := unsafe.Add(n.sum(p, which), firstCol*t.Size()), unsafe.Add(n.sum(p+step, which), firstCol*t.Size())
			add(a, a, b, b, count)
		}
	}
	copy(at8(to, count*t.Size()), at8(unsafe.Add(n.sum(0, which), firstCol*t.Size()), count*t.Size()))
}

// column returns the address of the element for row lo in a view with one element for each row.
func column(v *device.View, lo int) unsafe.Pointer {
	return unsafe.Add(pointer(v), lo*v.Type.Size())
}

// divide replaces each of the n values v at address p by v/by.
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

// inverseRoot replaces each of n sums v by 1/√(v/by + eps). For float32 it computes in float64 and
// rounds once.
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

// weighted has the formulas that apply a weight or a bias.
var weighted = map[expr.Op]*formula{expr.OpMul: times, expr.OpAdd: {e: expr.X(0).Add(expr.X(1))}}

// rowWeights holds the weights of a normalisation, in the type in which it computes. Each weight
// applies to a run of neighbouring columns, whose length is the field inner. Row r uses the same
// weights as row r+period.
type rowWeights struct {
	v             unsafe.Pointer // address of the weights; nil if there are none
	keep          []byte
	period, inner int
}

// simple reports whether there are no weights, or one weight for each column, which is the same in
// all rows.
func (r *rowWeights) simple() bool { return r.v == nil || r.inner == 1 && r.period == 1 }

// shortRun is a bound of rowWeights.inner. If inner is smaller, the weights are repeated in
// memory, one for each column.
const shortRun = 64

func newRowWeights(v *device.View, t dtype.Type, n device.RowNorm, cols int) rowWeights {
	if v.Absent() || cols == 0 {
		return rowWeights{}
	}
	r := rowWeights{period: n.Period, inner: n.Inner}
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

// apply computes dst = op(src, weight) for n rows, from row lo on.
func (r *rowWeights) apply(w *rowWorker, op expr.Op, dst, src unsafe.Pointer, lo, n int) {
	if r.v == nil {
		return
	}
	if r.inner > 1 {
		w.computeRuns(weighted[op], lo, n, w.matrix(dst), []rowOperand{w.matrix(src)}, r)
		return
	}
	k := ops[op][w.t]
	for i := range n {
		v, o := unsafe.Add(r.v, (lo+i)%r.period*w.cols*w.size), i*w.cols*w.size
		k(unsafe.Add(dst, o), unsafe.Add(src, o), v, v, w.cols)
	}
}

// computeRuns computes a formula for n contiguous rows, from row lo on. The formula's last operands
// are weights that apply to runs of several columns; absent weights are left out. Each run counts
// as a row of the formula.
func (w *rowWorker) computeRuns(f *formula, lo, n int, out rowOperand, ins []rowOperand, weights ...*rowWeights) {
	cols, inner, period := w.cols, 1, 1
	for _, r := range weights {
		if r.v != nil {
			inner, period = r.inner, r.period
		}
	}
	runs := cols / inner // of a row
	var space [maxOperands]rowOperand
	list := append(space[:0], ins...)
	w.runs = grown(w.runs, maxOperands*n*runs*w.size)
	for i := range list {
		x := &list[i]
		if x.col != 0 {
			x.row = inner * x.col
			continue
		}
		to := unsafe.Add(data(w.runs), i*n*runs*w.size)
		for k := range n * runs {
			writeBits(unsafe.Add(to, k*w.size), w.size, readBits(unsafe.Add(x.p, k/runs*x.row), w.size))
		}
		x.p, x.row = to, w.size
	}
	for _, r := range weights {
		if r.v == nil {
			continue
		}
		to := unsafe.Add(data(w.runs), len(list)*n*runs*w.size)
		for k := range n {
			row := at8(unsafe.Add(r.v, (lo+k)%period*runs*w.size), runs*w.size)
			copy(at8(unsafe.Add(to, k*runs*w.size), len(row)), row)
		}
		list = append(list, w.each(to))
	}
	out.row, w.cols = inner*out.col, inner
	w.compute(f, n*runs, out, list...)
	w.cols = cols
}
