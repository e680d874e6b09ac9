package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// softmaxSpec describes a softmax kernel over rows, or its gradient.
type softmaxSpec struct {
	typ    dtype.Type
	log    bool
	grad   bool
	unit   bool // whether the stride of the columns is 1
	form   rowForm
	group  int
	cached int // number of columns in the cache in shared memory; 0 if there is no cache
}

func (s softmaxSpec) name() string {
	name := "softmax"
	if s.log {
		name = "logsoftmax"
	}
	if s.grad {
		name += "_grad"
	}
	if !s.unit {
		name += "_strided"
	}
	name = fmt.Sprintf("%s_%v_%v_%d", name, s.typ, s.form, s.group)
	if s.cached > 0 {
		name += fmt.Sprintf("_c%d", s.cached)
	}
	return name
}

// Softmax plans out = softmax(x), or its logarithm, along the rows of rank-2 operands. All operands
// have the same floating-point type.
func Softmax(out, x Operand, log bool) ([]Launch, error) {
	return planSoftmax("softmax", softmaxSpec{log: log}, out, x)
}

// SoftmaxGrad plans dx from y, the result of Softmax, and g, the gradient of y.
func SoftmaxGrad(dx, y, g Operand, log bool) ([]Launch, error) {
	return planSoftmax("softmax gradient", softmaxSpec{log: log, grad: true}, dx, y, g)
}

func planSoftmax(op string, s softmaxSpec, list ...Operand) ([]Launch, error) {
	out := list[0]
	if err := checkRows(op, list...); err != nil || out.Shape.Size() == 0 {
		return nil, err
	}
	columns := out.Shape.At(1)
	s.typ, s.unit, s.form, s.group = out.Type, unitColumns(list...), rowVectors(list...), rowGroup(columns)
	s.cached = cachedColumns(s.typ, columns)
	if l, ok := longSoftmaxFor(s, columns); ok && s.cached == 0 {
		return launchSoftmax(l, true, 1, list...)
	}
	return launchSoftmax(s, s.unit, rowThreads/s.group, list...)
}

// launchSoftmax plans the launch of a kernel in which a block processes blockRows rows.
func launchSoftmax[S spec](s S, unit bool, blockRows int, list ...Operand) ([]Launch, error) {
	rows, columns := list[0].Shape.At(0), list[0].Shape.At(1)
	k, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 128)
	p.u32(uint32(rows))
	p.u32(uint32(columns))
	for _, o := range list {
		p.packRows(o, unit)
	}
	l, err := p.launch(k, ceilDiv(rows, blockRows))
	return []Launch{l}, err
}

// checkRows checks that the operands have the same floating-point type and the same shape, of rank
// 2.
func checkRows(op string, list ...Operand) error {
	out := list[0]
	for _, o := range list {
		if o.Shape != out.Shape || o.Shape.Rank() != 2 || o.Type != out.Type || !o.Type.IsFloat() {
			return fail(op, "operands %v %v and %v %v: one floating-point type and one shape of rank 2 are wanted", out.Type, out.Shape, o.Type, o.Shape)
		}
	}
	if out.Shape.At(0) > 1<<31-1 || out.Shape.At(1) > 1<<31-1<<13 {
		return fail(op, "shape %v exceeds 2³¹", out.Shape)
	}
	return nil
}

// cachedKinds returns the type of the values in the cache, and their number for each column.
// Softmax caches one value in the computing type: the element, and later its exponential. The
// gradient caches the elements of both operands as they were read.
func (s softmaxSpec) cachedKinds() (t dtype.Type, kinds int) {
	if s.grad {
		return s.typ, 2
	}
	return s.typ.Compute(), 1
}

func (s softmaxSpec) dynamicShared() int {
	t, kinds := s.cachedKinds()
	return beyondStatic(cacheBytes(t, s.cached, kinds, s.group), acrossBytes)
}

func (s softmaxSpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	roomForRegisters(b)
	if s.typ == dtype.F64 && s.form.odd {
		// With fewer blocks a thread has more registers. It needs them for a column at an end of
		// the row, because a float64 value takes two registers.
		b.MinBlocks(3)
	}
	rows, columns := b.Param("rows", ptx.U32), b.Param("columns", ptx.U32)
	t := computing(s.typ.Compute())
	kept, kinds := s.cachedKinds()
	if s.grad {
		dx, y, g := declareRows(b, "dx", s.typ, s.unit), declareRows(b, "y", s.typ, s.unit), declareRows(b, "g", s.typ, s.unit)
		w := newRows(b, s.group, s.typ, rows, columns)
		dx, y, g = dx.atRow(w.row), y.atRow(w.row), g.atRow(w.row)
		w.access(s.form, y)
		w.inCache(kept, s.cached, kinds)
		s.gradient(w, t, dx, y, g)
		return [3]int{rowThreads, 1, 1}
	}
	y, x := declareRows(b, "y", s.typ, s.unit), declareRows(b, "x", s.typ, s.unit)
	w := newRows(b, s.group, s.typ, rows, columns)
	y, x = y.atRow(w.row), x.atRow(w.row)
	w.access(s.form, x)
	w.inCache(kept, s.cached, kinds)
	load := w.loadAll(x)
	var top, sum ptx.Value
	if s.cached > 0 {
		b.Comment("the row's maximum")
		top = w.max(t, load, itself)
		b.Comment("the sum of exponentials")
	} else {
		b.Comment("the row's maximum and the sum of exponentials")
		top, sum = w.exponentials(t, load)
	}
	exp := func(v []ptx.Value) ptx.Value { return call(b, "exp", v[0].Sub(top)) }
	quotient, again := exp, load
	switch {
	case s.cached == 0:
	case s.log:
		again = w.loadCached
		sum = w.sum(t, again, exp)
	default: // the exponentials replace the elements in the cache
		again, quotient = w.loadCached, itself
		sum = w.sum(t, func(i ptx.Value) []ptx.Value {
			v := w.apply(w.loadCached(i), exp)
			w.storeCached(i, v)
			return v
		}, itself)
	}
	if s.log {
		b.Comment("x - maximum - log of the sum")
		lse := call(b, "log", sum)
		w.write(y, again, func(_ ptx.Value, v []ptx.Value) ptx.Value { return v[0].Sub(top).Sub(lse) })
		return [3]int{rowThreads, 1, 1}
	}
	b.Comment("the quotients: the sum is 1 at least, or NaN, or 0 where all is -Inf")
	inverse := sum.Rcp()
	w.write(y, again, func(_ ptx.Value, v []ptx.Value) ptx.Value { return quotient(v).Mul(inverse) })
	return [3]int{rowThreads, 1, 1}
}

// gradient emits the code that stores dx = y·(g - Σ g·y), or for the logarithm dx = g - exp(y)·Σ g.
func (s softmaxSpec) gradient(w *rowWork, t ptx.Type, dx, y, g rowOperand) {
	both := w.loadAll(y, g)
	first, again := both, both
	if s.cached > 0 {
		again = w.loadCached
		first = func(i ptx.Value) []ptx.Value {
			v := both(i)
			w.storeCached(i, v)
			return v
		}
	}
	if s.log {
		if s.cached == 0 {
			first = w.loadAll(g)
		}
		sum := w.sum(t, first, func(v []ptx.Value) ptx.Value { return v[len(v)-1] })
		w.write(dx, again, func(_ ptx.Value, v []ptx.Value) ptx.Value { return v[1].Sub(call(w.Builder, "exp", v[0]).Mul(sum)) })
		return
	}
	sum := w.sum(t, first, func(v []ptx.Value) ptx.Value { return v[1].Mul(v[0]) })
	w.write(dx, again, func(_ ptx.Value, v []ptx.Value) ptx.Value { return v[0].Mul(v[1].Sub(sum)) })
}
