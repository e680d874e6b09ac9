package tensor_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestLinAlgErrors checks the error for a matrix that a routine cannot handle. It must name the
// matrix's place in the batch, and the operands as they were given.
func TestLinAlgErrors(t *testing.T) {
	nan := math.NaN()
	good, singular := []float64{2, 1, 1, 3}, []float64{1, 2, 2, 4}
	batch := tensor.From(append(good, singular...), 2, 2, 2).Float()
	bad := tensor.From([]float64{1, nan, nan, 1}, 2, 2)
	vector := tensor.From([]float32{1, 2})
	for _, c := range []struct {
		name string
		f    func()
		says string
	}{
		{"inverse", func() { batch.Inverse() }, "batch element 1: the matrix is singular: pivot 2"},
		{"inverse", func() { tensor.Zeros(3, 3).Inverse() }, "inverse: the matrix is singular: pivot 1"},
		{"solve", func() { batch.Solve(vector) }, "batch element 1: the matrix is singular: pivot 2"},
		{"cholesky", func() { batch.Cholesky(false) }, "batch element 1: the matrix is not positive definite: its leading minor of order 2"},
		{"cholesky", func() { batch.Neg().Cholesky(true) }, "leading minor of order 1"},
		{"cholesky", func() { bad.Cholesky(false) }, "leading minor of order 2"},
		{"svd", func() { bad.SVD(false) }, "the matrix has NaN in it"},
		{"pinv", func() { bad.Pinv() }, "pinv: the singular values do not converge"},
		{"matrix_rank", func() { bad.MatrixRank() }, "matrix_rank"},
		{"eigh", func() { bad.Eigh() }, "not finite"},
		{"inverse", func() { singularPower() }, "singular"},
	} {
		err := tensor.Try(c.f)
		var e *tensor.Error
		if !errors.Is(err, tensor.ErrLinAlg) || !errors.As(err, &e) || e.Op != c.name || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
			continue
		}
		if !strings.Contains(e.Site, "linalg_test.go:") || len(e.Operands) == 0 {
			t.Errorf("%s: site %q, operands %v", c.name, e.Site, e.Operands)
		}
	}
	var e *tensor.Error
	if errors.As(tensor.Try(func() { batch.Inverse() }), &e); e.Operands[0].Type != dtype.F32 {
		t.Errorf("the operand is described as %v, it was given as float32", e.Operands[0])
	}
}

func singularPower() { tensor.Ones(2, 2).MatrixPower(-3) }

// TestLinAlgMisuse checks that operands of a wrong rank, type, shape or device are refused.
func TestLinAlgMisuse(t *testing.T) {
	x, wide, v := tensor.Ones(2, 2), tensor.Ones(2, 3), tensor.Ones(2)
	half, ints, truth := x.Half(), x.Long(), x.GtScalar(0)
	for name, c := range map[string]struct {
		kind error
		f    func()
	}{
		"inverse of a vector": {tensor.ErrShape, func() { v.Inverse() }}, "inverse of what is not square": {tensor.ErrShape, func() { wide.Inverse() }},
		"inverse of half": {tensor.ErrType, func() { half.Inverse() }}, "det of ints": {tensor.ErrType, func() { ints.Det() }}, "slogdet of bool": {tensor.ErrType, func() { truth.SlogDet() }},
		"exponential of a vector": {tensor.ErrShape, func() { v.MatrixExp() }}, "exponential of ints": {tensor.ErrType, func() { ints.MatrixExp() }}, "det": {tensor.ErrShape, func() { wide.Det() }}, "slogdet": {tensor.ErrShape, func() { wide.SlogDet() }}, "cholesky": {tensor.ErrShape, func() { wide.Cholesky(false) }}, "eigh": {tensor.ErrShape, func() { wide.Eigh() }},
		"qr": {tensor.ErrShape, func() { v.QR(false) }}, "svd": {tensor.ErrType, func() { half.SVD(false) }}, "pinv": {tensor.ErrShape, func() { v.Pinv() }}, "rank": {tensor.ErrType, func() { ints.MatrixRank() }},
		"rows of the right-hand side": {tensor.ErrShape, func() { x.Solve(tensor.Ones(3)) }}, "types of an equation": {tensor.ErrType, func() { x.Solve(v.Double()) }}, "batches": {tensor.ErrShape, func() { tensor.Ones(2, 2, 2).Solve(tensor.Ones(3, 2, 1)) }},
		"half on the right": {tensor.ErrType, func() { x.Solve(v.Half()) }}, "triangular vector": {tensor.ErrShape, func() { x.SolveTriangular(v, tensor.TriangularOptions{}) }},
		"triangular from the right": {tensor.ErrShape, func() { x.SolveTriangular(tensor.Ones(2, 3), tensor.TriangularOptions{Right: true}) }}, "lstsq": {tensor.ErrShape, func() { wide.LstSq(tensor.Ones(3)) }},
		"power": {tensor.ErrShape, func() { wide.MatrixPower(2) }}, "power of bool": {tensor.ErrType, func() { truth.MatrixPower(2) }}, "negative power of ints": {tensor.ErrType, func() { ints.MatrixPower(-1) }},
		"trace of a batch": {tensor.ErrShape, func() { tensor.Ones(2, 2, 2).Trace() }}, "trace of bool": {tensor.ErrType, func() { truth.Trace() }},
		"cross of four": {tensor.ErrShape, func() { tensor.Ones(4).Cross(tensor.Ones(4), 0) }}, "cross of ranks": {tensor.ErrShape, func() { tensor.Ones(2, 3).Cross(tensor.Ones(3), -1) }}, "cross of types": {tensor.ErrType, func() { tensor.Ones(3).Cross(tensor.Ones(3).Double(), 0) }},
		"cross of bool": {tensor.ErrType, func() { tensor.Ones(3).GtScalar(0).Cross(tensor.Ones(3).GtScalar(0), 0) }}, "cross without dimensions": {tensor.ErrShape, func() { tensor.Ones().Cross(tensor.Ones(), 0) }},
		"gradient of a complete decomposition": {tensor.ErrGrad, func() {
			q, _ := tensor.From([][]float32{{1, 2}, {3, 4}, {5, 7}}).RequiresGrad().QR(true)
			q.Sum().Backward()
		}},
		"dimensions of a contraction": {tensor.ErrShape, func() { x.TensorDot(wide, []int{0, 1}, []int{0}) }}, "sizes of a contraction": {tensor.ErrShape, func() { x.TensorDot(wide, []int{0}, []int{1}) }},
		"contraction twice": {tensor.ErrShape, func() { x.TensorDot(x, []int{0, -2}, []int{0, 1}) }}, "contraction beyond": {tensor.ErrShape, func() { x.TensorDot(x, []int{2}, []int{0}) }}, "contraction of a scalar": {tensor.ErrShape, func() { tensor.Ones().TensorDot(x, []int{0}, []int{0}) }},
		"types of a contraction": {tensor.ErrType, func() { x.TensorDot(x.Double(), []int{0}, []int{0}) }}, "inner": {tensor.ErrShape, func() { x.Inner(wide) }}, "vecdot of ints": {tensor.ErrType, func() { ints.VecDot(ints, 0) }},
		"vecdot of shapes": {tensor.ErrShape, func() { x.VecDot(wide, 0) }}, "vecdot beyond": {tensor.ErrShape, func() { x.VecDot(x, 2) }}, "chain of one": {tensor.ErrValue, func() { tensor.MultiDot(x) }}, "chain of none": {tensor.ErrValue, func() { tensor.MultiDot() }},
		"chain that does not fit": {tensor.ErrShape, func() { tensor.MultiDot(x, wide, x) }}, "vector in a chain": {tensor.ErrShape, func() { tensor.MultiDot(x, v, x) }}, "types of a chain": {tensor.ErrType, func() { tensor.MultiDot(x, x.Double()) }},
		"order of a norm": {tensor.ErrValue, func() { x.MatrixNorm(3) }}, "order that is no number": {tensor.ErrValue, func() { x.MatrixNorm(math.NaN()) }}, "norm of ints": {tensor.ErrType, func() { ints.MatrixNorm(1) }}, "norm of a vector": {tensor.ErrShape, func() { v.MatrixNorm(1) }},
		"norm of half": {tensor.ErrType, func() { half.MatrixNorm(2) }}, "smallest of nothing": {tensor.ErrShape, func() { tensor.Ones(3, 0).MatrixNorm(-1) }}, "factor": {tensor.ErrShape, func() { x.CholeskySolve(wide, false) }}, "eigenvalues": {tensor.ErrShape, func() { wide.EigValsH() }}, "singular values": {tensor.ErrType, func() { half.SVDVals() }},
		"freed": {tensor.ErrFreed, func() { y := tensor.Ones(2, 2); y.Free(); y.Inverse() }}, "nil": {tensor.ErrValue, func() { x.Solve(nil) }},
	} {
		if err := tensor.Try(c.f); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, want %v", name, err, c.kind)
		}
	}
}

// TestDetOfSingular compares the derivatives of the determinant at singular matrices with central
// differences. The determinant is a polynomial in the elements, so these derivatives exist. torch's
// first derivative is 0 there.
func TestDetOfSingular(t *testing.T) {
	for _, rows := range [][][]float64{{{1, 2}, {2, 4}}, {{0, 0}, {0, 0}}, {{1, 2, 3}, {2, 4, 6}, {1, 0, 1}}, {{1, 2, 3}, {2, 4, 6}, {3, 6, 9}}, {{0, 1, 0}, {0, 0, 0}, {0, 0, 2}}} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.From(rows).RequiresGrad()
			n := len(rows)
			weight := s.Typed(dtype.F64).ArangeStep(1, float64(n*n+1), 1).Reshape(n, n)
			// value returns the sum of all elements of (gradient of det) · weight
			value := func(x *tensor.Tensor) float64 {
				g := tensor.Gradients(x.RequiresGrad().Det(), []*tensor.Tensor{x})[0]
				return g.Mul(weight).Sum().Item()
			}
			g := tensor.Gradients(x.Det(), []*tensor.Tensor{x}, tensor.CreateGraph())[0]
			second := tensor.Gradients(g.Mul(weight).Sum(), []*tensor.Tensor{x})[0].Floats()
			first := g.Floats()
			// central differences of polynomials of degree ≤ 2 in each element are exact
			const h = 1e-3
			for i := range n * n {
				at := func(d float64) *tensor.Tensor {
					v := x.Floats()
					v[i] += d
					return s.From(v).Reshape(n, n)
				}
				if want := (at(h).Det().Item() - at(-h).Det().Item()) / (2 * h); math.Abs(first[i]-want) > 1e-9 {
					t.Errorf("%v: derivative %d is %v, want %v", rows, i, first[i], want)
				}
				if want := (value(at(h)) - value(at(-h))) / (2 * h); math.Abs(second[i]-want) > 1e-7 {
					t.Errorf("%v: second derivative %d is %v, want %v", rows, i, second[i], want)
				}
			}
		})
	}
}

// TestDetThirdDerivative checks third derivatives of the determinant, which use the inverse.
func TestDetThirdDerivative(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([][]float64{{2, 1, 0}, {1, 3, 1}, {0, 1, 4}}).RequiresGrad()
		second := func(x *tensor.Tensor, opts ...tensor.GradOption) *tensor.Tensor {
			g := tensor.Gradients(x.Det(), []*tensor.Tensor{x}, tensor.CreateGraph())[0]
			return tensor.Gradients(g.Square().Sum(), []*tensor.Tensor{x}, opts...)[0]
		}
		got := tensor.Gradients(second(x, tensor.CreateGraph()).Sum(), []*tensor.Tensor{x})[0].Floats()
		const h = 1e-4
		for i := range got {
			at := func(d float64) float64 {
				v := x.Floats()
				v[i] += d
				return second(s.From(v).Reshape(3, 3).RequiresGrad()).Sum().Item()
			}
			if want := (at(h) - at(-h)) / (2 * h); math.Abs(got[i]-want) > 1e-5*(1+math.Abs(want)) {
				t.Errorf("derivative %d is %v, want %v", i, got[i], want)
			}
		}
	})
}

// TestLinAlgNotFinite calls routines with elements that are not finite, or near the limits of
// float64. No routine may hang, or raise an error other than ErrLinAlg. The determinant of a matrix
// with NaN must be NaN, and so must a singular value of a matrix with an infinity.
func TestLinAlgNotFinite(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, v := range [][]float64{{nan, nan, nan, nan}, {1, nan, 2, 3}, {inf, 1, 1, 1}, {1, inf, -inf, 2}, {0, inf, inf, 0}, {math.MaxFloat64, 1, 1, math.MaxFloat64}, {5e-324, 0, 0, 5e-324}} {
		x := tensor.From(v, 2, 2).RequiresGrad()
		for name, f := range map[string]func() *tensor.Tensor{
			"inverse": x.Inverse, "det": x.Det, "slogdet": func() *tensor.Tensor { _, l := x.SlogDet(); return l },
			"cholesky": func() *tensor.Tensor { return x.Cholesky(false) }, "eigh": func() *tensor.Tensor { _, v := x.Eigh(); return v },
			"qr": func() *tensor.Tensor { q, _ := x.QR(false); return q }, "svd": func() *tensor.Tensor { u, _, _ := x.SVD(true); return u },
			"pinv": func() *tensor.Tensor { return x.Pinv() }, "matrix_exp": x.MatrixExp, "solve": func() *tensor.Tensor { return x.Solve(tensor.From([]float64{1, 2})) },
			"solve_triangular": func() *tensor.Tensor { return x.SolveTriangular(x, tensor.TriangularOptions{}) },
		} {
			err := tensor.Try(func() { f().Sum().Backward() })
			if err != nil && !errors.Is(err, tensor.ErrLinAlg) {
				t.Errorf("%s of %v: %v", name, v, err)
			}
		}
	}
	if d := tensor.From([]float64{nan, 1, 1, 1}, 2, 2).Det().Item(); d == d {
		t.Errorf("the determinant of a matrix with NaN is %v", d)
	}
	if s := tensor.From([]float64{inf, 1, 1, 1}, 2, 2); true {
		if _, v, _ := s.SVD(false); !math.IsNaN(v.Floats()[0]) {
			t.Errorf("singular values of a matrix with an infinity are %v", v)
		}
	}
}

// TestSlogDetOfSingular differentiates the logarithm of a determinant of 0. The gradient must not
// be finite, and there must be no error.
func TestSlogDetOfSingular(t *testing.T) {
	x := tensor.From([]float64{1, 2, 2, 4}, 2, 2).RequiresGrad()
	sign, l := x.SlogDet()
	if sign.Item() != 0 || !math.IsInf(l.Item(), -1) {
		t.Errorf("sign %v, logarithm %v", sign, l)
	}
	l.Backward()
	for _, v := range x.Grad().Floats() {
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			t.Errorf("gradient %v is finite", x.Grad())
		}
	}
}

// TestSlogDetOfTiny checks the logarithm of a determinant with subnormal pivots.
func TestSlogDetOfTiny(t *testing.T) {
	_, l := tensor.From([]float64{5e-324, 0, 0, 1e-310}, 2, 2).SlogDet()
	if want := -1074*math.Ln2 - 310*math.Ln10; math.Abs(l.Item()-want) > 1e-9 {
		t.Errorf("the logarithm is %v, want %v", l.Item(), want)
	}
}

// TestOtherTriangle writes NaN to the triangle that Cholesky, Eigh and SolveTriangular do not read.
// The results must not change.
func TestOtherTriangle(t *testing.T) {
	nan := math.NaN()
	lower, upper := tensor.From([]float64{4, nan, 1, 3}, 2, 2), tensor.From([]float64{4, 1, nan, 3}, 2, 2)
	l, u := lower.Cholesky(false), upper.Cholesky(true)
	if d := l.Sub(u.T()).Abs().Sum().Item(); d != 0 {
		t.Errorf("lower %v, upper %v", l, u)
	}
	values, _ := lower.Eigh()
	if values.Sum().Item()-7 > 1e-14 {
		t.Errorf("eigenvalues %v", values)
	}
	if y := lower.SolveTriangular(tensor.From([]float64{4, 4}, 2, 1), tensor.TriangularOptions{}); y.Sum().Item() != 2 {
		t.Errorf("solution %v", y)
	}
}
