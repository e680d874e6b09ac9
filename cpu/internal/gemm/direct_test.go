package gemm

import (
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// TestDirect computes batches of small products with and without packing. The results must be equal
// bit for bit.
func TestDirect(t *testing.T) {
	for _, variant := range asm.Variants() {
		t.Run(variant, func(t *testing.T) {
			defer asm.Use(variant)()
			testDirect(t, F32Batch, func() func() {
				old := active32().direct
				active32().direct = nil
				return func() { active32().direct = old }
			})
			testDirect(t, F64Batch, func() func() {
				old := active64().direct
				active64().direct = nil
				return func() { active64().direct = old }
			})
		})
	}
}

func testDirect[T float](t *testing.T, multiply func(batch int, apart [3]int, m, n, k int, a []T, ars, acs int, b []T, brs, bcs int, c []T, crs, ccs int, accumulate bool), off func() func()) {
	r := rand.New(rand.NewPCG(3, 5))
	for i := range 600 {
		batch, m, n, k := 1+r.IntN(3), 1+r.IntN(40), 1+r.IntN(70), 1+r.IntN(70)
		if i%4 == 0 {
			m, n, k = 1+r.IntN(2), 1+r.IntN(700), 1+r.IntN(900)
		}
		if i%40 == 3 { // tasks divide k
			m, n, k = 1+r.IntN(20), 1+r.IntN(32), 3000+r.IntN(9000)
		}
		if i%40 == 7 { // sizes for which a task computes one panel of B
			m, n, k = 15+r.IntN(200), 40+r.IntN(200), 100+r.IntN(500)
		}
		if i%40 == 11 { // narrow products, whose factors may have contiguous columns
			m, n, k = 1+r.IntN(200), 1+r.IntN(32), 100+r.IntN(700)
		}
		if i%40 == 15 { // outer products, written row by row
			m, n, k = 1+r.IntN(200), 200+r.IntN(700), 1
		}
		whole := func(rows, cols int) matrix[T] { return newMatrix[T](r, batch*rows, cols, r.IntN(2)*2) }
		a, b, c := whole(m, k), whole(k, n), whole(m, n)
		if r.IntN(3) == 0 { // the columns of B are contiguous
			b.rs, b.cs = 1, k
			b.data = newMatrix[T](r, batch*n, k, 0).data
		}
		apart := [3]int{m * a.rs, k * n, m * c.rs}
		if r.IntN(3) == 0 { // the columns of A are contiguous
			a.rs, a.cs = 1, m
			a.data = newMatrix[T](r, batch*k, m, 0).data
			apart[0] = m * k
		}
		if b.cs == 1 {
			apart[1] = k * b.rs
		}
		want := append([]T(nil), c.data...)
		add := r.IntN(2) == 0
		multiply(batch, apart, m, n, k, a.data, a.rs, a.cs, b.data, b.rs, b.cs, c.data, c.rs, c.cs, add)
		restore := off()
		for x := range batch {
			multiply(1, [3]int{}, m, n, k, a.data[x*apart[0]:], a.rs, a.cs, b.data[x*apart[1]:], b.rs, b.cs, want[x*apart[2]:], c.rs, c.cs, add)
		}
		restore()
		for j, v := range want {
			if c.data[j] != v {
				t.Fatalf("%d products %d×%d×%d, A at distances %d and %d, B at distances %d and %d: element %d is %v, packed %v", batch, m, n, k, a.rs, a.cs, b.rs, b.cs, j, c.data[j], v)
			}
		}
	}
}
