package cpu

import (
	"sort"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// searchTask searches sorted rows for values. The values are numbered across all rows, and divided
// among the workers.
type searchTask struct {
	*device.Search
	find func(rows, values unsafe.Pointer, n, rowStride, valueStride, outStride, m int, out unsafe.Pointer, right bool)
}

func (d *Device) search(o *device.Search) {
	n := o.Out.Size()
	if n == 0 {
		return
	}
	t := &searchTask{Search: o}
	switch o.Values.Type {
	case dtype.F32:
		t.find = find[float32]
	case dtype.F64:
		t.find = find[float64]
	case dtype.F16:
		t.find = findHalf(func(p unsafe.Pointer) float32 { return (*dtype.Float16)(p).Float32() })
	case dtype.BF16:
		t.find = findHalf(func(p unsafe.Pointer) float32 { return (*dtype.BFloat16)(p).Float32() })
	case dtype.I64:
		t.find = find[int64]
	case dtype.I32:
		t.find = find[int32]
	case dtype.I16:
		t.find = find[int16]
	case dtype.I8:
		t.find = find[int8]
	default: // U8 or Bool
		t.find = find[uint8]
	}
	d.workers.parallel(n, max(inlineWork/32, n/(8*d.workers.size())), t)
}

func (t *searchTask) run(lo, hi int) {
	m := t.Values.Shape.At(1)
	size := t.Values.Type.Size()
	for lo < hi {
		row, c := lo/m, lo%m
		n := min(m-c, hi-lo)
		t.find(unsafe.Add(pointer(&t.Sorted), row*t.Sorted.Strides.At(0)*size),
			unsafe.Add(pointer(&t.Values), (row*t.Values.Strides.At(0)+c*t.Values.Strides.At(1))*size),
			t.Sorted.Shape.At(1), t.Sorted.Strides.At(1)*size, t.Values.Strides.At(1)*size, t.Out.Strides.At(1)*8, n,
			unsafe.Add(pointer(&t.Out), (row*t.Out.Strides.At(0)+c*t.Out.Strides.At(1))*8), t.Right)
		lo += n
	}
}

// find searches one row for each of m values by binary search. Strides are in bytes.
func find[T number | int16 | int8 | uint8](row, values unsafe.Pointer, n, rowStride, valueStride, outStride, m int, out unsafe.Pointer, right bool) {
	var v [searches]T
	size, end, equal := int(unsafe.Sizeof(v[0])), n, 1
	if rowStride == 0 || n == 1 { // all elements are equal, so searching one suffices
		rowStride, n, equal = size, min(n, 1), n
	}
	for i := 0; i < m; i += searches {
		k := min(searches, m-i)
		for j := range k {
			v[j] = *(*T)(unsafe.Add(values, (i+j)*valueStride))
		}
		offsets := findSome(&v, row, n, rowStride, right)
		for j, o := range offsets[:k] {
			place := int(uint(o) / uint(unsafe.Sizeof(v[0]))) // the divisor is a constant
			if rowStride != size {
				place = o / rowStride
			}
			if place *= equal; v[j] != v[j] {
				place = end
			}
			*(*int64)(unsafe.Add(out, (i+j)*outStride)) = int64(place)
		}
	}
}

// searches is the number of values that are searched at a time. A search waits for each element
// that it reads. In this time the processor can work on other searches.
const searches = 4

// findSome searches a row for values that are not NaN. It returns the distance in bytes from the
// row's start to the place of each value. It has no branches that depend on elements, because the
// processor cannot predict them.
func findSome[T number | int16 | int8 | uint8](v *[searches]T, row unsafe.Pointer, n, stride int, right bool) [searches]int {
	var a, b, c, d int // distances so far
	v0, v1, v2, v3 := v[0], v[1], v[2], v[3]
	for left := n; left > 0; {
		half := (left + 1) / 2
		left -= half
		by := half * stride
		p := unsafe.Add(row, by-stride)
		e0, e1, e2, e3 := *(*T)(unsafe.Add(p, a)), *(*T)(unsafe.Add(p, b)), *(*T)(unsafe.Add(p, c)), *(*T)(unsafe.Add(p, d))
		if right {
			a += by & -one(e0 <= v0)
			b += by & -one(e1 <= v1)
			c += by & -one(e2 <= v2)
			d += by & -one(e3 <= v3)
		} else {
			a += by & -one(e0 < v0)
			b += by & -one(e1 < v1)
			c += by & -one(e2 < v2)
			d += by & -one(e3 < v3)
		}
	}
	return [searches]int{a, b, c, d}
}

// one returns 1 if b is true, else 0.
func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// findHalf returns a function like find for 16-bit floats, which load converts.
func findHalf(load func(unsafe.Pointer) float32) func(row, values unsafe.Pointer, n, rowStride, valueStride, outStride, m int, out unsafe.Pointer, right bool) {
	return func(row, values unsafe.Pointer, n, rowStride, valueStride, outStride, m int, out unsafe.Pointer, right bool) {
		for i := range m {
			v := load(unsafe.Add(values, i*valueStride))
			place := sort.Search(n, func(k int) bool {
				e := load(unsafe.Add(row, k*rowStride))
				return v == v && !(e < v || right && e == v)
			})
			*(*int64)(unsafe.Add(out, i*outStride)) = int64(place)
		}
	}
}
