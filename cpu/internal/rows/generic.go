package rows

import "unsafe"

// slice returns the n elements that begin i elements after p.
func slice[T Float](p *T, i, n int) []T {
	return unsafe.Slice((*T)(unsafe.Add(unsafe.Pointer(p), i*int(unsafe.Sizeof(*p)))), n)
}

func updateGo[T Float](m, n int, a *T, lda int, p, y, q, x, r, sum *T) {
	ys, xs, s := slice(y, 0, n), slice(x, 0, n), slice(sum, 0, n)
	for i := range m {
		f, g, h := slice(p, i, 1)[0], slice(q, i, 1)[0], slice(r, i, 1)[0]
		row := slice(a, i*lda, n)
		for j, v := range row {
			v += T(f * ys[j])
			v += T(g * xs[j])
			row[j] = v
			s[j] += T(h * v)
		}
	}
}

func addGo[T Float](m, n int, a *T, lda int, p, y *T) {
	ys := slice(y, 0, n)
	for i := range m {
		f, row := slice(p, i, 1)[0], slice(a, i*lda, n)
		for j, v := range ys {
			row[j] += T(f * v)
		}
	}
}

func combineGo[T Float](m, n int, a *T, lda int, r, sum *T) {
	s := slice(sum, 0, n)
	for i := range m {
		f := slice(r, i, 1)[0]
		for j, v := range slice(a, i*lda, n) {
			s[j] += T(f * v)
		}
	}
}

func dotsGo[T Float](m, n int, a *T, lda int, x, out *T) {
	xs := slice(x, 0, n)
	for i := range m {
		var sum [4]T
		row := slice(a, i*lda, n)
		for j := 0; j < n; j += 4 {
			u, v := row[j:j+4:j+4], xs[j:j+4:j+4]
			for k := range sum {
				sum[k] += T(u[k] * v[k])
			}
		}
		slice(out, i, 1)[0] = sum[0] + sum[2] + (sum[1] + sum[3])
	}
}

func rotateGo[T Float](count, n int, a *T, lda int, cos, sin *T) {
	c, s := slice(cos, 0, count), slice(sin, 0, count)
	for i := range count {
		x, y := slice(a, i*lda, n), slice(a, (i+1)*lda, n)
		for j, u := range x {
			v := y[j]
			x[j] = T(s[i]*v) + T(c[i]*u)
			y[j] = T(c[i]*v) - T(s[i]*u)
		}
	}
}

func substituteGo[T Float](first, m, n int, a *T, ars, acs int, x *T, ldx, unit int, sign T) {
	negative := 1/sign < 0
	for i := first; i < m; i++ {
		row := slice(x, i*ldx, n)
		for k := range i {
			f := slice(a, i*ars+k*acs, 1)[0]
			for j, v := range slice(x, k*ldx, n) {
				row[j] += T(f * v)
			}
		}
		if negative {
			for j, v := range row {
				row[j] = -v
			}
		}
		if unit == 0 {
			d := slice(a, i*(ars+acs), 1)[0]
			for j := range row {
				row[j] /= d
			}
		}
	}
}
