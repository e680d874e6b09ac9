package gemm

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// TestFewRowsBF16 compares products with few rows with the first rows of a product with many rows.
// The product with few rows is computed in another way: as the transposed product, or with panels
// packed together. The bits must be the same.
func TestFewRowsBF16(t *testing.T) {
	if !HasBF16() {
		t.Log("the processor has no VDPBF16PS: it was NOT tested")
		return
	}
	if hasTiles() {
		fewRows16(t, []bool{false, true})
		withoutTiles = true
		defer func() { withoutTiles = false }()
	} else {
		t.Log("the processor or the system has no AMX: it was NOT tested")
	}
	// If the columns of B are contiguous, VDPBF16PS sums in another order. So this layout is left
	// out.
	fewRows16(t, []bool{false})
}

func fewRows16(t *testing.T, layouts []bool) {
	r := rand.New(rand.NewPCG(9, 4))
	for _, s := range [][2]int{{150, 64}, {1000, 1100}, {2070, 515}, {30100, 35}} {
		n, k := s[0], s[1]
		const many = max(togetherRows, turnedRows) + 8
		a, b, flipped, bias := make([]uint16, many*k), make([]uint16, k*n), make([]uint16, k*n), make([]float32, n)
		for i := range a {
			a[i] = encode(float32(r.NormFloat64()))
		}
		for p := range k {
			for j := range n {
				b[p*n+j] = encode(float32(r.NormFloat64()))
				flipped[j*k+p] = b[p*n+j]
			}
		}
		for j := range bias {
			bias[j] = float32(r.NormFloat64())
		}
		want, sums := make([]uint16, many*n), make([]float32, many*n)
		BF16Rounded(Serial, many, n, k, a, k, 1, b, n, 1, bias, want, n, 1)
		for i := range sums {
			sums[i] = bias[i%n]
		}
		BF16(Serial, many, n, k, a, k, 1, b, n, 1, sums, n, 1, true)
		par := newTeam().run
		for _, m := range []int{tiledRows - 1, tiledRows, 5, 8, 17, turnedRows, turnedRows + 1} {
			for _, columns := range layouts {
				if m < tiledRows && len(layouts) > 1 {
					continue // products with so few rows do not use tiles
				}
				w, rs, cs := b, n, 1
				if columns {
					w, rs, cs = flipped, 1, k
				}
				// The result has gaps between its rows, which keep their values.
				low, c := make([]uint16, m*(n+3)), make([]float32, m*(n+3))
				for i := range m {
					copy(c[i*(n+3):], bias)
				}
				BF16Rounded(par, m, n, k, a, k, 1, w, rs, cs, bias, low, n+3, 1)
				BF16(par, m, n, k, a, k, 1, w, rs, cs, c, n+3, 1, true)
				for i := range low {
					row, col := i/(n+3), i%(n+3)
					var x uint16
					var y float32
					if col < n {
						x, y = want[row*n+col], sums[row*n+col]
					}
					if low[i] != x || !sameFloat(c[i], y) {
						t.Fatalf("%d×%d by %d, columns contiguous: %v: element (%d, %d) is %v and %v, want %v and %v", m, n, k, columns, row, col, low[i], c[i], x, y)
					}
				}
			}
		}
	}
}

// TestRowDots compares products of one row with the first row of a product of two rows. The two
// products are computed by different kernels. The bits must be the same.
func TestRowDots(t *testing.T) {
	testRowDots(t, F32)
	testRowDots(t, F64)
}

func testRowDots[T float](t *testing.T, f gemmFunc[T]) {
	r := rand.New(rand.NewPCG(2, 8))
	for _, variant := range asm.Variants() {
		restore := asm.Use(variant)
		for i := range 120 {
			n, k, gap := 1+r.IntN(40), 2*dotDepth+i, r.IntN(2)*3
			a, b := newMatrix[T](r, 2, k, 0), newMatrix[T](r, n, k+gap, 0)
			a.data[r.IntN(k)] = T(math.Inf(1 - 2*(i%2)))
			b.data[r.IntN(n)*b.rs+r.IntN(k)] = T(math.Copysign(0, -1))
			one, two := make([]T, n+1), make([]T, 2*n)
			one[n] = canary
			f(Serial, 1, n, k, a.data, a.rs, 1, b.data, 1, b.rs, one, n, 1, false)
			f(Serial, 2, n, k, a.data, a.rs, 1, b.data, 1, b.rs, two, n, 1, false)
			for j, x := range one[:n] {
				if x != two[j] && (x == x || two[j] == two[j]) {
					t.Fatalf("%s: n %d, k %d, a gap of %d: element %d is %v, that of two rows %v", variant, n, k, gap, j, x, two[j])
				}
			}
			if one[n] != canary {
				t.Fatalf("%s: n %d, k %d: wrote after the last element", variant, n, k)
			}
		}
		restore()
	}
}
