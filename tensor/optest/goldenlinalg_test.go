package optest

import (
	"maps"
	"math"

	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// init adds the ops of _golden/linalg.py to goldenOps. Libraries choose different signs for
// eigenvectors, singular vectors and the columns of Q. The compared results do not depend on these
// signs.
func init() {
	type args = golden.Args
	of := func(f func(a args, x *tt) *tt) goldenOp {
		return func(a args, x []*tt) *tt { return f(a, x[0]) }
	}
	part := func(a args, x ...*tt) *tt { return x[a.Int("part")] }
	maps.Copy(goldenOps, map[string]goldenOp{
		"inverse":  unaryOp((*tt).Inverse),
		"det":      unaryOp((*tt).Det),
		"slogdet":  of(func(a args, x *tt) *tt { s, l := x.SlogDet(); return part(a, s, l) }),
		"cholesky": of(func(a args, x *tt) *tt { return x.Cholesky(a.Bool("upper")) }),
		"eigh": of(func(a args, x *tt) *tt {
			l, v := x.Eigh()
			switch a.Int("part") {
			case 0:
				return l
			case 1:
				return v.Abs()
			}
			return v.Mul(l.Square().Unsqueeze(-2)).MatMul(v.T())
		}),
		"matrix_power": of(func(a args, x *tt) *tt {
			if x.Type().IsFloat() {
				x = x.DivScalar(4)
			}
			return x.MatrixPower(a.Int("power"))
		}),
		"qr": of(func(a args, x *tt) *tt {
			q, r := x.QR(a.Bool("complete"))
			if a.Int("part") == 2 {
				return q.MatMul(r)
			}
			return part(a, q, r).Abs()
		}),
		"svd": of(func(a args, x *tt) *tt {
			u, s, vh := x.SVD(a.Bool("full"))
			switch a.Int("part") {
			case 1:
				return s
			case 3:
				return u.Mul(s.Unsqueeze(-2)).MatMul(vh)
			}
			return part(a, u, s, vh).Abs()
		}),
		"pinv": of(func(a args, x *tt) *tt { return x.Pinv(tolerances(a)...) }), "matrix_rank": of(func(a args, x *tt) *tt { return x.MatrixRank(tolerances(a)...) }),
		"solve": binaryOp((*tt).Solve), "lstsq": binaryOp((*tt).LstSq),
		"solve_triangular": func(a args, x []*tt) *tt {
			return x[0].SolveTriangular(x[1], tensor.TriangularOptions{Upper: a.Bool("upper"), Right: a.Bool("right"), Unit: a.Bool("unit")})
		},
		"kron": binaryOp((*tt).Kron), "trace": unaryOp((*tt).Trace),
		"cross":      func(a args, x []*tt) *tt { return x[0].Cross(x[1], a.Int("dim")) },
		"matrix_exp": unaryOp((*tt).MatrixExp),
		"inner":      binaryOp((*tt).Inner), "svdvals": unaryOp((*tt).SVDVals), "eigvalsh": unaryOp((*tt).EigValsH),
		"tensordot":      func(a args, x []*tt) *tt { return x[0].TensorDot(x[1], a.Ints("xd"), a.Ints("yd")) },
		"vecdot":         func(a args, x []*tt) *tt { return x[0].VecDot(x[1], a.Int("dim")) },
		"multi_dot":      func(_ args, x []*tt) *tt { return tensor.MultiDot(x...) },
		"matrix_norm":    of(func(a args, x *tt) *tt { return x.MatrixNorm(order(a), dims(a)...) }),
		"cholesky_solve": func(a args, x []*tt) *tt { return x[0].CholeskySolve(x[1], a.Bool("upper")) },
	})
	for _, op := range []string{"inverse", "det", "slogdet", "cholesky", "eigh", "qr", "svd", "pinv", "solve", "lstsq", "solve_triangular", "svdvals", "eigvalsh", "cholesky_solve", "matrix_norm", "matrix_exp"} {
		goldenTerms[op] = linalgTerms
	}
	for _, op := range []string{"kron", "trace", "tensordot", "inner", "vecdot", "multi_dot"} {
		goldenTerms[op] = absoluteRun
	}
	goldenTerms["matrix_power"] = func(c golden.Case) terms {
		if c.Args.Int("power") < 0 {
			return linalgTerms(c)
		}
		return absoluteRun(c)
	}
	goldenTerms["cross"] = crossTerms
}

// tolerances returns the tolerances of singular values in a golden case: the relative one, then the
// absolute one. If the case has none, it returns nil.
func tolerances(a golden.Args) []float64 {
	if a.Has("tolerances") {
		return a.Floats("tolerances")
	}
	return nil
}

// linalgTerms estimates the sums of absolute terms for a linear algebra routine. An element of a
// result or of a gradient is a sum of several products. Each product is at most as large as the
// largest element of the matrix. So every sum counts as 16 times that element.
func linalgTerms(c golden.Case) (t terms) {
	t.grads = map[int][]float64{}
	size := func(a array) []float64 {
		n := len(a.v)
		if len(a.dims) > 2 {
			n = a.dims[len(a.dims)-1] * a.dims[len(a.dims)-2]
		}
		y := make([]float64, len(a.v))
		for from := 0; from < len(a.v); from += n {
			most := 0.0
			for _, v := range a.v[from : from+n] {
				if !math.IsInf(v, 0) {
					most = max(most, math.Abs(v))
				}
			}
			for i := range n {
				y[from+i] = 16 * most
			}
		}
		return y
	}
	t.out = size(arrayOf(c.Out[0].F64))
	for k := range c.In {
		if c.In[k].GradF64 != nil {
			t.grads[k] = size(arrayOf(*c.In[k].GradF64))
		}
	}
	return t
}

// crossTerms returns the sums of absolute terms of a cross product. It adds products where the
// cross product subtracts them.
func crossTerms(c golden.Case) (t terms) {
	x := []array{viewed(c.In[0]), viewed(c.In[1])}
	sums := func(a, b array) array {
		dim := (c.Args.Int("dim") + len(a.dims)) % len(a.dims)
		turned := func(v array, by int) array { return absolute(v).pick(dim, 0, by%3, (by+1)%3, (by+2)%3) }
		y := newArray(a.dims...)
		a1, a2, b1, b2 := turned(a, 1), turned(a, 2), turned(b, 1), turned(b, 2)
		for i := range y.v {
			y.v[i] = a1.v[i]*b2.v[i] + a2.v[i]*b1.v[i]
		}
		return y
	}
	full := joint(x...)
	a, b := x[0].expand(full), x[1].expand(full)
	t.out, t.grads = sums(a, b).v, map[int][]float64{}
	if c.Out[0].Seed != nil {
		g := arrayOf(*c.Out[0].Seed)
		t.grads[0], t.grads[1] = sums(b, g).sumTo(x[0].dims).v, sums(g, a).sumTo(x[1].dims).v
	}
	return t
}
