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

// scanTask scans columns; a unit of work is a block of neighbouring columns.
type scanTask struct {
	*device.Scan
	n      int // elements in a column
	inner  int // number of neighbouring columns
	lanes  int // columns in a unit
	blocks int // units for each outer index
}

// scan combines the elements of each column in order.
func (d *Device) scan(o *device.Scan) {
	if o.Out.Size() == 0 {
		return
	}
	t := &scanTask{Scan: o, n: o.Out.Shape.At(1), inner: o.Out.Shape.At(2)}
	t.lanes = min(t.inner, scanLanes)
	t.blocks = (t.inner + t.lanes - 1) / t.lanes
	units := o.Out.Shape.At(0) * t.blocks
	d.crew.parallel(units, max(1, inlineWork/8/(t.n*t.lanes), units/(8*d.crew.size())), t)
}

// scanSpace is a worker's memory. It is reused, because clearing it takes longer than many scans.
type scanSpace struct {
	raw, computed   [maxBlock]uint64 // buffers of fetch and put
	x, b, positions [maxBlock]uint64
}

var scanSpaces = sync.Pool{New: func() any { return new(scanSpace) }}

func (t *scanTask) run(lo, hi int) {
	w := scanSpaces.Get().(*scanSpace)
	defer scanSpaces.Put(w)
	for u := lo; u < hi; u++ {
		j := u % t.blocks * t.lanes
		if t.Ins[0].Type.IsFloat() {
			scanColumns[float64](t, w, dtype.F64, u/t.blocks, j, min(t.lanes, t.inner-j))
		} else {
			scanColumns[int64](t, w, dtype.I64, u/t.blocks, j, min(t.lanes, t.inner-j))
		}
	}
}

// fetch reads n elements that are stride apart. It converts them to the type in to, which is
// float64 or int64.
func (w *scanSpace) fetch(dst unsafe.Pointer, to dtype.Type, v *device.View, offset, stride, n int) {
	size, t := v.Type.Size(), v.Type.Compute()
	src := unsafe.Add(pointer(v), offset*size)
	p := unsafe.Pointer(&w.raw)
	if t == to && v.Type == t {
		p = dst
	}
	gather(p, src, size, stride*size, n)
	if load := loads[v.Type]; load != nil {
		load(unsafe.Pointer(&w.computed), p, nil, nil, n)
		p = unsafe.Pointer(&w.computed)
	}
	if cast := casts[t][to]; cast != nil && t != to {
		cast(dst, p, nil, nil, n)
	}
}

// put writes n numbers to elements that are stride apart. Their type, in from, is float64 or int64.
func (w *scanSpace) put(v *device.View, offset, stride, n int, src unsafe.Pointer, from dtype.Type) {
	size, t := v.Type.Size(), v.Type.Compute()
	if cast := casts[from][t]; cast != nil && t != from {
		cast(unsafe.Pointer(&w.computed), src, nil, nil, n)
		src = unsafe.Pointer(&w.computed)
	}
	if store := stores[v.Type]; store != nil {
		store(unsafe.Pointer(&w.raw), src, nil, nil, n)
		src = unsafe.Pointer(&w.raw)
	}
	spread(unsafe.Add(pointer(v), offset*size), src, size, stride*size, n)
}

// scanColumns scans w neighbouring columns, beginning at j, of outer index o. A block holds
// elements of one column, or one element of each column.
func scanColumns[T float64 | int64](t *scanTask, space *scanSpace, typ dtype.Type, o, j, w int) {
	xp, bp, pp := unsafe.Pointer(&space.x), unsafe.Pointer(&space.b), unsafe.Pointer(&space.positions)
	x, b, places := at[T](xp, maxBlock), at[T](bp, maxBlock), at[int64](pp, maxBlock)
	var state [scanLanes]T // state of each column
	var best [scanLanes]int64
	step := maxBlock
	if w > 1 {
		step = 1
	}
	positions := t.Kind == device.ScanMax || t.Kind == device.ScanMin
	for done := 0; done < t.n; done += step {
		m := min(step, t.n-done)
		low := done // a block's elements are read in ascending order
		if t.Reverse {
			low = t.n - done - m
		}
		axis, count := 1, m
		if w > 1 {
			axis, count = 2, w
		}
		offset := func(v *device.View) int { return o*v.Strides.At(0) + low*v.Strides.At(1) + j*v.Strides.At(2) }
		first := &t.Ins[0]
		space.fetch(xp, typ, first, offset(first), first.Strides.At(axis), count)
		if len(t.Ins) > 1 {
			second := &t.Ins[1]
			space.fetch(bp, typ, second, offset(second), second.Strides.At(axis), count)
		}
		if t.Kind == device.ScanSum {
			sumLanes(x[:count], state[:w], t.Reverse)
			space.put(&t.Out, offset(&t.Out), t.Out.Strides.At(axis), count, xp, typ)
			continue
		}
		for k := range count {
			i, lane := k, 0
			if w > 1 {
				lane = k
			} else if t.Reverse {
				i = count - 1 - k
			}
			v, s := x[i], &state[lane]
			place := low
			if w == 1 {
				place += i
			}
			start := done == 0 && (w > 1 || k == 0)
			switch {
			case positions:
				if start || v != v || t.Kind == device.ScanMax && v >= *s || t.Kind == device.ScanMin && v <= *s {
					*s, best[lane] = v, int64(place)
				}
				places[i] = best[lane]
				continue
			case t.Kind == device.ScanProd:
				if start {
					*s = 1
				}
				*s *= v
			case t.Kind == device.ScanLogSumExp:
				if start {
					*s = T(math.Inf(-1))
				}
				*s = T(logAddExp(float64(*s), float64(v)))
			case start:
				*s = b[i]
			default:
				*s = T(v * *s) // the product is rounded before the sum
				*s += b[i]
			}
			x[i] = *s
		}
		if positions {
			space.put(&t.Out, offset(&t.Out), t.Out.Strides.At(axis), count, pp, dtype.I64)
		} else {
			space.put(&t.Out, offset(&t.Out), t.Out.Strides.At(axis), count, xp, typ)
		}
	}
}

// sumLanes adds x to the sums so far. x holds one element of each column, or several elements of
// one column.
func sumLanes[T float64 | int64](x, state []T, reverse bool) {
	switch {
	case len(state) > 1:
		for k, v := range x {
			state[k] += v
			x[k] = state[k]
		}
	case reverse:
		s := state[0]
		for k := len(x) - 1; k >= 0; k-- {
			s += x[k]
			x[k] = s
		}
		state[0] = s
	default:
		s := state[0]
		for k, v := range x {
			s += v
			x[k] = s
		}
		state[0] = s
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
