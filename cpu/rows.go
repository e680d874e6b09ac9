package cpu

import (
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// groupSize is the approximate number of elements in a group of rows. Fused row operations work on
// groups, because otherwise each short row would need a call of its own.
const groupSize = 8192

// sameBlock is the number of copies of one value that a worker holds. They are the second operand
// of a primitive whose first operand is a row.
const sameBlock = 256

// function is the plan of a function of one operand. Its arrays have the type in which the function
// computes, float32 or float64.
type function struct {
	pl      *plan
	in, out int32
	inPlace bool
}

type functionKey struct {
	name string
	t    dtype.Type
}

var functions sync.Map // maps functionKey to *function

// functionOf returns the function of package expr with the given name, for float32 or float64.
func functionOf(name string, t dtype.Type) *function {
	k := functionKey{name, t}
	if f, ok := functions.Load(k); ok {
		return f.(*function)
	}
	p := expr.MustLower([]*expr.Expr{expr.Call(name, expr.X(0))}, []dtype.Type{t}, []dtype.Type{t}, -1)
	pl := planFor(p, 0, rawOperands)
	f := &function{pl: pl, in: pl.loads[0].val, out: pl.outs[0].val, inPlace: pl.lastUse[0] <= pl.outs[0].def}
	functions.Store(k, f)
	return f
}

// apply computes dst[i] = f(src[i]) for n elements of the given size.
func (f *function) apply(r *runner, dst, src unsafe.Pointer, size, n int) {
	for i := 0; i < n; i += f.pl.block {
		m := min(f.pl.block, n-i)
		to := unsafe.Add(dst, i*size)
		r.reg[f.in] = unsafe.Add(src, i*size)
		if f.inPlace || dst != src {
			r.reg[f.out] = to
			exec(r.reg, f.pl.body, m)
			continue
		}
		r.reg[f.out] = unsafe.Add(r.base, f.pl.slot[f.out])
		exec(r.reg, f.pl.body, m)
		copy(at8(to, m*size), at8(r.reg[f.out], m*size))
	}
}

// release returns a runner to its pool. It first removes the pointers to operands from the runner.
func (f *function) release(r *runner) {
	r.reg[f.in] = unsafe.Add(r.base, f.pl.slot[f.in])
	r.reg[f.out] = unsafe.Add(r.base, f.pl.slot[f.out])
	f.pl.pool.Put(r)
}

// rowWorker holds a worker's functions and temporary memory for a fused row operation that computes
// in type t.
type rowWorker struct {
	t       dtype.Type
	size    int
	cols    int
	group   int // number of rows in a group
	log     *function
	rl      *runner
	binding binding           // connects a formula with its operands
	space   [3][]byte         // memory for the elements of a group
	rows    [4][]byte         // memory with one value for each row of a group
	runs    []byte            // one value for each run of columns with the same weight
	same    [sameBlock]uint64 // copies of one value
	stage   [maxBlock]uint64
}

var rowWorkers = sync.Pool{New: func() any { return new(rowWorker) }}

func newRowWorker(t dtype.Type, cols, group int) *rowWorker {
	w := rowWorkers.Get().(*rowWorker)
	w.t, w.size, w.cols = t, width(t), cols
	w.group = group
	w.log = functionOf("log", t)
	w.rl = w.log.pl.pool.Get().(*runner)
	for i := range w.space {
		w.space[i] = grown(w.space[i], w.group*cols*w.size)
	}
	for i := range w.rows {
		w.rows[i] = grown(w.rows[i], w.group*w.size)
	}
	return w
}

func (w *rowWorker) release() {
	w.log.release(w.rl)
	rowWorkers.Put(w)
}

// groupRows returns the number of rows of x in a group. If the elements of a column are
// contiguous, and rows are not longer than groupSize, the group has at least 16 rows. A column
// of float32 then fills a cache line.
func groupRows(x *device.View) int {
	cols := max(1, x.Shape.At(1))
	n := max(1, groupSize/cols)
	if turned(x) && cols <= groupSize {
		n = max(n, 16)
	}
	return n
}

// turned reports whether v is transposed: the elements of a column are contiguous and those of a
// row are not.
func turned(v *device.View) bool { return v.Strides.At(0) == 1 && v.Strides.At(1) > 1 }

// grown returns a slice of n bytes, aligned for every type. It uses the memory of b if that is
// large enough.
func grown(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	words := make([]uint64, (n+7)/8)
	return at8(unsafe.Pointer(&words[0]), n)
}

func data(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// load returns the address of rows lo to lo+n-1 of v in type w.t. If v does not hold them
// contiguously in type w.t, load converts or copies them to temporary memory number k.
func (w *rowWorker) load(v *device.View, lo, n, k int) unsafe.Pointer {
	size := v.Type.Size()
	src := unsafe.Add(pointer(v), lo*v.Strides.At(0)*size)
	dense := (v.Strides.At(1) == 1 || w.cols == 1) && (v.Strides.At(0) == w.cols || n == 1)
	if dense && v.Type == w.t {
		return src
	}
	dst := data(w.space[k])
	if v.Type == w.t && size == 4 && turned(v) {
		transposeWords(dst, src, 4*w.cols, v.Strides.At(1)*4, n, w.cols)
		return dst
	}
	for i := range n {
		for c := 0; c < w.cols; c += maxBlock {
			m := min(maxBlock, w.cols-c)
			from := unsafe.Add(src, (i*v.Strides.At(0)+c*v.Strides.At(1))*size)
			to := unsafe.Add(dst, (i*w.cols+c)*w.size)
			switch stride := v.Strides.At(1) * size; {
			case v.Type == w.t:
				gather(to, from, size, stride, m)
			case stride == size:
				loads[v.Type](to, from, nil, nil, m)
			default:
				gather(unsafe.Pointer(&w.stage), from, size, stride, m)
				loads[v.Type](to, unsafe.Pointer(&w.stage), nil, nil, m)
			}
		}
	}
	return dst
}

// target returns memory for the results in rows lo to lo+n-1 of v. This is the memory of v if its
// rows are contiguous and have type w.t. Otherwise it is temporary memory number k.
func (w *rowWorker) target(v *device.View, lo, n, k int) unsafe.Pointer {
	if v.Type == w.t && (v.Strides.At(1) == 1 || w.cols == 1) && (v.Strides.At(0) == w.cols || n == 1) {
		return unsafe.Add(pointer(v), lo*v.Strides.At(0)*w.size)
	}
	return data(w.space[k])
}

// store copies n rows from src to rows lo to lo+n-1 of v. It does nothing if src is the memory of
// v.
func (w *rowWorker) store(v *device.View, lo, n int, src unsafe.Pointer) {
	size := v.Type.Size()
	dst := unsafe.Add(pointer(v), lo*v.Strides.At(0)*size)
	if dst == src {
		return
	}
	if v.Type == w.t && size == 4 && turned(v) {
		turnWords(dst, src, v.Strides.At(1), n, w.cols)
		return
	}
	for i := range n {
		for c := 0; c < w.cols; c += maxBlock {
			m := min(maxBlock, w.cols-c)
			to := unsafe.Add(dst, (i*v.Strides.At(0)+c*v.Strides.At(1))*size)
			from := unsafe.Add(src, (i*w.cols+c)*w.size)
			switch stride := v.Strides.At(1) * size; {
			case v.Type == w.t:
				spread(to, from, size, stride, m)
			case stride == size:
				stores[v.Type](to, from, nil, nil, m)
			default:
				stores[v.Type](unsafe.Pointer(&w.stage), from, nil, nil, m)
				spread(to, unsafe.Pointer(&w.stage), size, stride, m)
			}
		}
	}
}

// run computes dst[c] = k(src[c], v) for n elements. v holds the bits of the second operand.
func (w *rowWorker) run(k kernel, dst, src unsafe.Pointer, v uint64, n int) {
	same := unsafe.Pointer(&w.same)
	if w.size == 4 {
		v |= v << 32
	}
	words := w.same[:(min(n, sameBlock)*w.size+7)/8]
	for j := range words[:min(8, len(words))] {
		words[j] = v
	}
	for j := 8; j < len(words); j *= 2 { // copy uses vector instructions
		copy(words[j:], words[:j])
	}
	for c := 0; c < n; c += sameBlock {
		o := c * w.size
		k(unsafe.Add(dst, o), unsafe.Add(src, o), same, same, min(sameBlock, n-c))
	}
}

// foldMatrix combines the elements of each of n rows of a matrix. It stores the results in dst.
func (w *rowWorker) foldMatrix(k device.ReduceKind, dst, src unsafe.Pointer, n int) {
	combine := combiner(k, w.t)
	for i := range n {
		to := unsafe.Add(dst, i*w.size)
		for c := 0; c < w.cols; c += maxBlock {
			v := fold(w.t, k, unsafe.Add(src, (i*w.cols+c)*w.size), min(maxBlock, w.cols-c))
			if c == 0 {
				writeBits(to, w.size, v)
				continue
			}
			writeBits(unsafe.Pointer(&w.stage), w.size, v)
			combine(to, to, unsafe.Pointer(&w.stage), unsafe.Pointer(&w.stage), 1)
		}
	}
}

func (w *rowWorker) row(k int) unsafe.Pointer { return data(w.rows[k]) }

// values returns memory for one value for each row, from row lo of v on. If the values of v are
// contiguous, it is the memory of v. Otherwise it is the worker's row number k, and the method
// storeValues copies the values to v.
func (w *rowWorker) values(v *device.View, lo, k int) unsafe.Pointer {
	if v.Strides.At(0) == 1 {
		return element(v, lo)
	}
	return w.row(k)
}

// loadValues returns the address of the n values in v from row lo on. If they are not contiguous,
// it copies them to the worker's row number k.
func (w *rowWorker) loadValues(v *device.View, lo, n, k int) unsafe.Pointer {
	p := w.values(v, lo, k)
	if from := element(v, lo); p != from {
		gather(p, from, w.size, v.Strides.At(0)*w.size, n)
	}
	return p
}

// storeValues copies n values to v from row lo on. It does nothing if src is the memory of v.
func (w *rowWorker) storeValues(v *device.View, lo, n int, src unsafe.Pointer) {
	if to := element(v, lo); to != src {
		spread(to, src, w.size, v.Strides.At(0)*w.size, n)
	}
}

// element returns the address of element i of a view of rank 1.
func element(v *device.View, i int) unsafe.Pointer {
	return unsafe.Add(pointer(v), i*v.Strides.At(0)*v.Type.Size())
}
