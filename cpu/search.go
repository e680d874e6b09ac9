package cpu

import (
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

var _ device.Searcher = (*Device)(nil)

// searchTask looks values up; a unit is a value, numbered row by row.
type searchTask struct {
	out, sorted, values device.View
	find                func(rows, values unsafe.Pointer, n, rowStride, valueStride, outStride, m int, out unsafe.Pointer, right bool)
	right               bool
}

// Search sets each element of out to the place of its value in the row of sorted; see [device.Searcher].
func (d *Device) Search(s device.Stream, out, sorted, values device.View, right bool) error {
	const op = "search"
	if err := d.checkOut(op, "out", &out); err != nil {
		return err
	}
	if err := d.checkIn(op, "sorted", &sorted); err != nil {
		return err
	}
	if err := d.checkIn(op, "values", &values); err != nil {
		return err
	}
	if arg, why := device.CheckSearch(&out, &sorted, &values); why != "" {
		return &ViewError{op, arg, why}
	}
	if out.Size() == 0 {
		return nil
	}
	if t := device.Tracing(); t != nil && s != nil {
		defer d.traced(t, s, op, device.SearchWork(out, sorted, values), values.Type, t.Wants().ShapesOf([]device.View{out, sorted, values})).done()
	}
	t := &searchTask{out: out, sorted: sorted, values: values, right: right}
	switch values.Type {
	case dtype.F32:
		t.find = find(func(v float32) float32 { return v })
	case dtype.F64:
		t.find = find(func(v float64) float64 { return v })
	case dtype.F16:
		t.find = find(dtype.Float16.Float32)
	case dtype.BF16:
		t.find = find(dtype.BFloat16.Float32)
	case dtype.I64:
		t.find = find(func(v int64) int64 { return v })
	case dtype.I32:
		t.find = find(func(v int32) int32 { return v })
	case dtype.I16:
		t.find = find(func(v int16) int16 { return v })
	case dtype.I8:
		t.find = find(func(v int8) int8 { return v })
	default: // U8, Bool
		t.find = find(func(v uint8) uint8 { return v })
	}
	n := out.Size()
	d.crew.parallel(n, max(inlineWork/32, n/(8*d.crew.size)), t)
	return nil
}

func (t *searchTask) run(lo, hi int) {
	m := t.values.Shape.At(1)
	size := t.values.Type.Size()
	for lo < hi {
		row, c := lo/m, lo%m
		n := min(m-c, hi-lo)
		t.find(unsafe.Add(pointer(&t.sorted), row*t.sorted.Strides.At(0)*size),
			unsafe.Add(pointer(&t.values), (row*t.values.Strides.At(0)+c*t.values.Strides.At(1))*size),
			t.sorted.Shape.At(1), t.sorted.Strides.At(1)*size, t.values.Strides.At(1)*size, t.out.Strides.At(1)*8, n,
			unsafe.Add(pointer(&t.out), (row*t.out.Strides.At(0)+c*t.out.Strides.At(1))*8), t.right)
		lo += n
	}
}

// find halves the row for each of m values; strides are in bytes.
func find[T any, K number | int16 | int8 | uint8](key func(T) K) func(rows, values unsafe.Pointer, n, rowStride, valueStride, outStride, m int, out unsafe.Pointer, right bool) {
	return func(row, values unsafe.Pointer, n, rowStride, valueStride, outStride, m int, out unsafe.Pointer, right bool) {
		for i := range m {
			v := key(*(*T)(unsafe.Add(values, i*valueStride)))
			place, left := 0, n
			if v != v {
				place, left = n, 0
			}
			for left > 0 {
				half := left / 2
				e := key(*(*T)(unsafe.Add(row, (place+half)*rowStride)))
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
}
