package kernels

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// naive computes the reference of a product of stored bits. It uses float64 for floats, and
// wrapping integers for integer types. The result size holds the sums of absolute products, for the
// error bound.
func naive(o Operand, a, b []uint64) (sum, size []float64, exact []uint64) {
	batch, m, n := o.Shape.At(0), o.Shape.At(1), o.Shape.At(2)
	k := len(a) / max(batch*m, 1)
	for p := range batch {
		for i := range m {
			for j := range n {
				var s, z float64
				var w uint64
				for l := range k {
					x, y := a[(p*m+i)*k+l], b[(p*k+l)*n+j]
					u, v := expr.Decode(o.Type, x), expr.Decode(o.Type, y)
					s += u * v
					z += math.Abs(u * v)
					w += expr.Load(o.Type, x) * expr.Load(o.Type, y)
				}
				sum, size = append(sum, s), append(size, z)
				exact = append(exact, expr.Store(o.Type, w)&(1<<(8*o.Type.Size()-1)<<1-1))
			}
		}
	}
	return sum, size, exact
}

func matmulCase(t *testing.T, what string, typ dtype.Type, out, a, b shape.Layout, skip int) (kernel string, fmaPerLoad float64, sectors float64) {
	t.Helper()
	m := newMachine(t)
	c := m.tensor(typ, out, skip)
	x, y := m.random(m.tensor(typ, a, skip)), m.random(m.tensor(typ, b, skip))
	list, err := MatMulSplit(a100, ProductOperands{Out: c, A: x, B: y, Counters: m.counters}, m.scratch)
	s := m.run(list, err)
	if len(list) == 0 {
		return
	}
	k := float64(a.Shape.At(2))
	sum, size, exact := naive(c, m.read(x), m.read(y))
	bad := 0
	for i, got := range m.read(c) {
		ok := got == exact[i]
		if typ.IsFloat() {
			// Each of k fused multiply-adds rounds once, and the store of the result rounds once
			// more.
			eps := map[dtype.Type]float64{dtype.F32: 0x1p-24, dtype.F64: 0x1p-53, dtype.F16: 0x1p-11, dtype.BF16: 0x1p-8}[typ]
			unit := max(0x1p-53, min(eps, 0x1p-24))
			ok = math.Abs(expr.Decode(typ, got)-sum[i]) <= (k+1)*unit*size[i]+eps*math.Abs(sum[i])
		}
		if bad == 3 {
			break
		}
		if !ok {
			bad++
			t.Errorf("%s (%s): element %d is %v, want %v", what, list[0].Kernel.Name, i, expr.Decode(typ, got), sum[i])
		}
	}
	if s.SharedLoads > 0 {
		fmaPerLoad = float64(s.FMA) / float64(s.SharedLoads)
	}
	return list[0].Kernel.Name, fmaPerLoad, float64(s.Sectors) / float64(s.IdealSectors)
}

// matrixLayout returns the layout of an operand [batch, r, c]. The argument form names it:
// row-major, column-major, with padded rows, or with steps in both dimensions.
func matrixLayout(form string, batch, r, c int) shape.Layout {
	d := []int{batch, r, c}
	switch form {
	case "N":
		return strided(d, []int{r * c, c, 1})
	case "T":
		return strided(d, []int{r * c, 1, r})
	case "padded":
		return strided(d, []int{r * (c + 4), c + 4, 1})
	case "steps":
		return strided(d, []int{r * c * 6, 3 * c, 2})
	}
	return strided(d, []int{0, c, 1}) // all matrices of the batch are the same memory
}

func TestMatMul(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.F16, dtype.BF16, dtype.I32, dtype.I64, dtype.U8} {
		for _, forms := range [][2]string{{"N", "N"}, {"N", "T"}, {"T", "N"}, {"T", "T"}, {"padded", "shared"}, {"steps", "N"}, {"N", "steps"}} {
			for _, d := range [][4]int{{1, 40, 36, 20}, {2, 5, 7, 3}} {
				a, b := matrixLayout(forms[0], d[0], d[1], d[3]), matrixLayout(forms[1], d[0], d[3], d[2])
				if d[0] > 1 && typ != dtype.F32 && typ != dtype.F64 {
					continue // batches need no test for every type
				}
				what := fmt.Sprintf("%v %v %v", typ, forms, d)
				matmulCase(t, what, typ, dense(d[0], d[1], d[2]), a, b, 0)
				if d[0] == 1 && typ.Size() > 1 {
					matmulCase(t, what+" misaligned", typ, matrixLayout("T", d[0], d[1], d[2]), a, b, 1)
				}
			}
		}
	}
}

// TestMatMulTensor computes products of 16-bit floats on tensor cores, for each storage order, and
// for each number of neighbouring elements that one access can move.
func TestMatMulTensor(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F16, dtype.BF16} {
		for _, forms := range [][2]string{{"N", "N"}, {"N", "T"}, {"T", "N"}, {"T", "T"}, {"N", "shared"}} {
			for _, d := range [][4]int{{1, 80, 80, 48}, {2, 8, 16, 72}, {1, 64, 64, 0}, {1, 76, 68, 44}, {2, 66, 70, 38}, {1, 67, 65, 71}, {2, 1, 3, 5}, {1, 3, 4, 5}, {1, 35, 24, 7}, {1, 24, 35, 0}} {
				if typ == dtype.F16 && d[1]%8 != 0 {
					continue // float16 is moved in the same way as bfloat16
				}
				a, b := matrixLayout(forms[0], d[0], d[1], d[3]), matrixLayout(forms[1], d[0], d[3], d[2])
				what := fmt.Sprintf("tensor %v %v %v", typ, forms, d)
				name, _, sectors := matmulCase(t, what, typ, dense(d[0], d[1], d[2]), a, b, 0)
				if !strings.HasPrefix(name, "gemm_tensor") {
					t.Errorf("%s uses %s", what, name)
				}
				if sectors != 1 && d[1] == 80 {
					t.Errorf("%s: %.2f of the sectors that would do", what, sectors)
				}
				if d[1]%8 == 0 {
					matmulCase(t, what+" transposed output", typ, matrixLayout("T", d[0], d[1], d[2]), a, b, 0)
				}
			}
		}
	}
	matmulCase(t, "odd k", dtype.F16, dense(1, 16, 24), matrixLayout("T", 1, 16, 37), dense(1, 37, 24), 0)
}

func TestMatMulEdges(t *testing.T) {
	for _, d := range [][4]int{{1, 1, 1, 1}, {1, 1, 33, 17}, {3, 65, 1, 16}, {0, 3, 4, 5}, {2, 0, 4, 5}, {2, 4, 0, 5}, {2, 4, 8, 0}, {1, 31, 32, 33}, {1, 290, 70, 4}} {
		matmulCase(t, fmt.Sprint(d), dtype.F32, dense(d[0], d[1], d[2]), dense(d[0], d[1], d[3]), dense(d[0], d[3], d[2]), 0)
	}
}

// TestMatMulLarge runs the large tile. It must do at least 16 multiply-adds for each read of shared
// memory, and access whole sectors.
func TestMatMulLarge(t *testing.T) {
	saved := largeTile
	for _, forms := range [][2]string{{"N", "N"}, {"N", "T"}, {"T", "N"}} {
		s := gemmSpec{typ: dtype.F32, out: dtype.F32, tile: saved}
		m := newMachine(t)
		// A product with 64 blocks of 128×128 would take too long. The test therefore plans the
		// large tile directly, for a result that is slightly larger than one tile.
		d := [4]int{1, 136, 136, 32}
		c := m.tensor(dtype.F32, dense(d[0], d[1], d[2]), 0)
		x := m.random(m.tensor(dtype.F32, matrixLayout(forms[0], d[0], d[1], d[3]), 0))
		y := m.random(m.tensor(dtype.F32, matrixLayout(forms[1], d[0], d[3], d[2]), 0))
		s.a, s.b, s.vectorOut = chooseLoad(x, 1, 2), chooseLoad(y, 2, 1), true
		list, err := launchMatMul(s, ProductOperands{Out: c, A: x, B: y})
		st := m.run(list, err)
		sum, size, _ := naive(c, m.read(x), m.read(y))
		for i, got := range m.read(c) {
			if v := expr.Decode(dtype.F32, got); math.Abs(v-sum[i]) > float64(d[3]+1)*0x1p-24*size[i] {
				t.Fatalf("%v: element %d is %v, want %v", forms, i, v, sum[i])
			}
		}
		// In the loop there are 16 multiply-adds for each read. The kernel also reads shared memory
		// once before it stores the results.
		if ratio := float64(st.FMA) / float64(st.SharedLoads); ratio < 15.5 {
			t.Errorf("%v: %.1f multiplications for each shared load", forms, ratio)
		}
		// lanes beyond the edge all read the last element before the edge
		if st.Sectors > st.IdealSectors {
			t.Errorf("%v: %d sectors, %d would do", forms, st.Sectors, st.IdealSectors)
		}
	}
	name, _, _ := matmulCase(t, "choice", dtype.F32, dense(4, 65, 65), dense(4, 65, 4), dense(4, 4, 65), 0)
	if name != "gemm_float32_32x64x32_kv_os_s" {
		t.Errorf("the small product uses %s", name)
	}
	if l, err := MatMul(a100, fake(dtype.F32, 1, 1024, 1024), fake(dtype.F32, 1, 1024, 64), fake(dtype.F32, 1, 64, 1024)); err != nil || l[0].Kernel.Name != "gemm_float32_128x128x16_kv_ov_v" {
		t.Errorf("the large product: %v, %v", l, err)
	}
	// If a batch has one matrix, the batch stride must not matter.
	for typ, want := range map[dtype.Type]string{dtype.F32: "gemm_float32_128x128x16_kv_ov_v", dtype.BF16: "gemm_tensor_bfloat16_64x64x32_ko_v_s3"} {
		out, a, b := fake(typ, 1, 1024, 1024), fake(typ, 1, 1024, 64), fake(typ, 1, 64, 1024)
		for _, o := range []*Operand{&out, &a, &b} {
			o.Strides = o.Strides.With(0, 1)
		}
		if l, err := MatMul(a100, out, a, b); err != nil || l[0].Kernel.Name != want {
			t.Errorf("a product of %v of one batch with stride 1: %v, %v, want %s", typ, l[0].Kernel.Name, err, want)
		}
	}
}

// TestMatMulSplit computes small results with a long k. Blocks must divide the sums.
func TestMatMulSplit(t *testing.T) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.F16, dtype.I32} {
		for _, d := range [][4]int{{1, 8, 16, 520}, {2, 5, 3, 301}, {1, 3, 40, 256}, {2, 1, 20, 90}, {1, 20, 1, 1500}} {
			for _, forms := range [][2]string{{"N", "N"}, {"T", "T"}} {
				a, b := matrixLayout(forms[0], d[0], d[1], d[3]), matrixLayout(forms[1], d[0], d[3], d[2])
				matmulCase(t, fmt.Sprintf("split %v %v %v", typ, forms, d), typ, matrixLayout(forms[1], d[0], d[1], d[2]), a, b, 0)
			}
		}
	}
	matmulCase(t, "bytes", dtype.U8, dense(1, 1, 9), dense(1, 1, 40), dense(1, 40, 9), 0)
	scratch := func(int) (uint64, error) { return 1 << 30, nil }
	f := func(d ...int) Operand { return fake(dtype.F32, d...) }
	if list, err := MatMulSplit(a100, ProductOperands{Out: f(1, 64, 64), A: f(1, 64, 4096), B: f(1, 4096, 64), Counters: fakeCounters}, scratch); err != nil || len(list) != 1 || list[0].Grid[0] != 2*32 {
		t.Errorf("small: %d launches, %v", len(list), err)
	}
	if list, err := MatMulSplit(a100, ProductOperands{Out: f(1, 4096, 4096), A: f(1, 4096, 4096), B: f(1, 4096, 4096), Counters: fakeCounters}, scratch); err != nil || len(list) != 1 {
		t.Errorf("large: %d launches, %v", len(list), err)
	}
}

func TestMatMulGolden(t *testing.T) {
	list, err := MatMul(a100, fake(dtype.F32, 1, 1024, 1024), fake(dtype.F32, 1, 1024, 64), fake(dtype.F32, 1, 64, 1024))
	golden(t, "gemm_f32_large", list, err)
	w := fake(dtype.F32, 1, 64, 1024)
	w.Strides = shape.Of(0, 1, 64)
	list, err = MatMul(a100, fake(dtype.F32, 1, 1024, 1024), fake(dtype.F32, 1, 1024, 64), w)
	golden(t, "gemm_f32_linear", list, err)
	w = fake(dtype.F32, 1, 1024, 64)
	w.Strides = shape.Of(0, 1, 1024)
	list, err = MatMul(a100, fake(dtype.F32, 1, 1024, 1024), w, fake(dtype.F32, 1, 64, 1024))
	golden(t, "gemm_f32_weights", list, err)
	list, err = MatMul(a100, fake(dtype.F32, 1, 33, 33), fake(dtype.F32, 1, 33, 33), fake(dtype.F32, 1, 33, 33))
	golden(t, "gemm_f32_small", list, err)
	list, err = MatMul(a100, fake(dtype.F64, 1, 128, 128), fake(dtype.F64, 1, 128, 64), fake(dtype.F64, 1, 64, 128))
	golden(t, "gemm_f64", list, err)
	list, err = MatMul(a100, fake(dtype.I64, 1, 33, 33), fake(dtype.I64, 1, 33, 33), fake(dtype.I64, 1, 33, 33))
	golden(t, "gemm_i64", list, err)
	list, err = MatMul(a100, fake(dtype.I32, 1, 1024, 1024), fake(dtype.I8, 1, 1024, 64), fake(dtype.I8, 1, 64, 1024))
	golden(t, "gemm_i8_i32_large", list, err)
	list, err = MatMul(a100, fake(dtype.I32, 1, 33, 33), fake(dtype.I8, 1, 33, 33), fake(dtype.I8, 1, 33, 33))
	golden(t, "gemm_i8_i32_small", list, err)
	list, err = MatMul(a100, fake(dtype.BF16, 1, 1024, 1024), fake(dtype.BF16, 1, 1024, 64), fake(dtype.BF16, 1, 64, 1024))
	golden(t, "gemm_bf16_tensor", list, err)
	list, err = MatMul(a100, fake(dtype.F16, 1, 64, 64), fake(dtype.F16, 1, 64, 60), fake(dtype.F16, 1, 60, 64))
	golden(t, "gemm_f16_pieces", list, err)
	list, err = MatMul(a100, fake(dtype.F16, 1, 64, 64), fake(dtype.F16, 1, 64, 64), fake(dtype.F16, 1, 64, 64))
	golden(t, "gemm_f16_tensor", list, err)
	o := ProductOperands{Out: fake(dtype.F32, 1, 1024, 1024), A: fake(dtype.F32, 1, 1024, 64), B: fake(dtype.F32, 1, 64, 1024), Bias: fake(dtype.F32, 1024)}
	list, err = MatMulSplit(a100, o, nil)
	golden(t, "gemm_f32_bias", list, err)
	o = ProductOperands{Out: fake(dtype.BF16, 1, 1024, 1024), Pre: fake(dtype.BF16, 1, 1024, 1024), A: fake(dtype.BF16, 1, 1024, 64), B: fake(dtype.BF16, 1, 64, 1024),
		Bias: fake(dtype.F32, 1024), Act: geluOf(dtype.BF16)}
	list, err = MatMulSplit(a100, o, nil)
	golden(t, "gemm_bf16_gelu", list, err)
	o = ProductOperands{Out: fake(dtype.F32, 1, 1024, 1023), A: o.A, B: fake(dtype.BF16, 1, 64, 1023), Bias: fake(dtype.BF16, 1023)}
	list, err = MatMulSplit(a100, o, nil)
	golden(t, "gemm_bf16_float32", list, err)
	o = ProductOperands{Out: fake(dtype.F32, 1, 1024, 1024), A: fake(dtype.F32, 1, 1024, 64), B: fake(dtype.F32, 1, 64, 1024), Bias: fake(dtype.F32, 1024), TF32: true}
	list, err = MatMulSplit(a100, o, nil)
	golden(t, "gemm_tf32", list, err)
	o = ProductOperands{Out: fake(dtype.F32, 1, 64, 64), A: fake(dtype.F32, 1, 64, 4096), B: fake(dtype.F32, 1, 4096, 64), Counters: fakeCounters}
	list, err = MatMulSplit(a100, o, fakeScratch)
	golden(t, "gemm_f32_parts", list, err)
}

func TestMatMulErrors(t *testing.T) {
	f := func(typ dtype.Type, d ...int) Operand { return fake(typ, d...) }
	for _, o := range [][3]Operand{
		{f(dtype.F32, 1, 2, 3), f(dtype.F32, 1, 2, 4), f(dtype.F32, 1, 5, 3)},
		{f(dtype.F32, 2, 3), f(dtype.F32, 2, 4), f(dtype.F32, 4, 3)},
		{f(dtype.F32, 1, 2, 3), f(dtype.I32, 1, 2, 4), f(dtype.F32, 1, 4, 3)},
	} {
		if _, err := MatMul(a100, o[0], o[1], o[2]); err == nil {
			t.Errorf("no error for %v", o)
		}
	}
}
