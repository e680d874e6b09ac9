package tensor

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"github.com/flambeau-go/flambeau/cpu/linalg"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// hostOps lists the ops that compute on the host. On every device they wait for the work queued
// so far. If the device is not the host, they copy their operands to the host and their results
// back. Most of their routines are those of package cpu/linalg.
var hostOps = []string{"cholesky", "det", "eigh", "inverse", "lstsq", "matrix_exp", "matrix_rank", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd"}

// HostOps returns the names of the ops that work on the host, as errors and graphs show them. On a
// GPU each of them copies its operands to the host and its results back, and so waits for the
// stream. All these ops are linear algebra. Methods that call these ops do the same: SVDVals,
// EigValsH, CholeskySolve, MatrixPower with a negative exponent, and MatrixNorm of order 2. No
// other op copies its operands to the host.
func HostOps() []string { return slices.Clone(hostOps) }

// hostNumbers holds memory for the operands of ops on the host. Allocating and collecting this
// memory would take longer than many of these ops.
var hostNumbers, hostNumbers32 = numberPool[float64](), numberPool[float32]()

func numberPool[T linalg.Float]() *sync.Pool { return &sync.Pool{New: func() any { return new([]T) }} }

// numbersOf returns the pool and the element type for T.
func numbersOf[T linalg.Float]() (*sync.Pool, dtype.Type) {
	if _, ok := any(T(0)).(float32); ok {
		return hostNumbers32, dtype.F32
	}
	return hostNumbers, dtype.F64
}

// onHost runs f on each matrix of a batch. Each operand and each result has the shape of the batch
// followed by the shape of a matrix, a vector or a scalar. All operands have the type T. f receives
// the elements in row-major order and may overwrite them. If f fails it returns a message,
// otherwise "". The results are not part of the graph and belong to s.
func onHost[T linalg.Float](op string, s *Scope, batch shape.Dims, in []*Tensor, out []shape.Dims, f func(in, out [][]T) string) []*Tensor {
	mustHostOp(op)
	s.uncapturable(op, "it is computed on the host")
	n := batch.Size()
	memory, typ := numbersOf[T]()
	from, to := make([][]T, len(in)), make([][]T, len(out))
	if n > 0 {
		for i, x := range in {
			p := memory.Get().(*[]T)
			defer memory.Put(p)
			*p = slices.Grow((*p)[:0], x.Size())[:x.Size()]
			x.readable(op, typ.Size())
			x.read(op, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(*p))), typ.Size()*x.Size()))
			from[i] = *p
		}
	}
	results, staged := stagedFor(op, s, in[0].st.dev, typ, out)
	for i, y := range staged {
		to[i] = numbersIn[T](y.st.buf.Host(), typ.Size())
		clear(to[i])
	}
	one, res := make([][]T, len(in)), make([][]T, len(out))
	part := func(v []T, b int) []T { k := len(v) / n; return v[b*k : (b+1)*k : (b+1)*k] }
	for b := range n {
		for i := range one {
			one[i] = part(from[i], b)
		}
		for i := range res {
			res[i] = part(to[i], b)
		}
		if wrong := guarded(f, one, res); wrong != "" {
			failBatch(op, batch, in, b, wrong)
		}
	}
	upload(op, in, results, staged)
	return results
}

// A routine computes results from the matrices of one element of a batch. It may divide its work
// among the goroutines of par. If it fails it returns a message, otherwise "". It must not change
// the operands. Results are row-major, and undefined at first.
type routine[T linalg.Float] func(par linalg.Parallel, in []linalg.Matrix[T], out [][]T) string

// onMatrices is onHost for routines that read their operands in place. narrow is the routine for
// float32, wide the one for float64. The elements of the batch are divided among the workers. The
// last two dimensions of an operand are those of its matrices, and the others are the batch.
func onMatrices(op string, s *Scope, batch shape.Dims, in []*Tensor, out []shape.Dims, narrow routine[float32], wide routine[float64]) []*Tensor {
	if in[0].dtype == dtype.F32 {
		return matricesOnHost(op, s, batch, in, out, narrow)
	}
	return matricesOnHost(op, s, batch, in, out, wide)
}

// groupElements is roughly the number of elements that a worker computes at a time. mostGroups is
// the greatest number of groups.
const groupElements, mostGroups = 1 << 10, 64

// mostMatrices is the greatest number of operands, or of results, of a routine.
const mostMatrices = 2

// batchWork is what the workers share while a routine runs on a batch.
type batchWork[T linalg.Float] struct {
	f       routine[T]
	n       int // size of the batch
	groups  int
	from    [mostMatrices][]T
	layouts [mostMatrices]*shape.Layout
	to      [mostMatrices][]T
	in, out int             // numbers of operands and results
	first   batchElement[T] // memory for the first group
	mu      sync.Mutex
	failed  int    // index of the first element for which f failed; n if there is none
	message string // what f returned for this element
}

// batchElement is an element of a batch.
type batchElement[T linalg.Float] struct {
	in  [mostMatrices]linalg.Matrix[T]
	out [mostMatrices][]T
}

// run runs the routine on the elements of group g.
func (w *batchWork[T]) run(g int) {
	e := &w.first
	if g > 0 {
		e = new(batchElement[T])
	}
	for b := g * w.n / w.groups; b < (g+1)*w.n/w.groups; b++ {
		for i := range w.in {
			e.in[i] = matrixOf(w.from[i], w.layouts[i], b)
		}
		for i := range w.out {
			k := len(w.to[i]) / w.n
			e.out[i] = w.to[i][b*k : (b+1)*k : (b+1)*k]
		}
		wrong := w.f.guarded(e.in[:w.in], e.out[:w.out])
		if wrong == "" {
			continue
		}
		w.mu.Lock()
		if b < w.failed {
			w.failed, w.message = b, wrong
		}
		w.mu.Unlock()
		return
	}
}

func matricesOnHost[T linalg.Float](op string, s *Scope, batch shape.Dims, in []*Tensor, out []shape.Dims, f routine[T]) []*Tensor {
	mustHostOp(op)
	s.uncapturable(op, "it is computed on the host")
	n := batch.Size()
	memory, typ := numbersOf[T]()
	w := &batchWork[T]{f: f, n: n, in: len(in), out: len(out), failed: n}
	size := 0
	for i, x := range in {
		w.layouts[i] = &x.layout
		size += x.Size()
		switch {
		case n == 0:
		case isHost(x.st.dev):
			x.readInPlace(op)
			w.from[i] = numbersIn[T](x.st.buf.Host(), typ.Size())
		default:
			p := memory.Get().(*[]T)
			defer memory.Put(p)
			*p = slices.Grow((*p)[:0], x.Size())[:x.Size()]
			x.readable(op, typ.Size())
			x.read(op, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(*p))), typ.Size()*x.Size()))
			dense := shape.Dense(x.layout.Shape)
			w.from[i], w.layouts[i] = *p, &dense
		}
	}
	results, staged := stagedFor(op, s, in[0].st.dev, typ, out)
	for i, y := range staged {
		w.to[i] = numbersIn[T](y.st.buf.Host(), typ.Size())
	}
	w.groups = min(n, mostGroups, size/groupElements+1)
	if w.groups == 1 {
		w.run(0)
	} else if w.groups > 1 {
		onWorkers(w.groups, w.run)
	}
	runtime.KeepAlive(in)
	if w.failed < n {
		failBatch(op, batch, in, w.failed, w.message)
	}
	upload(op, in, results, staged)
	return results
}

// matrixOf returns the matrix of element b of a batch with layout l. The matrix's elements are in
// the memory v.
func matrixOf[T linalg.Float](v []T, l *shape.Layout, b int) linalg.Matrix[T] {
	r := l.Shape.Rank()
	at := l.Offset
	for i := r - 3; i >= 0; i-- {
		k := l.Shape.At(i)
		at += b % k * l.Strides.At(i)
		b /= k
	}
	return linalg.Matrix[T]{Data: v[min(at, len(v)):], Row: l.Strides.At(r - 2), Column: l.Strides.At(r - 1)}
}

// readInPlace waits until the memory of x, which is on the host, can be read.
func (x *Tensor) readInPlace(op string) {
	x.use(op)
	if t := device.Tracing(); t != nil {
		defer t.End(tracedOp(t, device.SpanOp, op, nil, []*Tensor{x}))
	}
	from := x.scope.source(op, x.st.dev)
	x.st.read(op, from)
	check(op, from.stream.Synchronize(), x)
}

// stagedFor allocates the results of an op on dev. The tensors in staged have the same shapes and
// are in the host's memory. If dev is the host, they are the results themselves.
func stagedFor(op string, s *Scope, dev device.Device, typ dtype.Type, out []shape.Dims) (results, staged []*Tensor) {
	results = make([]*Tensor, len(out))
	for i, sh := range out {
		results[i] = alloc(op, s, dev, typ, sh)
	}
	if isHost(dev) {
		return results, results
	}
	staged = make([]*Tensor, len(out))
	for i, sh := range out {
		staged[i] = alloc(op, s, hostDevice(), typ, sh)
	}
	return results, staged
}

// upload copies the staged tensors to the results on the device, and then frees the staged tensors.
func upload(op string, in, results, staged []*Tensor) {
	for i, y := range results {
		if h := staged[i]; h != y {
			check(op, y.st.dev.Upload(y.st.home, y.st.buf, 0, h.st.buf.Host()), in...)
			h.Free()
		}
	}
}

func mustHostOp(op string) {
	if !slices.Contains(hostOps, op) {
		panic("tensor: " + op + " works on the host and is not in the list of such ops")
	}
}

// failBatch panics with an error of a routine for element b of the batch.
func failBatch(op string, batch shape.Dims, in []*Tensor, b int, wrong string) {
	if batch.Rank() > 0 {
		wrong = fmt.Sprintf("batch element %d: %s", b, wrong)
	}
	fail(op, ErrLinAlg, in, "%s", wrong)
}

// numbersIn returns the memory b as numbers of the given size.
func numbersIn[T linalg.Float](b []byte, size int) []T {
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/size)
}

// onWorkers calls f(0) … f(n-1) on the workers of the host's device.
func onWorkers(n int, f func(i int)) {
	hostDevice().(interface{ Parallel(n int, f func(i int)) }).Parallel(n, f)
}

// guarded runs f. If a routine panics on operands that it cannot handle, guarded returns the panic
// as a message.
func guarded[T any](f func(in, out [][]T) string, in, out [][]T) (wrong string) {
	defer gaveUp(&wrong)
	return f(in, out)
}

// guarded runs the routine. It returns a panic as a message, as the function guarded does.
func (f routine[T]) guarded(in []linalg.Matrix[T], out [][]T) (wrong string) {
	defer gaveUp(&wrong)
	return f(onWorkers, in, out)
}

// gaveUp is deferred. It sets wrong to the message of a panic.
func gaveUp(wrong *string) {
	if r := recover(); r != nil {
		*wrong = fmt.Sprintf("the routine gave up: %v", r)
	}
}

// inFloat64 converts the given operands to float64 and runs f on them, in a scope for intermediate
// tensors. It converts the results to the type of the first operand. An error of a routine names
// the operands as they were given.
func inFloat64(op string, given []*Tensor, f func(c *Scope, in []*Tensor) []*Tensor) []*Tensor {
	return inType(dtype.F64, op, given, f)
}

// ownTypeFrom is the smallest size of float32 matrices that are not converted to float64. For
// smaller matrices float64 costs little, and the signs of more vectors agree with those of other
// libraries.
const ownTypeFrom = 32

// inOwnType is inFloat64, but does not convert matrices with many rows and columns.
func inOwnType(op string, given []*Tensor, f func(c *Scope, in []*Tensor) []*Tensor) []*Tensor {
	typ := dtype.F64
	if x := given[0]; min(x.Dim(-1), x.Dim(-2)) >= ownTypeFrom {
		typ = x.dtype
	}
	return inType(typ, op, given, f)
}

func inType(typ dtype.Type, op string, given []*Tensor, f func(c *Scope, in []*Tensor) []*Tensor) []*Tensor {
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(*Error); ok && e.Err == ErrLinAlg {
				e.Op, e.Operands = op, nil
				for _, t := range given {
					e.Operands = append(e.Operands, t.describe())
				}
			}
			panic(r)
		}
	}()
	c := youngest(op, given).child()
	defer c.recycle()
	in := make([]*Tensor, len(given))
	for i, t := range given {
		in[i] = t.In(c).Cast(typ)
	}
	out := f(c, in)
	for i, y := range out {
		out[i] = y.Cast(given[0].dtype)
	}
	c.close(out, false)
	return out
}

// mustWide panics unless x is float32 or float64. The routines do not support other types.
func (x *Tensor) mustWide(op string) {
	x.use(op)
	if x.dtype != dtype.F32 && x.dtype != dtype.F64 {
		e := newError(op, ErrType, []*Tensor{x}, "needs a float32 or float64 tensor, not "+x.dtype.String())
		panic(e.hint("use Float"))
	}
}

// mustMatrix checks that x is a float32 or float64 matrix, or a batch of them. It returns the
// batch's shape and the size m×n of the matrices.
func (x *Tensor) mustMatrix(op string) (batch shape.Dims, m, n int) {
	x.mustWide(op)
	return x.matrix(op)
}

// matrix does what mustMatrix does, for every element type.
func (x *Tensor) matrix(op string) (batch shape.Dims, m, n int) {
	if x.Rank() < 2 {
		fail(op, ErrShape, []*Tensor{x}, "needs a matrix or a batch of them, this has shape %v", x.Shape())
	}
	return x.layout.Shape.Head(x.Rank() - 2), x.Dim(-2), x.Dim(-1)
}

// mustSquare does what mustMatrix does, for square matrices.
func (x *Tensor) mustSquare(op string) (batch shape.Dims, n int) {
	x.mustWide(op)
	return x.square(op)
}

// square does what mustSquare does, for every element type.
func (x *Tensor) square(op string) (batch shape.Dims, n int) {
	batch, m, n := x.matrix(op)
	if m != n {
		fail(op, ErrShape, []*Tensor{x}, "needs square matrices, these are %d by %d", m, n)
	}
	return batch, n
}

// batchOf returns the dimensions of x before the last two.
func (x *Tensor) batchOf() shape.Dims { return x.layout.Shape.Head(x.Rank() - 2) }

// general returns v as a row-major matrix for the routines.
func general(m, n int, v []float64) blas64.General {
	return blas64.General{Rows: m, Cols: n, Stride: max(n, 1), Data: v}
}

// product returns a·b for n×n matrices. ta and tb say whether a and b are transposed.
func product(n int, ta, tb blas.Transpose, a, b []float64) []float64 {
	c := make([]float64, n*n)
	blas64.Gemm(ta, tb, 1, general(n, n, a), general(n, n, b), 0, general(n, n, c))
	return c
}

// finite returns ok = true if v has neither NaN nor infinities, and nan = true if it has a NaN.
func finite[T linalg.Float](v []T) (ok, nan bool) {
	sum := T(0) // NaN if an element is not finite
	for _, x := range v {
		sum += x * 0
	}
	if sum == 0 {
		return true, false
	}
	for _, x := range v {
		if x != x {
			return false, true
		}
	}
	return false, false
}

func fillWith[T linalg.Float](v []T, x T) {
	for i := range v {
		v[i] = x
	}
}
