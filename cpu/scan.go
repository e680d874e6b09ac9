package cpu

import (
	"math"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// scanLanes is the largest number of neighbouring columns that are scanned together.
const scanLanes = 256

// If a scanned column has no neighbours, it is called a row. Up to scanRows rows are scanned
// together: each addition in a row waits for the one before, and meanwhile the processor works on
// other rows. A block has scanPart elements of each row.
const (
	scanRows = 4
	scanPart = maxBlock / scanRows
)

// scanTask scans columns. A unit of work is a block of neighbouring columns, or up to scanRows
// rows.
type scanTask struct {
	*device.Scan
	n      int // number of elements in a column
	inner  int // number of neighbouring columns
	lanes  int // number of columns in a unit
	blocks int // number of units for each outer index
}

// scan combines the elements of each column in their order.
func (d *Device) scan(o *device.Scan) {
	if o.Out.Size() == 0 {
		return
	}
	t := &scanTask{Scan: o, n: o.Out.Shape.At(1), inner: o.Out.Shape.At(2)}
	t.lanes = min(t.inner, scanLanes)
	t.blocks = (t.inner + t.lanes - 1) / t.lanes
	units := o.Out.Shape.At(0) * t.blocks
	if t.inner == 1 {
		units, t.lanes = (units-1)/scanRows+1, scanRows
	}
	d.workers.parallel(units, max(1, inlineWork/8/(t.n*t.lanes), units/(8*d.workers.size())), t)
}

// scanSpace is a worker's memory. It is reused, because clearing it takes longer than many scans.
type scanSpace struct {
	raw, computed   [maxBlock]uint64 // buffers of the methods fetch and put
	x, b, positions [maxBlock]uint64
}

var scanSpaces = sync.Pool{New: func() any { return new(scanSpace) }}

func (t *scanTask) run(lo, hi int) {
	w := scanSpaces.Get().(*scanSpace)
	defer scanSpaces.Put(w)
	for u := lo; u < hi; u++ {
		if t.Ins[0].Type.IsFloat() {
			scanUnit[float64](t, w, dtype.F64, u)
		} else {
			scanUnit[int64](t, w, dtype.I64, u)
		}
	}
}

func scanUnit[T float64 | int64](t *scanTask, w *scanSpace, typ dtype.Type, u int) {
	if t.inner == 1 {
		first := u * scanRows
		scanSomeRows[T](t, w, typ, first, min(scanRows, t.Out.Shape.At(0)-first))
		return
	}
	j := u % t.blocks * t.lanes
	scanColumns[T](t, w, typ, u/t.blocks, j, min(t.lanes, t.inner-j))
}

// fetch reads n elements that are stride apart. It converts them to typ, which is float64 or int64.
func (w *scanSpace) fetch(dst unsafe.Pointer, typ dtype.Type, v *device.View, offset, stride, n int) {
	size, t := v.Type.Size(), v.Type.Compute()
	src := unsafe.Add(pointer(v), offset*size)
	p := unsafe.Pointer(&w.raw)
	if t == typ && v.Type == t {
		p = dst
	}
	gather(p, src, size, stride*size, n)
	if load := loads[v.Type]; load != nil {
		load(unsafe.Pointer(&w.computed), p, nil, nil, n)
		p = unsafe.Pointer(&w.computed)
	}
	if cast := casts[t][typ]; cast != nil && t != typ {
		cast(dst, p, nil, nil, n)
	}
}

// put writes n numbers to elements that are stride apart. The numbers have the type typ, which is
// float64 or int64.
func (w *scanSpace) put(v *device.View, offset, stride, n int, src unsafe.Pointer, typ dtype.Type) {
	size, t := v.Type.Size(), v.Type.Compute()
	if cast := casts[typ][t]; cast != nil && t != typ {
		cast(unsafe.Pointer(&w.computed), src, nil, nil, n)
		src = unsafe.Pointer(&w.computed)
	}
	if store := stores[v.Type]; store != nil {
		store(unsafe.Pointer(&w.raw), src, nil, nil, n)
		src = unsafe.Pointer(&w.raw)
	}
	spread(unsafe.Add(pointer(v), offset*size), src, size, stride*size, n)
}

// positions reports whether the results are the positions of the greatest or least elements.
func (t *scanTask) positions() bool { return t.Kind == device.ScanMax || t.Kind == device.ScanMin }

// scanSomeRows scans the rows first … first+rows-1.
func scanSomeRows[T float64 | int64](t *scanTask, space *scanSpace, typ dtype.Type, first, rows int) {
	xp, bp, pp := unsafe.Pointer(&space.x), unsafe.Pointer(&space.b), unsafe.Pointer(&space.positions)
	var state [scanRows]T
	var best [scanRows]int64
	for done := 0; done < t.n; done += scanPart {
		m := min(scanPart, t.n-done)
		low := done // lowest position of the block; elements are read by address
		if t.Reverse {
			low = t.n - done - m
		}
		each := func(v *device.View, p unsafe.Pointer, f func(p unsafe.Pointer, offset int)) {
			for r := range rows {
				f(unsafe.Add(p, r*scanPart*8), (first+r)*v.Strides.At(0)+low*v.Strides.At(1))
			}
		}
		for i := range t.Ins {
			v, p := &t.Ins[i], xp
			if i == 1 {
				p = bp
			}
			each(v, p, func(p unsafe.Pointer, offset int) { space.fetch(p, typ, v, offset, v.Strides.At(1), m) })
		}
		product := t.Kind == device.ScanProd
		if product && done == 0 {
			state = [scanRows]T{1, 1, 1, 1}
		}
		switch {
		case (t.Kind == device.ScanSum || product) && rows > 1:
			scanFourRows((*[maxBlock]T)(xp), &state, m, t.Reverse, product)
		case t.Kind == device.ScanSum || product:
			state[0] = scanOneRow(at[T](xp, m), state[0], t.Reverse, product)
		default:
			for r := range rows {
				at := r * scanPart
				x, b, places := (*[maxBlock]T)(xp)[at:at+m], (*[maxBlock]T)(bp)[at:at+m], (*[maxBlock]int64)(pp)[at:at+m]
				scanRow(t, x, b, places, low, &state[r], &best[r], done == 0)
			}
		}
		result, from := xp, typ
		if t.positions() {
			result, from = pp, dtype.I64
		}
		each(&t.Out, result, func(p unsafe.Pointer, offset int) { space.put(&t.Out, offset, t.Out.Strides.At(1), m, p, from) })
	}
}

// scanFourRows replaces the first n elements of four rows by their cumulative sums or products. If
// the unit has fewer rows, the results for the others are ignored.
func scanFourRows[T float64 | int64](x *[maxBlock]T, state *[scanRows]T, n int, reverse, product bool) {
	a := x[:n]
	b, c, d := x[scanPart:][:len(a)], x[2*scanPart:][:len(a)], x[3*scanPart:][:len(a)]
	p, q, r, s := state[0], state[1], state[2], state[3]
	switch {
	case !reverse && !product: // the loop decides nothing for each element
		for k := range a {
			p, q, r, s = p+a[k], q+b[k], r+c[k], s+d[k]
			a[k], b[k], c[k], d[k] = p, q, r, s
		}
	case reverse:
		for k := len(a) - 1; k >= 0; k-- {
			p, q, r, s = link(p, a[k], product), link(q, b[k], product), link(r, c[k], product), link(s, d[k], product)
			a[k], b[k], c[k], d[k] = p, q, r, s
		}
	default:
		for k := range a {
			p, q, r, s = p*a[k], q*b[k], r*c[k], s*d[k]
			a[k], b[k], c[k], d[k] = p, q, r, s
		}
	}
	*state = [scanRows]T{p, q, r, s}
}

// scanOneRow replaces the elements of one row by their cumulative sums or products.
func scanOneRow[T float64 | int64](x []T, s T, reverse, product bool) T {
	if reverse {
		for k := len(x) - 1; k >= 0; k-- {
			s = link(s, x[k], product)
			x[k] = s
		}
		return s
	}
	if !product {
		for k, v := range x {
			s += v
			x[k] = s
		}
		return s
	}
	for k, v := range x {
		s *= v
		x[k] = s
	}
	return s
}

func link[T float64 | int64](s, v T, product bool) T {
	if product {
		return s * v
	}
	return s + v
}

// scanRow scans a part of one row. low is the lowest position of the part.
func scanRow[T float64 | int64](t *scanTask, x, b []T, places []int64, low int, state *T, best *int64, start bool) {
	k, step := 0, 1
	if t.Reverse {
		k, step = len(x)-1, -1
	}
	if !t.positions() {
		for range x {
			*state = next(t.Kind, *state, x[k], b[k], start)
			x[k], start = *state, false
			k += step
		}
		return
	}
	s, at, least := *state, *best, t.Kind == device.ScanMin
	places = places[:len(x)]
	for range x {
		v := x[k]
		worse := v < s
		if least {
			worse = v > s
		}
		if start || !worse && (v != v || s == s) { // after a NaN, only another NaN is better
			s, at, start = v, int64(low+k), false
		}
		places[k] = at
		k += step
	}
	*state, *best = s, at
}

// next returns the state of a scan after element v. s is the state before v. start says that v is
// the first element.
func next[T float64 | int64](kind device.ScanKind, s, v, b T, start bool) T {
	switch {
	case kind == device.ScanProd && start:
		return v
	case kind == device.ScanProd:
		return s * v
	case kind == device.ScanLogSumExp && start:
		return T(logAddExp(math.Inf(-1), float64(v)))
	case kind == device.ScanLogSumExp:
		return T(logAddExp(float64(s), float64(v)))
	case start:
		return b
	}
	s = T(v * s) // round the product before the addition
	return s + b
}

// scanColumns scans w neighbouring columns of outer index o, beginning with column j. A block holds
// one element of each column.
func scanColumns[T float64 | int64](t *scanTask, space *scanSpace, typ dtype.Type, o, j, w int) {
	xp, bp, pp := unsafe.Pointer(&space.x), unsafe.Pointer(&space.b), unsafe.Pointer(&space.positions)
	x, b, places := at[T](xp, w), at[T](bp, w), at[int64](pp, w)
	var state [scanLanes]T // state of each column
	for done := range t.n {
		low := done
		if t.Reverse {
			low = t.n - done - 1
		}
		offset := func(v *device.View) int { return o*v.Strides.At(0) + low*v.Strides.At(1) + j*v.Strides.At(2) }
		first := &t.Ins[0]
		space.fetch(xp, typ, first, offset(first), first.Strides.At(2), w)
		if len(t.Ins) > 1 {
			second := &t.Ins[1]
			space.fetch(bp, typ, second, offset(second), second.Strides.At(2), w)
		}
		switch {
		case t.Kind == device.ScanSum:
			for k, v := range x {
				state[k] += v
				x[k] = state[k]
			}
		case t.positions():
			for k, v := range x {
				if s := state[k]; done == 0 || v != v || t.Kind == device.ScanMax && v >= s || t.Kind == device.ScanMin && v <= s {
					state[k], places[k] = v, int64(low)
				}
			}
		default:
			for k, v := range x {
				state[k] = next(t.Kind, state[k], v, b[k], done == 0)
				x[k] = state[k]
			}
		}
		if t.positions() {
			space.put(&t.Out, offset(&t.Out), t.Out.Strides.At(2), w, pp, dtype.I64)
		} else {
			space.put(&t.Out, offset(&t.Out), t.Out.Strides.At(2), w, xp, typ)
		}
	}
}

// logAddExp returns log(eᵃ + eᵇ).
func logAddExp(a, b float64) float64 {
	switch {
	case a != a || b != b:
		return math.NaN()
	case a < b:
		a, b = b, a
	}
	if math.IsInf(a, 0) {
		return a
	}
	return a + math.Log1p(math.Exp(b-a))
}
