package cpu

import (
	"math"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// scanLanes is the largest number of neighbouring columns that are scanned together.
const scanLanes = 256

// A scanned column without neighbours is called a row. Up to scanRows rows are scanned together.
// Each addition in a row waits for the previous one. In the meantime the processor adds elements
// of other rows. A block has scanPart elements of each row.
const (
	scanRows = 4
	scanPart = maxBlock / scanRows
)

// scanTask scans columns. The work is divided among the workers in units. A unit is a block of
// neighbouring columns, or up to scanRows rows.
type scanTask struct {
	*device.Scan
	n      int // number of elements in a column
	inner  int // number of neighbouring columns
	lanes  int // number of columns in a unit
	blocks int // number of units for each index of the dimensions before the scanned one
}

// scan combines the elements of each column from the first to the last, or from the last to the
// first.
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

// scanSpace is temporary memory of a worker. It is reused, because clearing it would take longer
// than many scans.
type scanSpace struct {
	raw, computed   [maxBlock]uint64 // temporary memory of the methods fetch and put
	x, b, positions [maxBlock]uint64
	state           [scanLanes]uint64 // value of the scan so far, for each column
	logs            [scanLanes]logSum // running sums of exponentials, one for each row or column
	formulas        *rowWorker        // computes the exponentials and logarithms of these sums
}

var scanSpaces = sync.Pool{New: func() any { return new(scanSpace) }}

func (t *scanTask) run(lo, hi int) {
	w := scanSpaces.Get().(*scanSpace)
	defer scanSpaces.Put(w)
	if t.Kind == device.ScanLogSumExp {
		w.formulas = newRowWorker(dtype.F64, 1, 1)
		defer func() { w.formulas.release(); w.formulas = nil }()
	}
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
		rows := min(scanRows, t.Out.Shape.At(0)-first)
		if !t.inPlace(first, rows) {
			scanSomeRows[T](t, w, typ, first, rows)
		}
		return
	}
	j := u % t.blocks * t.lanes
	scanColumns[T](t, w, typ, u/t.blocks, j, min(t.lanes, t.inner-j))
}

// fetch reads n elements that are stride apart. It converts them to typ, which is float64 or int64.
func (w *scanSpace) fetch(dst unsafe.Pointer, typ dtype.Type, v *device.View, offset, stride, n int) {
	size, t := v.Type.Size(), v.Type.Compute()
	p := unsafe.Add(pointer(v), offset*size)
	load, cast := loads[v.Type], casts[t][typ]
	if stride != 1 {
		raw := unsafe.Pointer(&w.raw)
		if load == nil && cast == nil {
			raw = dst
		}
		gather(raw, p, size, stride*size, n)
		p = raw
	}
	if load != nil {
		load(unsafe.Pointer(&w.computed), p, nil, nil, n)
		p = unsafe.Pointer(&w.computed)
	}
	if cast != nil {
		cast(dst, p, nil, nil, n)
	} else if p != dst {
		copy(at8(dst, n*8), at8(p, n*8))
	}
}

// put writes n numbers to elements that are stride apart. The numbers have the type typ, which is
// float64 or int64.
func (w *scanSpace) put(v *device.View, offset, stride, n int, src unsafe.Pointer, typ dtype.Type) {
	size, t := v.Type.Size(), v.Type.Compute()
	dst := unsafe.Add(pointer(v), offset*size)
	store, cast := stores[v.Type], casts[typ][t]
	last := dst // memory to which the last conversion writes
	if stride != 1 {
		last = unsafe.Pointer(&w.raw)
	}
	if cast != nil {
		to := last
		if store != nil {
			to = unsafe.Pointer(&w.computed)
		}
		cast(to, src, nil, nil, n)
		src = to
	}
	if store != nil {
		store(last, src, nil, nil, n)
		src = last
	}
	if src != dst {
		spread(dst, src, size, stride*size, n)
	}
}

// positions reports whether the results are the positions of the greatest or least elements.
func (t *scanTask) positions() bool { return t.Kind == device.ScanMax || t.Kind == device.ScanMin }

// scanSomeRows scans the rows with numbers first to first+rows-1.
func scanSomeRows[T float64 | int64](t *scanTask, space *scanSpace, typ dtype.Type, first, rows int) {
	xp, bp, pp := unsafe.Pointer(&space.x), unsafe.Pointer(&space.b), unsafe.Pointer(&space.positions)
	var state [scanRows]T
	var best [scanRows]int64
	for done := 0; done < t.n; done += scanPart {
		m := min(scanPart, t.n-done)
		// low is the lowest position of the block; fetch and put begin there even if Reverse is set
		low := done
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
		case t.Kind == device.ScanLogSumExp:
			space.logSums(rows, m, done == 0, t.Reverse)
		default:
			for r := range rows {
				at := r * scanPart
				x, b, places := (*[maxBlock]T)(xp)[at:at+m], (*[maxBlock]T)(bp)[at:at+m], (*[maxBlock]int64)(pp)[at:at+m]
				if t.positions() {
					extremes(x, places, low, &state[r], &best[r], done == 0, t.Reverse, t.Kind == device.ScanMin)
				} else {
					recur(x, b, &state[r], t.Reverse, done == 0)
				}
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
// there are fewer rows, the caller ignores the other results.
func scanFourRows[T float64 | int64](x *[maxBlock]T, state *[scanRows]T, n int, reverse, product bool) {
	a := x[:n]
	b, c, d := x[scanPart:][:len(a)], x[2*scanPart:][:len(a)], x[3*scanPart:][:len(a)]
	p, q, r, s := state[0], state[1], state[2], state[3]
	switch { // separate loops take half the time
	case product && reverse:
		for k := len(a) - 1; k >= 0; k-- {
			p, q, r, s = p*a[k], q*b[k], r*c[k], s*d[k]
			a[k], b[k], c[k], d[k] = p, q, r, s
		}
	case product:
		for k := range a {
			p, q, r, s = p*a[k], q*b[k], r*c[k], s*d[k]
			a[k], b[k], c[k], d[k] = p, q, r, s
		}
	case reverse:
		for k := len(a) - 1; k >= 0; k-- {
			p, q, r, s = p+a[k], q+b[k], r+c[k], s+d[k]
			a[k], b[k], c[k], d[k] = p, q, r, s
		}
	default:
		for k := range a {
			p, q, r, s = p+a[k], q+b[k], r+c[k], s+d[k]
			a[k], b[k], c[k], d[k] = p, q, r, s
		}
	}
	*state = [scanRows]T{p, q, r, s}
}

// scanOneRow does what scanFourRows does, for one row.
func scanOneRow[T float64 | int64](x []T, s T, reverse, product bool) T {
	switch {
	case product:
		k, step := direction(len(x), reverse)
		for range x {
			s *= x[k]
			x[k] = s
			k += step
		}
	case reverse:
		for k := len(x) - 1; k >= 0; k-- {
			s += x[k]
			x[k] = s
		}
	default:
		for k, v := range x {
			s += v
			x[k] = s
		}
	}
	return s
}

// direction returns the index at which a scan of n elements begins, and the step to the next index.
func direction(n int, reverse bool) (first, step int) {
	if reverse {
		return n - 1, -1
	}
	return 0, 1
}

// extremes scans x, a part of a row that begins at position low. For each element it stores in
// places the position of the greatest or least element of the row so far. The argument start says
// that the scan of the row begins with this part.
func extremes[T float64 | int64](x []T, places []int64, low int, state *T, best *int64, start, reverse, least bool) {
	k, step := direction(len(x), reverse)
	if start {
		*state, *best = x[k], int64(low+k)
	}
	s, at := *state, *best
	places = places[:len(x)]
	switch {
	case least:
		for range x {
			if v := x[k]; v <= s || v != v {
				s, at = v, int64(low+k)
			}
			places[k] = at
			k += step
		}
	case reverse:
		for k := len(x) - 1; k >= 0; k-- {
			if v := x[k]; v >= s || v != v {
				s, at = v, int64(low+k)
			}
			places[k] = at
		}
	default:
		for k < len(x) {
			if k+4 <= len(x) { // new maxima are rare, so first see whether there is one
				v, p := x[k:k+4:k+4], places[k:k+4:k+4]
				if v[0] < s && v[1] < s && v[2] < s && v[3] < s {
					p[0], p[1], p[2], p[3] = at, at, at, at
					k += 4
					continue
				}
			}
			for range min(4, len(x)-k) {
				if v := x[k]; v >= s || v != v {
					s, at = v, int64(low+k)
				}
				places[k] = at
				k++
			}
		}
	}
	*state, *best = s, at
}

// recur computes a part of a row of a linear recurrence. x holds the factors, and b holds the
// terms that are added. recur replaces each factor by the value of the recurrence at the same
// place. The argument start says that the scan of the row begins with this part.
func recur[T float64 | int64](x, b []T, state *T, reverse, start bool) {
	k, step := direction(len(x), reverse)
	for range x {
		*state = recurred(*state, x[k], b[k], start)
		x[k], start = *state, false
		k += step
	}
}

// recurred returns the next value of a linear recurrence, b + a·s, where s is the previous one. If
// start is true, there is no previous value, and it returns b.
func recurred[T float64 | int64](s, a, b T, start bool) T {
	if start {
		return b
	}
	s = T(a * s) // round the product before the sum
	return s + b
}

// scanColumns scans w neighbouring columns, from column j on, at index o of the dimensions before
// the scanned one. It handles one element of each column at a time.
func scanColumns[T float64 | int64](t *scanTask, space *scanSpace, typ dtype.Type, o, j, w int) {
	xp, bp, pp := unsafe.Pointer(&space.x), unsafe.Pointer(&space.b), unsafe.Pointer(&space.positions)
	x, b, places := at[T](xp, w), at[T](bp, w), at[int64](pp, w)
	sp := unsafe.Pointer(&space.state)
	state := at[T](sp, w)
	clear(state)
	add, mul := ops[expr.OpAdd][typ], ops[expr.OpMul][typ]
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
		result, from := xp, typ
		switch {
		case t.Kind == device.ScanSum:
			add(sp, sp, xp, xp, w)
			result = sp
		case t.Kind == device.ScanProd && done > 0:
			mul(sp, sp, xp, xp, w)
			result = sp
		case t.Kind == device.ScanProd:
			copy(state, x)
		case t.Kind == device.ScanLogSumExp:
			space.logSumsAcross(w, done == 0)
		case t.positions():
			for k, v := range x {
				if s := state[k]; done == 0 || v != v || t.Kind == device.ScanMax && v >= s || t.Kind == device.ScanMin && v <= s {
					state[k], places[k] = v, int64(low)
				}
			}
			result, from = pp, dtype.I64
		default:
			for k, v := range x {
				state[k] = recurred(state[k], v, b[k], done == 0)
				x[k] = state[k]
			}
		}
		space.put(&t.Out, offset(&t.Out), t.Out.Strides.At(2), w, result, from)
	}
}

// logSum is a sum of exponentials: eᵐ·(1 + rest), where m is the greatest exponent. With this form,
// the exponentials of a whole block can be computed at once, and so can the logarithms.
type logSum struct{ most, rest float64 }

// noLogSum is the sum of no exponentials.
var noLogSum = logSum{most: math.Inf(-1)}

var (
	expOf    = &formula{e: expr.Call("exp", expr.X(0))}
	logOfSum = &formula{e: expr.X(0).Add(expr.Call("log1p", expr.X(1)))}
)

// exponents replaces each element of a part of a row by -d, where d is the distance between the
// element and the greatest element before it. It sets most[k] to the greatest element up to and
// including k.
func (s *logSum) exponents(x, most []float64, reverse bool) {
	k, step := direction(len(x), reverse)
	m := s.most
	most = most[:len(x)]
	for range x {
		switch v := x[k]; {
		case v > m:
			x[k], m = m-v, v
		case v == m && math.IsInf(v, 0):
			x[k] = math.Inf(-1)
		default: // also for NaN
			x[k] = v - m
		}
		most[k] = m
		k += step
	}
}

// rests continues the sum after the method exponents. The caller has replaced the elements of x by
// their exponentials. rests replaces each exponential in x by the field rest of the sum so far.
// The argument most is the result of exponents.
func (s *logSum) rests(x, most []float64, reverse bool) {
	k, step := direction(len(x), reverse)
	m, rest := s.most, s.rest
	most = most[:len(x)]
	for range x {
		if most[k] > m {
			m, rest = most[k], (rest+1)*x[k]
		} else {
			rest += x[k]
		}
		x[k] = rest
		k += step
	}
	s.most, s.rest = m, rest
}

// logSums replaces each of the m elements of some rows of w.x by the logarithm of the sum of the
// exponentials so far. The argument start says that the scan of the rows begins with these
// elements.
func (w *scanSpace) logSums(rows, m int, start, reverse bool) {
	if start {
		for r := range rows {
			w.logs[r] = noLogSum
		}
	}
	x, most := at[float64](unsafe.Pointer(&w.x), maxBlock), at[float64](unsafe.Pointer(&w.b), maxBlock)
	each := func(f func(s *logSum, x, most []float64, reverse bool)) {
		for r := range rows {
			f(&w.logs[r], x[r*scanPart:][:m], most[r*scanPart:][:m], reverse)
		}
	}
	each((*logSum).exponents)
	w.compute(expOf, rows, m)
	each((*logSum).rests)
	w.compute(logOfSum, rows, m)
}

// logSumsAcross continues m columns by one element each. It replaces each of these elements by the
// logarithm of the sum of its column's exponentials so far.
func (w *scanSpace) logSumsAcross(m int, start bool) {
	x, most := at[float64](unsafe.Pointer(&w.x), m), at[float64](unsafe.Pointer(&w.b), m)
	if start {
		for k := range m {
			w.logs[k] = noLogSum
		}
	}
	for k := range m {
		w.logs[k].exponents(x[k:k+1], most[k:k+1], false)
	}
	w.compute(expOf, 1, m)
	for k := range m {
		w.logs[k].rests(x[k:k+1], most[k:k+1], false)
	}
	w.compute(logOfSum, 1, m)
}

// compute applies a formula to the first m elements of some rows of w.x, and replaces them by the
// results.
func (w *scanSpace) compute(f *formula, rows, m int) {
	w.formulas.cols = m
	x := rowOperand{unsafe.Pointer(&w.x), dtype.F64, scanPart * 8, 8}
	if f == expOf {
		w.formulas.compute(f, rows, x, x)
		return
	}
	most := x
	most.p = unsafe.Pointer(&w.b)
	w.formulas.compute(f, rows, x, most, x)
}
