package gemm

import (
	"fmt"
	"sync"
	"unsafe"
)

// Int8 computes C = A·B for factors of int8 and sums of int32. A sum wraps if it leaves the range
// of int32, so the result is exact modulo 2³² and does not depend on the order of additions.
// Element (i, j) of A is a[i*ars+j*acs], and so on.
//
// The packed panels of B hold quads: four neighbours along k, for which one instruction multiplies
// and adds.
func Int8(par Parallel, m, n, k int, a []int8, ars, acs int, b []int8, brs, bcs int, c []int32, crs, ccs int) {
	if m < 0 || n < 0 || k < 0 {
		panic(fmt.Sprintf("gemm: negative size: m %d, n %d, k %d", m, n, k))
	}
	x, y, z := operand[int8]{a, ars, acs}, operand[int8]{b, brs, bcs}, operand[int32]{c, crs, ccs}
	x.check("A", m, k)
	y.check("B", k, n)
	z.check("C", m, n)
	// C is written row by row, and B is packed. So compute Cᵀ = Bᵀ·Aᵀ if C has contiguous columns
	// but not contiguous rows, or if B is a vector.
	if z.cs != 1 && z.rs == 1 || n == 1 && m > 1 {
		m, n, x, y, z = n, m, y.transposed(), x.transposed(), z.transposed()
	}
	if m == 0 || n == 0 {
		return
	}
	if m*n*k < int8Parallel {
		par = Serial
	}
	j := newInt8Job()
	j.m, j.n, j.k, j.a, j.b, j.c, j.kern = m, n, k, x, y, z, activeInt8(m, k)
	if j.few() {
		j.runFew(par)
	} else {
		j.run(par)
	}
	j.a, j.b, j.c = operand[int8]{}, operand[int8]{}, operand[int32]{}
	int8Jobs.Put(j)
}

const (
	int8Width = 32 // number of columns in a panel of B
	int8Step  = 64 // the length of the rows of A is rounded up to a multiple of this
	// greatest length of a block of k; a panel of B of this length stays in the first-level cache
	int8Block = 1024
	// number of rows of C in a task; a block of this many rows of A stays in the second-level cache
	int8Rows = 512
	int8Cols = 256 // number of columns of C in a task
	int8Task = 1 << 22
	// If the distance of A's rows is a multiple of this number of bytes, the rows use the same sets
	// of the first-level cache. They are then packed.
	crowdedInt8 = 2048
	int8Height  = 12 // greatest number of rows that a kernel computes at once
	// A product with fewer multiplications runs on the calling goroutine.
	int8Parallel = 1 << 20
)

// int8Kernel holds the functions for one set of instructions.
type int8Kernel struct {
	// flip is 0x80 if packed panels of B hold each element plus 128, as an unsigned number, and 0
	// otherwise. In the first case each sum begins with -128 times the sum of its row of A.
	flip byte
	// inPlace says that the kernel can read the rows of A in place if they are contiguous
	inPlace bool
	// pack packs the whole quads of w columns: all elements but the last k%4. It returns false for
	// a layout that it does not support, and may be nil.
	pack func(dst, src []int8, rs, cs, w, k int, flip byte) bool
	// multiply computes h rows and w columns of C over a block of k elements, and stores the sums
	// in C or adds them to it.
	multiply func(l *int8Local, h, w, k int, c []int32, cRow int, add bool)
	// sum returns the sum of the elements of x. Only kernels with flip have it.
	sum func(x []int8) int32
	// columns multiplies a row of A, followed by zeros, by four columns of k elements that begin cs
	// elements apart. Each sum begins with the argument begin. The function may be nil.
	columns func(a, b []int8, k, cs int, begin int32, out *[4]int32)
}

// int8Job is one product. Its method task is what the workers run.
type int8Job struct {
	m, n, k    int
	a, b       operand[int8]
	c          operand[int32]
	kern       *int8Kernel
	block      int // length of the blocks of k
	rows, cols int // number of rows and columns of C in a task
	tasksN     int
	taskFn     func(int)

	// for few rows of A: the packed rows, the distance between them, and the numbers with which
	// their sums begin
	rowsA  []int8
	aRow   int
	beginA [int8Few]int32
	fewFn  func(int)
}

// int8Local is the temporary memory of one task.
type int8Local struct {
	a      []int8 // block of A; row r begins at element r*aRow
	aRow   int
	packed []int8 // memory for a block of A that is packed
	// last elements of the rows followed by zeros, if A is read in place and its last step is
	// incomplete
	tail  []int8
	begin []int32 // numbers with which the sums of each row begin, if the kernel has flip
	panel []int8  // one block of a packed panel of B
	out   []int32 // sums of the task, if the rows of C are not contiguous
	few   [4 * int8Width]int32
	out4  [4]int32 // sums of four columns
	int8State
}

var int8Jobs, int8Locals sync.Pool

func newInt8Job() *int8Job {
	if j, ok := int8Jobs.Get().(*int8Job); ok {
		return j
	}
	j := &int8Job{}
	j.taskFn, j.fewFn = j.task, j.fewTask
	return j
}

func newInt8Local() *int8Local {
	if l, ok := int8Locals.Get().(*int8Local); ok {
		return l
	}
	return &int8Local{panel: aligned[int8](nil, int8Block*int8Width)}
}

// run divides the product into tasks and runs them.
func (j *int8Job) run(par Parallel) {
	j.block = int8Step
	if j.k > 0 {
		j.block = ceil(ceil(j.k, ceil(j.k, int8Block)), int8Step) * int8Step
	}
	j.rows, j.cols = min(int8Rows, j.m), min(int8Cols, ceil(j.n, int8Width)*int8Width)
	tasks := minTasks
	if j.readsRows() { // more tasks do not pack more, and the workers end at about the same time
		tasks *= 4
	}
	for ceil(j.m, j.rows)*ceil(j.n, j.cols) < tasks && j.rows*j.cols*j.k > int8Task {
		if j.cols > int8Width {
			j.cols = ceil(j.cols/2, int8Width) * int8Width
		} else if j.rows > int8Width {
			j.rows = ceil(j.rows/2, int8Width) * int8Width
		} else {
			break
		}
	}
	j.tasksN = ceil(j.n, j.cols)
	par(ceil(j.m, j.rows)*j.tasksN, j.taskFn)
}

// task computes some rows and columns of C.
func (j *int8Job) task(i int) {
	l := newInt8Local()
	defer int8Locals.Put(l)
	row, col := i/j.tasksN*j.rows, i%j.tasksN*j.cols
	h, w := min(j.rows, j.m-row), min(j.cols, j.n-col)
	c, cRow := j.c.data, j.c.rs
	if j.c.cs == 1 {
		c = c[row*j.c.rs+col:]
	} else {
		l.out = aligned(l.out, h*w)
		c, cRow = l.out, w
	}
	if j.k == 0 {
		for r := range h {
			clear(c[r*cRow:][:w])
		}
	}
	for k0 := 0; k0 < j.k; k0 += j.block {
		kc := min(j.block, j.k-k0)
		j.takeRows(l, row, h, k0, kc)
		for q := 0; q < w; q += int8Width {
			width := min(int8Width, w-q)
			j.packB(l.panel, j.b.data[k0*j.b.rs+(col+q)*j.b.cs:], width, kc)
			j.kern.multiply(l, h, width, kc, c[q:], cRow, k0 > 0)
		}
	}
	if j.c.cs != 1 {
		for r := range h {
			to := j.c.data[(row+r)*j.c.rs+col*j.c.cs:]
			for q, v := range c[r*w : (r+1)*w] {
				to[q*j.c.cs] = v
			}
		}
	}
	l.a = nil
}

// readsRows reports whether the layout of A lets VPDPBUSD read its rows in place. The method
// takeRows also checks their number and length.
func (j *int8Job) readsRows() bool {
	return j.kern.flip != 0 && j.a.cs == 1 && j.a.rs%crowdedInt8 != 0
}

// takeRows sets l.a to h rows of a block of A. It packs the rows, unless the kernel reads them in
// place. Zeros follow each packed row, up to a whole step. Rows of zeros follow the last row, up to
// a multiple of four rows.
func (j *int8Job) takeRows(l *int8Local, row, h, k0, kc int) {
	src := j.a.data[row*j.a.rs+k0*j.a.cs:]
	if j.kern.inPlace && j.a.cs == 1 {
		l.a, l.aRow = src, j.a.rs
		if n := kc % int8Step; n > 0 {
			l.tail = aligned(l.tail, h*int8Step)
			for r := range h {
				to := l.tail[r*int8Step:][:int8Step]
				copy(to[:n], src[r*j.a.rs+kc-n:])
				clear(to[n:])
			}
		}
		return
	}
	if j.readsRows() && h%4 == 0 && kc%4 == 0 {
		l.a, l.aRow = src, j.a.rs
		j.beginRows(l, h, kc)
		return
	}
	// One more step than necessary: otherwise all rows would use the same sets of the cache.
	l.aRow = (ceil(kc, int8Step) + 1) * int8Step
	l.packed = aligned(l.packed, ceil(h, 4)*4*l.aRow)
	l.a = l.packed
	for r := range h {
		to := l.a[r*l.aRow:][:l.aRow]
		if j.a.cs == 1 {
			copy(to[:kc], src[r*j.a.rs:])
		}
		clear(to[kc:])
	}
	if j.a.cs != 1 {
		const group = 32 // number of rows that are written together; they stay in the cache
		for r0 := 0; r0 < h; r0 += group {
			for p := range kc {
				for r := r0; r < min(r0+group, h); r++ {
					l.a[r*l.aRow+p] = src[r*j.a.rs+p*j.a.cs]
				}
			}
		}
	}
	clear(l.a[h*l.aRow:])
	if j.kern.flip != 0 {
		j.beginRows(l, h, kc)
	}
}

// beginRows sets the numbers with which the sums of h rows of kc elements begin.
func (j *int8Job) beginRows(l *int8Local, h, kc int) {
	l.begin = aligned(l.begin, h+int8Height)
	whole := kc - kc%int8Step
	for r := range h {
		row := l.a[r*l.aRow:][:kc]
		var s int32
		if whole > 0 {
			s = j.kern.sum(row[:whole])
		}
		for _, x := range row[whole:] {
			s += int32(x)
		}
		l.begin[r] = -128 * s
	}
}

// packB packs a block of w columns of B as quads. dst[(p/4*32+c)*4+p%4] is element (p, c). Zeros
// follow the last elements up to a whole quad.
func (j *int8Job) packB(dst, src []int8, w, k int) {
	from := 0
	if pack := j.kern.pack; pack != nil && k >= 4 && pack(dst, src, j.b.rs, j.b.cs, w, k, j.kern.flip) {
		from = k / 4
	}
	packQuads(dst, src, j.b.rs, j.b.cs, w, from, k, j.kern.flip)
}

// packQuads packs quads of B. The argument from is the number of the first quad that it packs.
func packQuads(dst, src []int8, rs, cs, w, from, k int, flip byte) {
	for p := from; p < ceil(k, 4); p++ {
		to := dst[p*4*int8Width:][:4*w]
		n := min(4, k-4*p)
		switch {
		case n == 4 && rs == 1:
			for c := range w {
				x := *(*uint32)(unsafe.Pointer(unsafe.SliceData(src[4*p+c*cs:][:4])))
				*(*uint32)(unsafe.Pointer(&to[4*c])) = x ^ uint32(flip)*0x01010101
			}
		default:
			clear(to)
			for i := range n {
				line := src[(4*p+i)*rs:]
				for c := range w {
					to[4*c+i] = int8(byte(line[c*cs]) ^ flip)
				}
			}
		}
	}
}

var genericInt8 = int8Kernel{multiply: multiplyInt8}

// multiplyInt8 is the kernel in plain Go.
func multiplyInt8(l *int8Local, h, w, k int, c []int32, cRow int, add bool) {
	for r := range h {
		row, to := l.a[r*l.aRow:][:ceil(k, 4)*4], c[r*cRow:][:w]
		for q := range to {
			s := int32(0)
			b := l.panel[4*q:]
			for p := 0; p+4 <= len(row); p += 4 {
				x, y := row[p:p+4:p+4], b[p*int8Width:][:4:4]
				s += int32(x[0])*int32(y[0]) + int32(x[1])*int32(y[1]) + int32(x[2])*int32(y[2]) + int32(x[3])*int32(y[3])
			}
			if add {
				s += to[q]
			}
			to[q] = s
		}
	}
}
