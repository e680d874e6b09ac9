package gemm

import (
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

func pick[T any](r *rand.Rand, v ...T) T { return v[r.IntN(len(v))] }

// randomConv returns a convolution of 1 to 3 dimensions with groups, strides and dilation. Its
// padding may be larger than its kernel. If there are many images, they are small.
func randomConv(r *rand.Rand, many bool) Conv {
	for {
		c := Conv{N: pick(r, 1, 2, 5), Groups: pick(r, 1, 1, 1, 2, 3)}
		wide := 90
		if many {
			c.N, wide = pick(r, 13, 16, 25, 26, 32, 33, 51, 52, 64, 65), 7
		}
		c.Channels = c.Groups * pick(r, 1, 3, 8, 9, 25, 32, 33, 64)
		c.Outputs = c.Groups * pick(r, 1, 2, 8, 13, 14, 15, 29, 64)
		fits := true
		for a := range 3 {
			c.In[a], c.Kernel[a], c.Stride[a], c.Dilation[a], c.Out[a] = 1, 1, 1, 1, 1
			if a == 0 && r.IntN(4) > 0 || a == 1 && r.IntN(4) == 0 {
				continue
			}
			if c.In[a] = 1 + r.IntN(7); a == 2 {
				c.In[a] = 1 + r.IntN(wide)
			}
			c.Kernel[a], c.Stride[a], c.Dilation[a] = 1+r.IntN(5), pick(r, 1, 1, 2, 3, 7), pick(r, 1, 1, 2, 3)
			c.Before[a] = pick(r, 0, 1, 2, 9)
			span := c.In[a] + c.Before[a] + pick(r, 0, 1, 2, 9) - c.Dilation[a]*(c.Kernel[a]-1) - 1
			fits = fits && span >= 0
			c.Out[a] = span/c.Stride[a] + 1
		}
		if fits && c.N*c.Outputs*size(c.Out)*c.Channels/c.Groups*c.taps() < 2e6 {
			return c
		}
	}
}

// TestRandomConvolutions compares convolutions and their gradients with sums in float64. Pages
// without access follow the operands. Concurrent tasks must give the same bits as serial tasks.
func TestRandomConvolutions(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for _, variant := range asm.Variants() {
		t.Run(variant, func(t *testing.T) {
			defer asm.Use(variant)()
			r := rand.New(rand.NewPCG(1, 77))
			for k := range 60 {
				c := randomConv(r, k%2 == 0)
				nx, nw, ny := c.sizes()
				some := func(n int) []float32 {
					v := beforeFault[float32](t, n+1)[1:]
					for i := range v {
						v[i] = float32(r.NormFloat64())
					}
					return v
				}
				x, w, g := some(nx), some(nw), some(ny)
				wantY, wantX, wantW := make([]float64, ny), make([]float64, nx), make([]float64, nw)
				c.each(func(i, k, q int) {
					wantY[q] += float64(x[i]) * float64(w[k])
					wantX[i] += float64(g[q]) * float64(w[k])
					wantW[k] += float64(g[q]) * float64(x[i])
				})
				run := func(par Parallel, y, dx, dw []float32) {
					c.Forward(par, y, x, w)
					c.Data(par, dx, g, w)
					c.Weight(par, dw, x, g)
				}
				y, dx, dw := some(ny), some(nx), some(nw)
				run(runTogether, y, dx, dw)
				checkClose(t, c, "forward", y, wantY)
				checkClose(t, c, "data", dx, wantX)
				checkClose(t, c, "weight", dw, wantW)
				y2, dx2, dw2 := make([]float32, ny), make([]float32, nx), make([]float32, nw)
				run(Serial, y2, dx2, dw2)
				if !slices.Equal(y, y2) || !slices.Equal(dx, dx2) || !slices.Equal(dw, dw2) {
					t.Errorf("%+v: the bits depend on the tasks' order", c)
				}
			}
		})
	}
}

// checkClose compares float32 results with float64 results.
func checkClose(t *testing.T, c Conv, what string, got []float32, want []float64) {
	t.Helper()
	worst, most := 0.0, 0.0
	for i, v := range got {
		if d := math.Abs(float64(v) - want[i]); !(d <= worst) {
			worst = d
		}
		most = max(most, math.Abs(want[i]))
	}
	if !(worst <= 3e-6*(1+most)) {
		t.Errorf("%+v: %s is off by %v of %v", c, what, worst, most)
	}
}

// TestRandomProducts compares batches of products with sums in float64. Sizes are 0 to 70, and some
// are large. Strides are arbitrary. Some batches share a factor, and some products are added to the
// result. Pages without access follow the operands.
func TestRandomProducts(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for _, variant := range asm.Variants() {
		t.Run(variant, func(t *testing.T) {
			defer asm.Use(variant)()
			randomProducts(t, F32Batch)
			randomProducts(t, F64Batch)
		})
	}
}

// randomLayout returns strides of a matrix, the distance between the matrices of a batch, and the
// number of elements. For a factor, a stride or the distance may be 0: rows, columns or matrices
// then repeat.
func randomLayout(r *rand.Rand, batch, rows, cols int, factor bool) (rs, cs, apart, n int) {
	kind := r.IntN(5)
	if !factor {
		kind = r.IntN(3)
	}
	switch kind {
	case 0:
		rs, cs = 1, max(1, rows)
	case 1:
		rs, cs = cols+r.IntN(3), 1
	case 2:
		rs, cs = 2*max(1, cols)+1, 2
	case 3:
		rs, cs = 0, 1
	case 4:
		rs, cs = 1, 0
	}
	one := 0
	if rows > 0 && cols > 0 {
		one = (rows-1)*rs + (cols-1)*cs + 1
	}
	if apart = one + r.IntN(2); factor && r.IntN(4) == 0 {
		apart = 0
	}
	return rs, cs, apart, (batch-1)*apart + one
}

func randomProducts[T float](t *testing.T, multiply func(batch int, apart [3]int, m, n, k int, a []T, ars, acs int, b []T, brs, bcs int, c []T, crs, ccs int, accumulate bool)) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 200 {
		batch, m, n, k := 1+r.IntN(3), r.IntN(71), r.IntN(71), r.IntN(71)
		switch r.IntN(8) {
		case 0:
			m = 1
		case 1:
			n = 1
		case 2:
			k = pick(r, 0, 1, 255, 256, 257, 600)
		case 3:
			m, n, k = 1, pick(r, 255, 256, 257, 511, 2100), pick(r, 1, 64, 500)
		}
		ars, acs, aApart, an := randomLayout(r, batch, m, k, true)
		brs, bcs, bApart, bn := randomLayout(r, batch, k, n, true)
		crs, ccs, cApart, cn := randomLayout(r, batch, m, n, false)
		some := func(n int) []T {
			v := beforeFault[T](t, max(n, 1))[max(n, 1)-n:]
			for i := range v {
				v[i] = T(r.NormFloat64())
			}
			return v
		}
		a, b, c := some(an), some(bn), some(cn)
		add, want := r.IntN(2) == 0, make([]float64, cn)
		for i, v := range c {
			want[i] = float64(v) // elements between the results must not change
		}
		for x := range batch {
			for i := range m {
				for j := range n {
					sum := 0.0
					for p := range k {
						sum += float64(a[x*aApart+i*ars+p*acs]) * float64(b[x*bApart+p*brs+j*bcs])
					}
					at := x*cApart + i*crs + j*ccs
					if add {
						sum += want[at]
					}
					want[at] = sum
				}
			}
		}
		multiply(batch, [3]int{aApart, bApart, cApart}, m, n, k, a, ars, acs, b, brs, bcs, c, crs, ccs, add)
		for i, v := range c {
			if !(math.Abs(float64(v)-want[i]) <= 1e-5*(10+float64(k)/10+math.Abs(want[i]))) {
				t.Fatalf("batch %d, %d×%d by %d, strides %d %d, %d %d and %d %d: element %d is %v, want %v",
					batch, m, n, k, ars, acs, brs, bcs, crs, ccs, i, v, want[i])
			}
		}
	}
}
