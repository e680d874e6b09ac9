package cpu

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// gridTaps describes, along one dimension, the elements that are read for one sampling coordinate.
type gridTaps[K float32 | float64] struct {
	n  int
	at [4]int // indices of the elements; -1 for an element outside the image
	// weights of the elements, and the derivatives of the weights with respect to the position
	w, d  [4]K
	slope K // derivative of the position with respect to the coordinate
}

// gridTask samples images of h × w elements. All images are sampled at the same number of points.
type gridTask[K float32 | float64] struct {
	device.GridSampling
	channels, h, w, points int
	image, out, grid, d    []K // out holds the result of the sampling, or its gradient
	unit                   func(i int)
}

func (t *gridTask[K]) run(lo, hi int) { each(t.unit).run(lo, hi) }

func (d *Device) gridSample(o *device.GridSample) {
	if o.X.Type == dtype.F32 {
		gridSample[float32](d, &device.GridSampleGrad{G: o.Out, X: o.X, Grid: o.Grid, GridSampling: o.GridSampling})
	} else {
		gridSample[float64](d, &device.GridSampleGrad{G: o.Out, X: o.X, Grid: o.Grid, GridSampling: o.GridSampling})
	}
}

func (d *Device) gridSampleGrad(o *device.GridSampleGrad) {
	if o.X.Type == dtype.F32 {
		gridSample[float32](d, o)
	} else {
		gridSample[float64](d, o)
	}
}

// gridSample computes the gradient that o describes. If o.D is absent, it samples the images
// instead, and stores the result in o.G.
func gridSample[K float32 | float64](d *Device, o *device.GridSampleGrad) {
	all := func(v *device.View) []K {
		if v.Absent() || v.Size() == 0 {
			return nil
		}
		return at[K](pointer(v), v.Size())
	}
	t := &gridTask[K]{GridSampling: o.GridSampling, channels: o.X.Shape.At(1), h: o.X.Shape.At(2), w: o.X.Shape.At(3),
		points: o.Grid.Shape.At(1) * o.Grid.Shape.At(2), image: all(&o.X), out: all(&o.G), grid: all(&o.Grid), d: all(&o.D)}
	units, unitSize := o.X.Shape.At(0)*t.points, t.channels
	switch {
	case o.D.Absent():
		t.unit = t.sample
	// one worker handles a whole image, so that the contributions to an element are added in the
	// order of the points
	case o.Input:
		units, unitSize = o.X.Shape.At(0)*t.channels, t.points
		t.unit = t.spread
	default:
		t.unit = t.slopes
	}
	d.workers.parallel(units, max(1, inlineWork/(32*max(1, unitSize))), t)
}

// taps finds the elements that are read for sampling point i. The points of all samples are
// numbered consecutively.
func (t *gridTask[K]) taps(i int) (x, y gridTaps[K]) {
	x.find(&t.GridSampling, t.grid[2*i], t.w)
	y.find(&t.GridSampling, t.grid[2*i+1], t.h)
	return x, y
}

// each calls f for each element that is read and lies inside the image. f receives the element's
// index at in the image, its index i in y, and its index j in x.
func (t *gridTask[K]) each(x, y *gridTaps[K], f func(at int, i, j int)) {
	for i := range y.n {
		for j := range x.n {
			if y.at[i] >= 0 && x.at[j] >= 0 {
				f(y.at[i]*t.w+x.at[j], i, j)
			}
		}
	}
}

func (t *gridTask[K]) sample(i int) {
	x, y := t.taps(i)
	sample, p, plane := i/t.points, i%t.points, t.h*t.w
	for c := range t.channels {
		row := sample*t.channels + c
		var sum K
		t.each(&x, &y, func(at, i, j int) { sum += K(t.image[row*plane+at] * K(y.w[i]*x.w[j])) })
		t.out[row*t.points+p] = sum
	}
}

func (t *gridTask[K]) slopes(i int) {
	if t.Mode == device.GridNearest {
		t.d[2*i], t.d[2*i+1] = 0, 0
		return
	}
	x, y := t.taps(i)
	sample, p, plane := i/t.points, i%t.points, t.h*t.w
	var dx, dy K
	t.each(&x, &y, func(at, i, j int) {
		var sum K
		for c := range t.channels {
			row := sample*t.channels + c
			sum += K(t.image[row*plane+at] * t.out[row*t.points+p])
		}
		dx += K(sum * K(y.w[i]*x.d[j]))
		dy += K(sum * K(y.d[i]*x.w[j]))
	})
	t.d[2*i], t.d[2*i+1] = K(dx*x.slope), K(dy*y.slope)
}

func (t *gridTask[K]) spread(row int) {
	plane := t.h * t.w
	to := t.d[row*plane : (row+1)*plane]
	clear(to)
	for p := range t.points {
		x, y := t.taps(row/t.channels*t.points + p)
		g := t.out[row*t.points+p]
		t.each(&x, &y, func(at, i, j int) { to[at] += K(g * K(y.w[i]*x.w[j])) })
	}
}

// find computes which elements are read for coordinate x in a dimension of n elements, and stores
// them in a.
func (a *gridTaps[K]) find(s *device.GridSampling, x K, n int) {
	size := K(n)
	low := K(-0.5)
	if a.slope = size / 2; s.AlignCorners {
		a.slope, low = (size-1)/2, 0
	}
	at := fused(x+1, a.slope, low) // like torch's kernels, use one fused multiply-add
	if s.Mode != device.GridBicubic {
		var sign K
		at, sign = padGrid(s, at, size)
		a.slope *= sign
	}
	first := K(math.Floor(float64(at)))
	u := at - first
	v := 1 - u
	switch s.Mode {
	case device.GridNearest:
		a.n, a.w[0], first = 1, 1, K(math.RoundToEven(float64(at)))
	case device.GridBilinear:
		a.n, a.w, a.d = 2, [4]K{v, u}, [4]K{-1, 1}
	default:
		a.n, first = 4, first-1
		a.w = [4]K{gridOuter(u, v), gridInner(u, v), gridInner(v, u), gridOuter(v, u)}
		a.d = [4]K{gridOuterSlope(u, v), gridInnerSlope(u), -gridInnerSlope(v), -gridOuterSlope(v, u)}
	}
	for k := range a.n {
		to := first + K(k)
		if s.Mode == device.GridBicubic {
			to, _ = padGrid(s, to, size)
		}
		a.at[k] = -1
		if to >= 0 && to <= size-1 { // false for NaN
			a.at[k] = int(to)
		}
	}
}

// fused returns a·b + c, rounded once.
func fused[K float32 | float64](a, b, c K) K {
	if _, single := any(a).(float32); single {
		return K(expr.FMA32(float32(a), float32(b), float32(c)))
	}
	return K(math.FMA(float64(a), float64(b), float64(c)))
}

// padGrid maps a position to one inside a dimension of the given size, according to the padding
// mode. The result sign is the derivative of the mapped position with respect to the position.
func padGrid[K float32 | float64](s *device.GridSampling, place, size K) (inside, sign K) {
	sign = 1
	switch s.Padding {
	case device.GridZeros:
		return place, 1
	case device.GridReflection:
		low, span := K(-0.5), size
		if s.AlignCorners {
			low, span = 0, size-1
		}
		if span == 0 {
			return 0, 0
		}
		far := place - low
		if far < 0 {
			far, sign = -far, -1
		}
		far -= K(K(math.Trunc(float64(far/(2*span)))) * (2 * span))
		if far > span {
			far, sign = 2*span-far, -sign
		}
		place = far + low
	}
	switch {
	case !(place > 0):
		return 0, 0
	case place >= size-1:
		return size - 1, 0
	}
	return place, sign
}

// gridInner and gridOuter are Keys' kernel of cubic interpolation with a = -¾ (R. Keys, Cubic
// Convolution Interpolation for Digital Image Processing, 1981). gridInner returns its value at the
// distance u, at most 1, where v is 1-u. gridOuter returns its value at the distance 1+u.
func gridInner[K float32 | float64](u, v K) K { return K((K(K(u*u)*-1.25) + u + 1) * v) }

func gridOuter[K float32 | float64](u, v K) K { return K(K(K(u*v)*v) * -0.75) }

// gridInnerSlope is the derivative of gridInner with respect to u. gridOuterSlope is the derivative
// of gridOuter with respect to u.
func gridInnerSlope[K float32 | float64](u K) K { return K(K(K(3.75*u)-4.5) * u) }

func gridOuterSlope[K float32 | float64](u, v K) K { return K(K(-0.75*v) * (v - K(2*u))) }
