//go:build !nogpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda/internal/lib/cublaslt"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// placed returns the strides of a batch of b matrices with r rows and c columns, in one layout.
type placed func(b, r, c int) (strides shape.Dims)

var placements = map[string]placed{
	"dense":       func(b, r, c int) shape.Dims { return shape.Of(r*c, c, 1) },
	"turned":      func(b, r, c int) shape.Dims { return shape.Of(r*c, 1, r) },
	"padded":      func(b, r, c int) shape.Dims { return shape.Of(r*(c+3), c+3, 1) },
	"interleaved": func(b, r, c int) shape.Dims { return shape.Of(c, b*c, 1) },
	"shared":      func(b, r, c int) shape.Dims { return shape.Of(0, c, 1) },
	"sparse":      func(b, r, c int) shape.Dims { return shape.Of(2*r*c, 2*c, 2) },
	"sheared":     func(b, r, c int) shape.Dims { return shape.Of(r*c, 0, 1) },
}

// smallInts returns a function for the elements of factors. The elements are small integers, so
// that sums of their products are exact in every type.
func smallInts(a, b, c int) func(i, j, k int) float64 {
	return func(i, j, k int) float64 { return float64((a*i+b*j+c*k)%5 - 2) }
}

// factor creates a factor of a product with the named layout. If the layout repeats a matrix or a
// row, its elements repeat too.
func (r *productRig) factor(d *Device, typ dtype.Type, s shape.Dims, name string, offset int, at func(i, j, k int) float64) (device.View, func(i, j, k int) float64) {
	strides := placements[name](s.At(0), s.At(1), s.At(2))
	same := at
	at = func(i, j, k int) float64 {
		if strides.At(0) == 0 {
			i = 0
		}
		if strides.At(1) == 0 {
			j = 0
		}
		return same(i, j, k)
	}
	return r.laid(d, typ, s, strides, offset, at), at
}

type productCase struct {
	types       [3]dtype.Type // types of the factors, the result and the bias
	b, m, n, k  int
	left, right string // layouts of the factors
	out         string
	offset      int
	bias, taken bool
	converts    bool // whether a launch first converts the bias
}

// run computes a product and compares the result with exact sums.
func (r *productRig) run(t *testing.T, d *Device, c productCase) {
	t.Helper()
	x, atX := r.factor(d, c.types[0], shape.Of(c.b, c.m, c.k), c.left, c.offset, smallInts(1, 2, 3))
	y, atY := r.factor(d, c.types[0], shape.Of(c.b, c.k, c.n), c.right, 2*c.offset, smallInts(3, 1, 2))
	out, _ := r.factor(d, c.types[1], shape.Of(c.b, c.m, c.n), c.out, c.offset, smallInts(0, 0, 0))
	o := &device.MatMul{Out: out, A: x, B: y}
	atBias := func(k int) float64 { return 0 }
	if c.bias {
		atBias = func(k int) float64 { return float64(k%3) + 0.5 }
		o.Bias = r.laid(d, c.types[2], shape.Of(c.n), shape.Of(1), c.offset, func(_, _, k int) float64 { return atBias(k) })
	}
	asked, _ := r.counts()
	launches := d.Counters().Launches
	must(t, d.Run(d.DefaultStream(), o, nil))
	launches = d.Counters().Launches - launches
	got := r.elements(d, out)
	now, runs := r.counts()
	wanted := uint64(1)
	if c.converts {
		wanted = 2
	}
	if taken := now > asked; taken != c.taken || taken && (now != asked+1 || runs != now || launches != wanted) {
		t.Fatalf("the library was asked for %d products and has run %d of %d, by %d launches; taken: %v", now-asked, runs, now, launches, c.taken)
	}
	for i := range c.b {
		for j := range c.m {
			for k := range c.n {
				want := atBias(k)
				for l := range c.k {
					want += atX(i, j, l) * atY(i, l, k)
				}
				if g := got(i, j, k); g != want {
					t.Fatalf("[%d,%d,%d] is %v, want %v", i, j, k, g, want)
				}
			}
		}
	}
	must(t, d.Synchronize())
}

// TestProductsByLibrary computes float products in every layout that cublasLt supports, with and
// without a bias. The library must compute them, and the results must be exact.
func TestProductsByLibrary(t *testing.T) {
	r := newProducts(t, "emulate,mem=16MiB")
	d := r.devs[0]
	if s := d.Products(); !strings.HasPrefix(s, "cublasLt 13.") || !strings.Contains(s, "/libcublasLt.so.") {
		t.Errorf("products are by %q", s)
	}
	types := [][2]dtype.Type{{dtype.F32, dtype.F32}, {dtype.F16, dtype.F16}, {dtype.BF16, dtype.BF16}, {dtype.F16, dtype.F32}, {dtype.BF16, dtype.F32}}
	sizes := [][4]int{{1, 5, 7, 3}, {3, 4, 6, 40}, {2, 1, 5, 4}, {2, 5, 1, 4}, {1, 1, 1, 1}, {2, 3, 4, 1}}
	for i, typ := range types {
		for s, n := range sizes {
			for left := range placements {
				for right := range placements {
					if left == "sparse" || right == "sparse" || left == "sheared" || right == "sheared" {
						continue
					}
					for o, out := range []string{"dense", "padded", "interleaved"} {
						// a third of all combinations is enough for every pair of values to occur
						if (i+s+len(left)+len(right)+o)%3 != 0 {
							continue
						}
						c := productCase{types: [3]dtype.Type{typ[0], typ[1], typ[1]}, b: n[0], m: n[1], n: n[2], k: n[3], left: left, right: right, out: out,
							offset: (s + o) % 4, bias: (s+i)%2 == 0, taken: true}
						t.Run(fmt.Sprintf("%v-%v/%v/%s-%s-%s", typ[0], typ[1], n, left, right, out), func(t *testing.T) { r.run(t, d, c) })
					}
				}
			}
		}
	}
}

// TestProductsByOwnKernels checks that the package's own kernels compute the products that the
// library does not support.
func TestProductsByOwnKernels(t *testing.T) {
	r := newProducts(t, "emulate,mem=16MiB")
	d := r.devs[0]
	same := func(t dtype.Type) [3]dtype.Type { return [3]dtype.Type{t, t, t} }
	for name, c := range map[string]productCase{
		"integers":        {types: same(dtype.I32), left: "dense", right: "dense", out: "dense"},
		"float64":         {types: same(dtype.F64), left: "dense", right: "dense", out: "dense"},
		"turned result":   {types: same(dtype.F32), left: "dense", right: "dense", out: "turned"},
		"sparse factor":   {types: same(dtype.F32), left: "sparse", right: "dense", out: "dense"},
		"sparse result":   {types: same(dtype.F32), left: "dense", right: "dense", out: "sparse"},
		"sheared factor":  {types: same(dtype.BF16), left: "dense", right: "sheared", out: "dense"},
		"sheared factors": {types: same(dtype.F16), left: "sheared", right: "dense", out: "dense"},
	} {
		c.b, c.m, c.n, c.k = 2, 4, 6, 5
		t.Run(name, func(t *testing.T) { r.run(t, d, c) })
	}
	t.Run("nothing", func(t *testing.T) {
		r.run(t, d, productCase{types: same(dtype.F32), b: 1, m: 3, n: 2, k: 0, left: "dense", right: "dense", out: "dense"})
	})
}

// TestProductsConvertBias uses biases of another type than the result, or with gaps. They must be
// copied for cublasLt first. The copy rounds a float32 bias.
func TestProductsConvertBias(t *testing.T) {
	r := newProducts(t, "emulate,mem=16MiB")
	d := r.devs[0]
	for _, types := range [][3]dtype.Type{{dtype.BF16, dtype.F32, dtype.BF16}, {dtype.BF16, dtype.BF16, dtype.F32}, {dtype.F16, dtype.F32, dtype.F16}, {dtype.F16, dtype.F16, dtype.F32}} {
		t.Run(fmt.Sprint(types), func(t *testing.T) {
			r.run(t, d, productCase{types: types, b: 2, m: 4, n: 6, k: 5, left: "dense", right: "dense", out: "dense", offset: 1, bias: true, converts: true, taken: true})
		})
	}
	x, _ := r.factor(d, dtype.BF16, shape.Of(1, 3, 4), "dense", 0, func(_, _, _ int) float64 { return 1 })
	y, _ := r.factor(d, dtype.BF16, shape.Of(1, 4, 2), "dense", 0, func(_, _, _ int) float64 { return -1 })
	out, _ := r.factor(d, dtype.BF16, shape.Of(1, 3, 2), "dense", 0, func(_, _, _ int) float64 { return 0 })
	bias := r.laid(d, dtype.F32, shape.Of(2), shape.Of(3), 1, func(_, _, k int) float64 { return 4 + float64(k)/128 })
	var told device.KernelEvent
	must(t, d.Run(d.DefaultStream(), &device.MatMul{Out: out, A: x, B: y, Bias: bias}, &told))
	// in bfloat16, 4 + 1/128 is rounded to 4
	if got := r.elements(d, out); got(0, 0, 0) != 0 || got(0, 2, 1) != 0 {
		t.Errorf("%v and %v, want the bias rounded", got(0, 0, 0), got(0, 2, 1))
	}
	if n := len(told.Launches); n != 2 || told.Launches[1].Kernel != "cublasLt matmul" {
		t.Errorf("told of %+v", told.Launches)
	}
}

// plainProduct returns a product of n×n matrices that cublasLt supports.
func plainProduct(n int) productCase {
	return productCase{types: [3]dtype.Type{dtype.BF16, dtype.BF16, dtype.BF16}, b: 1, m: n, n: n, k: n, left: "dense", right: "dense", out: "dense", taken: true}
}

// TestProductsOnce checks that cublasLt's heuristic is called once for each shape. If it finds no
// algorithm, the package's own kernels must compute the product, and the heuristic must not be
// called again.
func TestProductsOnce(t *testing.T) {
	r := newProducts(t, "emulate,mem=16MiB")
	d := r.devs[0]
	r.run(t, d, plainProduct(8))
	calls := r.lib.Calls()
	r.run(t, d, plainProduct(8))
	if n := r.lib.Calls() - calls; n != 1 {
		t.Errorf("a product whose plan is known takes %d calls", n)
	}
	// The heuristic finds no algorithm: the first time it returns an error, the second time an
	// empty list.
	for i, n := range []int{9, 10} {
		c := plainProduct(n)
		c.taken = false
		r.lib.Decline(1 + i)
		r.run(t, d, c)
		r.lib.Decline(0)
		calls = r.lib.Calls()
		r.run(t, d, c)
		if n := r.lib.Calls() - calls; n != 0 {
			t.Errorf("a product that the library has no way for asks it again, by %d calls", n)
		}
	}
	// When the cache holds the largest number of plans, it is cleared, and the plans' descriptors
	// are destroyed.
	d.products.most = 3
	live := r.lib.Live()
	r.run(t, d, plainProduct(11))
	if len(d.products.plans) != 1 {
		t.Errorf("%d plans are kept", len(d.products.plans))
	}
	r.settle(live)
	r.run(t, d, plainProduct(8))
}

// TestProductsFail makes calls of cublasLt fail. The product must return the error, and the
// package's own kernels must not compute it instead. The device must still work.
func TestProductsFail(t *testing.T) {
	r := newProducts(t, "emulate,mem=16MiB")
	d := r.devs[0]
	r.run(t, d, plainProduct(8))
	for i, row := range []struct {
		call  string
		after int
		want  cublaslt.Status
	}{
		{"cublasLtMatmul", 0, cublaslt.ErrExecutionFailed},
		{"cublasLtMatmulAlgoGetHeuristic", 0, cublaslt.ErrInternal},
		{"cublasLtMatmulDescCreate", 0, cublaslt.ErrAllocFailed},
		{"cublasLtMatmulDescSetAttribute", 1, cublaslt.ErrInvalidValue},
		{"cublasLtMatrixLayoutCreate", 2, cublaslt.ErrAllocFailed},
		{"cublasLtMatmulPreferenceCreate", 0, cublaslt.ErrAllocFailed},
		{"cublasLtMatmulPreferenceSetAttribute", 3, cublaslt.ErrInvalidValue},
	} {
		c := plainProduct(9 + i)
		x, _ := r.factor(d, c.types[0], shape.Of(1, c.m, c.m), "dense", 0, smallInts(1, 2, 3))
		out, _ := r.factor(d, c.types[0], shape.Of(1, c.m, c.m), "dense", 0, smallInts(0, 0, 0))
		r.lib.Plant(row.call, row.after, row.want)
		launches, live := d.Counters().Launches, r.lib.Live()
		err := d.Run(d.DefaultStream(), &device.MatMul{Out: out, A: x, B: x}, nil)
		var f *device.Fault
		if !errors.As(err, &f) || f.Kernel != "cublasLt matmul" || f.Sticky || !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.call+": ") {
			t.Errorf("%s: %v", row.call, err)
		}
		if d.Counters().Launches != launches {
			t.Errorf("%s: something else was launched", row.call)
		}
		if row.call != "cublasLtMatmul" {
			r.settle(live)
		}
		r.run(t, d, c)
	}
}

// TestProductsTold checks that the event of a product contains the name of the library that
// computed it.
func TestProductsTold(t *testing.T) {
	r := newProducts(t, "emulate,mem=16MiB")
	d := r.devs[0]
	for _, typ := range []dtype.Type{dtype.F32, dtype.BF16} {
		x, _ := r.factor(d, typ, shape.Of(2, 8, 8), "dense", 0, smallInts(1, 2, 3))
		out, _ := r.factor(d, typ, shape.Of(2, 8, 8), "dense", 0, smallInts(0, 0, 0))
		var told device.KernelEvent
		must(t, d.Run(d.DefaultStream(), &device.MatMul{Out: out, A: x, B: x}, &told))
		tensor := 0
		if typ == dtype.BF16 {
			tensor = 2 * 2 * 8 * 8 * 8
		}
		if len(told.Launches) != 1 || told.Launches[0].Kernel != "cublasLt matmul" || told.Launches[0].Tensor != tensor || told.Recorded {
			t.Errorf("%v: told of %+v", typ, told)
		}
	}
}

// TestProductsLeaveTheRest fuses products with activations, or with sums of rows and columns, which
// cublasLt does not compute. Supports must return false for them.
func TestProductsLeaveTheRest(t *testing.T) {
	dense := func(d ...int) device.View { return device.View{Type: dtype.F32, Layout: shape.Dense(shape.Of(d...))} }
	o := device.MatMul{Out: dense(1, 3, 5), A: dense(1, 3, 4), B: dense(1, 4, 5)}
	if _, ok := productOf(&o); !ok {
		t.Error("a plain product is not the library's")
	}
	act, sums, columns := o, o, o
	act.Act, sums.Sums, columns.ColumnSums = anyTrue, dense(3), dense(5)
	for _, m := range []*device.MatMul{&act, &sums, &columns} {
		if _, ok := productOf(m); ok {
			t.Errorf("%+v is the library's", m)
		}
		own, by := &Device{}, &Device{products: &products{}}
		if !own.Supports(m) || by.Supports(m) || !by.Supports(&o) {
			t.Errorf("%+v: supported by own kernels: %v, with the library: %v", m, own.Supports(m), by.Supports(m))
		}
	}
}
