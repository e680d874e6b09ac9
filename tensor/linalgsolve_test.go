package tensor_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestLinAlgBlocks checks that equations and factorisations of any size have a backward error as
// small as their type allows. Sizes below the size of a block need no product. Larger sizes need
// one product or several.
func TestLinAlgBlocks(t *testing.T) {
	testLinAlgBlocks(t, dtype.F64, 0x1p-52)
	testLinAlgBlocks(t, dtype.F32, 0x1p-23)
}

func testLinAlgBlocks(t *testing.T, typ dtype.Type, eps float64) {
	tensor.ManualSeed(3)
	for _, n := range []int{1, 15, 16, 17, 31, 32, 33, 64, 70, 130} {
		s := tensor.NewScope()
		size := func(x *tensor.Tensor) float64 { return x.Abs().Amax().Item() }
		// small checks that the residual a·x - b is as small as rounding allows
		small := func(name string, a, x, b *tensor.Tensor) {
			t.Helper()
			a, x, b = a.Double(), x.Double(), b.Double()
			if e, most := size(a.MatMul(x).Sub(b)), float64(n+2)*eps*(size(a)*size(x)*float64(n)+size(b)); !(e <= most) {
				t.Errorf("%s of size %d: the residual is %v, more than %v", name, n, e, most)
			}
		}
		// the diagonal is small, so the factorisation must exchange rows
		a, b := s.Randn(2, n, n).Cast(typ), s.Randn(2, n, 9).Cast(typ)
		a = a.Sub(a.Mul(s.Eye(n).Cast(typ)).MulScalar(1 - 1e-9))
		if n == 1 {
			a = a.AddScalar(1)
		}
		small("solve", a, a.Solve(b), b)
		small("inverse", a, a.Inverse(), s.Eye(n).Cast(typ).Expand(2, n, n))
		symmetric := a.MatMul(a.T()).Add(s.Eye(n).Cast(typ))
		l := symmetric.Cholesky(false)
		small("cholesky", l, l.T(), symmetric)
		if e := size(l.Triu(1)); e != 0 {
			t.Errorf("the Cholesky factor of size %d has %v above the diagonal", n, e)
		}
		upper := symmetric.Cholesky(true)
		small("upper cholesky", upper.T(), upper, symmetric)
		one := l.Div(l.Diagonal(0, -2, -1).Unsqueeze(-2)) // L with a diagonal of 1
		small("lower triangle", l, l.Add(a.Triu(1)).SolveTriangular(b, tensor.TriangularOptions{}), b)
		small("upper triangle", l.T(), l.T().SolveTriangular(b, tensor.TriangularOptions{Upper: true}), b)
		small("unit triangle", one, one.Add(s.Eye(n).Cast(typ)).SolveTriangular(b, tensor.TriangularOptions{Unit: true}), b)
		x := l.SolveTriangular(b.T(), tensor.TriangularOptions{Right: true})
		small("triangle on the right", x, l, b.T())
		// the determinant of L·Lᵀ is the square of the product of L's diagonal
		want := l.Diagonal(0, -2, -1).Log().Sum(-1).MulScalar(2).Floats()
		_, got := symmetric.SlogDet()
		for i, v := range got.Floats() {
			if math.Abs(v-want[i]) > 4000*eps*float64(n)*(1+math.Abs(v)) {
				t.Errorf("the logarithm of determinant %d of size %d is %v, want %v", i, n, v, want[i])
			}
		}
		s.Close()
	}
}

// TestLargeFloat32Equations compares solutions of float32 equations, and their gradients, with
// those of the same equations in float64. Some operands have strides, and some batches broadcast.
func TestLargeFloat32Equations(t *testing.T) {
	const n = 40
	type operands struct{ a, b *tensor.Tensor }
	for name, f := range map[string]func(o operands) *tensor.Tensor{
		"inverse": func(o operands) *tensor.Tensor { return o.a.Inverse() },
		"det":     func(o operands) *tensor.Tensor { return o.a.MulScalar(1. / n).Det() },
		"slogdet": func(o operands) *tensor.Tensor { _, l := o.a.SlogDet(); return l },
		"solve":   func(o operands) *tensor.Tensor { return o.a.Solve(o.b) },
		"solve by columns": func(o operands) *tensor.Tensor {
			return o.a.T().Solve(o.b)
		},
		"one matrix": func(o operands) *tensor.Tensor { return o.a.Select(0, 0).Solve(o.b) },
		"one right side": func(o operands) *tensor.Tensor {
			return o.a.Solve(o.b.Select(0, 1))
		},
		"vectors": func(o operands) *tensor.Tensor { return o.a.Solve(o.b.Select(-1, 2)) },
		"part": func(o operands) *tensor.Tensor {
			return o.a.Narrow(-1, 3, 36).Narrow(-2, 3, 36).Solve(o.b.Narrow(-2, 2, 36))
		},
		"lower": func(o operands) *tensor.Tensor { return o.a.SolveTriangular(o.b, tensor.TriangularOptions{}) },
		"upper": func(o operands) *tensor.Tensor {
			return o.a.Select(0, 2).SolveTriangular(o.b, tensor.TriangularOptions{Upper: true})
		},
		"unit": func(o operands) *tensor.Tensor {
			return o.a.MulScalar(1./n).SolveTriangular(o.b, tensor.TriangularOptions{Unit: true})
		},
		"right": func(o operands) *tensor.Tensor {
			return o.a.SolveTriangular(o.b.T(), tensor.TriangularOptions{Right: true, Upper: true})
		},
		"cholesky": func(o operands) *tensor.Tensor { return o.a.Cholesky(false) },
		"cholesky of the upper triangle": func(o operands) *tensor.Tensor {
			return o.a.Cholesky(true)
		},
		"cholesky_solve": func(o operands) *tensor.Tensor { return o.b.CholeskySolve(o.a.Cholesky(false), false) },
	} {
		t.Run(name, func(t *testing.T) {
			tensor.Do(func(s *tensor.Scope) {
				x := s.Randn(3, n, n)
				x = x.MatMul(x.T()).Add(s.Eye(n).MulScalar(n))
				y := s.Randn(3, n, 5)
				results := func(typ dtype.Type) []*tensor.Tensor {
					a, b := x.Detach().Cast(typ).Clone().RequiresGrad(), y.Detach().Cast(typ).Clone().RequiresGrad()
					r := f(operands{a, b})
					weigh(r).Add(b.Sum().MulScalar(0)).Backward()
					return []*tensor.Tensor{r, a.Grad(), b.Grad()}
				}
				got, want := results(dtype.F32), results(dtype.F64)
				for i, r := range got {
					d := r.Double().Sub(want[i]).Abs().Amax().Item() / (1e-30 + want[i].Abs().Amax().Item())
					if r.Type() != dtype.F32 || !(d <= 1e-5) {
						t.Errorf("result %d, %v, is off by %g of the greatest element", i, r.Type(), d)
					}
				}
			}, tensor.Seed(7))
		})
	}
}

// TestLargeFloat32Pinv checks the conditions of a pseudo-inverse for matrices of float32 without
// full rank, and the least-squares solution that follows from it.
func TestLargeFloat32Pinv(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Randn(2, 48, 20).MatMul(s.Randn(2, 20, 40))
		y := x.Pinv()
		near := func(name string, got, want *tensor.Tensor) {
			t.Helper()
			if d := got.Sub(want).Abs().Amax().Item(); !(d <= 1e-4*want.Abs().Amax().Item()) {
				t.Errorf("%s is off by %g", name, d)
			}
		}
		near("x·y·x", x.MatMul(y).MatMul(x), x)
		near("y·x·y", y.MatMul(x).MatMul(y), y)
		near("(x·y)ᵀ", x.MatMul(y).T(), x.MatMul(y))
		near("(y·x)ᵀ", y.MatMul(x).T(), y.MatMul(x))
		near("float64", y, x.Double().Pinv(0x1p-23*48).Float())
		b := s.Randn(2, 48, 3)
		near("the least-squares solution", x.LstSq(b), y.MatMul(b))
	}, tensor.Seed(9))
}

// TestLargeFloat32Errors checks that the error for a batch names the first element that a routine
// cannot handle.
func TestLargeFloat32Errors(t *testing.T) {
	const n = 40
	tensor.Do(func(s *tensor.Scope) {
		all := make([]float32, 9*n*n)
		for i := range 9 * n {
			all[i*n+i%n] = 1
		}
		for _, b := range []int{3, 5, 8} {
			all[(b*n+20)*n+20] = 0
		}
		x := s.From(all).Reshape(3, 3, n, n)
		b := s.Ones(n, 2)
		for name, f := range map[string]func(){
			"inverse":  func() { x.Inverse() },
			"solve":    func() { x.Solve(b) },
			"cholesky": func() { x.Cholesky(false) },
		} {
			err := tensor.Try(f)
			if !errors.Is(err, tensor.ErrLinAlg) || !strings.Contains(fmt.Sprint(err), "batch element 3: ") || !strings.Contains(fmt.Sprint(err), " 21 ") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if d := x.Det().Floats(); d[3] != 0 || d[4] != 1 {
			t.Errorf("determinants %v", d)
		}
		sign, l := x.SlogDet()
		if sign.Floats()[5] != 0 || !math.IsInf(l.Floats()[5], -1) || l.Floats()[6] != 0 {
			t.Errorf("signs %v, logarithms %v", sign, l)
		}
		nan := s.Full(math.NaN(), n, n)
		for name, y := range map[string]*tensor.Tensor{"inverse": nan.Inverse(), "solve": nan.Solve(b), "det": nan.Det(), "triangle": nan.SolveTriangular(b, tensor.TriangularOptions{})} {
			if v := y.Sum().Item(); v == v {
				t.Errorf("%s of NaN is %v", name, y)
			}
		}
		for _, empty := range []*tensor.Tensor{s.Zeros(0, n, n), s.Zeros(2, 0, 0)} {
			if y := empty.Inverse(); y.Size() != 0 {
				t.Errorf("inverse of nothing: %v", y)
			}
			if y := empty.Solve(s.Zeros(empty.Dim(-1), 3)); y.Size() != 0 {
				t.Errorf("solution of nothing: %v", y)
			}
		}
		if y := s.Ones(n, n).SolveTriangular(s.Zeros(n, 0), tensor.TriangularOptions{}); y.Size() != 0 {
			t.Errorf("solution without columns: %v", y)
		}
	})
}

// TestDetBeyondRange checks determinants whose partial products overflow, and the gradients of
// determinants that overflow themselves.
func TestDetBeyondRange(t *testing.T) {
	const n = 36
	tensor.Do(func(s *tensor.Scope) {
		diagonal := func(typ dtype.Type, first int, a, b float64) *tensor.Tensor {
			v := make([]float64, n)
			for i := range v {
				if v[i] = a; i >= first {
					v[i] = b
				}
			}
			return s.From(v).Cast(typ).Diag(0)
		}
		for _, c := range []struct {
			typ   dtype.Type
			first int
			a, b  float64
			want  [2]float64 // derivatives by the elements a and b
		}{
			{dtype.F32, 15, 0x1p3, 0x1p4, [2]float64{0x1p126, 0x1p125}},
			{dtype.F64, 19, 0x1p28, 0x1p29, [2]float64{0x1p997, 0x1p996}},
		} {
			if d := diagonal(c.typ, n/2, 0x1p100, 0x1p-100).Det().Item(); d != 1 {
				t.Errorf("%v: the determinant is %v, want 1", c.typ, d)
			}
			x := diagonal(c.typ, c.first, c.a, c.b).RequiresGrad()
			d := x.Det()
			d.Backward()
			g := x.Grad().Diagonal(0, 0, 1).Floats()
			if !math.IsInf(d.Item(), 1) || g[0] != c.want[0] || g[n-1] != c.want[1] {
				t.Errorf("%v: determinant %v, derivatives %v and %v, want %v", c.typ, d.Item(), g[0], g[n-1], c.want)
			}
		}
	})
}
