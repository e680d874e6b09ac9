package gemm

const (
	int8Few     = 3       // greatest number of rows of A for which columns of B are read in place
	int8FewWork = 1 << 17 // number of multiplications in a task
)

// few reports whether A has few rows and the columns of B are contiguous. Packing B would then take
// longer than the product itself.
func (j *int8Job) few() bool {
	return j.kern.columns != nil && j.m <= int8Few && j.b.rs == 1 && j.n >= 4 && j.k >= int8Step
}

// runFew computes a product in which A has few rows. It packs A and reads columns of B in place.
func (j *int8Job) runFew(par Parallel) {
	j.aRow = ceil(j.k+1, int8Step) * int8Step // the last step may consist of zeros
	j.rowsA = aligned(j.rowsA, j.m*j.aRow)
	for r := range j.m {
		to := j.rowsA[r*j.aRow:][:j.aRow]
		if src := j.a.data[r*j.a.rs:]; j.a.cs == 1 {
			copy(to[:j.k], src)
		} else {
			for p := range j.k {
				to[p] = src[p*j.a.cs]
			}
		}
		clear(to[j.k:])
		j.beginA[r] = -128 * j.kern.sum(to)
	}
	j.cols = ceil(max(int8FewWork/(j.m*j.k), 4), 4) * 4
	par(ceil(j.n, j.cols), j.fewFn)
}

// fewTask computes some columns of C, four at a time. The last four may overlap the previous four.
func (j *int8Job) fewTask(i int) {
	l := newInt8Local()
	defer int8Locals.Put(l)
	from, to := i*j.cols, min((i+1)*j.cols, j.n)
	for c := from; c < to; c += 4 {
		c := min(c, j.n-4)
		for r := range j.m {
			j.kern.columns(j.rowsA[r*j.aRow:][:j.aRow], j.b.data[c*j.b.cs:], j.k, j.b.cs, j.beginA[r], &l.out4)
			at := j.c.data[r*j.c.rs+c*j.c.cs:]
			// from is this task's first column; the previous task writes the columns before it
			for q := max(0, from-c); q < 4; q++ {
				at[q*j.c.cs] = l.out4[q]
			}
		}
	}
}
