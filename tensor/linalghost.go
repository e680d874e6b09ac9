package tensor

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"github.com/flambeau-go/flambeau/cpu/linalg"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// hostOps lists the ops that copy their operands to the host and their results back. They do so on
// every device, and wait for the work queued so far. Their routines are those of package cpu/linalg
// and gonum's translation of LAPACK.
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
// otherwise "". The results have no place in the graph and belong to s.
func onHost[T linalg.Float](op string, s *Scope, batch shape.Dims, in []*Tensor, out []shape.Dims, f func(in, out [][]T) string) []*Tensor {
	if !slices.Contains(hostOps, op) {
		panic("tensor: " + op + " works on the host and is not in the list of such ops")
	}
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
	results := make([]*Tensor, len(out))
	staged := make([]*Tensor, len(out)) // the results, in the host's memory
	for i, sh := range out {
		results[i] = alloc(op, s, in[0].st.dev, typ, sh)
		if staged[i] = results[i]; !isHost(in[0].st.dev) {
			staged[i] = alloc(op, s, hostDevice(), typ, sh)
		}
		to[i] = numbersIn[T](staged[i].st.buf.Host(), typ.Size())
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
			if batch.Rank() > 0 {
				wrong = fmt.Sprintf("batch element %d: %s", b, wrong)
			}
			fail(op, ErrLinAlg, in, "%s", wrong)
		}
	}
	for i, y := range results {
		if h := staged[i]; h != y {
			check(op, y.st.dev.Upload(y.st.home, y.st.buf, 0, h.st.buf.Host()), in...)
			h.Free()
		}
	}
	return results
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
func guarded[T linalg.Float](f func(in, out [][]T) string, in, out [][]T) (wrong string) {
	defer func() {
		if r := recover(); r != nil {
			wrong = fmt.Sprintf("the routine gave up: %v", r)
		}
	}()
	return f(in, out)
}

// inFloat64 converts the given operands to float64 and runs f on them, in a scope for intermediate
// tensors. It converts the results to the type of the first operand. An error of a routine names
// the operands as they were given.
func inFloat64(op string, given []*Tensor, f func(c *Scope, in []*Tensor) []*Tensor) []*Tensor {
	return inType(dtype.F64, op, given, f)
}

// ownTypeFrom is the size of matrices from which float32 is not converted. Below it, float64 costs
// little, and it settles more signs of vectors as other libraries do.
const ownTypeFrom = 32

// inOwnType is inFloat64 without conversions for matrices with many rows and columns.
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

// setIdentity sets the diagonal of the n×n matrix v to 1. v must be zeros.
func setIdentity(n int, v []float64) {
	for i := range n {
		v[i*n+i] = 1
	}
}
