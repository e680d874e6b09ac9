package gemm

import "sync"

// directKernel computes c[r*ldc+j] (+)= Σ a[r*ars+p*acs]·b[p*ldb+j] over p < k, for j < w. It reads
// both factors in place. If accumulate is not 0, it adds to c. Each kernel has a fixed number of
// rows r.
type directKernel[T float] func(k int, a *T, ars, acs int, b *T, ldb int, c *T, ldc, w, accumulate int)

// direct computes products that are so small or narrow that packing would take longer than it
// saves. It sums in the same order as the function packed.
type direct[T float] struct {
	pool   *pool[T, T]
	kern   *kernel[T, T]
	vector int // number of elements of a vector
	// kernels for at most one vector of columns, and for at most two; the index is the number of
	// rows
	one, two []directKernel[T]
	// Kernels for at most half a vector of columns, or nil. Two of their multiplications take as
	// long as one multiplication of whole vectors.
	half []directKernel[T]
	row  directKernel[T] // kernel for one row and rowVectors vectors of columns
	// rowVectors is the number of vectors of columns that the kernel row handles. The field narrow
	// is the greatest number of vectors of columns of a narrow product. For such a product, packing
	// an A with contiguous rows would take about as long as the whole product.
	rowVectors, narrow int
	// If a narrow product has at least tallRows rows, B may have any layout: each task packs its
	// panel of B. If the product has at most flatRows rows, the columns of A may be contiguous
	// instead of its rows. A limit of 0 turns its rule off: the products that the rule describes
	// then pack A.
	tallRows, flatRows int
	// If outer is true, an outer product of vectors is computed row by row. Its result is written
	// in longer parts than those of tiles.
	outer bool
	// If the distance of A's rows is a multiple of this number of elements, the rows use the same
	// sets of the first-level cache. A product with several panels of B then packs A. If the number
	// is 0, no product packs A for this reason.
	crowded int
	add     func(dst, a, b []T)
	jobs    sync.Pool
}

const (
	// The number of rows of a task is a multiple of directRows, unless the columns are divided too.
	directRows = 8
	directWork = 1 << 18 // limit of the number of multiplications of one task
	outerWork  = 1 << 15 // number of elements of an outer product in a task
	rowVectors = 16      // number of vectors of columns of the kernel row
	// If the rows of A are contiguous, and a product has at most panelRows rows and panelWork
	// multiplications, each task handles one panel of B. It reads A in place. It packs the panel if
	// the rows of B are not contiguous. If they are contiguous, the limit of multiplications is
	// placeWork.
	panelRows, panelWork = 256, 1 << 25
	placeWork            = 1 << 23
	panelTasks           = 16 // number of tasks that a product should have, if it has enough rows
)

// multiply computes a batch of products if this is faster than packing. Otherwise it returns false.
func (d *direct[T]) multiply(par Parallel, batch int, apart [3]int, m, n, k int, a, b, c operand[T], accumulate bool) bool {
	if c.cs != 1 {
		return false
	}
	rows, cols, widest, deep := m, n, d.vector, false
	if a.cs == 1 || a.rs == 1 && m <= d.flatRows {
		widest = d.narrow * d.vector
	}
	tall := d.tallRows > 0 && m >= d.tallRows && a.cs == 1
	switch {
	case m*n*k <= directWork:
	case d.outer && k == 1 && b.cs == 1 && n >= d.rowVectors*d.vector:
		rows = ceil(outerWork, n)
	case d.crowds(m, n, n > widest, a):
		return false
	case a.cs == 1 && m > d.kern.height && m <= panelRows && n > widest && m*n*k <= panelWork && (b.cs != 1 || m*n*k <= placeWork):
		// A stays in the second-level cache, and no task writes memory that another reads.
		cols = 2 * d.vector
		rows = ceil(m, max(1, min(panelTasks/ceil(n, cols), m/(4*d.kern.height))))
	case b.cs != 1 && !tall || m > 1 && n > widest:
		return false
	case m == 1:
		cols = max(1, directWork/(k*d.rowVectors*d.vector)) * d.rowVectors * d.vector
		deep = k >= deepBlocks*d.kern.blockOf(k)
	default:
		rows = max(1, directWork/(n*k*directRows)) * directRows
		if b.cs != 1 {
			rows = max(rows, d.tallRows)
		}
		deep = k >= deepBlocks*d.kern.blockOf(k)
	}
	tasks := ceil(m, rows) * ceil(n, cols)
	deep = deep && tasks < deepTasks
	var l *local[T, T]
	if tasks == 1 {
		l = d.panel(k, &b)
		defer d.release(l)
	}
	for x := range batch {
		at := part{x * apart[0], x * apart[1], x * apart[2], m, n}
		switch {
		case tasks == 1:
			d.part(at, k, &a, &b, &c, accumulate, l)
		case deep:
			d.deep(par, at, k, a, b, c, accumulate)
		default:
			d.divided(par, d.job(at, rows, cols, k, a, b, c, accumulate))
		}
	}
	return true
}

// crowds reports whether A must be packed because its rows use the same sets of the cache: their
// distance is a multiple of d.crowded. If many is true, B has many panels, and a multiple of half
// of d.crowded is enough. It returns false if the product has few rows or few columns.
func (d *direct[T]) crowds(m, n int, many bool, a operand[T]) bool {
	apart := d.crowded
	if many {
		apart /= 2
	}
	return apart > 0 && a.cs == 1 && a.rs%apart == 0 && m > 2*d.kern.height && n > 2*d.vector
}

// part is a part of a product: the offsets at which its factors and its result begin, and the
// numbers of its rows and columns.
type part struct{ a, b, c, m, n int }

// directJob is a product that several tasks compute. Jobs are reused, because a product must not
// allocate memory.
type directJob[T float] struct {
	d          *direct[T]
	at         part // the whole product
	rows, cols int  // number of rows and columns in a task
	k          int
	a, b, c    operand[T]
	accumulate bool
	across     int // number of tasks that compute the same rows
	// The field parts is the number of tasks that divide the rows and the columns. If tasks also
	// divide k, the field blocks is the number of blocks of k, and the field group is how many of
	// them a task computes. The field sums holds the sums of each block after the first group.
	parts, group, blocks int
	sums                 []T
	partFn, deepFn       func(i int) // the tasks as functions, created once
}

// job returns a job without tasks. The caller puts it back to the pool.
func (d *direct[T]) job(at part, rows, cols, k int, a, b, c operand[T], accumulate bool) *directJob[T] {
	j, ok := d.jobs.Get().(*directJob[T])
	if !ok {
		j = &directJob[T]{d: d}
		j.partFn, j.deepFn = j.runPart, j.runDeep
	}
	j.at, j.rows, j.cols, j.k, j.a, j.b, j.c, j.accumulate = at, rows, cols, k, a, b, c, accumulate
	j.across = ceil(at.n, cols)
	j.parts = ceil(at.m, rows) * j.across
	return j
}

func (d *direct[T]) putJob(j *directJob[T]) {
	j.a, j.b, j.c = operand[T]{}, operand[T]{}, operand[T]{}
	d.jobs.Put(j)
}

// divided computes a product in several tasks.
func (d *direct[T]) divided(par Parallel, j *directJob[T]) {
	defer d.putJob(j)
	par(j.parts, j.partFn)
}

// part returns part i of the job's product, its first row and its first column.
func (j *directJob[T]) part(i int) (p part, row, col int) {
	row, col = i/j.across*j.rows, i%j.across*j.cols
	return part{j.at.a + row*j.a.rs, j.at.b + col*j.b.cs, j.at.c + row*j.c.rs + col,
		min(j.rows, j.at.m-row), min(j.cols, j.at.n-col)}, row, col
}

func (j *directJob[T]) runPart(i int) {
	p, _, _ := j.part(i)
	l := j.d.panel(j.k, &j.b)
	defer j.d.release(l)
	j.d.part(p, j.k, &j.a, &j.b, &j.c, j.accumulate, l)
}

// part computes a part of a product on the calling goroutine. l is the memory that [direct.panel]
// returns.
func (d *direct[T]) part(at part, k int, a, b, c *operand[T], accumulate bool, l *local[T, T]) {
	block := d.kern.blockOf(k)
	for k0 := 0; k0 < k; k0 += block {
		d.block(at, k0, min(block, k-k0), a, b, c, accumulate || k0 > 0, l)
	}
}

// panel returns memory for a packed panel of B, or nil if the rows of B are contiguous and need no
// packing.
func (d *direct[T]) panel(k int, b *operand[T]) *local[T, T] {
	if b.cs == 1 {
		return nil
	}
	l := d.pool.local()
	l.panel = aligned(l.panel, d.kern.blockOf(k)*d.kern.width)
	return l
}

func (d *direct[T]) release(l *local[T, T]) {
	if l != nil {
		d.pool.locals.Put(l)
	}
}

// block computes the sums of a part of a product over the block of k from k0 to k0+kc. If the rows
// of B are not contiguous, it packs panels of B in the memory of l.
func (d *direct[T]) block(at part, k0, kc int, a, b, c *operand[T], accumulate bool, l *local[T, T]) {
	vector, how := d.vector, 0
	if accumulate {
		how = 1
	}
	for j := 0; j < at.n; {
		w, kernels := min(2*vector, at.n-j), d.two
		switch {
		case 2*w <= vector && d.half != nil:
			kernels = d.half
		case w <= vector:
			kernels = d.one
		case (at.m == 1 || d.outer && kc == 1) && b.cs == 1 && at.n-j >= d.rowVectors*vector:
			w = d.rowVectors * vector
		}
		from, ldb := b.data[at.b+k0*b.rs+j*b.cs:], b.rs
		if b.cs != 1 {
			d.kern.pack(l.panel, d.kern.width, from, b.cs, b.rs, w, kc)
			from, ldb = l.panel, d.kern.width
		}
		groups := ceil(at.m, len(kernels)-1)
		if w > 2*vector {
			groups = at.m
		}
		h, longer := at.m/groups, at.m%groups // rows in a group; number of groups with one row more
		for i, x := 0, 0; x < groups; x++ {
			n := h
			if x < longer {
				n++
			}
			f := d.row
			if w <= 2*vector {
				f = kernels[n]
			}
			f(kc, &a.data[at.a+i*a.rs+k0*a.cs], a.rs, a.cs, &from[0], ldb, &c.data[at.c+i*c.rs+j], c.rs, w, how)
			i += n
		}
		j += w
	}
}
