package optim

import (
	"math"

	"github.com/flambeau-go/flambeau/tensor"
)

// wolfe is a line search from the vector x along the direction d. f and g are the value and the
// gradient of the function at x, and slope is the derivative of the function along d.
type wolfe struct {
	q        *search
	s        *tensor.Scope
	x, d     *tensor.Tensor
	f        float64
	g        *tensor.Tensor
	slope    float64
	most     int
	evals    int
	distance float64
}

// A point is x + t·d on the line. f is the value there, and slope the derivative along d.
type point struct {
	t, f, slope float64
	g           *tensor.Tensor
}

func (w *wolfe) at(t float64) point {
	w.q.move(t, w.d)
	f, _ := w.q.value()
	w.evals++
	g := w.q.gradient(w.s)
	w.q.spread(w.x, false, 0)
	return point{t, f, dot(g, w.d), g}
}

// cubic returns the minimum, between low and high, of the cubic through two points with their
// slopes.
func cubic(a, b point, low, high float64) float64 {
	d1 := a.slope + b.slope - 3*(a.f-b.f)/(a.t-b.t)
	square := float64(d1*d1) - float64(a.slope*b.slope)
	if !(square >= 0) {
		return (low + high) / 2
	}
	d2 := math.Sqrt(square)
	var t float64
	if a.t <= b.t {
		t = b.t - float64((b.t-a.t)*((b.slope+d2-d1)/(b.slope-a.slope+2*d2)))
	} else {
		t = a.t - float64((a.t-b.t)*((a.slope+d2-d1)/(a.slope-b.slope+2*d2)))
	}
	return min(max(t, low), high)
}

// search returns the value, the gradient and the length of a step that satisfies the strong Wolfe
// conditions. If it finds none, it returns the best step that it has found.
func (w *wolfe) search(t float64) (float64, *tensor.Tensor, float64) {
	const c1, c2, least = 1e-4, 0.9, 1e-9
	w.distance = largest(w.d)
	start := point{0, w.f, w.slope, w.g}
	prev, now := start, w.at(t)
	var bracket [2]point
	found, done := false, false
	n := 0
	for ; n < w.most; n++ {
		if now.f > w.f+float64(c1*now.t*w.slope) || n > 1 && now.f >= prev.f {
			bracket, found = [2]point{prev, now}, true
			break
		}
		if math.Abs(now.slope) <= -c2*w.slope {
			return now.f, now.g, now.t
		}
		if now.slope >= 0 {
			bracket, found = [2]point{prev, now}, true
			break
		}
		next := cubic(prev, now, now.t+float64(0.01*(now.t-prev.t)), now.t*10)
		prev = now
		now = w.at(next)
	}
	if !found {
		bracket = [2]point{start, now}
	}
	low, high := 0, 1
	order := func() {
		low, high = 0, 1
		if !(bracket[0].f <= bracket[1].f) {
			low, high = 1, 0
		}
	}
	order()
	stuck := false
	for ; !done && n < w.most; n++ {
		if math.Abs(bracket[1].t-bracket[0].t)*w.distance < least {
			break
		}
		from, to := min(bracket[0].t, bracket[1].t), max(bracket[0].t, bracket[1].t)
		t := cubic(bracket[0], bracket[1], from, to)
		margin := 0.1 * (to - from)
		if min(to-t, t-from) < margin {
			if stuck || t >= to || t <= from {
				if math.Abs(t-to) < math.Abs(t-from) {
					t = to - margin
				} else {
					t = from + margin
				}
				stuck = false
			} else {
				stuck = true
			}
		} else {
			stuck = false
		}
		now = w.at(t)
		if now.f > w.f+float64(c1*t*w.slope) || now.f >= bracket[low].f {
			bracket[high] = now
			order()
			continue
		}
		if math.Abs(now.slope) <= -c2*w.slope {
			done = true
		} else if now.slope*(bracket[high].t-bracket[low].t) >= 0 {
			bracket[high] = bracket[low]
		}
		bracket[low] = now
	}
	b := bracket[low]
	return b.f, b.g, b.t
}
