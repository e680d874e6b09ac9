package tensor

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/cpu/linalg"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A decomposition is an op with several results, computed together. In the graph each result has a
// Function of its own. Gradients are linear, so the gradients through the single results add up to
// the gradient through all results. The host's routine chooses the signs of vectors and the bases
// of subspaces.
type decomposition struct {
	op string
	// parts computes the results, without a graph.
	parts func(s *Scope, x *Tensor) []*Tensor
	// vjp returns the operand's gradient. p has all results, and g is the gradient of result k.
	vjp func(k int, p []*Tensor, g *Tensor) *Tensor
}

func (d *decomposition) apply(x *Tensor) []*Tensor {
	c := x.scope.child()
	defer c.recycle()
	x = x.In(c)
	in := append([]*Tensor{x}, d.parts(c, x)...)
	out := make([]*Tensor, len(in)-1)
	for k := range out {
		out[k] = Apply(&partFunc{d, k}, in...)
	}
	c.close(out, false)
	return out
}

// partFunc connects result k to the graph of the decomposed tensor. Its operand 0 is that tensor,
// and its operand k+1 is result k.
type partFunc struct {
	d *decomposition
	k int
}

func (f *partFunc) Name() string { return f.d.op }

func (f *partFunc) Forward(c *Context, in []*Tensor) *Tensor {
	if c.Needs(0) {
		c.Save(in...)
	}
	return in[1+f.k]
}

// VJP uses the results as they were computed. If the gradient is to be differentiated again, it
// decomposes the operand again, so that the results depend on it.
func (f *partFunc) VJP(c *Context, g *Tensor) []*Tensor {
	grads := make([]*Tensor, c.NumSaved())
	p := make([]*Tensor, c.NumSaved()-1)
	if c.Scope().GradEnabled() {
		p = f.d.apply(c.Saved(0))
	} else {
		for i := range p {
			p[i] = c.Saved(1 + i)
		}
	}
	grads[0] = f.d.vjp(f.k, p, g)
	return grads
}

// choleskyFunc computes the lower Cholesky factor of matrices. It reads their lower triangle.
type choleskyFunc struct{}

func (choleskyFunc) Name() string { return "cholesky" }

func (choleskyFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x := in[0]
	n := x.Dim(-1)
	y := onMatrices("cholesky", c.Scope(), x.batchOf(), in, []shape.Dims{x.layout.Shape}, choleskyRoutine[float32](n), choleskyRoutine[float64](n))[0]
	c.Save(y)
	return y
}

func choleskyRoutine[T linalg.Float](n int) routine[T] {
	return func(par linalg.Parallel, in []linalg.Matrix[T], out [][]T) string {
		if minor := linalg.Cholesky(par, n, in[0], out[0]); minor != 0 {
			return fmt.Sprintf("the matrix is not positive definite: its leading minor of order %d is not positive", minor)
		}
		return ""
	}
}

// VJP returns L⁻ᵀ·P·L⁻¹ for a symmetric P. The lower triangle of P, with the diagonal, is
// half of the lower triangle of Lᵀ·G, where G is the gradient of L (I. Murray, Differentiation
// of the Cholesky Decomposition, 2016).
func (choleskyFunc) VJP(c *Context, g *Tensor) []*Tensor {
	l := c.Saved(0)
	p := l.T().MatMul(g.Tril(0)).Tril(0)
	p = p.Add(p.T()).Sub(p.Diagonal(0, -2, -1).DiagEmbed(0, -2, -1)).MulScalar(0.5)
	half := Apply(triangularFunc{upper: true}, l.T(), p)
	return []*Tensor{Apply(triangularFunc{upper: true}, l.T(), half.T())}
}

// Cholesky returns the lower triangular L for which L·Lᵀ = x, for the symmetric positive definite
// matrices in the last two dimensions, float32 or float64. If the parameter upper is true, Cholesky
// returns the upper triangular U for which Uᵀ·U = x. For L it reads only the lower triangle of
// x, and for U only the upper triangle. The gradient is symmetric, like torch's. A matrix that is
// not positive definite is an error that wraps [ErrLinAlg] and names its place in the batch.
// Cholesky works on the host ([HostOps]).
func (x *Tensor) Cholesky(upper bool) *Tensor {
	x.mustSquare("cholesky")
	return inOwnType("cholesky", []*Tensor{x}, func(_ *Scope, in []*Tensor) []*Tensor {
		if upper {
			return []*Tensor{Apply(choleskyFunc{}, in[0].T()).T()}
		}
		return []*Tensor{Apply(choleskyFunc{}, in[0])}
	})[0]
}

// eyeLike returns the identity matrix in x's scope, with x's type and the size of its last
// dimension.
func eyeLike(x *Tensor) *Tensor { return x.scope.On(x.st.dev).Typed(x.dtype).Eye(x.Dim(-1)) }

// eigh is the decomposition of symmetric matrices. L holds the eigenvalues, V the eigenvectors, and
// gL and gV are their gradients. The gradient of the matrix is V·(diag(gL) + skew(Vᵀ·gV)/E)·Vᵀ,
// where E_ij = L_j - L_i off the diagonal and skew(X) = (X - Xᵀ)/2 (Giles 2008, 3.1). Only the skew
// part counts, because x stays symmetric.
var eigh = &decomposition{op: "eigh", parts: func(s *Scope, x *Tensor) []*Tensor {
	if x.dtype == dtype.F32 {
		return eighParts[float32](s, x)
	}
	return eighParts[float64](s, x)
}, vjp: func(k int, p []*Tensor, g *Tensor) *Tensor {
	l, v := p[0], p[1]
	if k == 0 {
		return v.Mul(g.Unsqueeze(-2)).MatMul(v.T())
	}
	eye := eyeLike(v)
	gaps := l.Unsqueeze(-2).Sub(l.Unsqueeze(-1)).Add(eye)
	w := v.T().MatMul(g)
	w = w.Sub(w.T()).MulScalar(0.5).Div(gaps)
	return v.MatMul(w).MatMul(v.T())
}}

// eighParts computes the eigenvalues and eigenvectors without a graph.
func eighParts[T linalg.Float](s *Scope, x *Tensor) []*Tensor {
	n := x.Dim(-1)
	return onHost("eigh", s, x.batchOf(), []*Tensor{x}, []shape.Dims{x.batchOf().Append(n), x.layout.Shape}, func(in, out [][]T) string {
		for i := range n { // the upper triangle may hold anything
			if ok, _ := finite(in[0][i*n : i*n+i+1]); !ok {
				return "the matrix has elements that are not finite"
			}
		}
		if !linalg.Eigh(onWorkers, n, in[0], out[0], out[1]) {
			return "the eigenvalues did not converge"
		}
		return ""
	})
}

// Eigh returns the eigenvalues, in ascending order, of the symmetric matrices in the last two
// dimensions, float32 or float64. The columns of vectors are orthonormal eigenvectors: x =
// V·diag(L)·Vᵀ. Eigh reads only the lower triangle of x. To read the upper triangle, call it on
// x.T().
//
// The signs of eigenvectors are not determined, nor is their basis where eigenvalues are equal. So
// the gradient is right only for a function that does not depend on them. The gradient of
// eigenvectors with equal eigenvalues is not finite. If x contains NaN or infinities, Eigh panics
// with an error that wraps [ErrLinAlg]; torch does not check. Eigh works on the host ([HostOps]).
func (x *Tensor) Eigh() (values, vectors *Tensor) {
	x.mustSquare("eigh")
	p := inOwnType("eigh", []*Tensor{x}, func(_ *Scope, in []*Tensor) []*Tensor { return eigh.apply(in[0]) })
	return p[0], p[1]
}

// qrReduced is the QR decomposition with min(m, n) columns in Q. qrComplete is the decomposition
// with m columns in Q.
var qrReduced, qrComplete = qrOf(false), qrOf(true)

func qrOf(complete bool) *decomposition {
	return &decomposition{op: "qr", parts: func(s *Scope, x *Tensor) []*Tensor {
		if x.dtype == dtype.F32 {
			return qrParts[float32](s, x, complete)
		}
		return qrParts[float64](s, x, complete)
	}, vjp: qrVJP}
}

// qrParts computes Q and R without a graph.
func qrParts[T linalg.Float](s *Scope, x *Tensor, complete bool) []*Tensor {
	m, n := x.Dim(-2), x.Dim(-1)
	k := min(m, n)
	if complete {
		k = m
	}
	batch := x.batchOf()
	return onHost("qr", s, batch, []*Tensor{x}, []shape.Dims{batch.Append(m, k), batch.Append(k, n)}, func(in, out [][]T) string {
		linalg.QR(m, n, k, in[0], out[0], out[1])
		return ""
	})
}

// qrVJP returns the gradient of x (S. Walter and L. Lehmann, Algorithmic Differentiation of Linear
// Algebra Functions with Application in Optimum Experimental Design, 2010). For m < n see D.
// Roberts and L. Roberts, QR and LQ Decomposition Matrix Backpropagation Algorithms, 2020. R₁ is
// the first min(m, n) columns of R, and low(X) the part of X - Xᵀ below the diagonal. The
// gradient is the sum of two terms. The first term is 0 beyond its first min(m, n) columns, which
// are
//
//	(Q·low(Qᵀ·gQ + R·gRᵀ) + gQ - Q·Qᵀ·gQ)·R₁⁻ᵀ
//
// The second term is Q·gR, with only the upper triangle of gR. It needs no division by R₁, so it
// loses no digits.
func qrVJP(k int, p []*Tensor, g *Tensor) *Tensor {
	q, r := p[0], p[1]
	m, n := q.Dim(-2), r.Dim(-1)
	if q.Dim(-1) > n {
		fail("qr", ErrGrad, []*Tensor{q, r}, "the complete decomposition of %d by %d matrices has no gradient: the last columns of Q are not determined; use the reduced one", m, n)
	}
	var w *Tensor
	if k == 0 {
		w = q.T().MatMul(g)
	} else {
		g = g.Triu(0)
		w = r.MatMul(g.T())
	}
	z := q.MatMul(w.Sub(w.T()).Tril(-1))
	if k == 0 && m > n {
		z = z.Add(g.Sub(q.MatMul(w)))
	}
	first := min(m, n)
	z = r.Narrow(-1, 0, first).SolveTriangular(z.T(), TriangularOptions{Upper: true}).T()
	if m < n {
		z = Cat(-1, z, z.scope.On(g.st.dev).Typed(g.dtype).Zeros(z.batchOf().Append(m, n-m).Slice()...))
	}
	if k == 0 {
		return z
	}
	return z.Add(q.MatMul(g))
}

// QR returns Q with orthonormal columns and the upper triangular R for which Q·R = x, for the m×n
// matrices in the last two dimensions, float32 or float64. Q has min(m, n) columns, or m if
// complete is true. The complete decomposition has a gradient only for m ≤ n. The gradient needs
// linearly independent columns; for m < n the first m must be independent. The routine chooses the
// signs of Q's columns. QR works on the host ([HostOps]).
func (x *Tensor) QR(complete bool) (q, r *Tensor) {
	x.mustMatrix("qr")
	d := qrReduced
	if complete {
		d = qrComplete
	}
	p := inOwnType("qr", []*Tensor{x}, func(_ *Scope, in []*Tensor) []*Tensor { return d.apply(in[0]) })
	return p[0], p[1]
}

// singularValues decomposes the m×n matrix a. If full is true, u and vt are square. It returns a
// message if the decomposition fails.
func singularValues[T linalg.Float](m, n int, a, u, s, vt []T, full bool) string {
	switch ok, nan := finite(a); {
	case nan:
		return "the singular values do not converge: the matrix has NaN in it"
	case !ok: // infinities give NaN, as in torch
		for _, v := range [][]T{u, s, vt} {
			fillWith(v, T(math.NaN()))
		}
		return ""
	}
	if !linalg.SVD(onWorkers, m, n, a, u, s, vt, full) {
		return "the singular values did not converge"
	}
	return ""
}

// svdParts computes U, S and Vᵀ without a graph.
func svdParts(s *Scope, x *Tensor, full bool) []*Tensor {
	if x.dtype == dtype.F32 {
		return svdPartsOf[float32](s, x, full)
	}
	return svdPartsOf[float64](s, x, full)
}

func svdPartsOf[T linalg.Float](s *Scope, x *Tensor, full bool) []*Tensor {
	m, n := x.Dim(-2), x.Dim(-1)
	ku, kv := min(m, n), min(m, n)
	if full {
		ku, kv = m, n
	}
	batch := x.batchOf()
	return onHost("svd", s, batch, []*Tensor{x}, []shape.Dims{batch.Append(m, ku), batch.Append(min(m, n)), batch.Append(kv, n)}, func(in, out [][]T) string {
		return singularValues(m, n, in[0], out[0], out[1], out[2], full)
	})
}

var svdReduced, svdFull = svdOf(false), svdOf(true)

func svdOf(full bool) *decomposition {
	return &decomposition{op: "svd", parts: func(s *Scope, x *Tensor) []*Tensor { return svdParts(s, x, full) }, vjp: svdVJP}
}

// svdVJP returns the gradient of x (J. Townsend, Differentiating the Singular Value Decomposition,
// 2016). With E_ij = S_j² - S_i² off the diagonal and skew(X) = X - Xᵀ it is
//
//	U·((skew(Uᵀ·gU)/E)·S + S·(skew(Vᵀ·gV)/E) + diag(gS))·Vᵀ
//
// The part of gU outside of U's columns adds (I - U·Uᵀ)·gU·S⁻¹·Vᵀ, and likewise for V. If the
// matrices are full, the columns beyond the singular values have no gradient, as in torch.
func svdVJP(part int, p []*Tensor, g *Tensor) *Tensor {
	u, s, vh := p[0], p[1], p[2]
	k := s.Dim(-1)
	m, n := u.Dim(-2), vh.Dim(-1)
	u, vh = u.Narrow(-1, 0, k), vh.Narrow(-2, 0, k)
	row, col := s.Unsqueeze(-2), s.Unsqueeze(-1)
	if part == 1 {
		return u.Mul(g.Unsqueeze(-2)).MatMul(vh)
	}
	gaps := row.Sub(col).Mul(row.Add(col)).Add(eyeLike(s))
	skew := func(w *Tensor) *Tensor { return w.Sub(w.T()).Div(gaps) }
	if part == 0 {
		g = g.Narrow(-1, 0, k)
		w := u.T().MatMul(g)
		d := u.MatMul(skew(w).Mul(row))
		if m > k {
			d = d.Add(g.Sub(u.MatMul(w)).Div(row))
		}
		return d.MatMul(vh)
	}
	g = g.Narrow(-2, 0, k)
	w := vh.MatMul(g.T())
	d := skew(w).Mul(col).MatMul(vh)
	if n > k {
		d = d.Add(g.Sub(w.T().MatMul(vh)).Div(col))
	}
	return u.MatMul(d)
}

// SVD returns the singular value decomposition x = U·diag(S)·Vᵀ of the m×n matrices in the last two
// dimensions, float32 or float64. S is in descending order. U has min(m, n) columns, and vh = Vᵀ
// has as many rows. If full is true, both are square. The signs of the vectors are not determined,
// nor is their basis where singular values are equal. So the gradient is right only for a function
// that does not depend on them. The gradient of vectors is not finite where singular values are
// equal or 0. NaN in x is an error that wraps [ErrLinAlg]; an infinity leads to NaN. SVD works on
// the host ([HostOps]).
func (x *Tensor) SVD(full bool) (u, s, vh *Tensor) {
	x.mustMatrix("svd")
	d := svdReduced
	if full {
		d = svdFull
	}
	p := inOwnType("svd", []*Tensor{x}, func(_ *Scope, in []*Tensor) []*Tensor { return d.apply(in[0]) })
	return p[0], p[1], p[2]
}
