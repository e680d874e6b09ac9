package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

func goroutines(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(n - 1 - i) })
	}
	wg.Wait()
}

// layouts are ways to store a matrix with the given numbers of rows and columns. Each returns the
// distances between rows and between columns.
var layouts = []struct {
	name    string
	strides func(rows, cols int) (rs, cs int)
}{
	{"rows", func(_, c int) (int, int) { return c, 1 }},
	{"columns", func(r, _ int) (int, int) { return 1, r }},
	{"wide rows", func(_, c int) (int, int) { return c + 5, 1 }},
	{"strided", func(_, c int) (int, int) { return 3*c + 1, 3 }},
}

type matrix[T float] struct {
	data       []T
	rows, cols int
	rs, cs     int
}

const canary = -12345

func newMatrix[T float](r *rand.Rand, rows, cols, layout int) matrix[T] {
	m := matrix[T]{rows: rows, cols: cols}
	m.rs, m.cs = layouts[layout].strides(rows, cols)
	if rows > 0 && cols > 0 {
		m.data = make([]T, (rows-1)*m.rs+(cols-1)*m.cs+1)
	}
	for i := range m.data {
		m.data[i] = canary
	}
	for i := range rows {
		for j := range cols {
			m.data[i*m.rs+j*m.cs] = T(r.NormFloat64())
		}
	}
	return m
}

func (m matrix[T]) at(i, j int) float64 { return float64(m.data[i*m.rs+j*m.cs]) }

type gemmFunc[T float] func(par Parallel, m, n, k int, a []T, ars, acs int, b []T, brs, bcs int, c []T, crs, ccs int, accumulate bool)

// testProduct compares one product with float64 sums. The error of a sum of k products in any order
// is at most about k·ε·Σ|a·b| (Higham, "Accuracy and Stability of Numerical Algorithms", 3.1).
func testProduct[T float](r *rand.Rand, f gemmFunc[T], eps float64, m, n, k int, layout [3]int, accumulate bool) error {
	a, b, c := newMatrix[T](r, m, k, layout[0]), newMatrix[T](r, k, n, layout[1]), newMatrix[T](r, m, n, layout[2])
	before := append([]T(nil), c.data...)
	again := append([]T(nil), c.data...)
	f(Serial, m, n, k, a.data, a.rs, a.cs, b.data, b.rs, b.cs, c.data, c.rs, c.cs, accumulate)
	f(goroutines, m, n, k, a.data, a.rs, a.cs, b.data, b.rs, b.cs, again, c.rs, c.cs, accumulate)
	inside := make([]bool, len(before))
	for i := range m {
		for j := range n {
			want, size := 0.0, 0.0
			if accumulate {
				want = float64(before[i*c.rs+j*c.cs])
				size = math.Abs(want)
			}
			for p := range k {
				want += a.at(i, p) * b.at(p, j)
				size += math.Abs(a.at(i, p) * b.at(p, j))
			}
			if got := c.at(i, j); !(math.Abs(got-want) <= float64(k+2)*eps*size) {
				return fmt.Errorf("c[%d,%d] = %v, want %v", i, j, got, want)
			}
			inside[i*c.rs+j*c.cs] = true
		}
	}
	for i, in := range inside {
		if c.data[i] != again[i] {
			return fmt.Errorf("element %d is %v from one worker, %v from many", i, c.data[i], again[i])
		}
		if !in && c.data[i] != canary {
			return fmt.Errorf("wrote %v between the elements of C", c.data[i])
		}
	}
	return nil
}

func testAll[T float](t *testing.T, variants []string, f gemmFunc[T], eps float64) {
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) {
			defer asm.Use(variant)()
			r := rand.New(rand.NewPCG(7, 8))
			try := func(m, n, k int, layout [3]int, accumulate bool) {
				t.Helper()
				if err := testProduct(r, f, eps, m, n, k, layout, accumulate); err != nil {
					t.Fatalf("m %d, n %d, k %d, A by %s, B by %s, C by %s, accumulate %v: %v", m, n, k,
						layouts[layout[0]].name, layouts[layout[1]].name, layouts[layout[2]].name, accumulate, err)
				}
			}
			for _, s := range [][3]int{{0, 3, 4}, {3, 0, 4}, {3, 4, 0}, {1, 1, 1}, {1, 40, 30}, {40, 1, 30}, {2, 3, 700}, {4, 70, 33}, {5, 7, 11},
				{13, 31, 17}, {14, 32, 64}, {15, 33, 65}, {29, 17, 400}, {28, 65, 50}, {61, 10, 130}, {64, 64, 64}, {100, 90, 80}} {
				for l := s[1] % 3; l < 64; l += s[0]*s[1]*s[2]/10000 | 1 {
					try(s[0], s[1], s[2], [3]int{l % 4, l / 4 % 4, l / 16}, l%3 == 0)
				}
			}
			for m := range 32 { // every height of a tile
				try(m, 37, 21, [3]int{}, m%2 == 0)
			}
			for n := range 68 { // every width
				try(16, n, 21, [3]int{n % 2, n / 2 % 2, 0}, n%2 == 0)
			}
			for k := range 40 {
				try(17, 35, k, [3]int{k % 2, k / 2 % 2, 0}, k%3 == 0)
			}
			for m := range 14 { // few rows, for which dot products are used
				try(m, 7+m, 16*m+5, [3]int{0, 1, m % 4}, m%2 == 0)
				try(7+m, m, 16*m+8, [3]int{2, 1, m % 4}, m%2 == 1)
			}
			try(70, 150, 1000, [3]int{0, 1, 0}, true) // several blocks of k and several tasks
			try(3, 2100, 5, [3]int{0, 0, 0}, false)   // more than one group of columns
			try(2100, 6, 3, [3]int{0, 1, 0}, false)
			try(6, 7, 5000, [3]int{1, 0, 0}, false)
			for range 30 {
				try(1+r.IntN(90), 1+r.IntN(90), 1+r.IntN(90), [3]int{r.IntN(4), r.IntN(4), r.IntN(4)}, r.IntN(2) == 0)
			}
		})
	}
}

func TestF32(t *testing.T) { testAll(t, asm.Variants(), F32, 0x1p-24) }

// The reference has float64 rounding errors too, so the bound is twice the unit roundoff 2⁻⁵³.
func TestF64(t *testing.T) { testAll(t, asm.Variants(), F64, 0x1p-52) }

// TestRepeatedOperand multiplies with distances of 0, which repeat a row or a column.
func TestRepeatedOperand(t *testing.T) {
	for _, variant := range asm.Variants() {
		restore := asm.Use(variant)
		x := make([]float32, 50)
		for i := range x {
			x[i] = float32(i)
		}
		c := make([]float32, 40*20)
		F32(Serial, 40, 20, 50, x, 0, 1, []float32{2}, 0, 0, c, 20, 1, false)
		for i, v := range c {
			if v != 2450 {
				t.Fatalf("%s: element %d is %v, want 2450", variant, i, v)
			}
		}
		restore()
	}
}

// TestNotFinite puts NaN and infinities into the factors, also at the edges of tiles. They must
// affect exactly those elements of the result that they are multiplied into.
func TestNotFinite(t *testing.T) {
	const m, n, k = 47, 77, 90
	for _, variant := range asm.Variants() {
		restore := asm.Use(variant)
		a, b, c := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n)
		for i := range a {
			a[i] = 1
		}
		for i := range b {
			b[i] = 1
		}
		a[46*k+89], b[3*n+76] = float32(math.NaN()), float32(math.Inf(1))
		F32(Serial, m, n, k, a, k, 1, b, n, 1, c, n, 1, false)
		for i := range m {
			for j := range n {
				got := float64(c[i*n+j])
				ok := got == k
				if i == 46 {
					ok = math.IsNaN(got)
				} else if j == 76 {
					ok = math.IsInf(got, 1)
				}
				if !ok {
					t.Fatalf("%s: c[%d,%d] = %v", variant, i, j, got)
				}
			}
		}
		restore()
	}
}

func TestMisusePanics(t *testing.T) {
	x := make([]float32, 12)
	for want, f := range map[string]func(){
		"B holds 12 elements, too few for 4×4": func() { F32(Serial, 3, 4, 4, x, 4, 1, x, 4, 1, x, 4, 1, false) },
		"negative size: m -1":                  func() { F32(Serial, -1, 4, 4, x, 4, 1, x, 4, 1, x, 4, 1, false) },
		"negative distance between elements of A": func() {
			F32(Serial, 3, 3, 3, x, -3, 1, x, 3, 1, x, 3, 1, false)
		},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			f()
		}()
	}
}

// raceEnabled is true under the race detector.
var raceEnabled bool

func TestNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("with the race detector sync.Pool drops items at random, so that there is no steady state")
	}
	x := make([]float32, 200*200)
	c := make([]float32, 200*200)
	low := make([]uint16, 200*200)
	for _, s := range [][3]int{{200, 200, 200}, {1, 200, 200}, {3, 200, 200}, {4, 4, 4}} {
		if n := testing.AllocsPerRun(50, func() {
			F32(Serial, s[0], s[1], s[2], x, s[2], 1, x, 1, s[2], c, s[1], 1, false)
			for _, withoutTiles = range []bool{true, false} {
				if HasBF16() {
					BF16(Serial, s[0], s[1], s[2], low, s[2], 1, low, 1, s[2], c, s[1], 1, false)
				}
			}
		}); n >= 1 {
			t.Errorf("%v: %v allocations a product", s, n)
		}
	}
}
