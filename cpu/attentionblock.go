package cpu

import (
	"math"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/cpu/internal/gemm"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// attentionTypes reports whether the CPU supports attention with these types. The operands must be
// float32, and a mask must be float32 or bool.
func attentionTypes(q, mask *device.View) bool {
	return q.Type == dtype.F32 &&
		(mask.Absent() || mask.Type == dtype.F32 || mask.Type == dtype.Bool)
}

// attentionBlocks is the common part of attention and its gradient. Both compute the weights of one
// block of queries and keys at a time. A block's weights stay in the processor's cache from one
// matrix product to the next.
type attentionBlocks struct {
	*device.Weighing
	q, k          *device.View
	heads, shared int // number of heads of the queries, and of the keys and values
	queries, keys int
	features      int
	rows, blocks  int // number of queries in a block, and number of blocks in a head
	seed, offset  uint64
}

// newAttentionShape sets the fields that depend only on shapes. It does not read the operands'
// elements.
func newAttentionShape(w *device.Weighing, q, k *device.View) attentionBlocks {
	return attentionBlocks{Weighing: w, q: q, k: k, heads: q.Shape.At(1), shared: k.Shape.At(1), queries: q.Shape.At(2),
		keys: k.Shape.At(2), features: q.Shape.At(3), seed: w.Seed, offset: w.Offset}
}

// draw reads the seed and the offset from the operand Numbers, if it is present.
func (b *attentionBlocks) draw() {
	if !b.Numbers.Absent() {
		b.seed = *(*uint64)(element(&b.Numbers, 0))
		b.offset += *(*uint64)(element(&b.Numbers, 1))
	}
}

// cut divides the queries into blocks of at most the given number of rows.
func (b *attentionBlocks) cut(rows int) {
	b.rows = min(b.queries, rows)
	b.blocks = (b.queries + b.rows - 1) / b.rows
}

// seenKeys returns an upper bound of the number of keys that a query of a sample sees. The bound
// holds for the queries 0 to queries-1 of the sample.
func (b *attentionBlocks) seenKeys(sample, queries int) int {
	n := b.keys
	if b.Causal {
		n = min(n, queries)
	}
	if !b.Lengths.Absent() {
		n = int(max(0, min(int64(n), *(*int64)(element(&b.Lengths, sample)))))
	}
	return n
}

// block is a range of queries of one head, and a range of keys. rows and cols are the lengths of
// these ranges.
type block struct{ sample, head, firstQuery, rows, firstKey, cols int }

// scores sets p, a matrix of [rows, cols], to the products of queries and keys, and applies the
// masks. q holds the queries multiplied by the scale. The score of a key that a query does not see
// is -Inf, even if the product is NaN.
func (b *attentionBlocks) scores(w *attentionWorker, p, q []float32, c block) {
	k := headRows(b.k, c.sample, c.head/(b.heads/b.shared), c.firstKey, c.cols)
	gemm.F32(gemm.Serial, c.rows, c.cols, b.features, q, b.features, 1, k, b.k.Strides.At(3), b.k.Strides.At(2), p, c.cols, 1, false)
	if b.Causal {
		for i := range c.rows {
			for j := max(0, c.firstQuery+i+1-c.firstKey); j < c.cols; j += maxBlock {
				copy(p[i*c.cols+j:(i+1)*c.cols], unseenScores[:])
			}
		}
	}
	if m := &b.Mask; !m.Absent() && c.cols > 0 {
		size := m.Type.Size()
		at0 := unsafe.Add(pointer(m), (c.sample*m.Strides.At(0)+c.head*m.Strides.At(1)+c.firstQuery*m.Strides.At(2)+c.firstKey*m.Strides.At(3))*size)
		for i := range c.rows {
			w.mask(p[i*c.cols:(i+1)*c.cols], m.Type, unsafe.Add(at0, i*m.Strides.At(2)*size), m.Strides.At(3)*size)
		}
	}
}

var unseenScores = func() (x [maxBlock]float32) {
	for i := range x {
		x[i] = float32(math.Inf(-1))
	}
	return x
}()

// mask applies the mask of one query to row, its scores. The elements of the mask are stride bytes
// apart.
func (w *attentionWorker) mask(row []float32, t dtype.Type, from unsafe.Pointer, stride int) {
	for c := 0; c < len(row); c += maxBlock {
		n := min(maxBlock, len(row)-c)
		p, m := ptr(row[c:]), unsafe.Add(from, c*stride)
		if stride != t.Size() {
			gather(unsafe.Pointer(&w.other), m, t.Size(), stride, n)
			m = unsafe.Pointer(&w.other)
		}
		if t == dtype.F32 {
			ops[expr.OpAdd][t](p, p, m, m, n)
			continue
		}
		loads[dtype.Bool](unsafe.Pointer(&w.stage), m, nil, nil, n)
		ops[expr.OpSelect][dtype.F32](p, unsafe.Pointer(&w.stage), p, unsafe.Pointer(&unseenScores), n)
	}
}

// scaleQueries stores the block's queries in q, a matrix of [rows, features]. It multiplies them by
// the scale.
func (b *attentionBlocks) scaleQueries(w *attentionWorker, q []float32, c block) {
	rows, stride, step := headRows(b.q, c.sample, c.head, c.firstQuery, c.rows), b.q.Strides.At(2), b.q.Strides.At(3)
	scale := float32(b.Scale)
	if step == 1 && stride == b.features && len(q) > 0 {
		w.run(ops[expr.OpMul][dtype.F32], ptr(q), ptr(rows), uint64(math.Float32bits(scale)), len(q))
		return
	}
	for i := 0; i < c.rows && b.features > 0; i++ {
		row := q[i*b.features : (i+1)*b.features]
		if step == 1 {
			w.run(ops[expr.OpMul][dtype.F32], ptr(row), ptr(rows[i*stride:]), uint64(math.Float32bits(scale)), b.features)
			continue
		}
		for j := range row {
			row[j] = rows[i*stride+j*step] * scale
		}
	}
}

// dropProgram computes the factor of a weight: Param 3 if dropout keeps the weight, else 0. Params
// 0 to 2 are the seed, offset and limit of the random numbers.
var dropProgram = sync.OnceValue(func() *expr.Program {
	keep := expr.RandomKeeps(expr.Param(0, dtype.I64), expr.Param(1, dtype.I64), expr.Index(dtype.I64), expr.Param(2, dtype.U32))
	e := keep.Select(expr.Param(3, dtype.F32), expr.C(0))
	return expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, nil, -1)
})

// dropFactors sets m, a matrix of [rows, cols], to the factor of each attention weight: 0 if
// dropout drops the weight, else 1/(1-Drop).
func (b *attentionBlocks) dropFactors(w *attentionWorker, m []float32, c block) {
	if w.drawn == nil {
		pl := planFor(dropProgram(), 0, stored)
		w.drawn = pl.pool.Get().(*runner)
		bits := [...]uint64{b.seed, b.offset, uint64(expr.DropLimit(b.Drop)), expr.Encode(dtype.F32, b.Rest())}
		for _, l := range pl.params {
			fillBits(w.drawn.reg[l.val], bits[l.from], width(l.typ), pl.block)
		}
		exec(w.drawn.reg, pl.uniform, pl.block)
	}
	r := w.drawn
	pl := r.pl
	out := pl.outs[0].val
	for i := range c.rows {
		row := m[i*c.cols : (i+1)*c.cols]
		from := ((c.sample*b.heads+c.head)*b.queries+c.firstQuery+i)*device.RowNumbers(b.keys) + c.firstKey
		for j := 0; j < c.cols; j += pl.block {
			n := min(pl.block, c.cols-j)
			for _, l := range pl.index {
				asm.IotaI64(at[int64](unsafe.Add(r.base, pl.slot[l.val]), n), int64(from+j))
			}
			r.reg[out] = ptr(row[j:])
			exec(r.reg, pl.body, n)
		}
	}
}

// attentionWorker holds the functions and the temporary memory of a worker. The memory consists of
// the matrices of weights, and of two matrices with a row for each query.
type attentionWorker struct {
	*rowWorker
	queries [2][]byte
	other   [maxBlock]float32
	drawn   *runner // runs dropProgram; nil until dropout is used
}

var attentionWorkers = sync.Pool{New: func() any { return new(attentionWorker) }}

// newAttentionWorker allocates memory for matrices of the given number of rows. The matrices of
// weights have cols columns. The two other matrices have max(features, values) columns.
func newAttentionWorker(rows, cols, features, values int) *attentionWorker {
	w := attentionWorkers.Get().(*attentionWorker)
	w.rowWorker = newRowWorker(dtype.F32, max(cols, 1), rows)
	for i := range w.queries {
		w.queries[i] = grown(w.queries[i], max(1, rows*max(features, values))*4)
	}
	return w
}

func (w *attentionWorker) release() {
	w.rowWorker.release()
	if r := w.drawn; r != nil {
		out := r.pl.outs[0].val
		r.reg[out] = unsafe.Add(r.base, r.pl.slot[out])
		r.pl.pool.Put(r)
	}
	w.rowWorker, w.drawn = nil, nil
	attentionWorkers.Put(w)
}

func ptr(x []float32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(x)) }

// headRows returns the elements of the rows firstRow to firstRow+rows-1 of one head of one sample.
func headRows(v *device.View, sample, head, firstRow, rows int) []float32 {
	if rows == 0 || v.Shape.At(3) == 0 {
		return nil
	}
	at0 := unsafe.Add(pointer(v), (sample*v.Strides.At(0)+head*v.Strides.At(1)+firstRow*v.Strides.At(2))*4)
	return at[float32](at0, (rows-1)*v.Strides.At(2)+(v.Shape.At(3)-1)*v.Strides.At(3)+1)
}
