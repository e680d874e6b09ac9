package tensor

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"

	"github.com/flambeau-go/flambeau/cpu/linalg"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// Linear algebra other than matrix products works on the host (see HostOps). It computes in float64
// for every operand type, and rounds its results once. For large matrices of float32, the routines
// of package cpu/linalg compute in float32 (see inOwnType). Gradients are computed by tensor ops on
// the operands' device, in the type in which the routine computes. Where a gradient needs a routine
// that only the host has, it calls another op of this kind, which has a gradient of its own.

// singular returns the message for a factorisation that has a pivot of 0.
func singular[T linalg.Float](lu *linalg.LU[T]) string {
	return fmt.Sprintf("the matrix is singular: pivot %d of its LU factorisation is 0", lu.ZeroPivot())
}

// inverseFunc inverts matrices.
type inverseFunc struct{}

func (inverseFunc) Name() string { return "inverse" }

func (inverseFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	n := x.Dim(-1)
	y := onMatrices("inverse", c.Scope(), x.batchOf(), in, []shape.Dims{x.layout.Shape}, inverseRoutine[float32](n), inverseRoutine[float64](n))[0]
	c.Save(y)
	return y
}

func inverseRoutine[T linalg.Float](n int) routine[T] {
	return func(par linalg.Parallel, in []linalg.Matrix[T], out [][]T) string {
		lu := linalg.Factor(par, n, in[0])
		defer lu.Release()
		if lu.ZeroPivot() != 0 {
			return singular(lu)
		}
		lu.Inverse(par, out[0])
		return ""
	}
}

// VJP returns -Yᵀ·G·Yᵀ for the result Y and its gradient G. The formula follows from d(A⁻¹) =
// -A⁻¹·dA·A⁻¹ (Petersen & Pedersen, The Matrix Cookbook, eq. 59).
func (inverseFunc) VJP(c *Context, g *Tensor) []*Tensor {
	t := c.Saved(0).T()
	return []*Tensor{t.MatMul(g).MatMul(t).Neg()}
}

// Inverse returns the inverses of the square matrices in the last two dimensions, float32 or
// float64. A singular matrix is an error that wraps [ErrLinAlg] and names its place in the batch. A
// nearly singular matrix is not detected. It works on the host ([HostOps]).
func (x *Tensor) Inverse() *Tensor {
	x.mustSquare("inverse")
	return inOwnType("inverse", []*Tensor{x}, func(_ *Scope, in []*Tensor) []*Tensor {
		return []*Tensor{Apply(inverseFunc{}, in[0])}
	})[0]
}

// detFunc computes determinants.
type detFunc struct{}

func (detFunc) Name() string { return "det" }

func (detFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	n := x.Dim(-1)
	c.Save(x)
	return onMatrices("det", c.Scope(), x.batchOf(), in, []shape.Dims{x.batchOf()}, detRoutine[float32](n), detRoutine[float64](n))[0]
}

func detRoutine[T linalg.Float](n int) routine[T] {
	return func(par linalg.Parallel, in []linalg.Matrix[T], out [][]T) string {
		lu := linalg.Factor(par, n, in[0])
		defer lu.Release()
		out[0][0] = T(math.Ldexp(determinant(n, lu)))
		return ""
	}
}

// determinant returns the determinant of the n×n matrix that was factored, as d·2^e. So the product
// of the pivots does not overflow.
func determinant[T linalg.Float](n int, lu *linalg.LU[T]) (d float64, e int) {
	d = lu.Sign()
	for i := range n {
		more := 0
		d, more = math.Frexp(d * float64(lu.Pivot(i)))
		e += more
	}
	return d, e
}

// orientation returns the sign of the determinant of the n×n matrix a, which is orthogonal.
func orientation(n int, a []float64) float64 {
	lu := linalg.Factor(onWorkers, n, linalg.Matrix[float64]{Data: a, Row: n, Column: 1})
	defer lu.Release()
	d, _ := determinant(n, lu)
	return math.Copysign(1, d)
}

// VJP returns g times the matrix of cofactors (Jacobi's formula). That matrix exists for singular
// matrices too. Zeros in it are +0.
func (detFunc) VJP(c *Context, g *Tensor) []*Tensor {
	return []*Tensor{Apply(cofactorFunc{}, c.Saved(0)).Mul(g.Unsqueeze(-1).Unsqueeze(-1)).AddScalar(0)}
}

// cofactorFunc computes the matrix of cofactors, the gradient of the determinant. With A = U·S·Vᵀ
// the matrix is det(U)·det(V)·U·C·Vᵀ. C is diagonal, and each of its elements is the product of all
// singular values except one. The formula needs no division, so it holds for singular matrices (N.
// Higham, What Is the Adjugate of a Matrix?, 2020). For other matrices the op uses the inverse,
// which is faster.
type cofactorFunc struct{}

func (cofactorFunc) Name() string { return "det.grad" }

// rotated returns U, Vᵀ and the singular values of a, which it overwrites. sign is det(U)·det(V).
func rotated(n int, a []float64) (u, vt, s []float64, sign float64, wrong string) {
	u, vt, s = make([]float64, n*n), make([]float64, n*n), make([]float64, n)
	if wrong = singularValues(n, n, a, u, s, vt, true); wrong != "" {
		return
	}
	sign = orientation(n, u) * orientation(n, vt)
	return
}

// productExcept returns the product of s without elements i and j.
func productExcept(s []float64, i, j int) float64 {
	p := 1.0
	for k, v := range s {
		if k != i && k != j {
			p *= v
		}
	}
	return p
}

// cofactors writes det(A)·A⁻ᵀ to out: the cofactors of the n×n matrix a, which is dense. It
// reports false if A is so near to a singular matrix that digits would be lost.
func cofactors[T linalg.Float](par linalg.Parallel, n int, a, out []T) bool {
	well := 1e-4
	if _, ok := any(a).([]float32); ok {
		well = 1e-3
	}
	lu := linalg.Factor(par, n, linalg.Matrix[T]{Data: a, Row: n, Column: 1})
	defer lu.Release()
	if lu.ZeroPivot() != 0 {
		return false
	}
	inverse := make([]T, n*n)
	lu.Inverse(par, inverse)
	if !(1/(columnNorm(n, a)*columnNorm(n, inverse)) > well) {
		return false
	}
	d, e := determinant(n, lu)
	// 2^e may overflow though the product with a small element does not
	e = max(-3000, min(3000, e))
	third := e / 3
	f, g, h := math.Ldexp(d, third), math.Ldexp(1, third), math.Ldexp(1, e-2*third)
	for i := range n {
		for j, v := range inverse[i*n : (i+1)*n] {
			out[j*n+i] = T(float64(v) * f * g * h)
		}
	}
	return true
}

// columnNorm returns the greatest sum of magnitudes of a column of the n×n matrix a.
func columnNorm[T linalg.Float](n int, a []T) float64 {
	sums := make([]float64, n)
	for i := range n {
		for j, v := range a[i*n : (i+1)*n] {
			sums[j] += math.Abs(float64(v))
		}
	}
	return slices.Max(append(sums, 0))
}

func (cofactorFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	n := x.Dim(-1)
	c.Save(x)
	if x.dtype == dtype.F32 {
		return onHost("det", c.Scope(), x.batchOf(), in, []shape.Dims{x.layout.Shape}, func(in, out [][]float32) string {
			if ok, _ := finite(in[0]); ok && n > 0 && cofactors(onWorkers, n, in[0], out[0]) {
				return ""
			}
			a, y := make([]float64, n*n), make([]float64, n*n)
			for i, v := range in[0] {
				a[i] = float64(v)
			}
			wrong := anyCofactors(n, a, y)
			for i, v := range y {
				out[0][i] = float32(v)
			}
			return wrong
		})[0]
	}
	return onHost("det", c.Scope(), x.batchOf(), in, []shape.Dims{x.layout.Shape}, func(in, out [][]float64) string {
		return anyCofactors(n, in[0], out[0])
	})[0]
}

// anyCofactors writes the cofactors of the n×n matrix a to out. It overwrites a. It returns a
// message if it fails.
func anyCofactors(n int, a, out []float64) string {
	if ok, _ := finite(a); !ok || n == 0 {
		fillWith(out, math.NaN())
		return ""
	}
	if cofactors(onWorkers, n, a, out) {
		return ""
	}
	u, vt, s, sign, wrong := rotated(n, a)
	if wrong != "" {
		return wrong
	}
	for i := range n {
		d := sign * productExcept(s, i, i)
		for j := range n {
			vt[i*n+j] *= d
		}
	}
	copy(out, product(n, blas.NoTrans, blas.NoTrans, u, vt))
	return ""
}

// VJP is exact for singular matrices too. It needs the inverse only if its result is differentiated
// again, for third derivatives of the determinant.
func (cofactorFunc) VJP(c *Context, h *Tensor) []*Tensor {
	x := c.Saved(0)
	if !c.Scope().GradEnabled() {
		y := Apply(cofactorGrad{}, x.Cast(dtype.F64), h.Cast(dtype.F64))
		return []*Tensor{y.Cast(x.dtype)}
	}
	w := Apply(inverseFunc{}, x).T() // the cofactors are the determinant times w
	d := Apply(detFunc{}, x).Unsqueeze(-1).Unsqueeze(-1)
	inner := h.Mul(w).Sum(-1, -2, KeepDim).Mul(w)
	return []*Tensor{inner.Sub(w.MatMul(h.T()).MatMul(w)).Mul(d)}
}

// cofactorGrad computes the second differential of the determinant, in the basis of the singular
// vectors. For a diagonal matrix A and directions E and F it is Σ_{i≠j} p_ij·(E_ii·F_jj -
// E_ij·F_ji). Here p_ij is the product of all diagonal elements except elements i and j.
type cofactorGrad struct{}

func (cofactorGrad) Name() string { return "det.grad" }

func (cofactorGrad) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	n := x.Dim(-1)
	return onHost("det", c.Scope(), x.batchOf(), in, []shape.Dims{x.layout.Shape}, func(in, out [][]float64) string {
		if ok, _ := finite(in[0]); !ok || n == 0 {
			fillWith(out[0], math.NaN())
			return ""
		}
		u, vt, s, sign, wrong := rotated(n, in[0])
		if wrong != "" {
			return wrong
		}
		h := product(n, blas.NoTrans, blas.Trans, product(n, blas.Trans, blas.NoTrans, u, in[1]), vt)
		k := make([]float64, n*n)
		for i := range n {
			for j := range n {
				if i != j {
					p := sign * productExcept(s, i, j)
					k[i*n+i] += float64(p * h[j*n+j])
					k[i*n+j] = -p * h[j*n+i]
				}
			}
		}
		copy(out[0], product(n, blas.NoTrans, blas.NoTrans, product(n, blas.NoTrans, blas.NoTrans, u, k), vt))
		return ""
	})[0]
}

// VJP is never called: cofactorFunc uses this op only where no graph is recorded.
func (cofactorGrad) VJP(*Context, *Tensor) []*Tensor { return []*Tensor{nil, nil} }

// Det returns the determinants of the square matrices in the last two dimensions, float32 or
// float64. The determinant of a matrix without rows is 1. First and second derivatives hold for
// singular matrices too. It works on the host ([HostOps]).
func (x *Tensor) Det() *Tensor {
	x.mustSquare("det")
	return inOwnType("det", []*Tensor{x}, func(_ *Scope, in []*Tensor) []*Tensor { return []*Tensor{Apply(detFunc{}, in[0])} })[0]
}

// logDetFunc connects the logarithm of |det|, already computed, to the graph of the matrices.
type logDetFunc struct{}

func (logDetFunc) Name() string { return "slogdet" }

func (logDetFunc) Forward(c *Context, in []*Tensor) *Tensor {
	c.Save(in[0])
	return in[1]
}

// VJP returns g·A⁻ᵀ (Petersen & Pedersen, eq. 57).
func (logDetFunc) VJP(c *Context, g *Tensor) []*Tensor {
	a := c.Saved(0)
	right := g.Unsqueeze(-1).expand(a.layout.Shape.Head(a.Rank()-1)).DiagEmbed(0, -2, -1)
	return []*Tensor{Apply(solveFunc{loose: true}, a.T(), right), nil}
}

// SlogDet returns the signs of the determinants of the square matrices in the last two dimensions,
// float32 or float64. logAbs holds the logarithms of their absolute values, which neither overflow
// nor underflow. For a singular matrix the sign is 0, the logarithm is -Inf, and the gradient is
// not finite. The sign has no gradient. SlogDet works on the host ([HostOps]).
func (x *Tensor) SlogDet() (sign, logAbs *Tensor) {
	batch, n := x.mustSquare("slogdet")
	y := inOwnType("slogdet", []*Tensor{x}, func(c *Scope, in []*Tensor) []*Tensor {
		y := onMatrices("slogdet", c, batch, in, []shape.Dims{batch, batch}, slogdetRoutine[float32](n), slogdetRoutine[float64](n))
		return []*Tensor{y[0], Apply(logDetFunc{}, in[0], y[1])}
	})
	return y[0], y[1]
}

func slogdetRoutine[T linalg.Float](n int) routine[T] {
	return func(par linalg.Parallel, in []linalg.Matrix[T], out [][]T) string {
		lu := linalg.Factor(par, n, in[0])
		defer lu.Release()
		sign, sum := lu.Sign(), 0.0
		for i := range n {
			v := float64(lu.Pivot(i))
			sum += logOf(v)
			switch {
			case v < 0:
				sign = -sign
			case v == 0:
				sign *= 0
			case math.IsNaN(v): // for NaN the sign is 0, as in torch
				sign = 0
			}
		}
		out[0][0], out[1][0] = T(sign), T(sum)
		return ""
	}
}

// logOf returns log|v|. For subnormal numbers math.Log has the wrong exponent on amd64.
func logOf(v float64) float64 {
	if v = math.Abs(v); v < 0x1p-1022 {
		return math.Log(v*0x1p54) - 54*math.Ln2
	}
	return math.Log(v)
}
