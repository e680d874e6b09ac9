package gemm

// dotKernel computes out[r*w+j] = Σ a[r*lda+p]·b[j*ldb+p] over p < k. Each kernel has a fixed
// number of rows r and a fixed number w of columns. The order of the additions does not depend on
// these numbers. The kernel prefetches the w columns of B at next.
type dotKernel[E factor, T float] func(k int, a *E, lda int, b *E, ldb int, next *E, out *T)

// dotRows is the greatest number of rows that a dot kernel handles.
const dotRows = 4

// dots computes a product with few rows as dot products of rows of A and columns of B. The rows and
// the columns are contiguous. B, the larger operand, is read once and not copied.
func dots[E factor, T float](par Parallel, pool *pool[E, T], kern *kernel[E, T], m, n, k int, a, b operand[E], c *result[T]) {
	j := pool.get()
	defer pool.put(j)
	j.kern, j.m, j.n, j.k, j.a, j.b, j.result = kern, m, n, k, a, b, *c
	j.tileB = ceil(max(1, dotWork/k), kern.dotWidth) * kern.dotWidth
	par(ceil(n, j.tileB), j.dotsFn)
}

const dotWork = 1 << 15 // number of elements of B in a task

// dotTask runs task i, which handles tileB columns of B.
func (j *job[E, T]) dotTask(pool *pool[E, T], i int) {
	l := pool.local()
	defer pool.locals.Put(l)
	j.dotColumns(l, i*j.tileB, min((i+1)*j.tileB, j.n))
}

// dotBatch computes a batch of products as dots does, one after the other.
func dotBatch[E factor, T float](pool *pool[E, T], kern *kernel[E, T], batch int, apart [3]int, m, n, k int, a, b operand[E], c *result[T]) {
	j, l := pool.get(), pool.local()
	j.kern, j.m, j.n, j.k, j.a, j.b, j.result = kern, m, n, k, a, b, *c
	for i := range batch {
		j.a.data, j.b.data, j.c.data = a.data[i*apart[0]:], b.data[i*apart[1]:], c.c.data[i*apart[2]:]
		j.dotColumns(l, 0, n)
	}
	pool.locals.Put(l)
	pool.put(j)
}

// dotColumns computes the columns q to last-1.
func (j *job[E, T]) dotColumns(l *local[E, T], q, last int) {
	kern := j.kern
	inPlace := j.m == 1 && j.c.cs == 1 && !j.rounds && !j.accumulate
	if n := (last - q) &^ 3; n > 0 && kern.rowDots != nil && inPlace {
		kern.rowDots(j.k, &j.a.data[0], &j.b.data[q*j.b.cs], j.b.cs, n, &j.c.data[q])
		q += n
	}
	for q < last {
		w, kernels := kern.dotWidth, kern.dots
		if q+w > last {
			w, kernels = 1, kern.dots1
		}
		// The kernel prefetches the columns that the next call reads. The processor's own
		// prefetching would not, because each column is too short.
		b, next := &j.b.data[q*j.b.cs], q+w
		if next+w > j.n {
			next = q
		}
		if inPlace {
			kernels[1](j.k, &j.a.data[0], j.a.rs, b, j.b.cs, &j.b.data[next*j.b.cs], &j.c.data[q])
			q += w
			continue
		}
		for r := 0; r < j.m; r += dotRows {
			h := min(dotRows, j.m-r)
			kernels[h](j.k, &j.a.data[r*j.a.rs], j.a.rs, b, j.b.cs, &j.b.data[next*j.b.cs], &l.tile[0])
			for x := range h {
				for y := range w {
					j.put(r+x, q+y, l.tile[x*w+y])
				}
			}
		}
		q += w
	}
}
