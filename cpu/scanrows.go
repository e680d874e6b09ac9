package cpu

import (
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// inPlace computes sums, products and linear recurrences along rows. The operands and the result
// must have the same type (float32, float64 or int64) and contiguous elements. For all other rows
// and kinds of scans, inPlace does nothing and returns false. The conversions of float32 to float64
// and back take no extra time: the processor does them while it waits for the sum.
func (t *scanTask) inPlace(first, rows int) bool {
	if t.Kind != device.ScanSum && t.Kind != device.ScanProd && t.Kind != device.ScanLinear || t.Out.Strides.At(1) != 1 {
		return false
	}
	for i := range t.Ins {
		if t.Ins[i].Type != t.Out.Type || t.Ins[i].Strides.At(1) != 1 {
			return false
		}
	}
	switch t.Out.Type {
	case dtype.F32:
		scanRowsInPlace[float32, float64](t, first, rows)
	case dtype.F64:
		scanRowsInPlace[float64, float64](t, first, rows)
	case dtype.I64:
		scanRowsInPlace[int64, int64](t, first, rows)
	default:
		return false
	}
	return true
}

// scanRowsInPlace scans rows with elements of type E. The sums or products have the type T.
func scanRowsInPlace[E float32 | float64 | int64, T float64 | int64](t *scanTask, first, rows int) {
	var x, y, z [scanRows]unsafe.Pointer
	size := int(unsafe.Sizeof(E(0)))
	for r := range rows {
		x[r] = unsafe.Add(pointer(&t.Ins[0]), (first+r)*t.Ins[0].Strides.At(0)*size)
		y[r] = unsafe.Add(pointer(&t.Out), (first+r)*t.Out.Strides.At(0)*size)
		if len(t.Ins) > 1 {
			z[r] = unsafe.Add(pointer(&t.Ins[1]), (first+r)*t.Ins[1].Strides.At(0)*size)
		}
	}
	at, step := direction(t.n, t.Reverse)
	at, step = at*size, step*size
	if t.Kind == device.ScanLinear {
		if rows < scanRows { // compute the last row several times
			for r := rows; r < scanRows; r++ {
				x[r], y[r], z[r] = x[rows-1], y[rows-1], z[rows-1]
			}
		}
		recurRows[E, T](&x, &z, &y, t.n, at, step)
		return
	}
	product := t.Kind == device.ScanProd
	if rows < scanRows {
		for r := range rows {
			scanRow[E, T](x[r], y[r], t.n, at, step, product)
		}
		return
	}
	a, b, c, d := x[0], x[1], x[2], x[3]
	e, f, g, h := y[0], y[1], y[2], y[3]
	if product {
		p, q, r, s := T(1), T(1), T(1), T(1)
		for range t.n {
			p, q = p*T(*(*E)(unsafe.Add(a, at))), q*T(*(*E)(unsafe.Add(b, at)))
			r, s = r*T(*(*E)(unsafe.Add(c, at))), s*T(*(*E)(unsafe.Add(d, at)))
			*(*E)(unsafe.Add(e, at)), *(*E)(unsafe.Add(f, at)) = E(p), E(q)
			*(*E)(unsafe.Add(g, at)), *(*E)(unsafe.Add(h, at)) = E(r), E(s)
			at += step
		}
		return
	}
	var p, q, r, s T
	for range t.n {
		p, q = p+T(*(*E)(unsafe.Add(a, at))), q+T(*(*E)(unsafe.Add(b, at)))
		r, s = r+T(*(*E)(unsafe.Add(c, at))), s+T(*(*E)(unsafe.Add(d, at)))
		*(*E)(unsafe.Add(e, at)), *(*E)(unsafe.Add(f, at)) = E(p), E(q)
		*(*E)(unsafe.Add(g, at)), *(*E)(unsafe.Add(h, at)) = E(r), E(s)
		at += step
	}
}

// scanRow scans one row of n elements. The argument at is the offset of the first element in
// bytes.
func scanRow[E float32 | float64 | int64, T float64 | int64](x, y unsafe.Pointer, n, at, step int, product bool) {
	if product {
		p := T(1)
		for range n {
			p *= T(*(*E)(unsafe.Add(x, at)))
			*(*E)(unsafe.Add(y, at)) = E(p)
			at += step
		}
		return
	}
	var p T
	for range n {
		p += T(*(*E)(unsafe.Add(x, at)))
		*(*E)(unsafe.Add(y, at)) = E(p)
		at += step
	}
}

// recurRows computes four rows of a linear recurrence with factors x and terms z. The results go to
// y.
func recurRows[E float32 | float64 | int64, T float64 | int64](x, z, y *[scanRows]unsafe.Pointer, n, at, step int) {
	next := func(s T, r, at int, start bool) T {
		return recurred(s, T(*(*E)(unsafe.Add(x[r], at))), T(*(*E)(unsafe.Add(z[r], at))), start)
	}
	var a, b, c, d T
	for k := range n {
		start := k == 0
		a, b, c, d = next(a, 0, at, start), next(b, 1, at, start), next(c, 2, at, start), next(d, 3, at, start)
		*(*E)(unsafe.Add(y[0], at)), *(*E)(unsafe.Add(y[1], at)) = E(a), E(b)
		*(*E)(unsafe.Add(y[2], at)), *(*E)(unsafe.Add(y[3], at)) = E(c), E(d)
		at += step
	}
}
