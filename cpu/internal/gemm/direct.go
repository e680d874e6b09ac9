package gemm

// directKernel computes c[r*ldc+j] (+)= Σ a[r*ars+p*acs]·b[p*ldb+j] over p < k, for j < w. It reads
// both factors in place. The number of rows r is fixed for each kernel.
type directKernel[T float] func(k int, a *T, ars, acs int, b *T, ldb int, c *T, ldc, w, accumulate int)

// direct computes products so small or narrow that packing would take longer than it saves. It sums
// in the same order as [packed].
type direct[T float] struct {
	pool   *pool[T, T]
	kern   *kernel[T, T]
	vector int // number of elements of a vector
	// kernels for at most one vector of columns and for at most two. The index is the number of
	// rows
	one, two []directKernel[T]
	row      directKernel[T] // for one row and rowVectors vectors of columns
}

const (
	directRows = 8       // greatest number of rows of a kernel
	directWork = 1 << 18 // limit of the multiplications of one task
	rowVectors = 16      // vectors of columns of the kernel row
)

// multiply computes a batch of products if this is faster than packing. Otherwise it returns false.
func (d *direct[T]) multiply(par Parallel, batch int, apart [3]int, m, n, k int, a, b, c operand[T], accumulate bool) bool {
	if c.cs != 1 {
		return false
	}
	rows, cols, widest := m, n, d.vector
	if a.cs == 1 { // packing A would take about as long as the whole product
		widest = 2 * d.vector
	}
	switch {
	case m*n*k <= directWork:
	case b.cs != 1 || m > 1 && n > widest:
		return false
	case m == 1:
		cols = max(1, directWork/(k*rowVectors*d.vector)) * rowVectors * d.vector
	default:
		rows = max(1, directWork/(n*k*directRows)) * directRows
	}
	tasks := ceil(m, rows) * ceil(n, cols)
	for x := range batch {
		at := part{x * apart[0], x * apart[1], x * apart[2], m, n}
		if tasks == 1 {
			d.part(at, k, &a, &b, &c, accumulate)
			continue
		}
		d.divided(par, tasks, rows, cols, at, k, a, b, c, accumulate)
	}
	return true
}

// part is a part of a product: the offsets at which its factors and its result begin, and its
// numbers of rows and columns.
type part struct{ a, b, c, m, n int }

// divided computes a product in several tasks. Each task has the given number of rows or of
// columns.
func (d *direct[T]) divided(par Parallel, tasks, rows, cols int, at part, k int, a, b, c operand[T], accumulate bool) {
	par(tasks, func(i int) {
		to := at
		if at.m > 1 {
			to.a, to.c, to.m = at.a+i*rows*a.rs, at.c+i*rows*c.rs, min(rows, at.m-i*rows)
		} else {
			to.b, to.c, to.n = at.b+i*cols, at.c+i*cols, min(cols, at.n-i*cols)
		}
		d.part(to, k, &a, &b, &c, accumulate)
	})
}

// part computes a part on the calling goroutine. If the rows of B are not contiguous, it packs
// panels of B.
func (d *direct[T]) part(at part, k int, a, b, c *operand[T], accumulate bool) {
	var l *local[T, T]
	block, vector := d.kern.blockOf(k), d.vector
	if b.cs != 1 {
		l = d.pool.local()
		defer d.pool.locals.Put(l)
		l.panel = aligned(l.panel, block*d.kern.width)
	}
	for k0 := 0; k0 < k; k0 += block {
		kc, how := min(block, k-k0), 0
		if accumulate || k0 > 0 {
			how = 1
		}
		for j := 0; j < at.n; {
			w, kernels := min(2*vector, at.n-j), d.two
			switch {
			case w <= vector:
				kernels = d.one
			case at.m == 1 && b.cs == 1 && at.n-j >= rowVectors*vector:
				w = rowVectors * vector
			}
			from, ldb := b.data[at.b+k0*b.rs+j*b.cs:], b.rs
			if b.cs != 1 {
				d.kern.pack(l.panel, d.kern.width, from, b.cs, b.rs, w, kc)
				from, ldb = l.panel, d.kern.width
			}
			for i, h := 0, 0; i < at.m; i += h {
				h = ceil(at.m-i, ceil(at.m-i, directRows))
				f := d.row
				if w <= 2*vector {
					f = kernels[h]
				}
				f(kc, &a.data[at.a+i*a.rs+k0*a.cs], a.rs, a.cs, &from[0], ldb, &c.data[at.c+i*c.rs+j], c.rs, w, how)
			}
			j += w
		}
	}
}
