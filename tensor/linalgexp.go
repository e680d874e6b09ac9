package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/shape"
	"gonum.org/v1/gonum/blas"
)

// matrixExpFunc computes the exponentials of matrices.
type matrixExpFunc struct{}

func (matrixExpFunc) Name() string { return "matrix_exp" }

func (matrixExpFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	n := x.Dim(-1)
	c.Save(x)
	return onHost("matrix_exp", c.Scope(), x.batchOf(), in, []shape.Dims{x.layout.Shape}, func(in, out [][]float64) string {
		if ok, _ := finite(in[0]); !ok {
			fillWith(out[0], math.NaN())
		} else if n > 0 {
			copy(out[0], exponential(n, in[0]))
		}
		return ""
	})[0]
}

// exponential returns exp(a) of the n×n matrix a, which it overwrites. It halves a until its norm
// is at most 1, and sums the power series up to degree 19. It then squares the sum as often as it
// has halved a. It uses the series, as torch does, because the series keeps elements that are
// exactly 0 or 1. Padé's quotient has rounding errors there, which many squarings would amplify (P.
// Bader, S. Blanes, F. Casas, Computing the Matrix Exponential with an Optimized Taylor Polynomial
// Approximation, 2019). The series is summed in blocks of four powers (Paterson and Stockmeyer,
// 1973).
func exponential(n int, a []float64) []float64 {
	norm := 0.0
	for j := range n {
		sum := 0.0
		for i := range n {
			sum += math.Abs(a[i*n+j])
		}
		norm = max(norm, sum)
	}
	squarings := 0
	if norm > 1 {
		_, squarings = math.Frexp(norm)
		for i := range a {
			a[i] = math.Ldexp(a[i], -squarings)
		}
	}
	times := func(p, q []float64) []float64 { return product(n, blas.NoTrans, blas.NoTrans, p, q) }
	a2 := times(a, a)
	a3, a4 := times(a, a2), times(a2, a2)
	var coefficient [20]float64
	f := 1.0
	for k := range coefficient {
		f *= float64(max(k, 1))
		coefficient[k] = 1 / f
	}
	var y []float64
	for k := len(coefficient) - 4; k >= 0; k -= 4 {
		c := coefficient[k : k+4]
		if y == nil {
			y = make([]float64, n*n)
		} else {
			y = times(y, a4)
		}
		for i := range y {
			y[i] += float64(c[3]*a3[i]) + float64(c[2]*a2[i]) + float64(c[1]*a[i])
		}
		for i := range n {
			y[i*n+i] += c[0]
		}
	}
	for range squarings {
		y = times(y, y)
	}
	return y
}

// VJP computes the exponential of the block matrix [[Aᵀ, G], [0, Aᵀ]]. Its block above the diagonal
// is the derivative of exp at Aᵀ in the direction G, which is the gradient (R. Mathias, A Chain
// Rule for Matrix Functions and Applications, 1996).
func (matrixExpFunc) VJP(c *Context, g *Tensor) []*Tensor {
	t := c.Saved(0).T()
	n := t.Dim(-1)
	above := Cat(-1, t, g)
	below := Cat(-1, t.ZerosLike(), t)
	y := Apply(matrixExpFunc{}, Cat(-2, above, below))
	return []*Tensor{y.Narrow(-2, 0, n).Narrow(-1, n, n)}
}

// MatrixExp returns the exponentials Σ xᵏ/k! of the square matrices in the last two dimensions. x
// must be floating point. The computation is in float64 and rounds once. For 16-bit floats,
// MatrixExp thus returns the rounded result where PyTorch returns infinities on the CPU. If
// elements are not finite, the result is NaN. MatrixExp works on the host ([HostOps]).
func (x *Tensor) MatrixExp() *Tensor {
	x.needsFloat("matrix_exp")
	x.square("matrix_exp")
	return inFloat64("matrix_exp", []*Tensor{x}, func(_ *Scope, in []*Tensor) []*Tensor { return []*Tensor{Apply(matrixExpFunc{}, in[0])} })[0]
}

// MatrixPower returns the n-th power of the square matrices in the last two dimensions, of any
// number type, by repeated squaring. The 0-th power is the identity. A negative power is a power of
// the inverse ([Tensor.Inverse], on the host).
func (x *Tensor) MatrixPower(n int) *Tensor {
	const op = "matrix_power"
	x.use(op)
	in := []*Tensor{x}
	if x.Rank() < 2 || x.Dim(-1) != x.Dim(-2) {
		fail(op, ErrShape, in, "needs square matrices, this has shape %v", x.Shape())
	}
	if x.dtype == boolType {
		fail(op, ErrType, in, "bool matrices cannot be multiplied")
	}
	return within(x.scope, func(c *Scope) *Tensor {
		p := x.In(c)
		if n == 0 {
			return c.On(x.st.dev).Typed(x.dtype).Eye(x.Dim(-1)).expand(x.layout.Shape).Contiguous()
		}
		k := uint(n)
		if n < 0 {
			p, k = p.Inverse(), -k
		}
		var y *Tensor
		for ; ; p = p.MatMul(p) {
			if k&1 != 0 {
				if y == nil {
					y = p
				} else {
					y = y.MatMul(p)
				}
			}
			if k >>= 1; k == 0 {
				break
			}
		}
		if y.st == x.st { // y is still x itself, the first power
			return y.Clone()
		}
		return y
	})
}
