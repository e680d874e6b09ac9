package rows

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// TestKernels compares every variant of the kernels with sums in float64. The sizes include some
// without whole blocks.
func TestKernels(t *testing.T) {
	for _, variant := range asm.Variants() {
		t.Run(variant, func(t *testing.T) {
			defer asm.Use(variant)()
			compare[float32](t, 0x1p-22)
			compare[float64](t, 0x1p-51)
		})
	}
}

func compare[T Float](t *testing.T, eps float64) {
	r := rand.New(rand.NewPCG(3, 4))
	numbers := func(n int) []T {
		v := make([]T, n)
		for i := range v {
			v[i] = T(r.NormFloat64())
		}
		return v
	}
	for _, size := range [][2]int{{0, 16}, {4, 0}, {4, 16}, {8, 48}, {12, 64}, {20, 80}, {64, 144}} {
		m, n := size[0], size[1]
		lda := n + 3
		a, p, q, f := numbers(m*lda), numbers(m), numbers(m), numbers(m)
		y, x, sum := numbers(n), numbers(n), numbers(n)
		check := func(name string, got T, want, scale float64) {
			if !(math.Abs(float64(got)-want) <= eps*scale) {
				t.Errorf("%s of %dx%d: %v, want %v", name, m, n, got, want)
			}
		}
		updated, added := append([]T(nil), a...), append([]T(nil), a...)
		updatedSum, combined, dots := append([]T(nil), sum...), append([]T(nil), sum...), make([]T, m)
		Update(m, n, updated, lda, p, y, q, x, f, updatedSum)
		Add(m, n, added, lda, p, y)
		Combine(m, n, a, lda, f, combined)
		Dots(m, n, a, lda, x, dots)
		for j := range n {
			u, c := float64(sum[j]), float64(sum[j])
			for i := range m {
				v := float64(a[i*lda+j])
				check("add", added[i*lda+j], v+float64(p[i])*float64(y[j]), 10)
				c += float64(f[i]) * v
				v += float64(p[i])*float64(y[j]) + float64(q[i])*float64(x[j])
				check("update", updated[i*lda+j], v, 20)
				u += float64(f[i]) * v
			}
			check("sum of update", updatedSum[j], u, 20*float64(m+1))
			check("combine", combined[j], c, 10*float64(m+1))
		}
		for i := range m {
			d := 0.0
			for j := range n {
				d += float64(a[i*lda+j]) * float64(x[j])
			}
			check("dots", dots[i], d, 10*float64(n+1))
			for j := n; j < lda; j++ {
				if updated[i*lda+j] != a[i*lda+j] || added[i*lda+j] != a[i*lda+j] {
					t.Errorf("%dx%d: the space between rows was written", m, n)
				}
			}
		}
		if m == 0 {
			continue
		}
		for _, step := range []int{lda, -lda} {
			got, want := append([]T(nil), a...), make([]float64, len(a))
			for i, v := range a {
				want[i] = float64(v)
			}
			cos, sin := make([]T, m-1), make([]T, m-1)
			first := 0
			if step < 0 {
				first = (m - 1) * lda
			}
			for i := range cos {
				s, c := math.Sincos(r.Float64() * 6)
				cos[i], sin[i] = T(c), T(s)
				for j := range n {
					u, v := &want[first+i*step+j], &want[first+(i+1)*step+j]
					*u, *v = float64(cos[i])**u+float64(sin[i])**v, float64(cos[i])**v-float64(sin[i])**u
				}
			}
			Rotate(n, got, first, step, cos, sin)
			for i := range got {
				check("rotate", got[i], want[i], 10*float64(m))
			}
		}
	}
}

// TestSubstitute compares every variant of the kernel with the formula in float64, for both
// directions.
func TestSubstitute(t *testing.T) {
	for _, variant := range asm.Variants() {
		t.Run(variant, func(t *testing.T) {
			defer asm.Use(variant)()
			substitutes[float32](t, 0x1p-21)
			substitutes[float64](t, 0x1p-50)
		})
	}
}

func substitutes[T Float](t *testing.T, eps float64) {
	r := rand.New(rand.NewPCG(5, 6))
	for c := range 64 {
		n, m := 16*(1+r.IntN(9)), 1+r.IntN(17)
		lo, unit, negate, backwards := r.IntN(m), c&1 != 0, c&2 != 0, c&4 != 0
		ldx, lda := n+r.IntN(3), m+r.IntN(3)
		a, x := make([]T, m*lda), make([]T, m*ldx)
		for i := range a {
			a[i] = T(r.NormFloat64() / 4)
		}
		for i := range x {
			x[i] = T(r.NormFloat64())
		}
		tri := Triangle[T]{Data: a, Row: lda, Column: 1, Unit: unit}
		first, step := 0, ldx
		if backwards {
			tri.First, tri.Row, tri.Column = (m-1)*(lda+1), -lda, -1
			first, step = (m-1)*ldx, -ldx
		}
		for i := range m {
			a[i*(lda+1)] += 2
		}
		want := make([]float64, len(x))
		for i, v := range x {
			want[i] = float64(v)
		}
		for i := lo; i < m; i++ {
			for j := range n {
				v := &want[first+i*step+j]
				for k := range i {
					*v += float64(a[tri.First+i*tri.Row+k*tri.Column]) * want[first+k*step+j]
				}
				if negate {
					*v = -*v
				}
				if !unit {
					*v /= float64(a[tri.First+i*(tri.Row+tri.Column)])
				}
			}
		}
		Substitute(lo, m, n, tri, x, first, step, negate)
		for i, v := range x {
			if d := math.Abs(float64(v) - want[i]); !(d <= eps*10*(1+math.Abs(want[i]))*float64(m)) {
				t.Errorf("%T, rows %d to %d of %d columns: element %d is %v, want %v", v, lo, m, n, i, v, want[i])
			}
		}
	}
}

// TestRefuses checks that sizes that are not padded, and slices that are too short, panic.
func TestRefuses(t *testing.T) {
	v := make([]float64, 64)
	for name, f := range map[string]func(){
		"rows":                func() { Add(3, 16, v, 16, v, v) },
		"columns":             func() { Add(4, 12, v, 16, v, v) },
		"matrix":              func() { Add(8, 16, v, 16, v, v) },
		"vector":              func() { Dots(4, 16, v, 16, v[:15:15], v) },
		"rotated":             func() { Rotate(16, v, 0, 16, v[:4], v[:4]) },
		"before":              func() { Rotate(16, v, 16, -16, v[:2], v[:2]) },
		"substituted columns": func() { Substitute(0, 2, 12, Triangle[float64]{Data: v, Row: 2, Column: 1}, v, 0, 16, false) },
		"substituted rows":    func() { Substitute(0, 5, 16, Triangle[float64]{Data: v, Row: 5, Column: 1}, v, 0, 16, false) },
		"triangle":            func() { Substitute(0, 4, 16, Triangle[float64]{Data: v[:15:15], Row: 4, Column: 1}, v, 0, 16, false) },
		"diagonal":            func() { Substitute(0, 1, 16, Triangle[float64]{}, v, 0, 16, false) },
		"sines":               func() { Rotate(16, v, 0, 16, v[:2], v[:1:1]) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
