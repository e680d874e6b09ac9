package gemm

import (
	"runtime"
	"sync"
	"unsafe"
)

// groupLimit limits m, n and k of a group: the part of a product whose factors are packed at once.
// If panels hold pairs, it limits the number of pairs along k. In float32 and bfloat16, the part of
// B in a group has at most 16 MiB. The part of A has about as much, and with AVX-512 twice as much.
const groupLimit = 2048

// rowLimit limits m of a group. With AVX-512 a group has more rows, so fewer groups pack the same
// part of B.
func (kern *kernel[E, T]) rowLimit() int {
	if kern.vector == 64 {
		return 2 * groupLimit
	}
	return groupLimit
}

// job is one product in the blocked algorithm, with its buffers of packed panels. Its methods pack
// and tile are what the workers run.
type job[E factor, T float] struct {
	kern    *kernel[E, T]
	m, n, k int
	workers int // number of goroutines that may run tasks at the same time
	a, b    operand[E]
	result[T]

	// if true, the sums of the group's first block of k are added to the target, and not stored
	add            bool
	block          int
	m0, n0, k0     int // first indices of the current group
	mg, ng, kg     int
	panelsA        int // number of panels of A in the group
	panelsB        int
	perPackA       int // number of panels of A in a packing task
	perPackB       int
	packTasksB     int
	tileA, tileB   int  // greatest number of panels of A and of B in an area; stripes do not use tileA
	tilesA, tilesB int  // number of tasks along A and along B
	inPlace        bool // B is read in place; only its last panel, if narrower, is packed
	// If byRows is true, each tile task packs the panels of A that it uses. B is read in place if
	// its rows are contiguous. No task then reads memory that another has written.
	byRows bool
	// If fused is true, each tile task packs the blocks of B that it uses. This is for few rows:
	// only one task then uses each block, so no block is packed twice.
	fused bool
	// If stripes is true, the tile tasks are the stripes in list. Most of them compute all columns
	// of some panels of A. A stripe reads all of B for them. This pays only if most stripes have
	// several panels, so A must have many.
	stripes      bool
	list         []stripe
	backs        []stripe      // temporary memory of divide
	packerB      *kernel[E, T] // the kernel that packs panels of B
	bufA, bufB   []E
	heldA, heldB *held // the memory of bufA and bufB, if it is large
	// memory of the group's sums; startTile says when a task uses memory of its own
	to target[T]
	// memory of the sums, if results are rounded and there are several groups of k
	sums           []T
	packFn, tileFn func(int) // the tasks as functions, created once
	dotsFn         func(int)
}

type pool[E factor, T float] struct {
	jobs, locals sync.Pool
}

var (
	poolF32  pool[float32, float32]
	poolF64  pool[float64, float64]
	poolBF16 pool[uint16, float32]
)

func (p *pool[E, T]) get() *job[E, T] {
	if j, ok := p.jobs.Get().(*job[E, T]); ok {
		return j
	}
	j := &job[E, T]{}
	j.packFn, j.tileFn, j.dotsFn = j.pack, func(i int) { j.tile(p, i) }, func(i int) { j.dotTask(p, i) }
	return j
}

func (p *pool[E, T]) local() *local[E, T] {
	if l, ok := p.locals.Get().(*local[E, T]); ok {
		return l
	}
	return &local[E, T]{}
}

func (p *pool[E, T]) put(j *job[E, T]) {
	j.a, j.b, j.result, j.to = operand[E]{}, operand[E]{}, result[T]{}, target[T]{}
	p.jobs.Put(j)
}

// aligned returns n elements whose address is a multiple of 64 bytes. It uses buf if that is large
// enough.
func aligned[E any](buf []E, n int) []E {
	if cap(buf) >= n {
		return buf[:n]
	}
	size := int(unsafe.Sizeof(*new(E)))
	buf = make([]E, n+64/size)
	skip := int(-uintptr(unsafe.Pointer(&buf[0]))%64) / size
	return buf[skip : skip+n]
}

func ceil(a, b int) int { return (a + b - 1) / b }

// blockOf returns the length of the blocks of k. All blocks have about the same length. It depends
// only on k.
func (kern *kernel[E, T]) blockOf(k int) int {
	return min(k, (ceil(k, ceil(k, kern.block))+15)/16*16)
}

// packed computes a product with the blocked algorithm. It loops over groups of m, k and n. For
// each group it packs the panels of A and B in parallel, and then computes the tiles of C in
// parallel. Groups of n use the same packed panels of A, unless byRows is true or a rounded
// result needs several groups of k.
func packed[E factor, T float](par Parallel, pool *pool[E, T], kern *kernel[E, T], m, n, k int, a, b operand[E], c *result[T]) {
	j := pool.get()
	defer pool.put(j)
	j.kern, j.m, j.n, j.k, j.a, j.b, j.result = kern, m, n, k, a, b, *c
	j.workers = runtime.GOMAXPROCS(0) // it may change meanwhile, and groups share packed panels of A
	j.block = kern.blockOf(k)
	blocks := ceil(k, j.block)
	groupK := ceil(blocks, ceil(blocks, max(1, groupLimit/kern.steps(j.block)))) * j.block // about equal groups
	few := m <= kern.height
	j.byRows = !few && n*k <= placeLimit && (!kern.pairs || m*n*k >= pairsWork)
	j.inPlace = b.cs == 1 && (few || j.byRows) && !kern.pairs
	j.fused = !j.inPlace && !j.byRows && m <= tilePanelsA*kern.height
	for m0 := 0; m0 < m; m0 += kern.rowLimit() {
		j.m0, j.mg = m0, min(kern.rowLimit(), m-m0)
		if j.rounds && groupK < k {
			// the sums of all groups of k are in j.sums until they are rounded
			for n0 := 0; n0 < n; n0 += groupLimit {
				j.n0, j.ng = n0, min(groupLimit, n-n0)
				j.sums = aligned(j.sums, j.mg*j.ng)
				j.to = target[T]{operand[T]{j.sums, j.ng, 1}, 0, 0}
				for k0 := 0; k0 < k; k0 += groupK {
					j.run(par, k0, groupK, true)
				}
			}
			continue
		}
		for k0 := 0; k0 < k; k0 += groupK {
			for n0 := 0; n0 < n; n0 += groupLimit {
				j.n0, j.ng = n0, min(groupLimit, n-n0)
				j.to = target[T]{j.c, -m0, -n0}
				j.run(par, k0, groupK, n0 == 0)
			}
		}
	}
}

const (
	packWork = 1 << 14 // number of elements that a packing task packs
	// Largest number of panels of A, and of B, in an area of a tile task. One block of k of all
	// these panels stays in the second-level cache. With AVX-512 such an area has 168×256 elements.
	tilePanelsA, tilePanelsB = 12, 8
	// number of tile tasks that a product should have, if the tiles stay large enough
	minTasks = 8
	tileWork = 1 << 19 // least number of multiplications in a tile task
	// A matrix B of up to this number of elements stays in the second-level cache. A task may then
	// use all of it for each panel of A.
	placeLimit = 1 << 16
	// A stripe gets the panels that are left, divided by perWorker times the number of workers. The
	// first stripe must get at least leastStripe panels.
	perWorker, leastStripe = 3, 4
	rowsWork               = 1 << 18 // number of multiplications that a task of rows should have
	pairsWork              = 1 << 22 // least number of multiplications for tasks of rows, if panels hold pairs
	// The panels of pairs in a task are packed together if A has at most togetherRows rows, and B
	// is large with contiguous rows. A task packs packRows elements of k at a time. It thus reads a
	// long part of each row of B, which the processor prefetches. Panels of float32 gain nothing.
	// packRows is a multiple of the step of tiles.
	togetherRows, packRows = 32, 32
)

// streamBytes is the least total size of the packed panels of B for which streaming stores are
// used. Panels with a smaller total size stay in the second-level caches.
var streamBytes = 2 << 20

// run packs and multiplies the current group of m and n, for up to kg elements of k from k0 on. If
// packsA is false, A is already packed.
func (j *job[E, T]) run(par Parallel, k0, kg int, packsA bool) {
	kern := j.kern
	j.k0, j.kg = k0, min(kg, j.k-k0)
	j.add = j.accumulate || k0 > 0
	j.panelsA, j.panelsB = ceil(j.mg, kern.height), ceil(j.ng, kern.width)
	j.stripes = !j.byRows && !j.fused && enoughForStripes(j.panelsA, j.workers)
	j.packerB = kern
	if streams && j.stripes && kern.streaming != nil && j.panelsB*kern.width*j.kg*int(unsafe.Sizeof(*new(E))) >= streamBytes {
		j.packerB = kern.streaming
	}
	if !j.stripes {
		j.bufA = j.large(&j.heldA, j.bufA, j.panelsA*kern.even(j.kg)*kern.stride)
	}
	switch {
	case j.inPlace:
		j.bufB = j.large(&j.heldB, j.bufB, j.kg*kern.width)
	case !j.fused:
		j.bufB = j.large(&j.heldB, j.bufB, j.panelsB*kern.even(j.kg)*kern.width)
	}
	j.perPackA = max(1, packWork/(j.kg*kern.stride))
	j.perPackB = max(1, packWork/(j.kg*kern.width))
	j.packTasksB = 0
	if !j.fused {
		j.packTasksB = ceil(j.panelsB, j.perPackB)
		if j.inPlace {
			j.packTasksB = min(1, j.ng%kern.width)
		}
	}
	if j.byRows {
		if !j.inPlace {
			par(j.packTasksB, j.packFn)
		}
		j.tileA, j.tileB = max(1, rowsWork/(kern.height*j.ng*j.kg), j.panelsA/16), j.panelsB
		j.tilesA, j.tilesB = ceil(j.panelsA, j.tileA), 1
		par(j.tilesA, j.tileFn)
		return
	}
	packTasks := j.packTasksB
	if packsA && !j.stripes {
		packTasks += ceil(j.panelsA, j.perPackA)
	}
	par(packTasks, j.packFn)

	j.tileA, j.tileB = min(tilePanelsA, j.panelsA), min(tilePanelsB, j.panelsB)
	if j.stripes {
		j.tileB = ceil(j.panelsB, ceil(j.panelsB, tilePanelsB)) // about equal
		j.divide()
		par(len(j.list), j.tileFn)
		return
	}
	for ceil(j.panelsA, j.tileA)*ceil(j.panelsB, j.tileB) < minTasks && (j.tileA > 1 || j.tileB > 1) &&
		j.tileA*kern.height*j.tileB*kern.width*j.kg > tileWork {
		if j.fused && j.tileB == 1 {
			break
		}
		if !j.fused && (j.tileA*kern.height > j.tileB*kern.width && j.tileA > 1 || j.tileB == 1) {
			j.tileA = ceil(j.tileA, 2)
		} else {
			j.tileB = ceil(j.tileB, 2)
		}
	}
	j.tilesA, j.tilesB = ceil(j.panelsA, j.tileA), ceil(j.panelsB, j.tileB)
	par(j.tilesA*j.tilesB, j.tileFn)
}

// rowsOf returns the number of the first row of panel i of A within the group, and how many rows
// the panel has. Panels differ by at most one row.
func (j *job[E, T]) rowsOf(i int) (row, h int) {
	h, longer := j.mg/j.panelsA, j.mg%j.panelsA
	if i < longer {
		return i * (h + 1), h + 1
	}
	return i*h + longer, h
}

// blockA and blockB return the packed block of panel p for k from k0 to k0+kc. The blocks of all
// panels for the same k follow one another in memory. If instead each panel were contiguous, the
// distance between these blocks would often be a power of two, and they would use the same sets of
// the cache.
func (j *job[E, T]) blockA(p, k0, kc int) []E {
	return j.bufA[(j.panelsA*k0+p*j.kern.even(kc))*j.kern.stride:]
}

func (j *job[E, T]) blockB(p, k0, kc int) []E {
	if j.inPlace { // the buffer holds only the last panel
		return j.bufB[k0*j.kern.width:]
	}
	return j.bufB[(j.panelsB*k0+p*j.kern.even(kc))*j.kern.width:]
}

// pack runs packing task i. The first tasks pack panels of B, and the later tasks pack panels of A.
func (j *job[E, T]) pack(i int) {
	if i < j.packTasksB {
		first, last := i*j.perPackB, min((i+1)*j.perPackB, j.panelsB)
		if j.inPlace {
			first, last = j.panelsB-1, j.panelsB
		}
		for p := first; p < last; p++ {
			for k0 := 0; k0 < j.kg; k0 += j.block {
				kc := min(j.block, j.kg-k0)
				j.packB(j.blockB(p, k0, kc), p, k0, kc)
			}
		}
		return
	}
	i -= j.packTasksB
	for p := i * j.perPackA; p < min((i+1)*j.perPackA, j.panelsA); p++ {
		for k0 := 0; k0 < j.kg; k0 += j.block {
			kc := min(j.block, j.kg-k0)
			j.packA(j.blockA(p, k0, kc), p, k0, kc)
		}
	}
}

// packA packs one block of panel p of A to dst.
func (j *job[E, T]) packA(dst []E, p, k0, kc int) {
	row, h := j.rowsOf(p)
	src := j.a.data[(j.m0+row)*j.a.rs+(j.k0+k0)*j.a.cs:]
	j.kern.pack(dst, j.kern.stride, src, j.a.rs, j.a.cs, h, kc)
}

// packB packs one block of one panel of B.
func (j *job[E, T]) packB(dst []E, p, k0, kc int) {
	width := j.kern.width
	col := p * width
	src := j.b.data[(j.k0+k0)*j.b.rs+(j.n0+col)*j.b.cs:]
	j.packerB.pack(dst, width, src, j.b.cs, j.b.rs, min(width, j.ng-col), kc)
}

// local is the temporary memory of one tile task.
type local[E factor, T float] struct {
	tile   [512]T // a tile of C that the kernel cannot store to C directly
	stripe []E    // one block of the stripe's panels of A
	panel  []E    // one block of one panel of B
	sums   []T    // sums of the task, if results are rounded and there is only one group of k
}

// tile runs multiplication task i: it multiplies some panels of A with some panels of B, over all
// blocks of k in order.
func (j *job[E, T]) tile(pool *pool[E, T], i int) {
	l := pool.local()
	defer pool.locals.Put(l)
	kern, at := j.kern, j.area(i)
	// the last panel of B cannot be read in place
	narrow := j.byRows && j.inPlace && j.ng%kern.width != 0
	apart, together := kern.even(j.block)*kern.width, j.fused && kern.pairs && j.b.cs == 1 && j.m <= togetherRows && j.n*j.k >= largeFactor
	switch {
	case together:
		l.panel = aligned(l.panel, (at.b1-at.b0)*apart)
	case j.fused || narrow:
		l.panel = aligned(l.panel, apart)
	}
	whole := at
	whole.b1 = at.bTo
	to := j.startTile(l, whole)
	for ; at.kc > 0; at = j.following(at) {
		switch {
		case j.fused:
			j.multiplyFused(l, &to, at, together)
		case j.byRows || j.inPlace:
			j.multiplyRows(l, &to, at, narrow)
		default:
			j.multiplyAhead(l, &to, at)
		}
	}
	j.finishTile(&to, whole)
}

// startTile returns the memory for the sums of a task. It is the task's own memory if the sums are
// rounded and there is only one group of k. If each sum begins with a value, startTile puts it
// there.
func (j *job[E, T]) startTile(l *local[E, T], at area) target[T] {
	to := j.to
	r0, r1, c0, c1 := j.extent(at)
	if j.rounds && j.kg == j.k {
		l.sums = aligned(l.sums, (r1-r0)*(c1-c0))
		to = target[T]{operand[T]{l.sums, c1 - c0, 1}, r0, c0}
	}
	if j.rounds && j.accumulate && j.k0 == 0 {
		j.begin(&to, j.m0, j.n0, r0, r1, c0, c1)
	}
	return to
}

// finishTile rounds the sums of a task and stores them, if the result is rounded and this is the
// last group of k.
func (j *job[E, T]) finishTile(to *target[T], at area) {
	if j.rounds && j.k0+j.kg == j.k {
		r0, r1, c0, c1 := j.extent(at)
		j.end(to, j.m0, j.n0, r0, r1, c0, c1)
	}
}

// extent returns the rows r0 to r1-1 and the columns c0 to c1-1 of a task, within the group.
func (j *job[E, T]) extent(at area) (r0, r1, c0, c1 int) {
	r0, _ = j.rowsOf(at.a0)
	r1, h := j.rowsOf(at.a1 - 1)
	return r0, r1 + h, at.b0 * j.kern.width, min(at.b1*j.kern.width, j.ng)
}

// multiplyFused packs each panel of B of a block, and multiplies all panels of A with it while the
// panel of B is in the cache. If together is true, multiplyFused packs all panels of B first, and
// l.panel has room for them.
func (j *job[E, T]) multiplyFused(l *local[E, T], to *target[T], at area, together bool) {
	width, apart := j.kern.width, 0
	if together {
		apart = j.kern.even(j.block) * width
		for p := 0; p < at.kc; p += packRows {
			for pb := at.b0; pb < at.b1; pb++ {
				j.packB(l.panel[(pb-at.b0)*apart+p*width:], pb, at.k0+p, min(packRows, at.kc-p))
			}
		}
	}
	for pb := at.b0; pb < at.b1; pb++ {
		panel := l.panel[(pb-at.b0)*apart:]
		if !together {
			j.packB(panel, pb, at.k0, at.kc)
		}
		for pa := at.a0; pa < at.a1; pa++ {
			a := j.panelA(pa, at.k0, at.kc)
			j.multiply(l, to, a, pb, at.k0, at.kc, &panel[0], width, a.data)
		}
	}
}

// multiplyRows multiplies the panels of one block. If j.byRows is true, it packs A. If j.inPlace is
// true, it reads B in place. If narrow is true, it packs the last panel of B, which cannot be read
// in place.
func (j *job[E, T]) multiplyRows(l *local[E, T], to *target[T], at area, narrow bool) {
	kern := j.kern
	if narrow {
		j.packB(l.panel, j.panelsB-1, at.k0, at.kc)
	}
	for pa := at.a0; pa < at.a1; pa++ {
		if j.byRows {
			j.packA(j.blockA(pa, at.k0, at.kc), pa, at.k0, at.kc)
		}
		a := j.panelA(pa, at.k0, at.kc)
		for pb := at.b0; pb < at.b1; pb++ {
			var b *E
			ldb := kern.width
			switch col := pb * kern.width; {
			case j.inPlace && col+kern.width <= j.ng:
				b, ldb = &j.b.data[(j.k0+at.k0)*j.b.rs+j.n0+col], j.b.rs
			case narrow:
				b = &l.panel[0]
			default:
				b = &j.blockB(pb, at.k0, at.kc)[0]
			}
			j.multiply(l, to, a, pb, at.k0, at.kc, b, ldb, a.data)
		}
	}
}

// panelA is one block of a packed panel of A.
type panelA[E factor] struct {
	data      *E
	row, rows int // first row within the group, and number of rows
}

func (j *job[E, T]) panelA(p, k0, kc int) panelA[E] {
	row, h := j.rowsOf(p)
	return panelA[E]{&j.blockA(p, k0, kc)[0], row, h}
}

// multiply computes one tile of C over one block of k, from a panel of A and panel pb of B. The
// pointer b is the address of the packed block of panel pb, whose rows are ldb elements apart. The
// kernel may prefetch a share of a panel from next on.
func (j *job[E, T]) multiply(l *local[E, T], to *target[T], a panelA[E], pb, k0, kc int, b *E, ldb int, next *E) {
	kern := j.kern
	col := pb * kern.width
	w := min(kern.width, j.ng-col)
	at := to.at(a.row, col)
	add := j.add || k0 > 0
	if to.cs == 1 && (kern.masked || w == kern.width) {
		how := 0
		if add {
			how = 1
		}
		kern.micro[a.rows](kern.steps(kc), a.data, b, ldb, &to.data[at], to.rs, w, how, next)
		return
	}
	kern.micro[a.rows](kern.steps(kc), a.data, b, ldb, &l.tile[0], kern.width, kern.width, 0, next)
	for r := range a.rows {
		for q, s := range l.tile[r*kern.width : r*kern.width+w] {
			put(to.data, at+r*to.rs+q*to.cs, s, add)
		}
	}
}

func put[T float](c []T, at int, s T, accumulate bool) {
	if accumulate {
		s += c[at]
	}
	c[at] = s
}
