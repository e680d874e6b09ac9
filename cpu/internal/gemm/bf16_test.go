package gemm

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/dtype"
)

func encode(x float32) uint16 { return uint16(dtype.ToBFloat16(x)) }

func decode(x uint16) float32 { return dtype.BFloat16(x).Float32() }

// flush returns 0 with the sign of x if x is subnormal, and otherwise x.
func flush(x float32) float32 {
	if math.Abs(float64(x)) < 0x1p-126 {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

// dpbf16 is one lane of VDPBF16PS (Intel, "Intel 64 and IA-32 Architectures Software Developer's
// Manual", volume 2). A lane does two fused multiply-adds: first with a[1] and b[1], then with a[0]
// and b[0]. Subnormal operands and results become zeros.
func dpbf16(acc float32, a, b [2]uint16) float32 {
	for i := 1; i >= 0; i-- {
		x, y := flush(decode(a[i])), flush(decode(b[i]))
		acc = flush(fma32(x, y, flush(acc)))
	}
	return acc
}

// fma32 returns x*y + z rounded once. The product of two bfloat16 numbers is exact in float64. The
// sum in float64 is rounded to odd (Boldo and Melquiond, "Emulation of FMA and correctly rounded
// sums: proved algorithms using rounding to odd", 2008). Rounding it to float32 is then correct.
func fma32(x, y, z float32) float32 {
	p, q := float64(x)*float64(y), float64(z)
	s := p + q
	if math.IsInf(s, 0) || math.IsNaN(s) {
		return float32(s)
	}
	t := s - p
	if e := (p - (s - t)) + (q - t); e != 0 && math.Float64bits(s)&1 == 0 {
		to := math.Inf(1)
		if e < 0 {
			to = math.Inf(-1)
		}
		s = math.Nextafter(s, to)
	}
	return float32(s)
}

func sameFloat(a, b float32) bool {
	return a == b && math.Signbit(float64(a)) == math.Signbit(float64(b)) || a != a && b != b
}

// randomBF16 returns a random bfloat16. Some are infinite, NaN, subnormal or huge.
func randomBF16(r *rand.Rand) uint16 {
	switch r.IntN(8) {
	case 0:
		return uint16(r.IntN(1 << 16))
	case 1:
		return uint16(r.IntN(2)<<15 | r.IntN(0x100)) // subnormal, or a small normal number
	case 2:
		// the product of two such numbers is near the least normal number
		return uint16(r.IntN(2)<<15 | 0x1F80 + r.IntN(0x100))
	}
	return encode(float32(r.NormFloat64()))
}

// TestBF16Instructions compares every kernel with a Go model of VDPBF16PS, bit for bit. This also
// checks the encoding of each instruction.
func TestBF16Instructions(t *testing.T) {
	kern := activeBF16()
	if kern == nil {
		t.Log("the processor has no VDPBF16PS: it was NOT tested")
		return
	}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		draw := func() uint16 { return encode(float32(r.NormFloat64())) }
		if seed%2 == 1 {
			draw = func() uint16 { return randomBF16(r) }
		}
		for h := 1; h <= kern.height; h++ {
			k := 1 + r.IntN(11)
			a, b := make([]uint16, 2*k*kern.stride), make([]uint16, 2*k*kern.width)
			for _, x := range [][]uint16{a, b} {
				for i := range x {
					x[i] = draw()
				}
			}
			w, c := 1+r.IntN(kern.width), make([]float32, h*kern.width)
			kern.micro[h](k, &a[0], &b[0], kern.width, &c[0], kern.width, w, 0, &a[0])
			for i := range c {
				row, col, want := i/kern.width, i%kern.width, float32(0)
				for p := 0; p < k && col < w; p++ {
					x, y := 2*(p*kern.stride+row), 2*(p*kern.width+col)
					want = dpbf16(want, [2]uint16(a[x:x+2]), [2]uint16(b[y:y+2]))
				}
				if !sameFloat(c[i], want) {
					t.Fatalf("height %d, element %d of k %d is %v, want %v", h, i, k, c[i], want)
				}
			}
		}
		for h := 1; h <= dotRows; h++ {
			for _, n := range []int{1, kern.dotWidth} {
				k := 1 + r.IntN(150)
				a, b := make([]uint16, h*k), make([]uint16, n*k)
				for _, x := range [][]uint16{a, b} {
					for i := range x {
						x[i] = draw()
					}
				}
				run := kern.dots1[h]
				if n > 1 {
					run = kern.dots[h]
				}
				out := make([]float32, h*n)
				run(k, &a[0], k, &b[0], k, &b[0], &out[0])
				for i := range out {
					if want := dotModel(a[i/n*k:][:k], b[i%n*k:][:k]); !sameFloat(out[i], want) {
						t.Fatalf("dots %d by %d: element %d of k %d is %v, want %v", h, n, i, k, out[i], want)
					}
				}
			}
		}
	}
}

// dotModel computes the product of two vectors as a kernel does, in 16 sums. Then it adds the upper
// half of the sums to the lower half, again and again, until one sum is left.
func dotModel(a, b []uint16) float32 {
	var sums [16]float32
	for p := 0; p < len(a); p += 2 {
		var x, y [2]uint16
		copy(x[:], a[p:min(p+2, len(a))])
		copy(y[:], b[p:min(p+2, len(a))])
		sums[p/2%16] = dpbf16(sums[p/2%16], x, y)
	}
	// lanes beyond k only add zeros, which changes only a sum of -0
	for n := 8; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[n+i]
		}
	}
	return sums[0]
}

// rounded rounds a and b to bfloat16, in place, and multiplies the rounded operands with BF16.
func rounded(par Parallel, m, n, k int, a []float32, ars, acs int, b []float32, brs, bcs int, c []float32, crs, ccs int, accumulate bool) {
	var low [2][]uint16
	for i, x := range [][]float32{a, b} {
		low[i] = make([]uint16, len(x))
		for j := range x {
			low[i][j] = encode(x[j])
			x[j] = decode(low[i][j])
		}
	}
	BF16(par, m, n, k, low[0], ars, acs, low[1], brs, bcs, c, crs, ccs, accumulate)
}

// bothBF16 calls f twice: while products use the kernels of VDPBF16PS, and while they use those of
// AMX.
func bothBF16(t *testing.T, f func(t *testing.T)) {
	if !HasBF16() {
		t.Log("the processor has no VDPBF16PS: it was NOT tested")
		return
	}
	for _, tiles := range []bool{false, true} {
		name := map[bool]string{false: "VDPBF16PS", true: "AMX"}[tiles]
		if tiles && !hasTiles() {
			t.Log("the processor or the system has no AMX: it was NOT tested")
			return
		}
		t.Run(name, func(t *testing.T) {
			withoutTiles = !tiles
			defer func() { withoutTiles = false }()
			f(t)
		})
	}
}

func TestBF16(t *testing.T) { bothBF16(t, testBF16) }

func testBF16(t *testing.T) {
	testAll(t, []string{asm.Active()}, rounded, 0x1p-24)
	r := rand.New(rand.NewPCG(9, 1))
	sizes := []int{1, 7, 17, 63, 65, 129}
	for _, m := range sizes {
		for _, n := range sizes {
			for _, k := range sizes {
				for l := range 4 {
					if err := testProduct(r, rounded, 0x1p-24, m, n, k, [3]int{l % 4, l / 2 % 4, (m + n) % 4}, l == 0); err != nil {
						t.Fatalf("m %d, n %d, k %d, layouts %d: %v", m, n, k, l, err)
					}
				}
			}
		}
	}
}

// TestBF16Rounded compares the results of BF16Rounded with the rounded sums of BF16, bit for bit,
// for one worker and for many.
func TestBF16Rounded(t *testing.T) { bothBF16(t, testBF16Rounded) }

func testBF16Rounded(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for i, s := range [][3]int{{1, 1, 1}, {3, 5, 0}, {0, 3, 2}, {1, 65, 400}, {65, 1, 17}, {4, 3, 300}, {9, 130, 63}, {130, 9, 65}, {129, 129, 129}, {63, 65, 1700},
		{400, 300, 7}, {20, 40, 5000}, {200, 9, 4100}, {2100, 17, 9}, {9, 2100, 7}, {2100, 33, 3900}} {
		m, n, k := s[0], s[1], s[2]
		for l := range 4 {
			a, b, sums := newMatrix[float32](r, m, k, (l+i)%4), newMatrix[float32](r, k, n, (l+i/2)%4), newMatrix[float32](r, m, n, l)
			var bias []float32
			for j := 0; j < n; j++ {
				bias = append(bias, float32(r.NormFloat64()))
			}
			if l%2 == 1 {
				bias = nil
			}
			for row := range m {
				for j := range bias {
					sums.data[row*sums.rs+j*sums.cs] = bias[j]
				}
			}
			rounded(Serial, m, n, k, a.data, a.rs, a.cs, b.data, b.rs, b.cs, sums.data, sums.rs, sums.cs, bias != nil)
			var low [2][]uint16
			for i, x := range [][]float32{a.data, b.data} {
				low[i] = make([]uint16, len(x))
				for j := range x {
					low[i][j] = encode(x[j])
				}
			}
			for _, par := range []Parallel{Serial, goroutines} {
				c := make([]uint16, len(sums.data))
				for j := range c {
					c[j] = encode(canary)
				}
				BF16Rounded(par, m, n, k, low[0], a.rs, a.cs, low[1], b.rs, b.cs, bias, c, sums.rs, sums.cs)
				for j, got := range c {
					if want := encode(sums.data[j]); got != want {
						t.Fatalf("%v, layouts %d: element %d is %v, want %v", s, l, j, decode(got), decode(want))
					}
				}
			}
		}
	}
}

// TestBF16NotFinite puts NaN or an infinity into the last element along k, in one row of A. If k is
// odd, this element is the first of an incomplete pair. The elements after it in memory are NaN.
// They do not belong to the factors, so kernels must not multiply them.
func TestBF16NotFinite(t *testing.T) { bothBF16(t, testBF16NotFinite) }

func testBF16NotFinite(t *testing.T) {
	for _, value := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		for _, s := range [][3]int{{1, 40, 129}, {15, 33, 17}, {47, 77, 91}, {3, 5, 7}} {
			for l := range 4 {
				m, n, k := s[0], s[1], s[2]
				x, y, c := make([]uint16, m*(k+1)), make([]uint16, (k+1)*n), make([]float32, m*n)
				for i := range x {
					x[i] = encode(1)
				}
				for i := range y {
					y[i] = encode(1)
				}
				ars, acs, brs, bcs := k+1, 1, n, 1
				if l&1 != 0 {
					ars, acs = 1, m
				}
				if l&2 != 0 {
					brs, bcs = 1, k+1
				}
				bits := uint16(math.Float32bits(value) >> 16)
				x[(m-1)*ars+(k-1)*acs] = bits
				for i := range m {
					x[i*ars+k*acs] = 0x7FC0
				}
				for j := range n {
					y[k*brs+j*bcs] = 0x7FC0
				}
				BF16(Serial, m, n, k, x, ars, acs, y, brs, bcs, c, n, 1, false)
				for i, got := range c {
					want := float32(k)
					if i/n == m-1 {
						want = float32(k-1) + value
					}
					if !sameFloat(got, want) {
						t.Fatalf("%v with layouts %d: element %d is %v, want %v", s, l, i, got, want)
					}
				}
			}
		}
	}
}
