package gemm

const (
	deepBlocks = 2  // least number of blocks of k for which a product's tasks divide k
	deepTasks  = 16 // if a product has at least this many tasks anyway, they do not divide k
)

// deep computes a product in tasks that divide k as well as the rows or the columns. Each task thus
// reads its own parts of both factors. The tasks for the first blocks of k add their sums to C, as
// the method part does. The sums of each later block are stored in memory of their own. At the end,
// deep adds these sums to C in the order of k. So the result has the same bits as that of part.
func (d *direct[T]) deep(par Parallel, at part, k int, a, b, c operand[T], accumulate bool) {
	m, n, block := at.m, at.n, d.kern.blockOf(k)
	rows, cols := m, n
	switch {
	case m*n*block <= directWork:
	case m == 1:
		cols = max(1, directWork/(block*d.rowVectors*d.vector)) * d.rowVectors * d.vector
	default:
		rows = max(1, directWork/(n*block*directRows)) * directRows
	}
	j := d.job(at, rows, cols, k, a, b, c, accumulate)
	defer d.putJob(j)
	j.blocks, j.group = ceil(k, block), max(1, directWork/(rows*cols*block))
	later := max(0, j.blocks-j.group)
	j.sums = aligned(j.sums, later*m*n)
	par(j.parts*ceil(j.blocks, j.group), j.deepFn)
	for x := range later {
		for i := range m {
			row := c.data[at.c+i*c.rs:][:n]
			d.add(row, j.sums[(x*m+i)*n:][:n], row)
		}
	}
}

// runDeep runs task i of a job whose tasks divide k.
func (j *directJob[T]) runDeep(i int) {
	to, row, col := j.part(i % j.parts)
	block := j.d.kern.blockOf(j.k)
	l := j.d.panel(j.k, &j.b)
	defer j.d.release(l)
	first := i / j.parts * j.group
	for x := first; x < min(first+j.group, j.blocks); x++ {
		k0, c, add := x*block, j.c, j.accumulate || x > 0
		if x >= j.group {
			c, add = operand[T]{j.sums[(x-j.group)*j.at.m*j.at.n:], j.at.n, 1}, false
			to.c = row*j.at.n + col
		}
		j.d.block(to, k0, min(block, j.k-k0), &j.a, &j.b, &c, add, l)
	}
}
