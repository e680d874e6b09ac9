package kernels

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// rowWork is the common part of kernels that process one row at a time (softmax, cross-entropy). A
// warp or a block processes a row.
type rowWork struct {
	*ptx.Builder
	group  int // number of threads that share a row
	unroll int // number of pending loads of a thread
	// vector is the number of columns of one load. The field columns, and all indices of columns,
	// count such loads.
	vector  int
	columns ptx.Value
	lane    ptx.Value
	row     ptx.Value
	shared  ptx.Ptr // shared memory for one value of each warp, if a block processes a row
	// cached is the number of columns for which the cache has room, for each operand. It is 0 if
	// there is no cache.
	cached int
	// cache is the address of the row's cache. A thread reads only elements that it has stored
	// itself.
	cache ptx.Ptr
	kinds int // number of operands in the cache
	kind  dtype.Type
	ends  *rowEnds // columns at the ends of the row; nil if all rows are aligned
}

// cachedColumns returns the size of a row's cache in shared memory, in columns. It is at least the
// given number of columns. It is 0 if the row is too long for a cache, or if the computing type
// does not have 4 bytes. A cache is for kernels that read a row more than once.
func cachedColumns(t dtype.Type, columns int) int {
	if t.Compute().Size() != 4 {
		return 0
	}
	for _, n := range []int{256, 1024, 4096, 8192} {
		if columns <= n {
			return n
		}
	}
	return 0
}

// inCache reserves shared memory for a cache of n columns of each of the block's rows. The argument
// kinds is the number of operands in the cache, and t is the type of their elements. A kernel with
// vector accesses must call access before inCache.
func (w *rowWork) inCache(t dtype.Type, n, kinds int) {
	for w.ends != nil && len(w.ends.kept) < kinds {
		w.ends.kept = append(w.ends.kept, w.Var(w.Const(computing(t.Compute()), real(0))))
	}
	if n == 0 {
		return
	}
	bytes := cacheBytes(t, n, kinds, w.group)
	w.cached, w.kinds, w.kind = n, kinds, t
	w.cache = sharedTiles(w.Builder, storage(t), bytes, beyondStatic(bytes, acrossBytes))
	if w.group == 32 {
		w.cache = w.cache.At(w.WarpID().Mul(num(n * kinds)))
	}
}

// acrossBytes is the number of bytes of shared memory that a row's threads need in addition to the
// cache.
const acrossBytes = 4 * rowThreads / 32

func cacheBytes(t dtype.Type, n, kinds, group int) int {
	return t.Size() * n * kinds * max(1, rowThreads/group)
}

// chunks calls f for each piece of vector i. A piece has up to 16 bytes. In the cache, the first
// pieces of all vectors are neighbours, then come the second pieces, and so on. So neighbouring
// lanes have no bank conflicts.
func (w *rowWork) chunks(i ptx.Value, f func(p ptx.Ptr, first, n int)) {
	n := min(w.vector, 16/w.kind.Size())
	for first := 0; first < w.kinds*w.vector; first += n {
		f(w.cache.At(num(w.cached/w.vector*first)).At(i.Mul(num(n))), first, n)
	}
}

// storeCached stores the columns of vector i in the cache.
func (w *rowWork) storeCached(i ptx.Value, v []ptx.Value) {
	if w.ends != nil && w.ends.writing {
		set(w.ends.kept, v)
		return
	}
	w.chunks(i, func(p ptx.Ptr, first, n int) { storeVector(w.Builder, p, w.kind, v[first:first+n]) })
}

// loadCached loads the columns of vector i from the cache.
func (w *rowWork) loadCached(i ptx.Value) []ptx.Value {
	if w.ends != nil && w.ends.writing {
		return get(w.ends.kept)
	}
	var v []ptx.Value
	w.chunks(i, func(p ptx.Ptr, _, n int) { v = append(v, loadVector(w.Builder, p, w.kind, n)...) })
	return v
}

const rowThreads = 256

// rowGroup returns the number of threads that share a row.
func rowGroup(columns int) int {
	if columns <= 1024 {
		return 32
	}
	return rowThreads
}

func rowBlocks(rows, columns int) int { return ceilDiv(rows, rowThreads/rowGroup(columns)) }

// loadsInFlight returns how many loads of type t a thread issues before it uses the first one. The
// number is chosen so that all threads together have enough pending loads to hide the latency of
// memory.
func loadsInFlight(t dtype.Type) int {
	if t.Size() <= 2 {
		return 8
	}
	return 4
}

// newRows begins a kernel for rows of type t. Threads without a row return.
func newRows(b *ptx.Builder, group int, t dtype.Type, rows, columns ptx.Value) *rowWork {
	w := &rowWork{Builder: b, group: group, columns: columns, unroll: loadsInFlight(t), vector: 1}
	if group == 32 {
		w.lane, w.row = b.LaneID(), b.BlockID(0).Mad(num(rowThreads/32), b.WarpID())
	} else {
		w.lane, w.row = b.ThreadID(0), b.BlockID(0)
		w.shared = b.Shared("across", computing(t.Compute()), group/32)
	}
	b.ReturnIf(w.row.Ge(rows))
	return w
}

// forEach calls load and then visit for this thread's columns. It emits several loads before the
// first visit.
func (w *rowWork) forEach(load func(i ptx.Value) []ptx.Value, visit func(i ptx.Value, v []ptx.Value)) {
	tail := w.unrolled()
	w.For(w.lane, tail, num(w.unroll*w.group), func(i ptx.Value, _ ptx.Loop) {
		at, v := make([]ptx.Value, w.unroll), make([][]ptx.Value, w.unroll)
		for k := range v {
			at[k] = i.Add(num(k * w.group))
			v[k] = load(at[k])
		}
		for k := range v {
			visit(at[k], v[k])
		}
	})
	w.For(tail.Add(w.lane), w.columns, num(w.group), func(i ptx.Value, _ ptx.Loop) { visit(i, load(i)) })
	w.atEnds(func(i ptx.Value) { visit(i, load(i)) })
}

// unrolled returns the number of columns that whole iterations of the unrolled loops process.
func (w *rowWork) unrolled() ptx.Value {
	return w.columns.Div(num(w.unroll * w.group)).Mul(num(w.unroll * w.group))
}

// reduce combines f(load(i)) over the row. The argument start is the initial value. Every thread of
// the row gets the same bits. Each thread has several accumulators, which reduces rounding errors.
func (w *rowWork) reduce(start ptx.Value, combine func(x, y ptx.Value) ptx.Value, load func(i ptx.Value) []ptx.Value, f func(v []ptx.Value) ptx.Value) ptx.Value {
	vars := make([]*ptx.Var, w.unroll)
	for k := range vars {
		vars[k] = w.Var(start)
	}
	tail := w.unrolled()
	w.For(w.lane, tail, num(w.unroll*w.group), func(i ptx.Value, _ ptx.Loop) {
		x := make([][]ptx.Value, w.unroll)
		for k := range vars {
			x[k] = load(i.Add(num(k * w.group)))
		}
		for k, v := range vars {
			v.Set(combine(v.Get(), f(x[k])))
		}
	})
	last := func(i ptx.Value) { vars[0].Set(combine(vars[0].Get(), f(load(i)))) }
	w.For(tail.Add(w.lane), w.columns, num(w.group), func(i ptx.Value, _ ptx.Loop) { last(i) })
	w.atEnds(last)
	list := make([]ptx.Value, w.unroll)
	for k := range list {
		list[k] = vars[k].Get()
	}
	return w.reduceRow(combinePairs(list, combine), combine)
}

// reduceRow combines the values of the threads that share a row. Every thread gets the result.
func (w *rowWork) reduceRow(v ptx.Value, combine func(x, y ptx.Value) ptx.Value) ptx.Value {
	v = v.WarpReduce(combine)
	if w.group == 32 {
		return v
	}
	warps := w.group / 32
	w.If(w.LaneID().Eq(num(0)), func() { w.shared.At(w.WarpID()).Store(v) })
	w.Barrier()
	v = w.shared.At(w.LaneID().And(num(warps-1))).Load().WarpReduceWidth(warps, combine)
	w.Barrier() // all threads must read the values before the next reduction overwrites them
	return v
}

// max returns the maximum, over the columns of the row, of f(the column's operands). A kernel calls
// max first, when the operands are not cached yet. So max keeps several loads pending, even in the
// last iteration. For this it changes the order of the columns, which does not affect a maximum. If
// the row has a cache, max keeps the loaded values in it.
func (w *rowWork) max(t ptx.Type, load func(i ptx.Value) []ptx.Value, f func(v []ptx.Value) ptx.Value) ptx.Value {
	least := w.Const(t, real(math.Inf(-1)))
	const rounds = 4
	top := w.Var(least)
	w.atEnds(func(i ptx.Value) {
		v := load(i)
		top.Set(f(v))
		if w.cached > 0 {
			w.storeCached(i, v)
		}
	})
	w.For(w.lane, w.columns, num(rounds*w.group), func(i ptx.Value, _ ptx.Loop) {
		var all [rounds][]*ptx.Var
		for k := range all {
			at := i.Add(num(k * w.group))
			take := func() {
				for n, v := range load(at) {
					all[k][n].Set(v)
				}
			}
			for range w.vector {
				all[k] = append(all[k], w.Var(least))
			}
			if k == 0 {
				take()
			} else {
				w.If(at.Lt(w.columns), take)
			}
		}
		list := make([]ptx.Value, 0, rounds)
		for k, vars := range all {
			v := make([]ptx.Value, len(vars))
			for n := range v {
				v[n] = vars[n].Get()
			}
			list = append(list, combinePairs(w.apply(v, f), greater))
			if at := i.Add(num(k * w.group)); w.cached > 0 {
				w.If(at.Lt(w.columns), func() { w.storeCached(at, v) })
			}
		}
		top.Set(greater(top.Get(), combinePairs(list, greater)))
	})
	return w.reduceRow(top.Get(), greater)
}

// exponentials holds the running maximum of the elements that a thread has read, and the sum of
// exp(element - maximum). A greater element rescales the sum (M. Milakov, N. Gimelshein: Online
// normalizer calculation for softmax, 2018, arXiv:1805.02867).
type exponentials struct {
	w               *rowWork
	infinite, least ptx.Value
	tops, sums      *ptx.Var
}

func (w *rowWork) newExponentials(t ptx.Type) *exponentials {
	e := &exponentials{w: w, infinite: w.Const(t, real(math.Inf(-1))), least: w.Const(t, real(-math.MaxFloat32))}
	if t == ptx.F64 {
		e.least = w.Const(t, real(-math.MaxFloat64))
	}
	e.tops, e.sums = w.Var(e.least), w.Var(w.Const(t, real(0)))
	return e
}

func greater(x, y ptx.Value) ptx.Value { return x.MaxNaN(y) }

// add adds elements to the running maximum and sum.
func (e *exponentials) add(v []ptx.Value) {
	v = slices.Clone(v)
	before := e.tops.Get()
	now := greater(before, combinePairs(v, greater))
	for k := range v {
		v[k] = call(e.w.Builder, "exp", v[k].Sub(now))
	}
	e.sums.Set(e.sums.Get().FMA(call(e.w.Builder, "exp", before.Sub(now)), pairwise(v)))
	e.tops.Set(now)
}

// total returns the maximum and the sum over the row. If all elements are -Inf, it returns the
// lowest finite number and 0.
func (e *exponentials) total() (top, sum ptx.Value) {
	mine := e.tops.Get()
	top = e.w.reduceRow(mine, greater)
	sum = e.w.reduceRow(e.sums.Get().Mul(call(e.w.Builder, "exp", mine.Sub(top))), func(x, y ptx.Value) ptx.Value { return x.Add(y) })
	return top, sum
}

// exponentials returns the maximum of a row, and the sum of exp(element - maximum). It reads
// the row once.
func (w *rowWork) exponentials(t ptx.Type, load func(i ptx.Value) []ptx.Value) (top, sum ptx.Value) {
	e := w.newExponentials(t)
	w.atEnds(func(i ptx.Value) { e.add(load(i)) })
	rounds := max(2, min(4, 16/w.vector))
	w.For(w.lane, w.columns, num(rounds*w.group), func(i ptx.Value, _ ptx.Loop) {
		vars := make([]*ptx.Var, rounds*w.vector)
		for k := range vars {
			vars[k] = w.Var(e.infinite)
		}
		for k := range rounds {
			at := i.Add(num(k * w.group))
			take := func() { set(vars[k*w.vector:], load(at)) }
			if k == 0 {
				take()
			} else {
				w.If(at.Lt(w.columns), take)
			}
		}
		e.add(get(vars))
	})
	return e.total()
}

// sum adds up f(the column's operands) over the columns of the row.
func (w *rowWork) sum(t ptx.Type, load func(i ptx.Value) []ptx.Value, f func(v []ptx.Value) ptx.Value) ptx.Value {
	return w.reduce(w.Const(t, real(0)), func(x, y ptx.Value) ptx.Value { return x.Add(y) }, load,
		func(v []ptx.Value) ptx.Value { return pairwise(w.apply(v, f)) })
}

// apply applies f to the operands of each column of a vector.
func (w *rowWork) apply(v []ptx.Value, f func(v []ptx.Value) ptx.Value) []ptx.Value {
	out := make([]ptx.Value, w.vector)
	for j := range out {
		x := make([]ptx.Value, 0, 4)
		for k := j; k < len(v); k += w.vector {
			x = append(x, v[k])
		}
		out[j] = f(x)
	}
	return out
}

// write computes f of each column's index and operands, and stores the results in the operand out.
func (w *rowWork) write(out rowOperand, load func(i ptx.Value) []ptx.Value, f func(i ptx.Value, v []ptx.Value) ptx.Value) {
	w.forEach(load, func(i ptx.Value, v []ptx.Value) {
		column, j := w.firstColumn(i), -1
		list := w.apply(v, func(x []ptx.Value) ptx.Value {
			j++
			return f(column.Add(num(j)), x)
		})
		storeVector(w.Builder, out.element(column), out.t, list)
	})
}

// loadAll returns a function that loads the same columns of several operands.
func (w *rowWork) loadAll(list ...rowOperand) func(i ptx.Value) []ptx.Value {
	return func(i ptx.Value) []ptx.Value {
		v := make([]ptx.Value, 0, len(list)*w.vector)
		for _, o := range list {
			v = append(v, loadVector(w.Builder, o.element(w.firstColumn(i)), o.t, w.vector)...)
		}
		return v
	}
}

func itself(v []ptx.Value) ptx.Value { return v[0] }

// call emits a function of package expr. Its argument and its result have the type of x.
func call(b *ptx.Builder, name string, x ptx.Value) ptx.Value {
	t := dtype.F32
	if x.Type() == ptx.F64 {
		t = dtype.F64
	}
	p := expr.MustLower([]*expr.Expr{expr.Call(name, expr.X(0))}, []dtype.Type{t}, []dtype.Type{t}, -1)
	return lower(b, p, environment{x: func(int) ptx.Value { return x }})[0]
}

// rowOperand holds the kernel parameters of a rank-2 operand.
type rowOperand struct {
	t           dtype.Type
	p           ptx.Ptr
	row, column ptx.Value
	unit        bool // whether the stride of the columns is 1
}

func declareRows(b *ptx.Builder, name string, t dtype.Type, unit bool) rowOperand {
	o := rowOperand{t: t, p: b.Pointer(name, storage(t)), row: b.Param(name+"r", ptx.S64), unit: unit}
	if !unit {
		o.column = b.Param(name+"c", ptx.S64)
	}
	return o
}

func (p *packer) packRows(o Operand, unit bool) {
	p.u64(o.start())
	p.u64(uint64(o.Strides.At(0)))
	if !unit {
		p.u64(uint64(o.Strides.At(1)))
	}
}

// unitColumns reports whether all operands have a column stride of 1.
func unitColumns(list ...Operand) bool {
	for _, o := range list {
		if o.Strides.At(1) != 1 && o.Shape.At(1) > 1 {
			return false
		}
	}
	return true
}

// atRow returns the operand with its pointer moved to the start of the row.
func (o rowOperand) atRow(row ptx.Value) rowOperand {
	o.p = o.p.At(row.Cvt(ptx.S64).Mul(o.row))
	return o
}

func (o rowOperand) element(i ptx.Value) ptx.Ptr {
	if o.unit {
		return o.p.At(i)
	}
	return o.p.At(i.Cvt(ptx.S64).Mul(o.column))
}

func (o rowOperand) load(b *ptx.Builder, i ptx.Value) ptx.Value {
	return loadVector(b, o.element(i), o.t, 1)[0]
}

func (o rowOperand) store(b *ptx.Builder, i, v ptx.Value) {
	storeVector(b, o.element(i), o.t, []ptx.Value{v})
}
