package kernels

import (
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// longSoftmax describes a softmax kernel, or its gradient, in which a block keeps most of a row.
// The first vectors of each thread stay in registers, and the next ones in shared memory. The rest
// of the row is read twice, because each result depends on the whole row.
type longSoftmax struct {
	typ  dtype.Type
	log  bool
	grad bool
	form rowForm
	held int // number of vectors of each operand that a thread keeps in registers
	// cached is the number of columns of each operand in shared memory. It is 0 if registers hold
	// the whole row.
	cached int
}

const (
	longThreads = 512
	// A thread has 128 registers. It keeps elements of 32 bits in longRegisters of them, or
	// elements of 16 bits in longHalves of them. The second number is smaller, because loads of
	// 16-bit elements need more registers.
	longRegisters = 52
	longHalves    = 32
	longShared    = 99 << 10 // bytes of shared memory that a block may use on every supported GPU
)

// longSoftmaxFor returns the specification of a kernel for rows of this length. It returns false if
// too little of a row fits into registers and shared memory.
func longSoftmaxFor(s softmaxSpec, columns int) (longSoftmax, bool) {
	l := longSoftmax{typ: s.typ, log: s.log, grad: s.grad, form: s.form}
	v := s.form.vector
	if v == 1 || s.typ.Compute().Size() != 4 {
		return l, false
	}
	across := v * longThreads // number of columns that the block covers with one vector for each thread
	l.held = longRegisters / (v * l.kinds())
	if s.typ.IsHalf() {
		l.held = longHalves / (v * l.kinds())
	}
	switch {
	case columns <= across*ceilDiv(l.held, 2):
		l.held = ceilDiv(l.held, 2)
	case columns > across*l.held:
		l.cached = (longShared - 4*longThreads/32) / (s.typ.Size() * l.kinds() * v) * v
	}
	return l, columns <= 4*(across*l.held+l.cached)
}

// kinds returns the number of operands that the first loop over a row reads.
func (s longSoftmax) kinds() int {
	if s.grad && !s.log {
		return 2
	}
	return 1
}

func (s longSoftmax) name() string {
	name := softmaxSpec{typ: s.typ, log: s.log, grad: s.grad, form: s.form, unit: true, group: longThreads}.name()
	return fmt.Sprintf("%s_h%d_s%d", name, s.held, s.cached)
}

func (s longSoftmax) dynamicShared() int {
	return beyondStatic(s.typ.Size()*s.cached*s.kinds(), 4*longThreads/32)
}

func (s longSoftmax) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	b.MinBlocks(1)
	rows, columns := b.Param("rows", ptx.U32), b.Param("columns", ptx.U32)
	names := []string{"y", "x"}
	if s.grad {
		names = []string{"dx", "y", "g"}
	}
	var o []rowOperand
	for _, name := range names {
		o = append(o, declareRows(b, name, s.typ, true))
	}
	w := &longRows{rowWork: newRows(b, longThreads, s.typ, rows, columns), rounds: 4}
	if s.kinds() == 1 {
		w.rounds = 6 // 6 pending loads for one operand; for two operands, 4 rounds of two loads
	}
	for i := range o {
		o[i] = o[i].atRow(w.row)
	}
	w.access(s.form, o[1])
	w.inCache(s.typ, s.cached, s.kinds())
	t := computing(s.typ.Compute())
	if s.grad {
		s.gradient(w, t, o[0], o[1], o[2])
	} else {
		s.forward(w, t, o[0], o[1])
	}
	return [3]int{longThreads, 1, 1}
}

func (s longSoftmax) forward(w *longRows, t ptx.Type, y, x rowOperand) {
	w.Comment("the row's maximum and the sum of exponentials")
	e := w.newExponentials(t)
	w.read(s.held, w.loadAll(x), e.infinite, func(v [][]ptx.Value) {
		var all []ptx.Value
		for _, part := range v {
			all = append(all, part...)
		}
		e.add(all)
	})
	top, sum := e.total()
	if s.log {
		w.Comment("x - maximum - log of the sum")
		lse := call(w.Builder, "log", sum)
		w.secondPass(y, w.loadAll(x), w.loadAll(), func(v []ptx.Value) ptx.Value { return v[0].Sub(top).Sub(lse) })
		return
	}
	w.Comment("the quotients")
	inverse := sum.Rcp()
	w.secondPass(y, w.loadAll(x), w.loadAll(), func(v []ptx.Value) ptx.Value {
		return call(w.Builder, "exp", v[0].Sub(top)).Mul(inverse)
	})
}

// gradient emits the code that stores the same values as [softmaxSpec.gradient]. For the logarithm,
// the first loop over a row reads only g.
func (s longSoftmax) gradient(w *longRows, t ptx.Type, dx, y, g rowOperand) {
	first, other := w.loadAll(y, g), w.loadAll()
	term := func(v []ptx.Value) ptx.Value { return v[1].Mul(v[0]) }
	if s.log {
		first, other, term = w.loadAll(g), w.loadAll(y), itself
	}
	zero := w.Const(t, real(0))
	total := w.Var(zero)
	w.read(s.held, first, zero, func(v [][]ptx.Value) {
		var terms []ptx.Value
		for _, part := range v {
			terms = append(terms, w.apply(part, term)...)
		}
		total.Set(total.Get().Add(pairwise(terms)))
	})
	sum := w.reduceRow(total.Get(), func(x, y ptx.Value) ptx.Value { return x.Add(y) })
	w.secondPass(dx, first, other, func(v []ptx.Value) ptx.Value {
		if s.log {
			return v[0].Sub(call(w.Builder, "exp", v[1]).Mul(sum))
		}
		return v[0].Mul(v[1].Sub(sum))
	})
}

// longRows is the state of longSoftmax.build while it emits a kernel.
type longRows struct {
	*rowWork
	rounds int           // number of vectors that a thread loads together
	held   [][]ptx.Value // vectors that the thread keeps in registers
	// Vectors with indices less than retained are in registers or shared memory.
	retained ptx.Value
}

// A vectorBatch is several vectors that a thread processes together. The field index holds their
// indices, which differ by the number of the block's threads. For a vector beyond the end of the
// row, index is the index of the last vector, and valid is false.
type vectorBatch struct{ index, valid []ptx.Value }

func (w *longRows) turn(i, end ptx.Value, n int) (t vectorBatch) {
	last := end.Sub(num(1))
	for k := range n {
		at := i.Add(num(k * w.group))
		t.valid = append(t.valid, at.Lt(end))
		t.index = append(t.index, at.Min(last))
	}
	return t
}

// inGroups passes the vectors to f, a few at a time.
func (w *longRows) inGroups(v [][]ptx.Value, f func(v [][]ptx.Value)) {
	for few := range slices.Chunk(v, max(1, 16/len(v[0]))) {
		f(few)
	}
}

// read loads all vectors of the row, and passes a few of them at a time to the function visit. In
// place of vectors beyond the end it passes the value neutral. The thread keeps as many of the
// first vectors as it has room for.
func (w *longRows) read(held int, load func(i ptx.Value) []ptx.Value, neutral ptx.Value, visit func(v [][]ptx.Value)) {
	w.atEnds(func(i ptx.Value) {
		v := load(i)
		set(w.ends.kept, v)
		visit([][]ptx.Value{v})
	})
	t := w.turn(w.lane, w.columns, held)
	for k := range held {
		v := load(t.index[k])
		w.held = append(w.held, apply(v, func(j int) ptx.Value { return t.valid[k].Select(v[j], neutral) }))
	}
	w.inGroups(w.held, visit)
	if w.cached == 0 {
		return
	}
	w.retained = w.columns.Min(num(held*w.group + w.cached/w.vector))
	w.For(w.lane.Add(num(held*w.group)), w.columns, num(w.rounds*w.group), func(i ptx.Value, _ ptx.Loop) {
		t, all := w.turn(i, w.columns, w.rounds), make([][]ptx.Value, w.rounds)
		for k := range all {
			all[k] = load(t.index[k])
		}
		for k, v := range all {
			at := i.Add(num(k * w.group))
			w.If(at.Lt(w.retained), func() { w.storeCached(at.Sub(num(held*w.group)), v) })
			all[k] = apply(v, func(j int) ptx.Value { return t.valid[k].Select(v[j], neutral) })
		}
		w.inGroups(all, visit)
	})
}

// secondPass emits the second loop over a row, which computes f for each column and stores the
// results in out. The arguments of f are the values that [longRows.read] loaded for the column, and
// then the values that the function extra loads.
func (w *longRows) secondPass(out rowOperand, load, extra func(i ptx.Value) []ptx.Value, f func(v []ptx.Value) ptx.Value) {
	store := func(i ptx.Value, v []ptx.Value) {
		storeVector(w.Builder, out.element(w.firstColumn(i)), out.t, w.apply(v, f))
	}
	turn := func(i, end ptx.Value, n int, load func(k int, i ptx.Value) []ptx.Value) {
		t, all := w.turn(i, end, n), make([][]ptx.Value, n)
		for k := range all {
			v := load(k, t.index[k])
			all[k] = append(v[:len(v):len(v)], extra(t.index[k])...)
		}
		for k, v := range all {
			w.If(t.valid[k], func() { store(t.index[k], v) })
		}
	}
	w.atEnds(func(i ptx.Value) { store(i, append(get(w.ends.kept), extra(i)...)) })
	for k := 0; k < len(w.held); k += w.rounds {
		list := w.held[k:min(k+w.rounds, len(w.held))]
		turn(w.lane.Add(num(k*w.group)), w.columns, len(list), func(k int, _ ptx.Value) []ptx.Value { return list[k] })
	}
	if w.cached == 0 {
		return
	}
	first := num(len(w.held) * w.group)
	step := num(w.rounds * w.group)
	w.For(w.lane.Add(first), w.retained, step, func(i ptx.Value, _ ptx.Loop) {
		turn(i, w.retained, w.rounds, func(_ int, i ptx.Value) []ptx.Value { return w.rowWork.loadCached(i.Sub(first)) })
	})
	w.For(w.lane.Add(w.retained), w.columns, step, func(i ptx.Value, _ ptx.Loop) {
		turn(i, w.columns, w.rounds, func(_ int, i ptx.Value) []ptx.Value { return load(i) })
	})
}
