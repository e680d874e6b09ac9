package cpu

import (
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// poolTask processes planes, with windows in three dimensions.
type poolTask struct {
	in, out                          [3]int
	kernel, stride, dilation, before [3]int
	x, y                             []float32 // elements of the planes, and of their windows
	f                                func(t *poolTask, plane int, x, y, row []float32)
}

func (t *poolTask) run(lo, hi int) {
	row := make([]float32, t.in[2])
	n, m := t.in[0]*t.in[1]*t.in[2], t.out[0]*t.out[1]*t.out[2]
	for i := lo; i < hi; i++ {
		t.f(t, i, t.x[i*n:(i+1)*n], t.y[i*m:(i+1)*m], row)
	}
}

// windows runs f on every plane of x, with the results y of its windows. The view out is the result
// of f. It is either x or y.
func (d *Device) windows(w *device.Window, out, x, y *device.View, f func(t *poolTask, plane int, x, y, row []float32)) {
	if out.Size() == 0 {
		return
	}
	t := &poolTask{in: w.Planes(x.Shape), out: w.Planes(y.Shape), kernel: [3]int{1, 1, 1}, stride: [3]int{1, 1, 1}, dilation: [3]int{1, 1, 1}, x: floats(x), y: floats(y), f: f}
	for i := range w.Rank {
		at := 3 - w.Rank + i
		t.kernel[at], t.stride[at], t.dilation[at], t.before[at] = w.Kernel[i], w.Stride[i], w.Dilation[i], w.Before[i]
	}
	plane := max(1, x.Size()/x.Shape.At(0))
	d.crew.parallel(x.Shape.At(0), max(1, inlineWork/plane), t)
}

// maxPoolGrad adds each window's gradient to the element that is the maximum of the window.
func (d *Device) maxPoolGrad(o *device.MaxPoolGrad) {
	d.windows(&o.Window, &o.DX, &o.DX, &o.G, func(t *poolTask, i int, to, from, _ []float32) {
		clear(to)
		n := len(from)
		first := unsafe.Add(pointer(&o.Near), i*n*o.Near.Type.Size())
		switch o.Near.Type {
		case dtype.U8:
			reach(t, to, from, at[uint8](first, n))
		case dtype.I16:
			reach(t, to, from, at[int16](first, n))
		default:
			reach(t, to, from, at[int32](first, n))
		}
	})
}

// reach adds each window's gradient to the element at which the window had its maximum. The slice
// from holds the gradients, and the slice to holds the sums. The slice near holds, for each window,
// the distance of the maximum from the beginning of the window.
func reach[T uint8 | int16 | int32](t *poolTask, to, from []float32, near []T) {
	cols, step := t.out[2], t.stride[2]
	for z := range t.out[0] {
		for y := range t.out[1] {
			begin := ((z*t.stride[0]-t.before[0])*t.in[1]+y*t.stride[1]-t.before[1])*t.in[2] - t.before[2]
			row := from[(z*t.out[1]+y)*cols:][:cols]
			for x, k := range near[(z*t.out[1]+y)*cols:][:cols] {
				to[begin+int(k)] += row[x]
				begin += step
			}
		}
	}
}

// lines calls f for each input row that the windows of output row (z, y) cover. f gets the offset
// of the row in its plane.
func (t *poolTask) lines(z, y int, f func(at int)) {
	for k := range t.kernel[0] {
		a := z*t.stride[0] + k*t.dilation[0] - t.before[0]
		if a < 0 || a >= t.in[0] {
			continue
		}
		for k := range t.kernel[1] {
			if b := y*t.stride[1] + k*t.dilation[1] - t.before[1]; b >= 0 && b < t.in[1] {
				f((a*t.in[1] + b) * t.in[2])
			}
		}
	}
}

// sumWindows sums windows. It first adds the rows of a window, and then the elements of the sum.
func (d *Device) sumWindows(o *device.SumWindows) {
	d.windows(&o.Window, &o.Y, &o.X, &o.Y, func(t *poolTask, _ int, from, to, row []float32) {
		if t.whole() {
			to[0] = sum(from)
			return
		}
		n := 0
		for z := range t.out[0] {
			for y := range t.out[1] {
				clear(row)
				t.lines(z, y, func(at int) { addTo(row, from[at:at+len(row)]) })
				for p := range t.out[2] {
					var sum float32
					for k := range t.kernel[2] {
						if x := p*t.stride[2] + k*t.dilation[2] - t.before[2]; uint(x) < uint(len(row)) {
							sum += row[x]
						}
					}
					to[n] = sum
					n++
				}
			}
		}
	})
}

// addWindows is the gradient of sumWindows. It expands a row of places to one row of input
// elements, and adds it to all rows that the windows cover.
func (d *Device) addWindows(o *device.AddWindows) {
	d.windows(&o.Window, &o.DX, &o.DX, &o.G, func(t *poolTask, _ int, to, from, row []float32) {
		if t.whole() {
			for i := range to {
				to[i] = from[0]
			}
			return
		}
		clear(to)
		add := addTo
		if t.apart(0) && t.apart(1) { // each input row gets values from only one row of places
			add = func(dst, from []float32) { copy(dst, from) }
		}
		for z := range t.out[0] {
			for y := range t.out[1] {
				clear(row)
				for p, v := range from[:t.out[2]] {
					for k := range t.kernel[2] {
						if x := p*t.stride[2] + k*t.dilation[2] - t.before[2]; uint(x) < uint(len(row)) {
							row[x] += v
						}
					}
				}
				from = from[t.out[2]:]
				t.lines(z, y, func(at int) { add(to[at:at+len(row)], row) })
			}
		}
	})
}

// whole reports whether there is only one window, and it covers the whole plane.
func (t *poolTask) whole() bool {
	return t.kernel == t.in && t.out == [3]int{1, 1, 1} && t.dilation == [3]int{1, 1, 1} && t.before == [3]int{}
}

// apart reports whether windows do not overlap along dimension i.
func (t *poolTask) apart(i int) bool {
	return t.out[i] == 1 || t.stride[i] > t.dilation[i]*(t.kernel[i]-1)
}

// addTo adds each element of the second slice to the element of dst with the same index.
func addTo(dst, from []float32) {
	if len(dst) < 32 {
		from = from[:len(dst)]
		for i := range dst {
			dst[i] += from[i]
		}
		return
	}
	for lo := 0; lo < len(dst); lo += channelBlock {
		hi := min(lo+channelBlock, len(dst))
		asm.AddF32(dst[lo:hi], dst[lo:hi], from[lo:hi])
	}
}

// sum returns the sum of x. It sums block by block.
func sum(x []float32) float32 {
	if len(x) <= channelBlock {
		return asm.SumF32(x)
	}
	var all float64
	for lo := 0; lo < len(x); lo += channelBlock {
		all += float64(asm.SumF32(x[lo:min(lo+channelBlock, len(x))]))
	}
	return float32(all)
}
