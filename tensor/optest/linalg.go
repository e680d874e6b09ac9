package optest

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func init() {
	rowTables = append(rowTables, linalgRows)
	functions = append(functions, "MultiDot")
}

// wellConditioned returns matrices that are added to the operands of linear algebra. They have
// increasing numbers on the diagonal and small ones elsewhere. The sums are far from singular, and
// no two eigenvalues or singular values are close.
func wellConditioned(dims []int) array {
	return arrayOfFunc(dims, func(idx []int) float64 {
		i, j := idx[len(idx)-2], idx[len(idx)-1]
		if i == j {
			return float64(4 * (i + 2))
		}
		return (float64((3*i+5*j)%4) - 1.5) / 4
	})
}

func moved(x array) array {
	y, by := x.clone(), wellConditioned(x.dims)
	for i := range y.v {
		y.v[i] += by.v[i]
	}
	return y
}

func movedTensor(x *tt) *tt {
	by := wellConditioned(x.Shape().Slice())
	return x.Add(x.Scope().On(x.Device()).Typed(x.Type()).From(by.v).Reshape(by.dims...))
}

func symmetric(x array) array {
	y := moved(x)
	t := turnRef(y)
	for i := range y.v {
		y.v[i] += t.v[i]
	}
	return y
}

func symmetricTensor(x *tt) *tt { y := movedTensor(x); return y.Add(y.T()) }

func linalgRows() []row {
	var rows []row
	add := func(op, method string, in [][]int, call func(x []*tt) *tt, ref func(x []array) array) *row {
		var only []dtype.Type
		if slices.Contains(tensor.HostOps(), op) { // 16-bit floats are refused
			only = []dtype.Type{dtype.F64, dtype.F32}
		}
		rows = append(rows, row{op: op, methods: []string{method}, in: in, call: call, ref: ref, only: only,
			// 40·(1 + |result|) bounds the sums in the routines, if operands are as well
			// conditioned as these
			terms: func(x []array) array {
				return absolute(ref(x)).apply(func(v float64) float64 { return 40 * (1 + v) })
			}})
		return &rows[len(rows)-1]
	}
	of := func(f func(x *tt) *tt) func(x []*tt) *tt { return func(x []*tt) *tt { return f(movedTensor(x[0])) } }
	ofRef := func(f func(x array) array) func(x []array) array {
		return func(x []array) array { return f(moved(x[0])) }
	}
	for _, d := range [][]int{{3, 3}, {2, 2, 2}, {0, 2, 2}, {0, 0}} {
		add("inverse", "Inverse", [][]int{d}, of((*tt).Inverse), ofRef(inverseRef))
		add("det", "Det", [][]int{d}, of((*tt).Det), ofRef(detRef))
		add("slogdet", "SlogDet", [][]int{d}, of(func(x *tt) *tt { s, l := x.SlogDet(); return joined([]*tt{s, l}) }), ofRef(func(x array) array {
			y := detRef(x)
			return joinedArrays(y.apply(func(v float64) float64 { return math.Copysign(1, v) }), y.apply(func(v float64) float64 { return math.Log(math.Abs(v)) }))
		}))
		for _, upper := range []bool{false, true} {
			add("cholesky", "Cholesky", [][]int{d}, func(x []*tt) *tt { return symmetricTensor(x[0]).Cholesky(upper) }, func(x []array) array {
				if l := choleskyRef(symmetric(x[0])); !upper {
					return l
				} else {
					return turnRef(l)
				}
			})
		}
		// The routine chooses the signs of vectors. Absolute values do not depend on the signs.
		add("eigh", "Eigh", [][]int{d}, func(x []*tt) *tt { l, v := symmetricTensor(x[0]).Eigh(); return joined([]*tt{l, v.Abs()}) }, func(x []array) array {
			l, v := eighRef(symmetric(x[0]))
			return joinedArrays(l, v)
		})
	}
	add("inverse", "MatrixPower", [][]int{{2, 2}}, of(func(x *tt) *tt { return x.MatrixPower(-2) }), ofRef(func(x array) array {
		y := inverseRef(x)
		return matmulRef([]array{y, y})
	}))
	for _, d := range [][]int{{3, 3}, {4, 2}, {2, 4}, {2, 3, 2}, {0, 2, 3}, {2, 0}, {0, 3}} {
		for _, complete := range []bool{false, true} {
			if n := len(d); complete && d[n-2] > d[n-1] {
				continue // some columns of Q are not determined, so there is no gradient
			}
			add("qr", "QR", [][]int{d}, of(func(x *tt) *tt { q, r := x.QR(complete); return joined([]*tt{q.Abs(), r.Abs()}) }), ofRef(func(x array) array {
				q, r := qrRef(x)
				return joinedArrays(q, r)
			}))
		}
		for _, full := range []bool{false, true} {
			add("svd", "SVD", [][]int{d}, of(func(x *tt) *tt {
				u, s, vh := x.SVD(full)
				k := s.Dim(-1)
				return joined([]*tt{u.Narrow(-1, 0, k).Abs(), s, vh.Narrow(-2, 0, k).Abs()})
			}), ofRef(func(x array) array { u, s, vt := svdRef(x); return joinedArrays(u, s, vt) }))
		}
		add("pinv", "Pinv", [][]int{d}, of(func(x *tt) *tt { return x.Pinv() }), ofRef(pinvRef))
		rank := add("matrix_rank", "MatrixRank", [][]int{d}, of(func(x *tt) *tt { return x.MatrixRank() }), ofRef(func(x array) array {
			return eachMatrix(x, noSize, func(m, n int, _ []float64) []float64 { return []float64{float64(min(m, n))} })
		}))
		rank.noGrad, rank.result = true, dtype.I64
	}
	whole := add("qr", "QR", [][]int{{4, 2}}, of(func(x *tt) *tt { q, r := x.QR(true); return joined([]*tt{q.MatMul(r), q.T().MatMul(q)}) }), ofRef(func(x array) array {
		return joinedArrays(x, array{[]int{4, 4}, unit(4)})
	}))
	whole.noGrad = true
	add("svd", "SVD", [][]int{{3, 2}}, of(func(x *tt) *tt { u, s, vh := x.SVD(false); return u.Mul(s).MatMul(vh) }), ofRef(array.clone))

	both := func(f func(a, b *tt) *tt) func(x []*tt) *tt {
		return func(x []*tt) *tt { return f(movedTensor(x[0]), x[1]) }
	}
	// column calls f with the vectors x[1] as matrices of one column. It removes this last
	// dimension from the result.
	column := func(f func(a, b array) array) func(x []array) array {
		return func(x []array) array {
			b := x[1].reshape(append(x[1].dims, 1)...)
			y := f(moved(x[0]), b)
			return y.reshape(y.dims[:len(y.dims)-1]...)
		}
	}
	matrix := func(f func(a, b array) array) func(x []array) array {
		return func(x []array) array { return f(moved(x[0]), x[1]) }
	}
	least := func(a, b array) array { return matmulRef([]array{pinvRef(a), b}) }
	for _, in := range [][][]int{{{3, 3}, {3, 2}}, {{2, 2}, {3, 2, 1}}, {{2, 1, 2, 2}, {3, 2, 2}}, {{2, 2}, {2, 0}}, {{0, 0}, {0, 2}}} {
		add("solve", "Solve", in, both((*tt).Solve), matrix(solveRef))
		for k := range 8 {
			if k > 0 && len(in[0]) != len(in[1]) {
				continue
			}
			o := tensor.TriangularOptions{Upper: k&1 != 0, Right: k&2 != 0, Unit: k&4 != 0}
			add("solve_triangular", "SolveTriangular", in, both(func(a, b *tt) *tt {
				if o.Right {
					return a.SolveTriangular(b.T(), o)
				}
				return a.SolveTriangular(b, o)
			}), matrix(func(a, b array) array {
				a = oneTriangle(a, o.Upper, o.Unit)
				if o.Right {
					return turnRef(solveRef(turnRef(a), b))
				}
				return solveRef(a, b)
			}))
		}
	}
	for _, in := range [][][]int{{{3, 3}, {3}}, {{2, 2, 2}, {2, 2}}, {{2, 2, 2}, {2}}} {
		add("solve", "Solve", in, both((*tt).Solve), column(solveRef))
	}
	add("lstsq", "LstSq", [][]int{{4, 2}, {4, 3}}, both((*tt).LstSq), matrix(least))
	add("lstsq", "LstSq", [][]int{{4, 2}, {4}}, both((*tt).LstSq), column(least))
	add("lstsq", "LstSq", [][]int{{2, 2, 3}, {2, 2}}, both((*tt).LstSq), column(least))
	for _, d := range [][]int{{3, 3}, {2, 2, 2}, {0, 2, 2}, {0, 0}} {
		add("matrix_exp", "MatrixExp", [][]int{d}, func(x []*tt) *tt { return x[0].MatrixExp() }, func(x []array) array { return exponentialRef(x[0]) })
	}
	for _, d := range [][]int{{3, 3}, {2, 4, 2}} {
		add("svd", "SVDVals", [][]int{d}, of((*tt).SVDVals), ofRef(func(x array) array { _, s, _ := svdRef(x); return s }))
		for _, p := range []float64{2, -2} {
			add("svd", "MatrixNorm", [][]int{d}, of(func(x *tt) *tt { return x.MatrixNorm(p) }), ofRef(func(x array) array {
				_, s, _ := svdRef(x)
				k := s.dims[len(s.dims)-1]
				at := 0
				if p < 0 {
					at = k - 1
				}
				return s.pick(len(s.dims)-1, 0, at).reshape(s.dims[:len(s.dims)-1]...)
			}))
		}
	}
	add("eigh", "EigValsH", [][]int{{2, 2, 2}}, func(x []*tt) *tt { return symmetricTensor(x[0]).EigValsH() }, func(x []array) array {
		l, _ := eighRef(symmetric(x[0]))
		return l
	})
	for _, upper := range []bool{false, true} {
		add("solve_triangular", "CholeskySolve", [][]int{{3, 3}, {2, 3, 2}}, both(func(l, b *tt) *tt { return b.CholeskySolve(l, upper) }), matrix(func(l, b array) array {
			if l = oneTriangle(l, upper, false); upper {
				l = turnRef(l)
			}
			return solveRef(turnRef(l), solveRef(l, b))
		}))
	}
	return slices.Concat(rows, compositeRows(), contractionRows())
}

// contractionRows returns the table's rows for sums of products, and for norms that are sums.
func contractionRows() []row {
	var rows []row
	add := func(op, method string, in [][]int, call func(x []*tt) *tt, ref func(x []array) array) *row {
		rows = append(rows, row{op: op, methods: []string{method}, in: in, call: call, ref: ref, terms: absAll(ref)})
		return &rows[len(rows)-1]
	}
	product := func(a array, m, k int, b array, n int, dims ...int) array {
		return matmulRef([]array{a.reshape(m, k), b.reshape(k, n)}).reshape(dims...)
	}
	add("tensordot", "TensorDot", [][]int{{2, 3, 2}, {3, 2, 4}}, func(x []*tt) *tt { return x[0].TensorDot(x[1], []int{1, 2}, []int{0, 1}) },
		func(x []array) array { return product(x[0], 2, 6, x[1], 4, 2, 4) })
	add("tensordot", "TensorDot", [][]int{{2, 3, 2}, {2, 3}}, func(x []*tt) *tt { return x[0].TensorDot(x[1], []int{1}, []int{-1}) },
		func(x []array) array {
			return product(x[0].permute([]int{0, 2, 1}), 4, 3, x[1].permute([]int{1, 0}), 2, 2, 2, 2)
		})
	add("tensordot", "TensorDot", [][]int{{2, 1}, {3, 2}}, func(x []*tt) *tt { return x[0].TensorDot(x[1], []int{1}, []int{0}) },
		func(x []array) array { return product(x[0].expand([]int{2, 3}), 2, 3, x[1], 2, 2, 2) })
	add("tensordot", "TensorDot", [][]int{{2, 2}, {3}}, func(x []*tt) *tt { return x[0].TensorDot(x[1], nil, nil) },
		func(x []array) array { return product(x[0], 4, 1, x[1], 3, 2, 2, 3) })
	add("inner", "Inner", [][]int{{2, 3}, {2, 2, 3}}, func(x []*tt) *tt { return x[0].Inner(x[1]) },
		func(x []array) array { return product(x[0], 2, 3, turnRef(x[1].reshape(4, 3)), 4, 2, 2, 2) })
	add("inner", "Inner", [][]int{{}, {2}}, func(x []*tt) *tt { return x[0].Inner(x[1]) },
		func(x []array) array { return x[1].apply(func(v float64) float64 { return v * x[0].v[0] }) })
	for _, dim := range []int{-1, 0} {
		add("vecdot", "VecDot", [][]int{{3, 1, 4}, {2, 4}}, func(x []*tt) *tt { return x[0].VecDot(x[1], dim) }, func(x []array) array {
			full := joint(x...)
			a, b := x[0].expand(full), x[1].expand(full)
			for i := range a.v {
				a.v[i] *= b.v[i]
			}
			to := slices.Clone(full)
			at := (dim + 3) % 3
			to[at] = 1
			return a.sumTo(to).reshape(slices.Delete(to, at, at+1)...)
		}).rounds = true
	}
	chain := func(x []array) array {
		y := x[0]
		for _, b := range x[1:] {
			y = matmulRef([]array{y, b})
		}
		return y
	}
	for _, in := range [][][]int{{{2, 3}, {3, 4}}, {{4, 2}, {2, 3}, {3, 2}}, {{3}, {3, 2}, {2, 4}, {4}}, {{2, 0}, {0, 2}, {2, 3}}} {
		add("multi_dot", "MultiDot", in, func(x []*tt) *tt { return tensor.MultiDot(x...) }, chain).rounds = true
	}
	for _, p := range []float64{1, -1, math.Inf(1), math.Inf(-1)} {
		add("matrix_norm", "MatrixNorm", [][]int{{2, 3, 2}}, func(x []*tt) *tt { return x[0].MatrixNorm(p) }, func(x []array) array {
			a := absolute(x[0])
			if math.Abs(p) == 1 {
				a = turnRef(a)
			}
			return eachMatrix(a, noSize, func(m, n int, v []float64) []float64 {
				y := math.Inf(-1)
				for i := range m {
					s := 0.0
					for j := range n {
						s += v[i*n+j]
					}
					if p < 0 {
						s = -s
					}
					y = max(y, s)
				}
				return []float64{math.Abs(y)}
			})
		}).rounds = true
	}
	return rows
}

// compositeRows returns the table's rows for Kron, Trace, Cross and MatrixPower. These ops work on
// the operands' device.
func compositeRows() []row {
	var rows []row
	for _, in := range [][][]int{{{2, 3}, {2, 2}}, {{2}, {2, 3}}, {{2, 1, 2}, {3}}, {{}, {2}}, {{0, 2}, {2, 2}}, {{1, 2, 1, 1, 2}, {1, 1, 2, 1, 2}}} {
		rows = append(rows, row{op: "kron", methods: []string{"Kron"}, in: in, ints: true, terms: ones, ref: kronRef, call: func(x []*tt) *tt { return x[0].Kron(x[1]) }})
	}
	for _, d := range [][]int{{3, 3}, {2, 4}, {0, 2}} {
		rows = append(rows, row{op: "trace", methods: []string{"Trace"}, in: [][]int{d}, terms: func([]array) array { return array{v: []float64{8}} },
			call: func(x []*tt) *tt { return x[0].Trace() }, ref: func(x []array) array {
				y := newArray()
				for i := range min(d[0], d[1]) {
					y.v[0] += x[0].at(i, i)
				}
				return y
			}})
	}
	for _, c := range []struct {
		in  [][]int
		dim int
	}{{[][]int{{2, 3}, {2, 3}}, -1}, {[][]int{{3, 2}, {3, 1}}, 0}, {[][]int{{0, 3}, {1, 3}}, 1}} {
		rows = append(rows, row{op: "cross", methods: []string{"Cross"}, in: c.in, rounds: true, call: func(x []*tt) *tt { return x[0].Cross(x[1], c.dim) },
			terms: func(x []array) array { return arrayOfFunc(joint(x...), func([]int) float64 { return 8 }) },
			ref: func(x []array) array {
				full := joint(x...)
				a, b := x[0].expand(full), x[1].expand(full)
				dim := (c.dim + len(full)) % len(full)
				turned := func(v array, by int) array { return v.pick(dim, 0, by%3, (by+1)%3, (by+2)%3) }
				a1, a2, b1, b2 := turned(a, 1), turned(a, 2), turned(b, 1), turned(b, 2)
				y := newArray(full...)
				for i := range y.v {
					y.v[i] = a1.v[i]*b2.v[i] - a2.v[i]*b1.v[i]
				}
				return y
			}})
	}
	for _, n := range []int{1, 3, 4} {
		rows = append(rows, row{op: "matrix_power", methods: []string{"MatrixPower"}, in: [][]int{{2, 2, 2}}, call: func(x []*tt) *tt { return x[0].MatrixPower(n) },
			ref: func(x []array) array { return powerRef(x[0], n) }, terms: func(x []array) array {
				return powerRef(absolute(x[0]), n).apply(func(v float64) float64 { return float64(n) * v })
			}})
	}
	identity := row{op: "matrix_power", methods: []string{"MatrixPower"}, in: [][]int{{2, 3, 3}}, noGrad: true, call: func(x []*tt) *tt { return x[0].MatrixPower(0) },
		ref: func(x []array) array { return array{[]int{3, 3}, unit(3)}.expand(x[0].dims) }}
	return append(rows, identity)
}

func powerRef(x array, n int) array {
	y := x.clone()
	for range n - 1 {
		y = matmulRef([]array{y, x})
	}
	return y
}

func kronRef(x []array) array {
	r := max(len(x[0].dims), len(x[1].dims))
	padded := func(a array) array {
		d := a.dims
		for len(d) < r {
			d = append([]int{1}, d...)
		}
		return a.reshape(d...)
	}
	a, b := padded(x[0]), padded(x[1])
	dims := make([]int, r)
	for i := range dims {
		dims[i] = a.dims[i] * b.dims[i]
	}
	return arrayOfFunc(dims, func(idx []int) float64 {
		p, q := make([]int, r), make([]int, r)
		for i, v := range idx {
			p[i], q[i] = v/b.dims[i], v%b.dims[i]
		}
		return a.at(p...) * b.at(q...)
	})
}
