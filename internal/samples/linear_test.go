package samples

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/tensor"
)

// products holds operators that compute sums of products.
var products = map[string]call{
	"matmul": bin(T.MatMul), "bmm": bin(T.Bmm), "mm": bin(T.MatMul), "mv": bin(T.MatMul),
	"__rmatmul__": func(a *args) any { return a.T(1, "other").MatMul(a.x()) },
	"dot":         bin(T.Dot), "vdot": bin(T.Dot), "outer": bin(T.Outer), "inner": bin(T.Inner),
	"kron": bin(T.Kron),
	"addmm": func(a *args) any {
		return a.x().Addmm(a.T(1, "mat1"), a.T(2, "mat2"), a.float(-1, "beta", 1), a.float(-1,
			"alpha", 1))
	},
	"addmm.decomposed": func(a *args) any {
		return a.x().Addmm(a.T(1, "mat1"), a.T(2, "mat2"), a.float(-1, "beta", 1), a.float(-1,
			"alpha", 1))
	},
	"baddbmm": func(a *args) any {
		return a.x().Baddbmm(a.T(1, "batch1"), a.T(2, "batch2"), a.float(-1, "beta", 1),
			a.float(-1, "alpha", 1))
	},
	"addbmm": func(a *args) any {
		return added(a, a.T(1, "batch1").MatMul(a.T(2, "batch2")).Sum(0).Cast(a.x().Type()))
	},
	"addmv": func(a *args) any { return added(a, a.T(1, "mat").MatMul(a.T(2, "vec"))) },
	"addr":  func(a *args) any { return added(a, a.T(1, "vec1").Outer(a.T(2, "vec2"))) },
	"tensordot": func(a *args) any {
		x, y := a.x(), a.T(1, "other")
		switch d := a.arg(2, "dims").(type) {
		case int:
			var left, right []int
			for i := range d {
				left, right = append(left, x.Rank()-d+i), append(right, i)
			}
			return x.TensorDot(y, left, right)
		default:
			l := items(d)
			return x.TensorDot(y, toInts(l[0]), toInts(l[1]))
		}
	},
	"einsum": func(a *args) any {
		// Unlike in a call of torch.einsum, the tensors come before the equation in a sample.
		return tensor.Einsum(a.text(1, "equation", ""), tensors(a.arg(0, "operands"))...)
	},
	"cross": func(a *args) any {
		x := a.x()
		dim, found := a.int(2, "dim", -1), a.has(2, "dim")
		for i := 0; !found && i < x.Rank(); i++ {
			if x.Dim(i) == 3 {
				dim, found = i, true
			}
		}
		return x.Cross(a.T(1, "other"), dim)
	},
	"linalg.cross": func(a *args) any {
		return a.x().Cross(a.T(1, "other"), a.int(2, "dim",
			-1))
	},
	"linalg.vecdot": func(a *args) any {
		return a.x().VecDot(a.T(1, "other"), a.int(2, "dim",
			-1))
	},
	"linalg.multi_dot": func(a *args) any {
		return tensor.MultiDot(tensors(a.arg(0,
			"tensors"))...)
	},
	"cdist": func(a *args) any {
		a.arg(3, "compute_mode")
		return a.x().Cdist(a.T(1, "x2"), a.float(2, "p", 2))
	},
	"nn.functional.pdist": func(a *args) any {
		x, p := a.x(), a.float(1, "p", 2)
		n := x.Dim(0)
		var left, right []int
		for i := range n {
			for j := i + 1; j < n; j++ {
				left, right = append(left, i), append(right, j)
			}
		}
		return x.Index(left).Sub(x.Index(right)).Norm(p, -1)
	},
	"nn.functional.linear": func(a *args) any {
		y := a.x().MatMul(oldTranspose(a.T(1, "weight")))
		if b := a.opt(2, "bias"); b != nil {
			y = y.Add(b)
		}
		return y
	},
	"nn.functional.bilinear": func(a *args) any {
		return a.x().Bilinear(a.T(1, "input2"), a.T(2, "weight"), a.opt(3, "bias"))
	},
	"corrcoef": un(func(x T) T {
		c := covariance(x, 1)
		if c.Size() == 1 {
			c = c.Reshape()
			return c.Div(c)
		}
		d := c.Diagonal(0, 0, 1).Sqrt()
		return c.Div(d.Unsqueeze(1)).Div(d.Unsqueeze(0)).Clamp(-1, 1)
	}),
	"cov": func(a *args) any {
		if a.has(-1, "fweights") || a.has(-1, "aweights") {
			lacks("weights")
		}
		return covariance(a.x(), a.int(1, "correction", 1))
	},
}

// covariance returns (x - mean)·(x - mean)ᵀ / (n - correction). Each row of x is a variable.
func covariance(x T, correction int) T {
	if x.Rank() > 2 {
		panic(wrong("more than two dimensions"))
	}
	x = floating(x)
	scalar := x.Rank() < 2 || x.Dim(0) == 1
	if scalar {
		x = x.Reshape(1, -1)
	}
	d := x.Sub(x.Mean(1, tensor.KeepDim))
	c := d.MatMul(d.T()).DivScalar(float64(x.Dim(1) - correction))
	if scalar {
		return c.Reshape()
	}
	return c
}

func oldTranspose(w T) T {
	if w.Rank() < 2 {
		return w
	}
	return w.T()
}

// added returns beta·x + alpha·p. If beta is 0, it ignores x, even if x contains NaN.
func added(a *args, p T) T {
	beta, alpha := a.float(-1, "beta", 1), a.float(-1, "alpha", 1)
	if alpha != 1 {
		p = p.MulScalar(alpha)
	}
	x := a.x()
	switch beta {
	case 0:
		return p
	case 1:
		return x.Add(p)
	}
	return x.MulScalar(beta).Add(p)
}

// linalgs holds the operators of torch.linalg, and older operators for the same functions.
var linalgs = map[string]call{
	"linalg.inv": un(T.Inverse), "linalg.inv_ex": checked(T.Inverse),
	"linalg.det": un(T.Det),
	"linalg.slogdet": func(a *args) any {
		s, l := a.x().SlogDet()
		return []T{s, l}
	},
	"logdet": un(func(x T) T {
		s, l := x.SlogDet()
		return tensor.WhereScalar(s.LtScalar(0).LogicalNot(), l, math.NaN())
	}),
	"matrix_exp":          un(T.MatrixExp),
	"linalg.matrix_power": func(a *args) any { return a.x().MatrixPower(a.int(1, "n", 0)) },
	"linalg.pinv":         pinvs, "linalg.pinv.hermitian": pinvs,
	"linalg.pinv.singular": func(a *args) any { return a.x().MatMul(a.T(1, "b").T()).Pinv() },
	"pinverse":             un(func(x T) T { return x.Pinv() }),
	"linalg.matrix_rank":   ranks, "linalg.matrix_rank.hermitian": ranks,
	"linalg.cholesky": func(a *args) any { return a.x().Cholesky(a.bool(-1, "upper", false)) },
	"linalg.cholesky_ex": func(a *args) any {
		x := a.x()
		return []any{x.Cholesky(a.bool(-1, "upper", false)), noInfo(a, x)}
	},
	"cholesky_solve": func(a *args) any {
		return a.x().CholeskySolve(a.T(1, "input2"), a.bool(2, "upper", false))
	},
	"cholesky_inverse": func(a *args) any {
		l := a.x()
		i := a.scope.Typed(l.Type()).Eye(l.Dim(-1))
		return i.CholeskySolve(l, a.bool(1, "upper", false))
	},
	"linalg.solve":    solves,
	"linalg.solve_ex": func(a *args) any { return []any{solves(a), noInfo(a, a.x())} },
	"linalg.solve_triangular": func(a *args) any {
		return a.x().SolveTriangular(a.T(1, "B"), tensor.TriangularOptions{
			Upper: a.bool(-1, "upper", false), Right: !a.bool(-1, "left", true),
			Unit: a.bool(-1, "unitriangular", false),
		})
	},
	"triangular_solve": func(a *args) any {
		b, x := a.x(), a.T(1, "A")
		upper, transposed := a.bool(2, "upper", true), a.bool(3, "transpose", false)
		m := x
		if transposed {
			m, upper = x.T(), !upper
		}
		y := m.SolveTriangular(b, tensor.TriangularOptions{
			Upper: upper, Unit: a.bool(4, "unitriangular", false),
		})
		return []T{y, x.Clone()}
	},
	"linalg.svdvals": un(T.SVDVals),
	"linalg.eigvalsh": func(a *args) any {
		if a.text(1, "UPLO", "L") == "U" {
			return a.x().T().EigValsH()
		}
		return a.x().EigValsH()
	},
	"linalg.eigh": func(a *args) any {
		x := a.x()
		if a.text(1, "UPLO", "L") == "U" {
			x = x.T()
		}
		l, v := x.Eigh()
		return []T{l, v.Abs()}
	},
	"linalg.svd": func(a *args) any { return singular(a.x(), a.bool(1, "full_matrices", true)) },
	"svd":        func(a *args) any { return singular(a.x(), !a.bool(1, "some", true)) },
	"linalg.qr": func(a *args) any {
		switch mode := a.text(1, "mode", "reduced"); mode {
		case "reduced", "complete":
			return unsigned(a.x().QR(mode == "complete"))
		}
		lacks("a mode without Q")
		return nil
	},
	"linalg.lstsq":               func(a *args) any { return leastSquares(a) },
	"linalg.lstsq.grad_oriented": func(a *args) any { return leastSquares(a) },
	"linalg.norm":                matrixNorms, "linalg.norm.subgradients_at_zero": matrixNorms,
	"linalg.matrix_norm": matrixNorms,
	"linalg.cond": func(a *args) any {
		if p := a.arg(1, "p"); p != nil && p != 2 && p != -2 && p != 2.0 {
			lacks("the condition in norm %v", p)
		} else if p == -2 {
			s := a.x().SVDVals()
			return s.Select(-1, -1).Div(s.Select(-1, 0))
		}
		s := a.x().SVDVals()
		return s.Select(-1, 0).Div(s.Select(-1, -1))
	},
	"linalg.tensorinv": func(a *args) any {
		x, k := a.x(), a.int(1, "ind", 2)
		d := x.Shape().Slice()
		rows := 1
		for _, n := range d[:min(k, len(d))] {
			rows *= n
		}
		return x.Reshape(rows, -1).Inverse().Reshape(append(append([]int{}, d[k:]...), d[:k]...)...)
	},
}

func checked(f func(x T) T) call {
	return func(a *args) any {
		a.ignored("check_errors")
		return []any{f(a.x()), noInfo(a, a.x())}
	}
}

// noInfo returns a tensor of zeros. It stands for torch's tensor of error codes; this library
// returns Go errors.
func noInfo(a *args, x T) T {
	a.ignored("check_errors")
	d := x.Shape().Slice()
	return a.scope.Typed(stored["I32"]).Zeros(d[:max(len(d)-2, 0)]...)
}

// tolerances returns rtol and atol, or nil if both are absent. The parameter old is the name of
// an argument of older versions of torch. Its value is taken as rtol.
func (a *args) tolerances(old string) []float64 {
	for _, name := range []string{old, "rtol", "atol"} {
		if t, ok := a.arg(-1, name).(T); ok && t.Rank() > 0 {
			lacks("a tensor of tolerances")
		}
	}
	rtol := a.float(-1, old, a.float(-1, "rtol", 0))
	if a.has(-1, "atol") {
		return []float64{rtol, a.float(-1, "atol", 0)}
	} else if a.has(-1, old) || a.has(-1, "rtol") {
		return []float64{rtol}
	}
	return nil
}

// nuclear returns the nuclear norm of matrices in the dimensions d: the sum of their singular
// values.
func nuclear(x T, d []int, keep bool) T {
	y := x.MoveAxes(d, []int{-2, -1}).SVDVals().Sum(-1)
	if keep {
		slices.Sort(d)
		y = y.Unsqueeze(d[0]).Unsqueeze(d[1])
	}
	return y
}

var (
	pinvs call = func(a *args) any {
		if a.bool(-1, "hermitian", false) {
			lacks("hermitian")
		}
		return a.x().Pinv(a.tolerances("rcond")...)
	}
	ranks call = func(a *args) any {
		a.ignored("hermitian")
		return a.x().MatrixRank(a.tolerances("tol")...)
	}
	solves call = func(a *args) any {
		if !a.bool(-1, "left", true) {
			x, b := a.x(), a.T(1, "B")
			return x.T().Solve(b.T()).T()
		}
		return a.x().Solve(a.T(1, "B"))
	}
	matrixNorms call = func(a *args) any {
		x, p, d := a.cast(-1, a.x()), a.arg(1, "ord"), a.ints(2, "dim")
		keep := a.addKeepDim(3, nil)
		if len(d) == 1 || p == nil || x.Rank() == 1 && len(d) == 0 {
			if p == nil {
				p = 2
			}
			if _, ok := p.(string); ok {
				p = 2
			}
			return x.Norm(number64(p), append(append([]int{}, d...), keep...)...)
		}
		if len(d) == 0 {
			d = []int{-2, -1}
		}
		if p == "fro" {
			return x.Norm(2, append(d, keep...)...)
		}
		for i := range d {
			d[i] = (d[i] + x.Rank()) % x.Rank()
		}
		if p == "nuc" {
			return nuclear(x, d, len(keep) > 0)
		}
		return x.MatrixNorm(number64(p), append(d, keep...)...)
	}
)

// singular returns the parts of a singular value decomposition that do not depend on arbitrary
// signs. PyTorch's samples compare these parts.
func singular(x T, full bool) any {
	u, s, vh := x.SVD(full)
	k := s.Dim(-1)
	return []T{u.Narrow(-1, 0, k).MatMul(vh.Narrow(-2, 0, k)), s}
}

// unsigned returns a QR decomposition without its arbitrary parts: the signs, and the columns of Q
// that R does not use.
func unsigned(q, r T) any {
	return []T{q.Narrow(-1, 0, min(q.Dim(-1), r.Dim(-1))).Abs(), r.Abs()}
}

func leastSquares(a *args) any {
	a.ignored("driver")
	if a.has(-1, "rcond") {
		lacks("rcond")
	}
	return a.x().LstSq(a.T(1, "B"))
}
