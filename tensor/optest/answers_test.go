package optest

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// An answer holds the result of a call in PyTorch 2.15: type, shape and numbers.
type answer struct {
	call string
	f    func(s *tensor.Scope) *tt
	t    dtype.Type
	dims []int
	v    []float64
}

// answered runs the calls in list on the CPU and on the emulated GPU, and compares the results with
// PyTorch's.
func answered(t *testing.T, list []answer) {
	t.Helper()
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		for _, a := range list {
			var y *tt
			if err := tensor.Try(func() { y = a.f(s) }); err != nil {
				t.Errorf("%s: %v", a.call, err)
				continue
			}
			near := map[dtype.Type]float64{dtype.F64: 1e-12, dtype.F32: 1e-6, dtype.F16: 1e-3, dtype.BF16: 1e-2}[a.t]
			if wrong := differs(y, a.t, array{a.dims, a.v}, func(i int) float64 { return near * (1 + math.Abs(a.v[i])) }); wrong != "" {
				t.Errorf("%s: %s", a.call, wrong)
			}
		}
	})
}

// gradient returns the gradient of Σ wᵢyᵢ with respect to x, where y = f(x) and w = 1, 2, ….
func gradient(x *tt, f func(x *tt) *tt, o ...tensor.GradOption) *tt {
	x = x.Detach().RequiresGrad()
	y := f(x)
	w := x.Scope().On(y.Device()).Typed(y.Type()).ArangeStep(1, float64(y.Size()+1), 1).Reshape(y.Shape().Slice()...)
	return tensor.Gradients(y, []*tt{x}, append(o, tensor.GradOutput(w))...)[0]
}

func full(n int, v float64) []float64 { return slices.Repeat([]float64{v}, n) }

// TestSecondDerivativeOfLogCumSumExp computes the second derivative of LogCumSumExp for a huge last
// element. The derivative must be finite. No running value follows the last one, so no factor of
// the gradient depends on the last element.
func TestSecondDerivativeOfLogCumSumExp(t *testing.T) {
	second := func(x ...float64) func(s *tensor.Scope) *tt {
		return func(s *tensor.Scope) *tt {
			leaf := s.From(x).RequiresGrad()
			n := float64(len(x))
			up, down := s.Typed(dtype.F64).ArangeStep(1, n+1, 1), s.Typed(dtype.F64).ArangeStep(n, 0, -1)
			g := tensor.Gradients(leaf.LogCumSumExp(0), []*tt{leaf}, tensor.GradOutput(up), tensor.CreateGraph())[0]
			return tensor.Gradients(g, []*tt{leaf}, tensor.GradOutput(down))[0]
		}
	}
	answered(t, []answer{
		{"[1, 800]", second(1, 800), dtype.F64, []int{2}, []float64{0, 0}},
		{"[1, 5, 800, 3]", second(1, 5, 800, 3), dtype.F64, []int{4}, []float64{0.03532541242658116, -0.035325412426583824, 0, 0}},
		{"[-800, 710, 709, 710]", second(-800, 710, 709, 710), dtype.F64, []int{4}, []float64{0, 2.2791109927289313, -0.58983579972492, -1.6892751930063414}},
	})
}

// TestEinsumOfIntegers checks the types of Einsum. If it sums integers over a letter that occurs in
// only one operand, the result is int64. For bool operands the result is always int64. A product of
// matrices keeps the type and wraps.
func TestEinsumOfIntegers(t *testing.T) {
	hundreds := func(s *tensor.Scope, ty dtype.Type, dims ...int) *tt { return s.Typed(ty).Full(100, dims...) }
	var list []answer
	for _, ty := range []dtype.Type{dtype.U8, dtype.I8, dtype.I16, dtype.I32, dtype.I64} {
		einsum := func(eq string, dims ...[]int) func(s *tensor.Scope) *tt {
			return func(s *tensor.Scope) *tt {
				var x []*tt
				for _, d := range dims {
					x = append(x, hundreds(s, ty, d...))
				}
				return tensor.Einsum(eq, x...)
			}
		}
		wrapped := func(v int64) float64 { // wrapped returns v, wrapped to the type
			switch ty {
			case dtype.U8:
				return float64(uint8(v))
			case dtype.I8:
				return float64(int8(v))
			case dtype.I16:
				return float64(int16(v))
			}
			return float64(v)
		}
		list = append(list,
			answer{ty.String() + " ij->", einsum("ij->", []int{3, 4}), dtype.I64, nil, []float64{1200}},
			answer{ty.String() + " ij->i", einsum("ij->i", []int{3, 4}), dtype.I64, []int{3}, full(3, 400)},
			answer{ty.String() + " ij->i of a column", einsum("ij->i", []int{3, 1}), dtype.I64, []int{3}, full(3, 100)},
			answer{ty.String() + " ij->ji", einsum("ij->ji", []int{2, 3}), ty, []int{3, 2}, full(6, 100)},
			answer{ty.String() + " ij,k->jk", einsum("ij,k->jk", []int{3, 4}, []int{4}), dtype.I64, []int{4, 4}, full(16, 30000)},
			answer{ty.String() + " ij,k->ik of a column", einsum("ij,k->ik", []int{3, 1}, []int{2}), ty, []int{3, 2}, full(6, wrapped(10000))},
			answer{ty.String() + " ij,ij->i of a column", einsum("ij,ij->i", []int{3, 1}, []int{3, 3}), dtype.I64, []int{3}, full(3, 30000)},
			answer{ty.String() + " ij,kj->ik", einsum("ij,kj->ik", []int{3, 4}, []int{3, 4}), ty, []int{3, 3}, full(9, wrapped(40000))},
			answer{ty.String() + " ij,kj,l->ik", einsum("ij,kj,l->ik", []int{3, 3}, []int{3, 3}, []int{3}), dtype.I64, []int{3, 3}, full(9, wrapped(30000)*300)},
			// PyTorch does not apply its rules of types consistently to this equation.
			answer{ty.String() + " ij,j->", einsum("ij,j->", []int{3, 4}, []int{4}), dtype.I64, nil, []float64{120000}},
		)
	}
	yes := func(s *tensor.Scope) *tt { return s.Typed(dtype.Bool).Ones(3, 4) }
	list = append(list,
		answer{"bool ij->i", func(s *tensor.Scope) *tt { return tensor.Einsum("ij->i", yes(s)) }, dtype.I64, []int{3}, full(3, 4)},
		answer{"bool ij->ji", func(s *tensor.Scope) *tt { return tensor.Einsum("ij->ji", yes(s)) }, dtype.I64, []int{4, 3}, full(12, 1)},
		answer{"bool ij,kj->ik", func(s *tensor.Scope) *tt { return tensor.Einsum("ij,kj->ik", yes(s), yes(s)) }, dtype.I64, []int{3, 3}, full(9, 4)},
	)
	answered(t, list)
}

// TestSpacesOfIntegers checks Linspace and Logspace of integers. Both ends must be truncated before
// the steps between them are computed.
func TestSpacesOfIntegers(t *testing.T) {
	var list []answer
	for _, ty := range []dtype.Type{dtype.I32, dtype.I64} {
		lin := func(start, end float64, n int) func(s *tensor.Scope) *tt {
			return func(s *tensor.Scope) *tt { return s.Typed(ty).Linspace(start, end, n) }
		}
		powers := func(start, end float64, n int, base float64) func(s *tensor.Scope) *tt {
			return func(s *tensor.Scope) *tt { return s.Typed(ty).Logspace(start, end, n, base) }
		}
		list = append(list,
			answer{"linspace(0.5, 5.7, 4)", lin(0.5, 5.7, 4), ty, []int{4}, []float64{0, 1, 3, 5}},
			answer{"linspace(-0.9, 3.9, 5)", lin(-0.9, 3.9, 5), ty, []int{5}, []float64{0, 0, 1, 2, 3}},
			answer{"linspace(-3.2, 2.9, 7)", lin(-3.2, 2.9, 7), ty, []int{7}, []float64{-3, -2, -1, 0, 0, 1, 2}},
			answer{"linspace(1.5, 1.7, 1)", lin(1.5, 1.7, 1), ty, []int{1}, []float64{1}},
			answer{"linspace(-5.5, -1.5, 3)", lin(-5.5, -1.5, 3), ty, []int{3}, []float64{-5, -3, -1}},
			answer{"logspace(0.5, 5.7, 4)", powers(0.5, 5.7, 4, 10), ty, []int{4}, []float64{1, 46, 2154, 100000}},
			answer{"logspace(-3.2, 2.9, 7)", powers(-3.2, 2.9, 7, 10), ty, []int{7}, []float64{0, 0, 0, 0, 2, 14, 100}},
			answer{"logspace(0.5, 3.9, 5, 2.5)", powers(0.5, 3.9, 5, 2.5), ty, []int{5}, []float64{1, 1, 3, 7, 15}},
		)
	}
	list = append(list, answer{"linspace(100, 10, 5) of uint8", func(s *tensor.Scope) *tt { return s.Typed(dtype.U8).Linspace(100, 10, 5) }, dtype.U8, []int{5}, []float64{100, 77, 55, 32, 10}})
	answered(t, list)
	tensor.Do(func(s *tensor.Scope) {
		for _, f := range []func(){func() { s.Typed(dtype.U8).Linspace(0, 256, 3) }, func() { s.Typed(dtype.I8).Logspace(0, 300, 3, 1) }} {
			if err := tensor.Try(f); err == nil || !contains(err, tensor.ErrValue, "space", "does not fit into") {
				t.Errorf("ends that do not fit: %v", err)
			}
		}
	})
}

// TestScansOfAnotherType computes scans in another type, in the way that docs/from-pytorch/torch.md
// describes. The results must be those of torch's dtype argument.
func TestScansOfAnotherType(t *testing.T) {
	answered(t, []answer{
		{"[1, 2, 300].cumsum(0, dtype=int8)", func(s *tensor.Scope) *tt { return s.From([]int64{1, 2, 300}).CumSum(0).Cast(dtype.I8) }, dtype.I8, []int{3}, []float64{1, 3, 47}},
		{"uint8 [100, 100, 100].cumsum(0)", func(s *tensor.Scope) *tt { return s.Typed(dtype.U8).Full(100, 3).CumSum(0) }, dtype.I64, []int{3}, []float64{100, 200, 300}},
		{"[1.5, 2.6, 300.7].cumprod(0, dtype=int32)", func(s *tensor.Scope) *tt {
			return s.From([]float64{1.5, 2.6, 300.7}).Long().CumProd(0).Cast(dtype.I32)
		}, dtype.I32, []int{3}, []float64{1, 2, 600}},
		{"int64 [1, 2].cumsum(0, dtype=float64)", func(s *tensor.Scope) *tt { return s.From([]int64{1, 2}).Double().CumSum(0) }, dtype.F64, []int{2}, []float64{1, 3}},
	})
}

// contains reports whether err is of the kind and its text contains all the words.
func contains(err, kind error, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			return false
		}
	}
	return errors.Is(err, kind)
}

// TestLogCumSumExpOfAll checks long rows and columns of LogCumSumExp. The result must be exact
// whether small or large numbers, infinities or NaN come before. The reference is the greatest
// element plus the logarithm of Σ exp(x - greatest).
func TestLogCumSumExpOfAll(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	onBothDevices(t, func(t *testing.T, s *tensor.Scope) {
		rows := s.Typed(dtype.F64).Randn(7, 600).MulScalar(20).Floats()
		copy(rows[600:], []float64{-inf, -inf, -1e-20, -50, 3, inf, 2, inf, -inf})
		copy(rows[1200:], []float64{800, -800, 1e300, 5, 1e300, nan, 1, inf})
		copy(rows[1800:], []float64{inf, -inf, 1, inf, nan})
		x := s.From(rows).Reshape(7, 600)
		want := make([]float64, len(rows))
		for i := range want {
			before := rows[i/600*600 : i+1]
			most := slices.Max(before) // NaN if before contains NaN
			rest := 0.0
			for _, v := range before {
				rest += math.Exp(v - most)
			}
			if want[i] = most + math.Log1p(rest-1); math.IsInf(most, 0) {
				want[i] = most
			}
		}
		for name, y := range map[string]*tt{"rows": x.LogCumSumExp(1), "columns": x.T().Contiguous().LogCumSumExp(0).T(), "float32": x.Float().LogCumSumExp(1)} {
			for i, v := range y.Floats() {
				limit := 1e-13 * max(1, math.Abs(want[i]))
				if name == "float32" {
					limit = 1e-6 * max(1, math.Abs(want[i]))
				}
				if same := v == want[i] || v != v && want[i] != want[i] || math.IsInf(v, 1) && want[i] > math.MaxFloat32; !same && !(math.Abs(v-want[i]) <= limit) {
					t.Fatalf("%s: element %d is %v, want %v", name, i, v, want[i])
				}
			}
		}
	})
}
