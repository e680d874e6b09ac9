package linalg

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/cpu/internal/rows"
)

// SVD decomposes the m×n matrix a. It sets s to the singular values, in descending order. The
// columns of u become left singular vectors, and the rows of vt right ones. If full is true, u is
// m×m and vt is n×n. Otherwise u has min(m, n) columns, and vt has min(m, n) rows. The elements of
// a must be finite. SVD returns false if the iteration does not converge.
//
// Householder reflectors make the matrix bidiagonal. Implicit QR steps find the singular values.
// The rotations of these steps are applied to the rows of the transposed matrices of singular
// vectors.
func SVD[T Float](par Parallel, m, n int, a, u, s, vt []T, full bool) bool {
	if m < n {
		return svdTall(par, n, m, func(i, j int) T { return a[j*n+i] }, a, s, full, func(left, right *padded[T], l, r []int) {
			right.transposeTo(u, len(r), r, m)
			left.copyTo(vt, n, l, n)
		})
	}
	return svdTall(par, m, n, func(i, j int) T { return a[i*n+j] }, a, s, full, func(left, right *padded[T], l, r []int) {
		left.transposeTo(u, len(l), l, m)
		right.copyTo(vt, n, r, n)
	})
}

// svdTall decomposes an m×n matrix with m ≥ n. The function element returns the matrix's elements,
// and a holds the same elements in some order. svdTall passes the singular vectors to the function
// store, as rows of left and right. The slices l and r list these rows in the order of the singular
// values.
func svdTall[T Float](par Parallel, m, n int, element func(i, j int) T, a, s []T, full bool, store func(left, right *padded[T], l, r []int)) bool {
	k := n
	if full {
		k = m
	}
	scale := powerOfTwo(greatest(a))
	b, u, v := zeros[T](m, n), zeros[T](n, m), zeros[T](n, n)
	left, right := zeros[T](k, m), zeros[T](n, n)
	for _, p := range []*padded[T]{&b, &u, &v, &left, &right} {
		defer p.release()
	}
	for i := range m {
		row := b.row(i)
		for j := range n {
			// scale may overflow T, so multiply in float64
			row[j] = T(float64(element(i, j)) * scale)
		}
	}
	left.setIdentity(k)
	right.setIdentity(n)
	if n > 0 {
		tauU, tauV := make([]T, n), make([]T, n-1)
		d, e := bidiagonal(m, n, &b, &u, &v, tauU, tauV)
		accumulate(&left, &u, tauU, 0)
		accumulate(&right, &v, tauV, 1)
		l, r := rotationsOf(par, &left, n), rotationsOf(par, &right, n)
		defer l.release()
		defer r.release()
		if !singular(d, e, 8*epsilon[T](), l, r) {
			return false
		}
		for i, x := range d {
			if math.Signbit(x) {
				d[i] = -x
				for j, y := range right.row(i) {
					right.row(i)[j] = -y
				}
			}
			s[i] = T(d[i] / scale)
		}
	}
	l, r := make([]int, k), make([]int, n)
	for i := range l {
		l[i] = i
	}
	copy(r, l)
	values := slices.Clone(s[:n])
	slices.SortStableFunc(r, func(i, j int) int {
		switch {
		case values[i] > values[j]:
			return -1
		case values[i] < values[j]:
			return 1
		}
		return 0
	})
	copy(l, r)
	for i, from := range r {
		s[i] = values[from]
	}
	store(&left, &right, l, r)
	return true
}

// copyTo copies the first n elements of rows of p, in the given order, to rows of dst.
func (p *padded[T]) copyTo(dst []T, ldd int, order []int, n int) {
	for i, from := range order {
		copy(dst[i*ldd:i*ldd+n], p.row(from))
	}
}

// bidiagonal reduces the m×n matrix b, m ≥ n ≥ 1, to an upper bidiagonal one. It returns the
// diagonal d and the elements e above it. Step k applies a Householder reflector from the left and
// one from the right. Row k of u becomes the vector of the left reflector, which begins at column
// k. Row k of v becomes the vector of the right reflector, which begins at column k+1. One pass
// over b does two things: it updates b by the reflectors of one step, and multiplies b by a vector
// of the next step (G. Howell et al., Cache Efficient Bidiagonalization Using BLAS 2.5 Operators,
// 2008).
func bidiagonal[T Float](m, n int, b, u, v *padded[T], tauU, tauV []T) (d, e []float64) {
	d, e = make([]float64, n), make([]float64, n)
	tall, wide := zeros[T](5, m), zeros[T](2, n)
	defer tall.release()
	defer wide.release()
	minusU, minusX, product, zero := tall.row(0), tall.row(1), tall.row(2), tall.row(3)
	y, sum := wide.row(0), wide.row(1)
	lastV := zero[:b.stride] // vectors of the previous step
	for k := range n {
		// column k of b, updated by the reflectors of the previous step
		x := u.row(k)
		for i := k; i < m; i++ {
			x[i] = b.a[i*b.stride+k] + T(minusU[i]*y[k]) + T(minusX[i]*lastV[k])
		}
		var beta T
		beta, tauU[k] = reflect(x[k:m])
		d[k] = float64(beta)
		if k == n-1 {
			return d, e
		}
		top, left := k&^(rows.Group-1), lead(k+1)
		clear(sum)
		rows.Update(b.rows-top, b.stride-left, b.from(top, left), b.stride, minusU[top:], y[left:], minusX[top:], lastV[left:], x[top:], sum[left:])
		clear(y[:k+1])
		for j := k + 1; j < n; j++ {
			y[j] = tauU[k] * sum[j]
		}
		// row k of b, updated by this step's reflector from the left
		z := v.row(k)
		for j := k + 1; j < n; j++ {
			z[j] = b.a[k*b.stride+j] - y[j]
		}
		beta, tauV[k] = reflect(z[k+1 : n])
		e[k] = float64(beta)
		top = (k + 1) &^ (rows.Group - 1)
		rows.Dots(b.rows-top, b.stride-left, b.from(top, left), b.stride, z[left:], product[top:])
		yz := dot(y[k+1:n], z[k+1:n])
		clear(minusU[:k+1])
		clear(minusX[:k+1])
		for i := k + 1; i < m; i++ {
			minusU[i] = -x[i]
			minusX[i] = -tauV[k] * (product[i] - T(x[i]*yz))
		}
		lastV = z
	}
	return d, e
}

// singular finds the singular values of the bidiagonal matrix with the diagonal d and the elements
// e above it, and leaves them in d with any sign. It adds the rotations of rows to left and those
// of columns to right. Each step begins at that end of the diagonal whose element is greater. This
// keeps small singular values precise. An element of e up to about eps times its neighbours counts
// as 0.
func singular[T Float](d, e []float64, eps float64, left, right *rotations[T]) bool {
	n := len(d)
	norm := 0.0
	for i := range d {
		norm = max(norm, math.Abs(d[i]), math.Abs(e[i]))
	}
	small := func(i int) bool {
		x := math.Abs(e[i])
		return x <= eps*max(math.Abs(d[i]), math.Abs(d[i+1])) || x <= eps*eps*norm
	}
	steps := 40 * n
	for hi := n - 1; hi > 0; {
		if small(hi - 1) {
			e[hi-1] = 0
			hi--
			continue
		}
		lo := hi - 1
		for lo > 0 && !small(lo-1) {
			lo--
		}
		if lo > 0 {
			e[lo-1] = 0
		}
		if steps--; steps < 0 {
			return false
		}
		if math.Abs(d[lo]) >= math.Abs(d[hi]) {
			svdStep(d, e, lo, hi, eps, left, right)
		} else {
			// In reverse order the matrix is lower bidiagonal. The step works on its transpose,
			// which is upper bidiagonal and has the left and right vectors exchanged.
			svdStep(d, e, hi, lo, eps, right, left)
		}
	}
	left.flush()
	right.flush()
	return true
}

// svdStep makes an implicit QR step on rows first to last (Golub and Van Loan, 8.6.2). If first is
// greater than last, it works on the transposed matrix in reverse order. If the matrix is nearly
// singular, as measured by eps, the shift is 0, which makes an element of e 0 (J. Demmel and W.
// Kahan, Accurate Singular Values of Bidiagonal Matrices, 1990).
func svdStep[T Float](d, e []float64, first, last int, eps float64, left, right *rotations[T]) {
	step, beside := 1, 0 // e[i+beside] is the element between d[i] and d[i+step]
	if first > last {
		step, beside = -1, -1
	}
	count := (last - first) * step
	cosR, sinR := right.begin(first, step, count)
	cosL, sinL := left.begin(first, step, count)
	shift := smallerSingular(d[last-step], e[last-step+beside], d[last])
	least, most := math.Inf(1), 0.0
	for i := first; i != last+step; i += step {
		least, most = min(least, math.Abs(d[i])), max(most, math.Abs(d[i]))
	}
	if least <= eps*most {
		shift = 0
	}
	f, g := d[first], e[first+beside]
	if shift != 0 {
		f = (math.Abs(d[first]) - shift) * (math.Copysign(1, d[first]) + shift/d[first])
	}
	for k := range count {
		i := first + k*step
		c, s, r := rotation(f, g)
		if k > 0 {
			e[i-step+beside] = r
		}
		f = float64(c*d[i]) + float64(s*e[i+beside])
		e[i+beside] = float64(c*e[i+beside]) - float64(s*d[i])
		g = s * d[i+step]
		d[i+step] *= c
		cosR[k], sinR[k] = T(c), T(s)
		c, s, d[i] = rotation(f, g)
		f = float64(c*e[i+beside]) + float64(s*d[i+step])
		d[i+step] = float64(c*d[i+step]) - float64(s*e[i+beside])
		if k < count-1 {
			g = s * e[i+step+beside]
			e[i+step+beside] *= c
		}
		cosL[k], sinL[k] = T(c), T(s)
	}
	e[last-step+beside] = f
}

// smallerSingular returns the smaller singular value of the 2×2 matrix with the rows (f, g) and (0,
// h).
func smallerSingular(f, g, h float64) float64 {
	// sum and difference of the two singular values
	sum, difference := math.Hypot(math.Abs(f)+math.Abs(h), g), math.Hypot(math.Abs(f)-math.Abs(h), g)
	if sum+difference == 0 {
		return 0
	}
	return 2 * math.Abs(f) * math.Abs(h) / (sum + difference)
}
