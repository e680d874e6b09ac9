package cpu

import (
	"sort"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// searchTask searches sorted rows for values. The workers share the values, which are numbered
// across all rows.
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
	for i := range m {
		v := *(*T)(unsafe.Add(values, i*valueStride))
		place, left := 0, n
		if v != v {
			place, left = n, 0
		}
		for left > 0 {
			half := int(uint(left) / 2)
			e := *(*T)(unsafe.Add(row, (place+half)*rowStride))
			if e < v || right && e == v {
				place += half + 1
				left -= half + 1
			} else {
				left = half
			}
		}
		*(*int64)(unsafe.Add(out, i*outStride)) = int64(place)
	}
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
