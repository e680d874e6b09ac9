package optest

import (
	"math"
	"regexp"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestCPU tests all ops on the CPU. With the race detector it tests only one or two ops of each
// family of kernels.
func TestCPU(t *testing.T) {
	o := Options{}
	if testing.Short() {
		o.Small = true
		o.Only = func(op string) bool { return someOps(op) || kernelOps(op) }
	}
	if w := Run(t, hostDevice(), o); o.Only == nil {
		isWalked(t, w)
	}
}

var kernelOps = regexp.MustCompile(`^(sort|topk|cumsum|scatter|index|layer_norm|batch_norm|conv|max_pool|unique|inverse|scaled)`).MatchString

// isWalked checks that w contains exactly the checks that Matrix lists.
func isWalked(t *testing.T, w Walked) {
	t.Helper()
	for _, msg := range w.Differences(nil) {
		t.Error(msg)
	}
}

func TestEveryOpIsWalked(t *testing.T) {
	for _, name := range Unwalked() {
		t.Errorf("%s is in no table: add a row", name)
	}
}

// TestPromotion compares the promotion of operand types with torch.result_type in PyTorch 2.15. A
// tensor of rank 0 affects the type less than a tensor of rank 1.
func TestPromotion(t *testing.T) {
	const b, u8, i8, i32, i64, f16, bf16, f32, f64 = dtype.Bool, dtype.U8, dtype.I8, dtype.I32, dtype.I64, dtype.F16, dtype.BF16, dtype.F32, dtype.F64
	for _, c := range []struct {
		x, y dtype.Type
		rank int // rank of y
		want dtype.Type
	}{
		{f32, f64, 1, f64}, {f32, f64, 0, f32}, {f16, bf16, 1, f32}, {f16, f32, 0, f16}, {i64, f32, 1, f32}, {i64, f16, 0, f16}, {i64, f64, 0, f64},
		{b, i8, 0, i8}, {b, b, 1, b}, {u8, i8, 1, dtype.I16}, {u8, i64, 0, u8}, {i32, i64, 0, i32}, {f16, i64, 1, f16}, {b, f32, 0, f32}, {f32, b, 1, f32},
	} {
		tensor.Do(func(s *tensor.Scope) {
			dims := []int{3}[:c.rank]
			x, y := s.Typed(c.x).Ones(3), s.Typed(c.y).Ones(dims...)
			for _, z := range []*tt{x.Add(y), y.Mul(x), tensor.Where(s.Typed(b).Ones(3), x, y)} {
				if z.Type() != c.want {
					t.Errorf("%v with %v of rank %d gives %v, want %v", c.x, c.y, c.rank, z.Type(), c.want)
				}
			}
			if z := x.Eq(y); z.Type() != b {
				t.Errorf("Eq gives %v", z.Type())
			}
		})
	}
}

// TestNumbersPromote checks that only the class of a number affects promotion.
func TestNumbersPromote(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		truth := s.From([]bool{true, false})
		bytes := s.From([]uint8{200, 3})
		for _, c := range []struct {
			what string
			y    *tt
			t    dtype.Type
			v    [2]float64
		}{
			{"bool + 1", truth.AddScalar(1), dtype.I64, [2]float64{2, 1}}, {"bool · 0.5", truth.MulScalar(0.5), dtype.F32, [2]float64{0.5, 0}},
			{"2 - bool", truth.RSubScalar(2), dtype.I64, [2]float64{1, 2}}, {"bool / 2", truth.DivScalar(2), dtype.F32, [2]float64{0.5, 0}},
			{"uint8 + 100", bytes.AddScalar(100), dtype.U8, [2]float64{44, 103}}, {"uint8 + 0.5", bytes.AddScalar(0.5), dtype.F32, [2]float64{200.5, 3.5}},
			{"-uint8", bytes.Neg(), dtype.U8, [2]float64{56, 253}}, {"bool == 2", truth.EqScalar(2), dtype.Bool, [2]float64{0, 0}},
			{"bool < 2", truth.LtScalar(2), dtype.Bool, [2]float64{1, 1}}, {"uint8 > -1", bytes.GtScalar(-1), dtype.Bool, [2]float64{1, 1}},
			{"uint8 < 2⁴⁰", bytes.LtScalar(1 << 40), dtype.Bool, [2]float64{1, 1}}, {"uint8 < 3.5", bytes.LtScalar(3.5), dtype.Bool, [2]float64{0, 1}},
			{"half + 0.1", s.Typed(dtype.F16).From([]float32{1, 2}).AddScalar(0.1), dtype.F16, [2]float64{round(dtype.F16, 1.1), round(dtype.F16, 2.1)}},
		} {
			if c.y.Type() != c.t || c.y.Floats()[0] != c.v[0] || c.y.Floats()[1] != c.v[1] {
				t.Errorf("%s is %v %v, want %v %v", c.what, c.y.Type(), c.y.Floats(), c.t, c.v)
			}
		}
	})
}

// TestPowAtZero checks powers at the ends of their domain, by the rules of PyTorch's
// pow_backward_self and pow_backward_exponent.
func TestPowAtZero(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct{ x, y, v, dx, dy float64 }{
		{0, 2, 0, 0, 0}, {0, 0, 1, 0, 0}, {0, 1, 0, 1, 0}, {0, 0.5, 0, inf, 0}, {0, -1, inf, -inf, -inf},
		{2, 0, 1, 0, math.Ln2}, {-2, 3, -8, 12, nan}, {-2, 0.5, nan, nan, nan}, {1, 5, 1, 5, 0},
	} {
		tensor.Do(func(s *tensor.Scope) {
			x, y := s.From([]float64{c.x}).RequiresGrad(), s.From([]float64{c.y}).RequiresGrad()
			z := x.Pow(y)
			g := tensor.Gradients(z.Sum(), []*tt{x, y})
			for i, p := range [][2]float64{{z.Item(), c.v}, {g[0].Item(), c.dx}, {g[1].Item(), c.dy}} {
				if p[0] != p[1] && !(p[0] != p[0] && p[1] != p[1]) && math.Abs(p[0]-p[1]) > 1e-12 {
					t.Errorf("%v^%v: value, gradients [%d] is %v, want %v", c.x, c.y, i, p[0], p[1])
				}
			}
		})
	}
}

// TestFractionalPowers uses exponents that float32 cannot represent. A float32 power and its
// derivatives must use them exactly. Far from x = 1, rounding the exponent would change the result
// by ln(x) times the rounding error.
func TestFractionalPowers(t *testing.T) {
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		near := func(what string, got *tt, p float64, in []float32, want func(x float64) float64) {
			t.Helper()
			for i, v := range got.Floats() {
				w := want(float64(in[i]))
				if ulp := math.Nextafter32(float32(math.Abs(w)), float32(math.Inf(1))) - float32(math.Abs(w)); math.Abs(v-w) > 4*float64(ulp) {
					t.Errorf("%s of %v^%v is %v, want %v", what, in[i], p, v, w)
				}
			}
		}
		in := []float32{1e30, 3e37, 1e-30, 2e-38, 8, 0.3, 1}
		for _, p := range []float64{1. / 3, 0.1, -0.1, 2. / 3, 1.1, 0.9, -1. / 3} {
			x := s.From(in).RequiresGrad()
			y := x.PowScalar(p)
			near("the value", y, p, in, func(x float64) float64 { return math.Pow(x, p) })
			near("the value in place", s.From(in).PowScalarInPlace(p), p, in, func(x float64) float64 { return math.Pow(x, p) })
			g := tensor.Gradients(y.Sum(), []*tt{x}, tensor.CreateGraph())[0]
			near("the gradient", g.Narrow(0, 0, 2), p, in[:2], func(x float64) float64 { return p * math.Pow(x, p-1) })
			h := tensor.Gradients(g.Narrow(0, 4, 3).Sum(), []*tt{x})[0].Narrow(0, 4, 3)
			near("the second derivative", h, p, in[4:], func(x float64) float64 { return p * (p - 1) * math.Pow(x, p-2) })
		}
		in = []float32{1e9, 1e-9}
		for _, p := range []float64{1.1, 3, 3.3} {
			near("the norm", s.From(in).Reshape(2, 1).Norm(p, 1), p, in, func(x float64) float64 { return x })
		}
		for _, c := range []struct{ x, p, want float64 }{{-8, 1. / 3, math.NaN()}, {0, 1. / 3, 0}, {0, -1. / 3, math.Inf(1)}, {math.Inf(1), 0.1, math.Inf(1)},
			{math.NaN(), 0.1, math.NaN()}, {math.Inf(1), -0.1, 0}, {2, 1e39, math.Inf(1)}, {0.5, 1e39, 0}, {3, 1e-50, 1}} {
			if v := s.Full(c.x).PowScalar(c.p).Item(); v != c.want && !(v != v && c.want != c.want) {
				t.Errorf("%v^%v is %v, want %v", c.x, c.p, v, c.want)
			}
		}
	})
}
