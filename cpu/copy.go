package cpu

import (
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// copyTask copies elements between views of one shape. A run is the elements along one dimension.
// Runs are divided into pieces, which are distributed among the workers. Strides are in bytes.
type copyTask struct {
	to, from      unsafe.Pointer
	size          int
	rank          int // number of dimensions, not counting the dimension of the runs
	dims          [shape.MaxRank]int
	do, di        [shape.MaxRank]int
	n             int // number of elements in a run
	stepO         int // strides in bytes along a run
	stepI         int
	piece, pieces int // number of elements in a piece of a run, and number of pieces in a run
}

const (
	// greatest number of elements in a piece, and least number of elements for a further worker
	copyPiece = 1 << 13
	copyRun   = 8 // runs are along a dimension of at least this size, if there is one
)

var copyTasks = sync.Pool{New: func() any { return new(copyTask) }}

// copied runs a map that only copies elements, without a cast. It returns false if the result
// overlaps the operand, and for a transposition, which has a better implementation.
func (d *Device) copied(o *device.Map) bool {
	p := o.Program
	if len(p.Code) != 1 || p.Code[0].Op != expr.OpX || len(o.Outs) != 1 || len(o.Ins) != 1 || p.In[0] != p.Out[0] || o.Outs[0].Size() == 0 {
		return false
	}
	t := copyTasks.Get().(*copyTask)
	defer func() {
		t.to, t.from = nil, nil // the pool of tasks must not keep the memory of tensors alive
		copyTasks.Put(t)
	}()
	if !t.arrange(&o.Outs[0], &o.Ins[0]) {
		return false
	}
	units := t.pieces
	for _, n := range t.dims[:t.rank] {
		units *= n
	}
	d.workers.parallel(units, max(1, copyPiece/min(t.n, t.piece), units/(4*d.workers.size())), t)
	return true
}

// arrange chooses the order in which elements are copied. It returns false if the views may
// overlap, or if the copy is a transposition.
func (t *copyTask) arrange(out, in *device.View) bool {
	var space [shape.MaxRank]int
	*t = copyTask{to: pointer(out), from: pointer(in), size: out.Type.Size()}
	for _, k := range byStride(space[:], out) {
		n, do, di := out.Shape.At(k), out.Strides.At(k)*t.size, in.Strides.At(k)*t.size
		if n == 1 {
			continue
		}
		if l := t.rank - 1; l >= 0 && t.do[l] == n*do && t.di[l] == n*di { // merge with dimension l
			t.dims[l], t.do[l], t.di[l] = t.dims[l]*n, do, di
			continue
		}
		t.dims[t.rank], t.do[t.rank], t.di[t.rank] = n, do, di
		t.rank++
	}
	if t.rank == 0 {
		t.dims[0], t.do[0], t.di[0], t.rank = 1, t.size, t.size, 1
	}
	if t.overlaps() || t.transposed() {
		return false
	}
	// choose the innermost dimension that is long enough for runs
	run := t.rank - 1
	for k := t.rank - 1; k >= 0 && t.dims[run] < copyRun; k-- {
		if t.dims[k] >= copyRun {
			run = k
		}
	}
	t.n, t.stepO, t.stepI = t.dims[run], t.do[run], t.di[run]
	t.rank--
	copy(t.dims[run:t.rank], t.dims[run+1:])
	copy(t.do[run:t.rank], t.do[run+1:])
	copy(t.di[run:t.rank], t.di[run+1:])
	t.piece = min(t.n, copyPiece)
	t.pieces = (t.n-1)/t.piece + 1
	return true
}

// overlaps reports whether the result and the operand may have memory in common.
func (t *copyTask) overlaps() bool {
	extent := func(base unsafe.Pointer, strides *[shape.MaxRank]int) (lo, hi uintptr) {
		lo = uintptr(base)
		hi = lo + uintptr(t.size)
		for k, n := range t.dims[:t.rank] {
			if d := (n - 1) * strides[k]; d < 0 {
				lo -= uintptr(-d)
			} else {
				hi += uintptr(d)
			}
		}
		return lo, hi
	}
	lo, hi := extent(t.to, &t.do)
	l, h := extent(t.from, &t.di)
	return lo < h && l < hi
}

// transposed reports whether the copy is a transposition: elements that are neighbours in the
// operand are not neighbours in the result. It returns false if there are too few elements for
// tiles.
func (t *copyTask) transposed() bool {
	last := t.rank - 1
	if t.dims[last] < 8 || t.di[last] == t.size || t.di[last] == 0 {
		return false
	}
	for k, n := range t.dims[:last] {
		if n >= 8 && t.di[k] == t.size {
			return true
		}
	}
	return false
}

// run copies the pieces with numbers lo to hi-1.
func (t *copyTask) run(lo, hi int) {
	var w walk
	for k := range t.rank {
		w.dim(t.dims[k], [3]int{t.do[k], t.di[k]})
	}
	w.seek(lo / t.pieces)
	part := lo % t.pieces
	if t.pieces == 1 && t.stepO == t.size {
		if loop, words := rowsLoop(t.n, t.size, t.stepI); loop != nil {
			t.runLoop(loop, words, &w, hi-lo)
			return
		}
	}
	for range hi - lo {
		at := part * t.piece
		copyElements(unsafe.Add(t.to, w.at[0]+at*t.stepO), unsafe.Add(t.from, w.at[1]+at*t.stepI), t.size, t.stepO, t.stepI, min(t.piece, t.n-at))
		if part++; part == t.pieces {
			part = 0
			w.next()
		}
	}
}

// runLoop copies n runs from the current position of w on. A run consists of the given number of
// words. Each call of the machine code copies all runs along the next outer dimension.
func (t *copyTask) runLoop(loop *jit.Code, words int, w *walk, n int) {
	var arena stepArena
	for n > 0 {
		rows, strides := 1, [2]int{}
		if last := w.rank - 1; last >= 0 {
			rows = min(n, w.dims[last]-w.c[last], max(1, longestUnit/words))
			strides = [2]int{w.steps[last][1], w.steps[last][0]}
		}
		reg := [3]unsafe.Pointer{unsafe.Add(t.from, w.at[1]), unsafe.Add(t.to, w.at[0]), unsafe.Pointer(&arena)}
		loop.Run(reg[:], strides[:], words, rows)
		for range rows {
			w.next()
		}
		n -= rows
	}
}

// copyElements copies n elements. They are stepI bytes apart in src and stepO bytes apart in dst.
func copyElements(dst, src unsafe.Pointer, size, stepO, stepI, n int) {
	switch {
	case stepO == size || n == 1:
		gather(dst, src, size, stepI, n)
	case stepI == size:
		spread(dst, src, size, stepO, n)
	case size == 1:
		copyAs[uint8](dst, src, stepO, stepI, n)
	case size == 2:
		copyAs[uint16](dst, src, stepO, stepI, n)
	case size == 4:
		copyAs[uint32](dst, src, stepO, stepI, n)
	default:
		copyAs[uint64](dst, src, stepO, stepI, n)
	}
}

func copyAs[T uint8 | uint16 | uint32 | uint64](dst, src unsafe.Pointer, stepO, stepI, n int) {
	for i := range n {
		*(*T)(unsafe.Add(dst, i*stepO)) = *(*T)(unsafe.Add(src, i*stepI))
	}
}
