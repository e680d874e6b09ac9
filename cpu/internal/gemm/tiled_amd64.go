//go:build !noasm

package gemm

import (
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
)

// tileJob is one product that is computed with the tiles of AMX. Its methods pack and task are what
// the workers run.
//
// The tiles read A row by row, in steps of 32 elements along k. A is therefore read in place if its
// rows are contiguous. Otherwise it is copied to a buffer with contiguous rows. B is packed in
// pairs along k. Each task packs the panels of B that it uses.
type tileJob struct {
	m, n, k int
	a, b    operand[uint16]
	result[float32]

	turned     bool // A is the larger factor, and C has few columns: see [tiled]
	packsA     bool
	block      int // length of the blocks of k
	m0, mg     int // first row of the current group of rows, and their number
	k0, kg     int // start of the current group along k, and its length
	aPanel     int // distance between the panels of one block of the packed A
	aBlock     int // distance between the blocks of the packed A
	rows, cols int // number of rows and columns of C in a task
	tasksN     int
	bufA       []uint16
	// sums of a group of rows, if results are rounded and there are several groups of k
	sums []float32

	packFn, taskFn func(int)
}

// tileLocal is the temporary memory of one task.
type tileLocal struct {
	call  tileCall
	panel []uint16  // one block of a packed panel of B, or of all packed panels of the task
	pairs []uint16  // pairs of A before they are transposed
	tail  []uint16  // last elements of the rows of A, followed by zeros
	sums  []float32 // sums that are rounded at the end of the task
	turn  []float32 // the sums of a turned product, by the rows of its result
}

var tileJobs, tileLocals sync.Pool

func newTileJob() *tileJob {
	if j, ok := tileJobs.Get().(*tileJob); ok {
		return j
	}
	j := &tileJob{}
	j.packFn, j.taskFn = j.pack, j.task
	return j
}

func newTileLocal() *tileLocal {
	if l, ok := tileLocals.Get().(*tileLocal); ok {
		return l
	}
	return &tileLocal{panel: aligned[uint16](nil, tileBlock*tileSize), pairs: aligned[uint16](nil, tileStep*tileSize)}
}

const (
	tileSize = 32 // number of rows of C, and of columns, in a panel
	tileStep = 32 // number of elements along k in a step
	// greatest length of a block of k; a panel of B of this length stays in the first-level cache
	tileBlock = 512
	// Number of rows and of columns of C in a task. A block of tileRows rows of A stays in the
	// second-level cache.
	tileRows, tileCols = 256, 256
	tileGroupRows      = 2048 // number of rows of A that are packed at once
	tileGroupK         = 4096 // length along k that is packed at once
	tileTask           = 1 << 21
	// A product with fewer multiplications runs on the calling goroutine.
	tileParallel = 1 << 21
)

// tiled computes a product with the tiles of AMX.
func tiled(par Parallel, m, n, k int, a, b operand[uint16], c result[float32]) {
	if m*n*k < tileParallel {
		par = Serial
	}
	// Packing a large B takes longer than a product with few rows of A. If the columns of B are
	// contiguous, compute Cᵀ = Bᵀ·Aᵀ, which reads B in place. The bits are the same.
	_, cs := c.distances()
	turned := m <= turnedRows && n >= turnedRatio*m && n*k >= largeFactor && a.cs == 1 && b.rs == 1 && cs == 1
	if turned {
		m, n, a, b, c = n, m, b.transposed(), a.transposed(), c.transposed()
	}
	j := newTileJob()
	j.m, j.n, j.k, j.a, j.b, j.result, j.turned = m, n, k, a, b, c, turned
	j.packsA = a.cs != 1
	groupM, groupK := m, k
	if j.packsA {
		groupM, groupK = min(m, tileGroupRows), min(k, tileGroupK)
	}
	j.block = ceil(ceil(groupK, ceil(groupK, tileBlock)), tileStep) * tileStep
	for j.m0 = 0; j.m0 < m; j.m0 += groupM {
		j.mg = min(groupM, m-j.m0)
		if j.rounds && groupK < k {
			j.sums = aligned(j.sums, j.mg*j.n+tileSize)
		}
		for j.k0 = 0; j.k0 < k; j.k0 += groupK {
			j.kg = min(groupK, k-j.k0)
			j.run(par)
		}
	}
	j.a, j.b, j.result = operand[uint16]{}, operand[uint16]{}, result[float32]{}
	tileJobs.Put(j)
}

// run computes one group of rows and of k.
func (j *tileJob) run(par Parallel) {
	if j.packsA {
		j.aPanel = j.block * tileSize
		j.aBlock = ceil(j.mg, tileSize) * j.aPanel
		j.bufA = aligned(j.bufA, ceil(j.kg, j.block)*j.aBlock)
		par(ceil(j.kg, tileStep), j.packFn)
	}
	j.rows, j.cols = min(tileRows, ceil(j.mg, tileSize)*tileSize), min(tileCols, ceil(j.n, tileSize)*tileSize)
	for ceil(j.mg, j.rows)*ceil(j.n, j.cols) < minTasks && j.rows*j.cols*j.kg > tileTask {
		if j.cols > tileSize {
			j.cols = ceil(j.cols/2, tileSize) * tileSize
		} else if j.rows > tileSize {
			j.rows = ceil(j.rows/2, tileSize) * tileSize
		} else {
			break
		}
	}
	j.tasksN = ceil(j.n, j.cols)
	par(ceil(j.mg, j.rows)*j.tasksN, j.taskFn)
}

// pack packs step i of the rows of A. A step holds 32 elements of each row. Zeros follow the last
// elements.
func (j *tileJob) pack(i int) {
	l := newTileLocal()
	defer tileLocals.Put(l)
	k0 := i * tileStep
	kc := min(tileStep, j.kg-k0)
	src := j.a.data[j.m0*j.a.rs+(j.k0+k0)*j.a.cs:]
	dst := j.bufA[k0/j.block*j.aBlock+k0%j.block*tileSize:]
	if j.a.rs != 1 || kc < 2 {
		for r := range j.mg {
			to := dst[r/tileSize*j.aPanel+r%tileSize*tileStep:][:tileStep]
			for p := range kc {
				to[p] = src[r*j.a.rs+p*j.a.cs]
			}
			clear(to[kc:])
		}
		return
	}
	clear(l.pairs[kc/2*2*tileSize:])
	for row := 0; row < j.mg; row += tileSize {
		h := min(tileSize, j.mg-row)
		interleave32AVX512BF16(&l.pairs[0], &src[row], j.a.cs, h, kc/2)
		if kc%2 == 1 {
			for r, v := range src[row+(kc-1)*j.a.cs:][:h] {
				l.pairs[(kc-1)*tileSize+2*r] = v
			}
		}
		transpose16F32AVX512((*float32)(unsafe.Pointer(&dst[row/tileSize*j.aPanel])), tileStep/2, (*float32)(unsafe.Pointer(&l.pairs[0])), &pairRows, tileSize)
	}
}

// pairRows holds the offsets at which the rows of a panel of pairs begin.
var pairRows = func() (rows [16]int) {
	for p := range rows {
		rows[p] = p * tileSize
	}
	return rows
}()

// task computes some rows and columns of C.
func (j *tileJob) task(i int) {
	l := newTileLocal()
	defer tileLocals.Put(l)
	row, col := i/j.tasksN*j.rows, i%j.tasksN*j.cols
	h, w := min(j.rows, j.mg-row), min(j.cols, j.n-col)
	t := &l.call
	step := tileSize
	// The sums are computed in c, which is C itself, j.sums (shared by all tasks) or l.sums. The
	// variable begun says whether c already holds the values with which the sums begin.
	c, begun := operand[float32]{j.c.data, j.c.rs, 1}, false
	odd := j.rounds && (j.low.cs != 1 || j.accumulate && j.bias.cs != 1)
	cRow := w
	if j.turned {
		cRow = ceil(w, turnStep) * turnStep
	}
	switch {
	case !j.rounds && j.c.cs == 1:
		c.data = c.data[(j.m0+row)*c.rs+col:]
		begun = j.accumulate
	case !j.rounds:
		l.sums = aligned(l.sums, h*cRow+tileSize)
		c = operand[float32]{l.sums, cRow, 1}
		if begun = j.accumulate || j.k0 > 0; begun {
			for r := range h {
				for q := range w {
					c.data[r*cRow+q] = j.c.data[(j.m0+row+r)*j.c.rs+(col+q)*j.c.cs]
				}
			}
		}
	case j.kg < j.k:
		c = operand[float32]{j.sums[row*j.n+col:], j.n, 1}
	case odd || j.block < j.kg:
		l.sums = aligned(l.sums, h*cRow+tileSize)
		c = operand[float32]{l.sums, cRow, 1}
	default:
		l.sums = aligned(l.sums, tileSize*tileSize)
		c, step = operand[float32]{l.sums, tileSize, 1}, 0
	}
	to := target[float32]{c, row, col}
	if odd && j.accumulate && j.k0 == 0 {
		j.begin(&to, j.m0, 0, row, row+h, col, col+w)
		begun = true
	}
	whole := h - h%tileSize
	for k0 := 0; k0 < j.kg; k0 += j.block {
		kc := min(j.block, j.kg-k0)
		a, aRow := j.a.data[(j.m0+row)*j.a.rs:], j.a.rs
		t.aStep, t.aPanel = 2*tileStep, 2*tileSize*aRow
		if j.packsA {
			a, aRow = j.bufA[k0/j.block*j.aBlock+row/tileSize*j.aPanel:], tileStep
			t.steps, t.aStep, t.aPanel = ceil(kc, tileStep), 2*tileSize*tileStep, 2*j.aPanel
		} else {
			a = a[j.k0+k0:]
			t.steps = kc / tileStep
			l.tails(a, aRow, h, kc)
		}
		first, last := j.k0+k0 == 0, j.k0+k0+kc == j.k
		together := j.b.cs == 1 && w > tileSize && h <= togetherRows && j.n*j.k >= largeFactor
		if together {
			j.packTogether(l, k0, kc, col, w)
		}
		for q := 0; q < w; q += tileSize {
			width := min(tileSize, w-q)
			panel := l.panel
			if together {
				panel = panel[q*tileBlock:]
			} else {
				j.packB(panel, k0, kc, col+q, width)
			}
			for r := 0; r < h; {
				height, panels := tileSize, whole/tileSize
				if r == whole {
					height, panels = h-whole, 1
				}
				t.shape(height, width)
				t.panels = panels
				t.a, t.aRow, t.b = unsafe.Pointer(&a[r/tileSize*t.aPanel/2]), 2*aRow, unsafe.Pointer(&panel[0])
				t.tail = nil
				if !j.packsA && kc%tileStep > 0 {
					t.tail = unsafe.Pointer(&l.tail[r*tileStep])
				}
				at := q
				if step > 0 {
					at += r * c.rs
				} else {
					at = 0
				}
				t.c, t.cRow, t.cStep = unsafe.Pointer(&c.data[at]), 4*c.rs, 4*c.rs*step
				t.from, t.fromRow = nil, 0
				switch {
				case !first || begun:
					t.from, t.fromRow = t.c, t.cRow
				case j.accumulate:
					t.from = unsafe.Pointer(&j.bias.data[col+q])
				}
				t.low = nil
				if j.rounds && last && !odd {
					t.low, t.lowRow = unsafe.Pointer(&j.low.data[(j.m0+row+r)*j.low.rs+col+q]), 2*j.low.rs
				}
				t.aAt, t.tailAt, t.fromAt, t.cAt, t.lowAt = 0, 0, 0, 0, 0
				tilesBF16(t)
				r += height * panels
			}
		}
	}
	switch {
	case j.turned:
		j.turnBack(l, row, h, col, w, cRow)
	case odd && j.k0+j.kg == j.k:
		j.end(&to, j.m0, 0, row, row+h, col, col+w)
	case !j.rounds && j.c.cs != 1:
		for r := range h {
			for q := range w {
				j.c.data[(j.m0+row+r)*j.c.rs+(col+q)*j.c.cs] = c.data[r*w+q]
			}
		}
	}
	t.a, t.tail, t.b, t.from, t.c, t.low = nil, nil, nil, nil, nil, nil
}

// turnStep is the number of columns that turnBack transposes at a time.
const turnStep = 4

// turnBack stores the sums of a task if the job computes the transpose of the caller's C. A column
// of the job's C is a row of the caller's C, and is contiguous.
func (j *tileJob) turnBack(l *tileLocal, row, h, col, w, cRow int) {
	to := ceil(h, bf16.group) * bf16.group
	l.turn = aligned(l.turn, cRow*to)
	for r := 0; r < h; r += bf16.group {
		transpose16F32(&l.turn[r], to, &l.sums[r*cRow], cRow, min(bf16.group, h-r), cRow)
	}
	for q := range w {
		sums := l.turn[q*to:][:h]
		if j.rounds {
			asm.CvtF32ToBF16(j.low.data[row*j.low.rs+(col+q)*j.low.cs:][:h], sums)
		} else {
			copy(j.c.data[row*j.c.rs+(col+q)*j.c.cs:], sums)
		}
	}
}

// tails copies the last elements of h rows of a block of k, if they do not fill a whole step. Zeros
// follow the copied elements, up to a whole step.
func (l *tileLocal) tails(a []uint16, aRow, h, kc int) {
	n := kc % tileStep
	if n == 0 {
		return
	}
	l.tail = aligned(l.tail, ceil(h, tileSize)*tileSize*tileStep)
	for r := range h {
		to := l.tail[r*tileStep : (r+1)*tileStep]
		copy(to[:n], a[r*aRow+kc-n:])
		clear(to[n:])
	}
}

// packTogether packs a block of the panels of a task: see togetherRows.
func (j *tileJob) packTogether(l *tileLocal, k0, kc, col, w int) {
	l.panel = aligned(l.panel, ceil(w, tileSize)*tileBlock*tileSize)
	for p := 0; p < kc; p += packRows {
		for q := 0; q < w; q += tileSize {
			j.packB(l.panel[q*tileBlock+p*tileSize:], k0+p, min(packRows, kc-p), col+q, min(tileSize, w-q))
		}
	}
}

// packB packs a block of a panel of B. Zeros follow, up to a whole step.
func (j *tileJob) packB(dst []uint16, k0, kc, col, w int) {
	bf16.packPairs(dst, tileSize, j.b.data[(j.k0+k0)*j.b.rs+col*j.b.cs:], j.b.cs, j.b.rs, w, kc)
	clear(dst[ceil(kc, 2)*2*tileSize : ceil(kc, tileStep)*tileStep*tileSize])
}
