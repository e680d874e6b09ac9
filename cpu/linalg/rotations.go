package linalg

import (
	"math"

	"github.com/flambeau-go/flambeau/cpu/internal/rows"
)

// rotations collects sequences (sweeps) of plane rotations, and applies them to the rows of a
// matrix. It applies many sweeps to a stripe of columns, which stays in the cache, before it goes
// on to the next stripe.
type rotations[T Float] struct {
	par    Parallel
	to     *padded[T]
	both   padded[T] // a row of cosines and a row of sines
	used   int       // number of rotations that are collected
	limit  int       // collected rotations are applied when they reach this number
	sweeps []sweep
}

// sweep is a sequence of rotations of neighbouring rows. The first rotates rows first and
// first+step, the next rows first+step and first+2·step, and so on. step is 1 or -1. The cosines
// and sines of the sweep are elements lo to hi-1 of the rows of rotations.both.
type sweep struct{ first, step, lo, hi int }

// rotationsOf returns an empty collection of rotations for the rows of x. A sweep must have fewer
// than n rotations. A small matrix gets memory for few rotations.
func rotationsOf[T Float](par Parallel, x *padded[T], n int) *rotations[T] {
	limit := min(4<<10, n*n)
	return &rotations[T]{par: par, to: x, both: zeros[T](2, limit+n), limit: limit}
}

func (r *rotations[T]) release() { r.both.release() }

// begin adds a sweep of count rotations. It returns memory that the caller must fill with their
// cosines and sines.
func (r *rotations[T]) begin(first, step, count int) (cos, sin []T) {
	if r.used >= r.limit {
		r.flush()
	}
	lo, hi := r.used, r.used+count
	r.used = hi
	r.sweeps = append(r.sweeps, sweep{first, step, lo, hi})
	return r.both.row(0)[lo:hi], r.both.row(1)[lo:hi]
}

// flush applies the collected sweeps to the matrix.
func (r *rotations[T]) flush() {
	const stripe = 4 * rows.Width
	p, cos, sin := r.to, r.both.row(0), r.both.row(1)
	r.par((p.stride+stripe-1)/stripe, func(i int) {
		j := i * stripe
		n := min(stripe, p.stride-j)
		for _, s := range r.sweeps {
			rows.Rotate(n, p.a, s.first*p.stride+j, s.step*p.stride, cos[s.lo:s.hi], sin[s.lo:s.hi])
		}
	})
	r.used, r.sweeps = 0, r.sweeps[:0]
}

// rotation returns the rotation for which cos·f + sin·g = r and cos·g - sin·f = 0. The squares of f
// and g must not overflow.
func rotation(f, g float64) (cos, sin, r float64) {
	switch s := float64(f*f) + float64(g*g); {
	case g == 0:
		return 1, 0, f
	case s < 0x1p-960: // the squares of such small numbers lose digits by underflow
		cos, sin, r = rotation(f*0x1p500, g*0x1p500)
		return cos, sin, r * 0x1p-500
	default:
		r = math.Sqrt(s)
		inverse := 1 / r
		return f * inverse, g * inverse, r
	}
}
