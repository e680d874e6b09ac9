package cpu

import (
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// poolTask processes images. Images and windows always have three dimensions here, some of size 1.
type poolTask struct {
	in, out                          [3]int
	kernel, stride, dilation, before [3]int
	// x holds the images. y has one element for each window of each image.
	x, y []float32
	f    func(t *poolTask, plane int, x, y, row []float32)
}

func (t *poolTask) run(lo, hi int) {
	row := make([]float32, t.in[2])
	n, m := t.in[0]*t.in[1]*t.in[2], t.out[0]*t.out[1]*t.out[2]
	for i := lo; i < hi; i++ {
		t.f(t, i, t.x[i*n:(i+1)*n], t.y[i*m:(i+1)*m], row)
	}
}

// windows calls f for every image in x, with the elements in y that belong to the image's windows.
// The argument out is the view that f writes: x or y.
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
	d.workers.parallel(x.Shape.At(0), max(1, inlineWork/plane), t)
}

// maxPoolGrad adds each window's gradient to the element that is the maximum of the window.
func (d *Device) maxPoolGrad(o *device.MaxPoolGrad) {
	d.windows(&o.Window, &o.DX, &o.DX, &o.G, func(t *poolTask, i int, to, from, _ []float32) {
		clear(to)
		n := len(from)
		first := unsafe.Add(pointer(&o.Near), i*n*o.Near.Type.Size())
		switch o.Near.Type {
		case dtype.U8:
			addToMaxima(t, to, from, at[uint8](first, n))
		case dtype.I16:
			addToMaxima(t, to, from, at[int16](first, n))
		default:
			addToMaxima(t, to, from, at[int32](first, n))
		}
	})
}

// addToMaxima adds each window's gradient, an element of grads, to the element of sums that was the
// maximum of the window. The slice distances holds, for each window, the distance of the maximum
// from the beginning of the window.
func addToMaxima[T uint8 | int16 | int32](t *poolTask, sums, grads []float32, distances []T) {
	cols, step := t.out[2], t.stride[2]
	for z := range t.out[0] {
		for y := range t.out[1] {
			begin := ((z*t.stride[0]-t.before[0])*t.in[1]+y*t.stride[1]-t.before[1])*t.in[2] - t.before[2]
			row := grads[(z*t.out[1]+y)*cols:][:cols]
			for x, k := range distances[(z*t.out[1]+y)*cols:][:cols] {
				sums[begin+int(k)] += row[x]
				begin += step
			}
		}
	}
}

// lines returns the offsets, in an image, of the input rows that the windows of output row (z, y)
// cover. It stores them in the memory of list.
func (t *poolTask) lines(z, y int, list []int) []int {
	list = list[:0]
	for k := range t.kernel[0] {
		a := z*t.stride[0] + k*t.dilation[0] - t.before[0]
		if a < 0 || a >= t.in[0] {
			continue
		}
		for k := range t.kernel[1] {
			if b := y*t.stride[1] + k*t.dilation[1] - t.before[1]; b >= 0 && b < t.in[1] {
				list = append(list, (a*t.in[1]+b)*t.in[2])
			}
		}
	}
	return list
}

// window returns which elements window p of a row covers: lo, lo+step, and so on, below hi. It
// leaves out elements in the padding.
func (t *poolTask) window(p int) (lo, hi, step int) {
	step = t.dilation[2]
	lo = p*t.stride[2] - t.before[2]
	hi = min(lo+step*(t.kernel[2]-1)+1, t.in[2])
	if lo < 0 {
		lo += (step - 1 - lo) / step * step
	}
	return lo, hi, step
}

// sumWindows computes sums over windows. For each row of results it first adds the input rows that
// the windows cover. This gives one row of sums. Then it adds the elements of this row that belong
// to each window.
func (d *Device) sumWindows(o *device.SumWindows) {
	d.windows(&o.Window, &o.Y, &o.X, &o.Y, func(t *poolTask, _ int, from, to, row []float32) {
		if t.whole() {
			to[0] = sum(from)
			return
		}
		var space [64]int
		lines, n := space[:0], 0
		for z := range t.out[0] {
			for y := range t.out[1] {
				lines = t.lines(z, y, lines)
				addLines(row, from, lines)
				for p := range t.out[2] {
					var sum float32
					for x, hi, step := t.window(p); x < hi; x += step {
						sum += row[x]
					}
					to[n] = sum
					n++
				}
			}
		}
	})
}

// addLines sets row to the sum of the rows of an image that begin at the offsets lines. In a short
// row it adds eight columns at a time. The last eight may overlap columns that are already done.
func addLines(row, plane []float32, lines []int) {
	if n := len(row); n >= 8 && n < 32 { // for such short rows, calling a kernel would take longer
		for x := 0; x < n; x += 8 {
			x := min(x, n-8)
			var a, b, c, d, e, f, g, h float32
			for _, at := range lines {
				v := (*[8]float32)(plane[at+x:])
				a, b, c, d, e, f, g, h = a+v[0], b+v[1], c+v[2], d+v[3], e+v[4], f+v[5], g+v[6], h+v[7]
			}
			*(*[8]float32)(row[x:]) = [8]float32{a, b, c, d, e, f, g, h}
		}
		return
	}
	clear(row)
	for _, at := range lines {
		addTo(row, plane[at:at+len(row)])
	}
}

// repeat copies row to the offsets lines of an image. It writes to several consecutive rows at
// once.
func repeat(plane, row []float32, lines []int) {
	for len(lines) > 0 {
		n := 1
		for n < len(lines) && lines[n] == lines[n-1]+len(row) {
			n++
		}
		to := plane[lines[0]:][:n*len(row)]
		for done := copy(to, row); done < len(to); {
			done += copy(to[done:], to[:done])
		}
		lines = lines[n:]
	}
}

// whole reports whether there is only one window, which covers the whole image.
func (t *poolTask) whole() bool {
	return t.kernel == t.in && t.out == [3]int{1, 1, 1} && t.dilation == [3]int{1, 1, 1} && t.before == [3]int{}
}

// disjoint reports whether windows do not overlap along dimension i.
func (t *poolTask) disjoint(i int) bool {
	return t.out[i] == 1 || t.stride[i] > t.dilation[i]*(t.kernel[i]-1)
}

// addTo adds each element of src to the element of dst with the same index.
func addTo(dst, src []float32) {
	if len(dst) < 32 {
		src = src[:len(dst)]
		for i := range dst {
			dst[i] += src[i]
		}
		return
	}
	for lo := 0; lo < len(dst); lo += channelBlock {
		hi := min(lo+channelBlock, len(dst))
		asm.AddF32(dst[lo:hi], dst[lo:hi], src[lo:hi])
	}
}

// sum returns the sum of x. It sums each block, and then adds the sums.
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
