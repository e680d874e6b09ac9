package tensor

import (
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack"
	"gonum.org/v1/gonum/lapack/lapack64"

	"github.com/flambeau-go/flambeau/shape"
)

// Linear algebra other than matrix products works on the host (see HostOps). It computes in float64
// for every operand type, and rounds its results once. Eigh, SVD and QR of large matrices of
// float32 compute in float32 (see inOwnType). Gradients are computed by tensor ops on the operands'
// device, in the same type. Where a gradient needs a routine that only the host has, it calls
// another op of this kind, which has a gradient of its own.

// factored is the LU factorisation of an n×n matrix, in place.
type factored struct {
	lu      blas64.General
	pivots  []int
	regular bool // true if no pivot is 0
}

func factor64(n int, a []float64) factored {
	f := factored{lu: general(n, n, a), pivots: make([]int, n)}
	f.regular = factorRows(f.lu, f.pivots)
	return f
}

// solve replaces b by the solution X of A·X = b, where A is the factored matrix.
func (f factored) solve(b blas64.General) {
	exchange(b, f.pivots)
	solveTriangle(f.lu, b, false, true)
	solveTriangle(f.lu, b, true, false)
}

// zeroPivot returns the number, counted from 1, of the first pivot that is 0.
func (f factored) zeroPivot() int {
	for i := range f.lu.Rows {
		if f.lu.Data[i*f.lu.Stride+i] == 0 {
			return i + 1
		}
	}
	return 0
}

// sign returns the sign of the permutation: 1 or -1.
func (f factored) sign() float64 {
	s := 1.0
	for i, p := range f.pivots {
		if p != i {
			s = -s
		}
	}
	return s
}

func (f factored) singular() string {
	return fmt.Sprintf("the matrix is singular: pivot %d of its LU factorisation is 0", f.zeroPivot())
}

// inverseFunc inverts matrices.
type inverseFunc struct{}

func (inverseFunc) Name() string { return "inverse" }

func (inverseFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	n := x.Dim(-1)
	y := onHost("inverse", c.Scope(), x.batchOf(), in, []shape.Dims{x.layout.Shape}, func(in, out [][]float64) string {
		if n == 0 {
			return ""
		}
		lu := factor64(n, in[0])
		if !lu.regular {
			return lu.singular()
		}
		setIdentity(n, out[0])
		lu.solve(general(n, n, out[0]))
		return ""
	})[0]
	c.Save(y)
	return y
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
	return inFloat64("inverse", []*Tensor{x}, func(_ *Scope, in []*Tensor) []*Tensor {
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
	return onHost("det", c.Scope(), x.batchOf(), in, []shape.Dims{x.batchOf()}, func(in, out [][]float64) string {
		out[0][0] = determinant(n, in[0])
		return ""
	})[0]
}

// determinant returns the determinant of the n×n matrix a, which it overwrites.
func determinant(n int, a []float64) float64 {
	d := 1.0
	if n > 0 {
		lu := factor64(n, a)
		d = lu.sign()
		for i := range n {
			d *= a[i*n+i]
		}
	}
	return d
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
	sign = math.Copysign(1, determinant(n, append([]float64(nil), u...))) * math.Copysign(1, determinant(n, append([]float64(nil), vt...)))
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

// cofactors writes det(A)·A⁻ᵀ, the cofactors of the matrix a, to the slice out. It overwrites a. It
// reports false if A is so near to a singular matrix, or det(A) so near to 0 or so large, that
// digits would be lost.
func cofactors(n int, a, out []float64) bool {
	const well, tiny = 1e-4, 1e-280
	work, pivots := make([]float64, 4*n), make([]int, n)
	norm := lapack64.Lange(lapack.MaxColumnSum, general(n, n, a), work)
	lu := factor64(n, a)
	d := lu.sign()
	for i := range n {
		d *= a[i*n+i]
	}
	if size := math.Abs(d); !lu.regular || !(size > tiny && size <= math.MaxFloat64) ||
		!(lapack64.Gecon(lapack.MaxColumnSum, lu.lu, norm, work, pivots) > well) {
		return false
	}
	setIdentity(n, out)
	for i := range n {
		out[i*n+i] = d
	}
	lapack64.Getrs(blas.Trans, lu.lu, general(n, n, out), lu.pivots)
	ok, _ := finite(out)
	return ok
}

func (cofactorFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	n := x.Dim(-1)
	c.Save(x)
	return onHost("det", c.Scope(), x.batchOf(), in, []shape.Dims{x.layout.Shape}, func(in, out [][]float64) string {
		if ok, _ := finite(in[0]); !ok || n == 0 {
			fillWith(out[0], math.NaN())
			return ""
		}
		if cofactors(n, slices.Clone(in[0]), out[0]) {
			return ""
		}
		u, vt, s, sign, wrong := rotated(n, in[0])
		if wrong != "" {
			return wrong
		}
		for i := range n {
			d := sign * productExcept(s, i, i)
			for j := range n {
				vt[i*n+j] *= d
			}
		}
		copy(out[0], product(n, blas.NoTrans, blas.NoTrans, u, vt))
		return ""
	})[0]
}

// VJP is exact for singular matrices too. It needs the inverse only if its result is differentiated
// again, for third derivatives of the determinant.
func (cofactorFunc) VJP(c *Context, h *Tensor) []*Tensor {
	x := c.Saved(0)
	if !c.Scope().GradEnabled() {
		return []*Tensor{Apply(cofactorGrad{}, x, h)}
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
	return inFloat64("det", []*Tensor{x}, func(_ *Scope, in []*Tensor) []*Tensor { return []*Tensor{Apply(detFunc{}, in[0])} })[0]
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
	y := inFloat64("slogdet", []*Tensor{x}, func(c *Scope, in []*Tensor) []*Tensor {
		y := onHost("slogdet", c, batch, in, []shape.Dims{batch, batch}, func(in, out [][]float64) string {
			sign, sum := 1.0, 0.0
			if n > 0 {
				sign = factor64(n, in[0]).sign()
			}
			for i := range n {
				v := in[0][i*n+i]
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
			out[0][0], out[1][0] = sign, sum
			return ""
		})
		return []*Tensor{y[0], Apply(logDetFunc{}, in[0], y[1])}
	})
	return y[0], y[1]
}

// logOf returns log|v|. For subnormal numbers math.Log has the wrong exponent on amd64.
func logOf(v float64) float64 {
	if v = math.Abs(v); v < 0x1p-1022 {
		return math.Log(v*0x1p54) - 54*math.Ln2
	}
	return math.Log(v)
}
