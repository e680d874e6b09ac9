package cpu

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/jit"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// A formula is an expression that fused row operations compute for groups of rows. An operand is a
// matrix, a value for each row, or a value for each column. Operands have the types in which they
// are stored in memory.
type formula struct {
	e        *expr.Expr
	programs lookup[formulaTypes, *expr.Program]
}

// lookup is a map with a cache of the entries found last. Comparing a key takes a tenth of the time
// of a search in the map. This matters for short groups of rows, such as the blocks of attention.
type lookup[K comparable, V any] struct {
	all    sync.Map
	recent [4]atomic.Pointer[entry[K, V]]
	// number of entries of recent that were replaced; it determines which entry is replaced next
	oldest atomic.Uint32
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func (l *lookup[K, V]) load(k K) (v V, ok bool) {
	for i := range l.recent {
		if e := l.recent[i].Load(); e != nil && e.key == k {
			return e.value, true
		}
	}
	e, ok := l.all.Load(k)
	if !ok {
		return v, false
	}
	l.remember(e.(*entry[K, V]))
	return e.(*entry[K, V]).value, true
}

func (l *lookup[K, V]) store(k K, v V) {
	e := &entry[K, V]{k, v}
	l.all.Store(k, e)
	l.remember(e)
}

func (l *lookup[K, V]) remember(e *entry[K, V]) {
	l.recent[l.oldest.Add(1)%uint32(len(l.recent))].Store(e)
}

// formulaTypes holds the type of the result and the types of the operands.
type formulaTypes [1 + maxOperands]dtype.Type

// maxOperands is the maximum number of operands of a formula.
const maxOperands = 7

// rowOperand is an operand or the result of a formula. Strides are in bytes. If it has one value
// for each row, its column stride is 0. If it has one value for each column, its row stride is 0.
type rowOperand struct {
	p        unsafe.Pointer
	t        dtype.Type
	row, col int
}

// matrix returns an operand that is a contiguous matrix of the worker's type.
func (w *rowWorker) matrix(p unsafe.Pointer) rowOperand {
	return rowOperand{p, w.t, w.cols * w.size, w.size}
}

// each returns an operand with one value for each row, of the worker's type.
func (w *rowWorker) each(p unsafe.Pointer) rowOperand { return rowOperand{p, w.t, w.size, 0} }

// column returns an operand with one value for each column, of the worker's type.
func (w *rowWorker) column(p unsafe.Pointer) rowOperand { return rowOperand{p, w.t, 0, w.size} }

// operand returns rows lo to lo+n-1 of a view as an operand. If the elements of a row are not
// contiguous, it copies the rows to the worker's temporary memory number k.
func (w *rowWorker) operand(v *device.View, lo, n, k int) rowOperand {
	if v.Strides.At(1) != 1 && w.cols > 1 {
		return w.matrix(w.load(v, lo, n, k))
	}
	return rowsOf(v, lo)
}

// output returns memory for the results of rows of v, from row lo on. If the elements of a row are
// contiguous, this is the memory of v. Otherwise it is the worker's temporary memory number k, from
// which the method store copies to v.
func (w *rowWorker) output(v *device.View, lo, k int) rowOperand {
	if v.Strides.At(1) != 1 && w.cols > 1 {
		return w.matrix(data(w.space[k]))
	}
	return rowsOf(v, lo)
}

func rowsOf(v *device.View, lo int) rowOperand {
	size := v.Type.Size()
	return rowOperand{unsafe.Add(pointer(v), lo*v.Strides.At(0)*size), v.Type, v.Strides.At(0) * size, v.Strides.At(1) * size}
}

// program returns the program of the formula for the given types.
func (f *formula) program(out dtype.Type, ins []rowOperand) *expr.Program {
	key := formulaTypes{out}
	for i := range ins {
		key[1+i] = ins[i].t
	}
	if p, ok := f.programs.load(key); ok {
		return p
	}
	p := expr.MustLower([]*expr.Expr{f.e}, []dtype.Type{out}, append([]dtype.Type(nil), key[1:1+len(ins)]...), -1)
	f.programs.store(key, p)
	return p
}

// compute computes a formula for n rows and stores the result in out. The operand out may be one of
// ins.
func (w *rowWorker) compute(f *formula, n int, out rowOperand, ins ...rowOperand) {
	b := &w.binding
	b.pl = planFor(f.program(out.t, ins), 0, stored)
	dense := out.row == out.col*w.cols
	for i := range ins {
		dense = dense && ins[i].row == ins[i].col*w.cols && ins[i].col != 0
	}
	if b.rank, b.size = 2, n*w.cols; dense {
		b.rank = 1
	}
	b.dims = [len(b.dims)]int{n, w.cols}
	if dense {
		b.dims[0] = b.size
	}
	b.ins, b.outs = sized(b.ins, len(ins)), sized(b.outs, 1)
	for i := range ins {
		b.take(&b.ins[i], &ins[i])
	}
	b.take(&b.outs[0], &out)
	b.aliasing()
	b.choose()
	b.runUnits(0, b.blocks())
	clear(b.ins)
	clear(b.outs)
	b.pl, b.loop = nil, nil
}

func (b *binding) take(a *access, o *rowOperand) {
	*a = access{base: o.p, size: o.t.Size()}
	if a.stride[0] = o.row; b.rank == 1 {
		a.stride[0] = o.col
	} else {
		a.stride[1] = o.col
	}
	b.cacheStrides(a)
}

// fold computes a formula for n rows and combines the values of each row. It stores the results at
// dst, in the worker's type. If no loop can both compute and combine the values, fold first stores
// the values in the memory at space.
func (w *rowWorker) fold(k device.ReduceKind, f *formula, dst unsafe.Pointer, n int, space unsafe.Pointer, ins ...rowOperand) {
	pl := planFor(f.program(w.t, ins), 0, rawResults)
	once := uint64(0)
	if pl.folded != nil {
		for i, x := range pl.folded.loop.Loads {
			if ins[pl.folded.loop.Code[x.Value].Imm].col == 0 {
				once |= 1 << i
			}
		}
	}
	code := pl.foldFor(k, w.t, min(maxBlock, w.cols), jit.Reads{Once: once})
	if code == nil {
		if m := w.matrix(ins[0].p); f != same || ins[0] != m {
			w.compute(f, n, w.matrix(space), ins...)
		} else {
			space = m.p
		}
		w.foldMatrix(k, dst, space, n)
		return
	}
	l := pl.folded.loop
	r := pl.pool.Get().(*runner)
	r.strides = r.strides[:0]
	for i := range l.Loads {
		r.strides = append(r.strides, ins[l.Code[l.Loads[i].Value].Imm].row)
	}
	r.strides = append(r.strides, w.size)
	combine := combiner(k, w.t)
	start := 0
	if w.cols/maxBlock >= 8*n { // a call for each row means fewer calls than one for each block
		start = w.foldBlocks(code, pl, r, combine, dst, n, ins)
	}
	for c := start; c < w.cols; c += maxBlock {
		m := min(maxBlock, w.cols-c)
		for i := range l.Loads {
			v := l.Loads[i].Value
			o := &ins[l.Code[v].Imm]
			r.reg[v] = unsafe.Add(o.p, c*o.col)
		}
		to := dst
		if c > 0 {
			to = unsafe.Pointer(&w.stage)
		}
		r.reg[len(r.reg)-1] = to
		if m < maxBlock { // for a short remainder, another loop is faster
			if rest := pl.foldFor(k, w.t, m, jit.Reads{Once: once}); rest != nil {
				code = rest
			}
		}
		code.Run(r.reg, r.strides, m, n)
		if c > 0 {
			combine(dst, dst, to, to, n)
		}
	}
	for i := range l.Loads {
		v := l.Loads[i].Value
		r.reg[v] = unsafe.Add(r.base, pl.slot[v])
	}
	r.reg[len(r.reg)-1] = nil
	pl.pool.Put(r)
}

// foldBlocks does the work of fold for the whole blocks of few wide rows. One call of the loop
// folds many blocks of a row. foldBlocks returns the number of columns that are done.
func (w *rowWorker) foldBlocks(code *jit.Code, pl *plan, r *runner, combine kernel, dst unsafe.Pointer, n int, ins []rowOperand) int {
	l, before := pl.folded.loop, len(r.strides)
	for i := range l.Loads {
		r.strides = append(r.strides, maxBlock*ins[l.Code[l.Loads[i].Value].Imm].col)
	}
	r.strides = append(r.strides, w.size)
	stage := unsafe.Pointer(&w.stage)
	r.reg[len(r.reg)-1] = stage
	most, blocks := min(len(w.stage), max(1, pl.foldUnit()/maxBlock)), w.cols/maxBlock
	for row := range n {
		to := unsafe.Add(dst, row*w.size)
		for b := 0; b < blocks; b += most {
			m := min(most, blocks-b)
			for i := range l.Loads {
				v := l.Loads[i].Value
				o := &ins[l.Code[v].Imm]
				r.reg[v] = unsafe.Add(o.p, row*o.row+b*maxBlock*o.col)
			}
			code.Run(r.reg, r.strides[before:], maxBlock, m)
			for i := range m {
				from := unsafe.Add(stage, i*w.size)
				if b+i == 0 {
					writeBits(to, w.size, readBits(from, w.size))
				} else {
					combine(to, to, from, from, 1)
				}
			}
		}
	}
	r.strides = r.strides[:before]
	return blocks * maxBlock
}

// These are the formulas of fused row operations. X(0), X(1), … are the operands of a formula.
var (
	same       = &formula{e: expr.X(0)}
	times      = &formula{e: expr.X(0).Mul(expr.X(1))}
	quotient   = &formula{e: expr.X(0).Div(expr.X(1))}
	square     = &formula{e: expr.X(0).Mul(expr.X(0))}
	deviation  = &formula{e: expr.X(0).Sub(expr.X(1)).Mul(expr.X(0).Sub(expr.X(1)))}
	scaledLess = &formula{e: expr.X(0).Sub(expr.X(1)).Mul(expr.X(2))}
	lessTwice  = &formula{e: expr.X(0).Sub(expr.X(1)).Sub(expr.X(2))}
	lessScaled = &formula{e: expr.X(0).Sub(expr.Call("exp", expr.X(1)).Mul(expr.X(2)))}
	expLess    = &formula{e: expr.Call("exp", expr.X(0).Sub(expr.X(1)))}
	// adding 0 changes -0 to +0
	plusZero = &formula{e: expr.X(0).Add(expr.C(0))}

	// These are the gradients of a cross-entropy for the class of the target, and for the other
	// classes. A gradient of zero is +0 in torch, which subtracts products from g. So 0 is added
	// here, to change -0 to +0.
	expTwice     = expr.Call("exp", expr.X(0).Sub(expr.X(1)).Sub(expr.X(2)))
	hitGradient  = &formula{e: expTwice.Sub(expr.C(1)).Mul(expr.X(3)).Add(expr.C(0))}
	missGradient = &formula{e: expTwice.Mul(expr.X(3)).Add(expr.C(0))}
)
