package optest

import (
	"math"
	"slices"
)

// This file computes linear algebra by textbook methods, for small matrices: Gauss-Jordan
// elimination, Cholesky decomposition, Gram-Schmidt orthogonalisation, and Jacobi rotations.

// eachMatrix applies f to the m×n matrices in the last two dimensions. Each result has the
// dimensions that resultDims(m, n) returns.
func eachMatrix(x array, resultDims func(m, n int) []int, f func(m, n int, a []float64) []float64) array {
	r := len(x.dims)
	m, n := x.dims[r-2], x.dims[r-1]
	batch := x.dims[:r-2]
	y := array{dims: append(slices.Clone(batch), resultDims(m, n)...)}
	for b := range size(batch) {
		y.v = append(y.v, f(m, n, slices.Clone(x.v[b*m*n:(b+1)*m*n]))...)
	}
	return y
}

func sameSize(m, n int) []int { return []int{m, n} }
func noSize(int, int) []int   { return nil }

// eliminated solves a·x = b, where a is n×n and b is n×k. It also returns the determinant of a.
func eliminated(n, k int, a, b []float64) (x []float64, det float64) {
	a, b = slices.Clone(a), slices.Clone(b)
	det = 1
	swap := func(v []float64, w, i, j int) {
		for c := range w {
			v[i*w+c], v[j*w+c] = v[j*w+c], v[i*w+c]
		}
	}
	for i := range n {
		p := i
		for j := i; j < n; j++ {
			if math.Abs(a[j*n+i]) > math.Abs(a[p*n+i]) {
				p = j
			}
		}
		if p != i {
			swap(a, n, i, p)
			swap(b, k, i, p)
			det = -det
		}
		d := a[i*n+i]
		det *= d
		for j := range n {
			if j == i {
				continue
			}
			f := a[j*n+i] / d
			for c := i; c < n; c++ {
				a[j*n+c] -= f * a[i*n+c]
			}
			for c := range k {
				b[j*k+c] -= f * b[i*k+c]
			}
		}
	}
	for i := range n {
		for c := range k {
			b[i*k+c] /= a[i*n+i]
		}
	}
	return b, det
}

func unit(n int) []float64 {
	e := make([]float64, n*n)
	for i := range n {
		e[i*n+i] = 1
	}
	return e
}

func inverseRef(x array) array {
	return eachMatrix(x, sameSize, func(_, n int, a []float64) []float64 { y, _ := eliminated(n, n, a, unit(n)); return y })
}

func detRef(x array) array {
	return eachMatrix(x, noSize, func(_, n int, a []float64) []float64 { _, d := eliminated(n, 0, a, nil); return []float64{d} })
}

// solveRef solves a·x = b for a matrix b or a batch of matrices.
func solveRef(a, b array) array {
	n, k := a.dims[len(a.dims)-1], b.dims[len(b.dims)-1]
	batch := joint(newArray(a.dims[:len(a.dims)-2]...), newArray(b.dims[:len(b.dims)-2]...))
	a, b = a.expand(append(slices.Clone(batch), n, n)), b.expand(append(slices.Clone(batch), n, k))
	y := array{dims: b.dims}
	for p := range size(batch) {
		x, _ := eliminated(n, k, a.v[p*n*n:(p+1)*n*n], b.v[p*n*k:(p+1)*n*k])
		y.v = append(y.v, x...)
	}
	return y
}

func turnRef(x array) array { // turnRef transposes the last two dimensions.
	return eachMatrix(x, func(m, n int) []int { return []int{n, m} }, func(m, n int, a []float64) []float64 {
		y := make([]float64, len(a))
		for i := range m {
			for j := range n {
				y[j*m+i] = a[i*n+j]
			}
		}
		return y
	})
}

// oneTriangle sets the elements outside of one triangle to 0. If unit is true, it sets the diagonal
// to 1.
func oneTriangle(x array, upper, unit bool) array {
	y := x.clone()
	each(x.dims, func(i int, idx []int) {
		r, c := idx[len(idx)-2], idx[len(idx)-1]
		switch {
		case r == c && unit:
			y.v[i] = 1
		case upper && c < r, !upper && c > r:
			y.v[i] = 0
		}
	})
	return y
}

func choleskyRef(x array) array {
	return eachMatrix(x, sameSize, func(_, n int, a []float64) []float64 {
		l := make([]float64, n*n)
		for i := range n {
			for j := range i + 1 {
				s := a[i*n+j]
				for k := range j {
					s -= l[i*n+k] * l[j*n+k]
				}
				if i == j {
					l[i*n+i] = math.Sqrt(s)
				} else {
					l[i*n+j] = s / l[j*n+j]
				}
			}
		}
		return l
	})
}

// qrRef returns the absolute values of Q and R of the reduced decomposition.
func qrRef(x array) (q, r array) {
	least := func(m, n int) int { return min(m, n) }
	run := func(m, n int, a []float64) (q, r []float64) {
		k := least(m, n)
		q, r = make([]float64, m*k), make([]float64, k*n)
		for j := range n {
			col := make([]float64, m)
			for i := range m {
				col[i] = a[i*n+j]
			}
			for range 2 { // two passes are precise enough
				for p := range min(j, k) {
					d := 0.0
					for i := range m {
						d += q[i*k+p] * col[i]
					}
					r[p*n+j] += d
					for i := range m {
						col[i] -= d * q[i*k+p]
					}
				}
			}
			if j < k {
				d := 0.0
				for _, v := range col {
					d += v * v
				}
				d = math.Sqrt(d)
				r[j*n+j] = d
				for i := range m {
					q[i*k+j] = col[i] / d
				}
			}
		}
		return q, r
	}
	q = eachMatrix(x, func(m, n int) []int { return []int{m, least(m, n)} }, func(m, n int, a []float64) []float64 { q, _ := run(m, n, a); return q })
	r = eachMatrix(x, func(m, n int) []int { return []int{least(m, n), n} }, func(m, n int, a []float64) []float64 { _, r := run(m, n, a); return r })
	return absolute(q), absolute(r)
}

// jacobi returns the eigenvalues of a symmetric matrix in ascending order. It also returns the
// absolute values of the eigenvectors, as columns.
func jacobi(n int, a []float64) (l, v []float64) {
	v = unit(n)
	for range 60 {
		for p := range n {
			for q := p + 1; q < n; q++ {
				if a[p*n+q] == 0 {
					continue
				}
				t := 0.5 * math.Atan2(2*a[p*n+q], a[q*n+q]-a[p*n+p])
				c, s := math.Cos(t), math.Sin(t)
				turn := func(m []float64, i, j int) { m[i], m[j] = c*m[i]-s*m[j], s*m[i]+c*m[j] }
				for k := range n {
					turn(a, k*n+p, k*n+q)
					turn(v, k*n+p, k*n+q)
				}
				for k := range n {
					turn(a, p*n+k, q*n+k)
				}
				a[p*n+q], a[q*n+p] = 0, 0
			}
		}
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		if a[i*n+i] < a[j*n+j] {
			return -1
		}
		return 1
	})
	w := make([]float64, n*n)
	for k, from := range order {
		l = append(l, a[from*n+from])
		for i := range n {
			w[i*n+k] = math.Abs(v[i*n+from])
		}
	}
	return l, w
}

func eighRef(x array) (l, v array) {
	l = eachMatrix(x, func(m, _ int) []int { return []int{m} }, func(n, _ int, a []float64) []float64 { l, _ := jacobi(n, a); return l })
	return l, eachMatrix(x, sameSize, func(n, _ int, a []float64) []float64 { _, v := jacobi(n, a); return v })
}

// svdRef returns S, and the absolute values of U and Vᵀ, of the reduced decomposition. It computes
// them from the eigenvectors of x·xᵀ and of xᵀ·x.
func svdRef(x array) (u, s, vt array) {
	t := turnRef(x)
	// reversed returns the last k entries of the last dimension, in reverse order.
	reversed := func(a array, k int) array {
		var idx []int
		n := a.dims[len(a.dims)-1]
		for i := range k {
			idx = append(idx, n-1-i)
		}
		return a.pick(len(a.dims)-1, 0, idx...)
	}
	k := min(x.dims[len(x.dims)-1], x.dims[len(x.dims)-2])
	l, u := eighRef(matmulRef([]array{x, t}))
	_, v := eighRef(matmulRef([]array{t, x}))
	return reversed(u, k), reversed(l, k).apply(math.Sqrt), turnRef(reversed(v, k))
}

// exponentialRef sums the series of x/64 and squares the result six times.
func exponentialRef(x array) array {
	return eachMatrix(x, sameSize, func(_, n int, a []float64) []float64 {
		times := func(p, q []float64) []float64 {
			return matmulRef([]array{{[]int{n, n}, p}, {[]int{n, n}, q}}).v
		}
		small := array{[]int{n, n}, a}.apply(func(v float64) float64 { return v / 64 }).v
		y, term := unit(n), unit(n)
		for k := 1; k < 20; k++ {
			term = times(term, small)
			for i := range term {
				term[i] /= float64(k)
				y[i] += term[i]
			}
		}
		for range 6 {
			y = times(y, y)
		}
		return y
	})
}

// pinvRef computes the pseudo-inverse as (xᵀ·x)⁻¹·xᵀ or xᵀ·(x·xᵀ)⁻¹.
func pinvRef(x array) array {
	t := turnRef(x)
	if x.dims[len(x.dims)-2] >= x.dims[len(x.dims)-1] {
		return matmulRef([]array{inverseRef(matmulRef([]array{t, x})), t})
	}
	return matmulRef([]array{t, inverseRef(matmulRef([]array{x, t}))})
}
