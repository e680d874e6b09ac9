package cpu

import (
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// foldTask adds the elements of overlapping windows into images, for a [device.Fold]. Images and
// windows always have three dimensions here, some of size 1. Strides count elements.
type foldTask[K number] struct {
	in, out, kernel          [3]int
	stride, dilation, before [3]int
	// strides of the spatial dimensions of Y, of the kernel dimensions of X, and of the dimensions
	// of X for window positions
	alongY, alongKernel, alongPlaces [3]int
	channels                         int
	y, x                             unsafe.Pointer
	yOuter, xOuter                   [2]int // strides of samples and of channels
	add                              bool
}

// foldWindows runs a [device.Fold].
func (d *Device) foldWindows(o *device.Fold) {
	if o.One() && o.Y.Type == dtype.F32 && !o.Add && o.Y.Contiguous() && d.addWindows(o) {
		return
	}
	switch o.Y.Type {
	case dtype.F32:
		foldAll[float32](d, o)
	case dtype.F64:
		foldAll[float64](d, o)
	case dtype.I32:
		foldAll[int32](d, o)
	default:
		foldAll[int64](d, o)
	}
}

func foldAll[K number](d *Device, o *device.Fold) {
	if o.Y.Size() == 0 {
		return
	}
	one := [3]int{1, 1, 1}
	t := &foldTask[K]{in: one, out: one, kernel: one, stride: one, dilation: one, channels: o.Y.Shape.At(1), y: pointer(&o.Y), add: o.Add}
	if o.X.Size() > 0 {
		t.x = pointer(&o.X)
	}
	for i := range 2 {
		t.yOuter[i], t.xOuter[i] = o.Y.Strides.At(i), o.X.Strides.At(i)
	}
	// Leave out a spatial dimension of size 1, so that the rows are along a longer dimension.
	at := 2
	for i := o.Rank - 1; i >= 0; i-- {
		in, out := o.Y.Shape.At(2+i), o.X.Shape.At(2+o.Rank+i)
		if in == 1 && out == 1 && o.Kernel[i] == 1 && o.Before[i] == 0 {
			continue
		}
		t.in[at], t.kernel[at], t.out[at] = in, o.Kernel[i], out
		t.stride[at], t.dilation[at], t.before[at] = o.Stride[i], o.Dilation[i], o.Before[i]
		t.alongY[at], t.alongKernel[at], t.alongPlaces[at] = o.Y.Strides.At(2+i), o.X.Strides.At(2+i), o.X.Strides.At(2+o.Rank+i)
		at--
	}
	planes := o.Y.Shape.At(0) * t.channels
	d.workers.parallel(planes, max(1, inlineWork/max(1, (o.Y.Size()+o.X.Size())/planes)), t)
}

// places returns the range of window positions at which element k of a window lies inside the
// image, along dimension i. The result at is the index in the image for the first of these
// positions.
func (t *foldTask[K]) places(i, k int) (lo, hi, at int) {
	first := k*t.dilation[i] - t.before[i]
	if first < 0 {
		lo = (-first + t.stride[i] - 1) / t.stride[i]
	}
	if last := t.in[i] - 1 - first; last >= 0 {
		hi = min(last/t.stride[i]+1, t.out[i])
	}
	return lo, hi, first + lo*t.stride[i]
}

func (t *foldTask[K]) run(lo, hi int) {
	var zero K
	size := int(unsafe.Sizeof(zero))
	for plane := lo; plane < hi; plane++ {
		n, c := plane/t.channels, plane%t.channels
		y := unsafe.Add(t.y, (n*t.yOuter[0]+c*t.yOuter[1])*size)
		if !t.add {
			for i := range t.in[0] {
				for k := range t.in[1] {
					fillRow[K](unsafe.Add(y, (i*t.alongY[0]+k*t.alongY[1])*size), t.in[2], t.alongY[2])
				}
			}
		}
		if t.x == nil { // there are no windows
			continue
		}
		x := unsafe.Add(t.x, (n*t.xOuter[0]+c*t.xOuter[1])*size)
		for k := range t.kernel[0] * t.kernel[1] * t.kernel[2] {
			t.addElement(y, x, [3]int{k / t.kernel[2] / t.kernel[1], k / t.kernel[2] % t.kernel[1], k % t.kernel[2]}, size)
		}
	}
}

// addElement adds element k of all windows to the image at y. x is the first element of the image's
// windows.
func (t *foldTask[K]) addElement(y, x unsafe.Pointer, k [3]int, size int) {
	var lo, hi, at [3]int
	for i := range 3 {
		lo[i], hi[i], at[i] = t.places(i, k[i])
		if lo[i] >= hi[i] {
			return
		}
	}
	for p := lo[0]; p < hi[0]; p++ {
		for q := lo[1]; q < hi[1]; q++ {
			to := (at[0]+(p-lo[0])*t.stride[0])*t.alongY[0] + (at[1]+(q-lo[1])*t.stride[1])*t.alongY[1] + at[2]*t.alongY[2]
			from := p*t.alongPlaces[0] + q*t.alongPlaces[1] + lo[2]*t.alongPlaces[2]
			for i := range 3 {
				from += k[i] * t.alongKernel[i]
			}
			addRow[K](unsafe.Add(y, to*size), unsafe.Add(x, from*size), hi[2]-lo[2], t.stride[2]*t.alongY[2], t.alongPlaces[2])
		}
	}
}

// fillRow sets n elements, step elements apart, to 0.
func fillRow[K number](p unsafe.Pointer, n, step int) {
	var zero K
	if step == 1 {
		clear(at[K](p, n))
		return
	}
	for i := range n {
		*(*K)(unsafe.Add(p, i*step*int(unsafe.Sizeof(zero)))) = 0
	}
}

// addRow adds n elements of x to n elements of y. Successive elements are stepX elements apart in
// x, and stepY in y.
func addRow[K number](y, x unsafe.Pointer, n, stepY, stepX int) {
	if stepY == 1 && stepX == 1 {
		to, from := at[K](y, n), at[K](x, n)
		if to, ok := any(to).([]float32); ok && n >= 32 {
			asm.AddF32(to, to, any(from).([]float32))
			return
		}
		for i, v := range from {
			to[i] += v
		}
		return
	}
	var zero K
	size := int(unsafe.Sizeof(zero))
	stepY, stepX = stepY*size, stepX*size
	to, from := 0, 0 // offsets of the current elements in y and x
	for ; n >= 4; n -= 4 {
		*(*K)(unsafe.Add(y, to)) += *(*K)(unsafe.Add(x, from))
		*(*K)(unsafe.Add(y, to+stepY)) += *(*K)(unsafe.Add(x, from+stepX))
		*(*K)(unsafe.Add(y, to+2*stepY)) += *(*K)(unsafe.Add(x, from+2*stepX))
		*(*K)(unsafe.Add(y, to+3*stepY)) += *(*K)(unsafe.Add(x, from+3*stepX))
		to, from = to+4*stepY, from+4*stepX
	}
	for ; n > 0; n-- {
		*(*K)(unsafe.Add(y, to)) += *(*K)(unsafe.Add(x, from))
		to, from = to+stepY, from+stepX
	}
}

// addWindows runs a fold in which all elements of a window are the same number. It returns false if
// these numbers are not contiguous. It expands each row of windows to one row of elements, and adds
// that row to all rows of the image that the windows cover.
func (d *Device) addWindows(o *device.Fold) bool {
	planes := func(v *device.View, from int) device.View {
		s, strides := v.Shape.Head(2), v.Strides.Head(2)
		for i := range o.Rank {
			s, strides = s.Append(v.Shape.At(from+i)), strides.Append(v.Strides.At(from+i))
		}
		p := device.View{Buf: v.Buf, Type: v.Type, Layout: shape.Layout{Shape: s, Strides: strides, Offset: v.Offset}}
		if !p.Contiguous() || p.Size() == 0 {
			return device.View{}
		}
		p.Shape = p.Shape.Remove(0).With(0, p.Shape.At(0)*p.Shape.At(1))
		p.Strides = p.Shape.Contiguous()
		return p
	}
	y, x := planes(&o.Y, 2), planes(&o.X, 2+o.Rank)
	if y.Absent() || x.Absent() {
		return false
	}
	d.windows(&o.Window, &y, &y, &x, func(t *poolTask, _ int, to, from, row []float32) {
		if t.whole() {
			for i := range to {
				to[i] = from[0]
			}
			return
		}
		clear(to)
		// apart is true if at most one row of windows covers each row of the image
		apart := t.disjoint(0) && t.disjoint(1)
		var space [64]int
		lines := space[:0]
		for z := range t.out[0] {
			for y := range t.out[1] {
				clear(row)
				for p, v := range from[:t.out[2]] {
					for x, hi, step := t.window(p); x < hi; x += step {
						row[x] += v
					}
				}
				from = from[t.out[2]:]
				if lines = t.lines(z, y, lines); apart {
					repeat(to, row, lines)
					continue
				}
				for _, at := range lines {
					addTo(to[at:at+len(row)], row)
				}
			}
		}
	})
	return true
}
