package gemm

// dots computes a product with few rows as dot products, each of a row of A and a column of B that is contiguous: B, the
// larger of the two, is read once and not copied.
func dots[T float](par Parallel, pool *pool[T], kern *kernel[T], m, n, k int, a, b, c operand[T], accumulate bool) {
	j := pool.get()
	defer pool.put(j)
	j.kern, j.m, j.n, j.k, j.a, j.b, j.c, j.accumulate = kern, m, n, k, a, b, c, accumulate
	j.tileB = max(1, dotWork/k)
	par(ceil(n, j.tileB), j.dotsFn)
}

const dotWork = 1 << 15 // elements of B a task

// dotTask is the i-th task: tileB columns of B.
func (j *job[T]) dotTask(i int) {
	for q := i * j.tileB; q < min((i+1)*j.tileB, j.n); q++ {
		col := j.b.data[q*j.b.cs:][:j.k]
		for r := range j.m {
			put(j.c.data, r*j.c.rs+q*j.c.cs, j.kern.dot(j.a.data[r*j.a.rs:][:j.k], col), j.accumulate)
		}
	}
}
