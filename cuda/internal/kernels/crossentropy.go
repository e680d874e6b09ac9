package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// crossEntropySpec describes the fused cross-entropy kernel, or the kernel of its gradient.
type crossEntropySpec struct {
	typ   dtype.Type // type of x and dx
	grad  bool
	unit  bool
	form  rowForm
	group int
	one   bool // whether g is absent and counts as 1
	count bool // whether g is divided by a count, which the kernel loads
	logs  bool // whether x holds logarithms of probabilities; if so, top and rest are absent
}

func (s crossEntropySpec) name() string {
	name := "crossentropy"
	if s.grad {
		name += "_grad"
	}
	if s.logs {
		name += "_logs"
	}
	if s.one {
		name += "_one"
	}
	if s.count {
		name += "_count"
	}
	if !s.unit {
		name += "_strided"
	}
	return fmt.Sprintf("%s_%v_%v_%d", name, s.typ, s.form, s.group)
}

// CrossEntropy plans loss[i] = rest[i] - (x[i, target[i]] - top[i]). It also computes top[i] as the
// maximum of x[i], and rest[i] as log Σ exp(x[i] - top[i]). x has the shape [n, classes] and target
// is I64 [n]. The operands loss, top and rest have the shape [n] and x's computing type. Where
// target equals ignore, the loss is 0. A target outside of the classes gives 0 and is reported in
// the fault record. If top and rest are absent, loss[i] = -x[i, target[i]].
func CrossEntropy(loss, top, rest, x, target Operand, ignore int64, fault uint64, tag uint32) ([]Launch, error) {
	const op = "cross-entropy"
	columns, logs := []Operand{loss, top, rest}, top.Addr == 0
	if logs {
		columns = columns[:1]
	}
	if err := checkCrossEntropy(op, x, target, columns...); err != nil || x.Shape.At(0) == 0 {
		return nil, err
	}
	s, rows := crossEntropySpec{typ: x.Type, unit: unitColumns(x), logs: logs}, x.Shape.At(0)
	blocks := ceilDiv(rows, rowThreads)
	if !logs {
		s.form, s.group = rowVectors(x), rowGroup(x.Shape.At(1))
		blocks = rowBlocks(rows, x.Shape.At(1))
	}
	k, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 128)
	p.u32(uint32(rows))
	p.u32(uint32(x.Shape.At(1)))
	for _, o := range append(columns, target) {
		p.packRows(o, true)
	}
	p.packRows(x, s.unit)
	p.u64(uint64(ignore))
	p.packFault(fault, tag)
	l, err := p.launch(k, blocks)
	return []Launch{l}, err
}

// meansOfTargets maps each type of the losses to the reduction that MeanOfTargets plans. Operand 0
// is the losses, and operand 1 is the targets. The reduction divides the sum of the losses by the
// number of targets that differ from the scalar parameter 0, the class to ignore.
var meansOfTargets = map[dtype.Type]*device.Reduction{}

func init() {
	for _, t := range []dtype.Type{dtype.F32, dtype.F64} {
		in := []dtype.Type{t, dtype.I64}
		meansOfTargets[t] = &device.Reduction{Kind: device.Sum,
			Map:    expr.MustLower([]*expr.Expr{expr.X(0), expr.X(1).Ne(expr.Param(0))}, []dtype.Type{t, dtype.Bool}, in, -1),
			Finish: expr.MustLower([]*expr.Expr{expr.X(0).Div(expr.X(1).Cvt(t))}, []dtype.Type{t}, in, -1)}
	}
}

// MeanOfTargets plans mean = Σ loss / count, where count is the number of targets that differ from
// ignore. The sum has the same bits as with [Reduce], because it is added in the same order.
func MeanOfTargets(mean, count, loss, target Operand, ignore int64, scratch Scratch) ([]Launch, error) {
	return planReduce(meansOfTargets[mean.Type], mean, count, []Operand{loss, target}, []uint64{uint64(ignore)}, scratch, reduceTune{})
}

// CrossEntropyGrad plans dx = (exp(x - top[i] - rest[i]) - onehot(target))·g[i]. dx is 0 in rows
// whose target equals ignore or is not a class. An absent g counts as 1. If the operand count is
// present, g is divided by it. If x, top and rest are absent, dx = -onehot(target)·g[i].
func CrossEntropyGrad(dx, x, top, rest, target, g, count Operand, ignore int64) ([]Launch, error) {
	const op = "cross-entropy gradient"
	vectors, matrices := []Operand{top, rest}, []Operand{x, dx}
	logs := x.Addr == 0
	if logs {
		vectors, matrices = nil, matrices[1:]
	}
	if g.Addr != 0 {
		vectors = append(vectors, g)
	}
	if err := checkCrossEntropy(op, dx, target, vectors...); err != nil || dx.Shape.Size() == 0 {
		return nil, err
	}
	if err := checkRows(op, dx, matrices[0]); err != nil {
		return nil, err
	}
	rows, columns := dx.Shape.At(0), dx.Shape.At(1)
	s := crossEntropySpec{typ: dx.Type, grad: true, unit: unitColumns(matrices...), form: rowVectors(matrices...), group: rowGroup(columns),
		one: g.Addr == 0, count: count.Addr != 0, logs: logs}
	k, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 128)
	p.u32(uint32(rows))
	p.u32(uint32(columns))
	for _, o := range append(vectors, target) {
		p.packRows(o, true)
	}
	if s.count {
		p.u64(count.start())
	}
	for _, o := range matrices {
		p.packRows(o, s.unit)
	}
	p.u64(uint64(ignore))
	l, err := p.launch(k, rowBlocks(rows, columns))
	return []Launch{l}, err
}

// checkCrossEntropy checks x, the targets, and the operands with one value for each row.
func checkCrossEntropy(op string, x, target Operand, vectors ...Operand) error {
	if err := checkRows(op, x); err != nil {
		return err
	}
	n := x.Shape.At(0)
	if target.Type != dtype.I64 || target.Shape.Rank() != 1 || target.Shape.At(0) != n {
		return fail(op, "target is %v %v, not int64 [%d]", target.Type, target.Shape, n)
	}
	for _, v := range vectors {
		if v.Type != x.Type.Compute() || v.Shape.Rank() != 1 || v.Shape.At(0) != n {
			return fail(op, "operand %v %v, not %v [%d]", v.Type, v.Shape, x.Type.Compute(), n)
		}
	}
	return nil
}

func (s crossEntropySpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	roomForRegisters(b)
	rows, columns := b.Param("rows", ptx.U32), b.Param("columns", ptx.U32)
	switch {
	case s.grad:
		s.buildGrad(b, rows, columns)
	case s.logs:
		s.buildPick(b, rows, columns)
	default:
		s.buildLoss(b, rows, columns)
	}
	return [3]int{rowThreads, 1, 1}
}

func (s crossEntropySpec) buildGrad(b *ptx.Builder, rows, columns ptx.Value) {
	t, value := computing(s.typ.Compute()), s.typ.Compute()
	var top, rest, x rowOperand
	if !s.logs {
		top, rest = declareRows(b, "top", value, true), declareRows(b, "rest", value, true)
	}
	scale := func(ptx.Value) ptx.Value { return b.Const(t, real(1)) }
	if !s.one {
		g := declareRows(b, "g", value, true)
		scale = func(row ptx.Value) ptx.Value { return g.atRow(row).p.Load() }
	}
	target := declareRows(b, "target", dtype.I64, true)
	if s.count {
		count, of := b.Pointer("count", ptx.S64), scale
		scale = func(row ptx.Value) ptx.Value { return of(row).Div(count.Load().Cvt(t)) }
	}
	if !s.logs {
		x = declareRows(b, "x", s.typ, s.unit)
	}
	dx := declareRows(b, "dx", s.typ, s.unit)
	ignore := b.Param("ignore", ptx.S64)
	w := newRows(b, s.group, s.typ, rows, columns)
	if s.logs {
		dx = dx.atRow(w.row)
		w.access(s.form, dx)
	} else {
		x, dx = x.atRow(w.row), dx.atRow(w.row)
		w.access(s.form, x)
	}
	class := target.atRow(w.row).p.Load()
	// The forward kernel has already reported targets that are not a class.
	ok := class.Ne(ignore).And(class.Bitcast(ptx.U64).Lt(columns.Cvt(ptx.U64)))
	b.IfElse(ok, func() {
		if s.logs {
			hot := class.Cvt(ptx.U32)
			// For g = 0 the result is 0 - g = +0. In PyTorch it is also +0, because PyTorch adds -g
			// to zeros.
			zero := b.Const(t, real(0))
			minus := zero.Sub(scale(w.row))
			w.write(dx, w.loadAll(), func(i ptx.Value, _ []ptx.Value) ptx.Value { return i.Eq(hot).Select(minus, zero) })
			return
		}
		greatest, sum, scale := top.atRow(w.row).p.Load(), rest.atRow(w.row).p.Load(), scale(w.row)
		hot := class.Cvt(ptx.U32)
		w.write(dx, w.loadAll(x), func(i ptx.Value, v []ptx.Value) ptx.Value {
			p := call(b, "exp", v[0].Sub(greatest).Sub(sum))
			// Adding +0 turns -0 into +0. In PyTorch the result is also +0, because PyTorch
			// subtracts products from g.
			return i.Eq(hot).Select(p.Sub(real(1)), p).Mul(scale).Add(real(0))
		})
	}, func() {
		w.write(dx, w.loadAll(), func(ptx.Value, []ptx.Value) ptx.Value { return b.Const(t, real(0)) })
	})
}

// buildPick emits the kernel that computes losses of logarithms of probabilities. One thread
// computes a row.
func (s crossEntropySpec) buildPick(b *ptx.Builder, rows, columns ptx.Value) {
	loss, target := declareRows(b, "loss", s.typ.Compute(), true), declareRows(b, "target", dtype.I64, true)
	x := declareRows(b, "x", s.typ, s.unit)
	ignore, fault := b.Param("ignore", ptx.S64), declareFault(b)
	row := b.BlockID(0).Mad(num(rowThreads), b.ThreadID(0))
	b.ReturnIf(row.Ge(rows))
	s.storeLoss(b, loss, target, row, columns, ignore, fault, func(class ptx.Value) ptx.Value { return x.atRow(row).load(b, class).Neg() })
}

// storeLoss stores a row's loss. The function f computes the loss for the target class. If the
// target is not a class, storeLoss reports it in the fault record.
func (s crossEntropySpec) storeLoss(b *ptx.Builder, loss, target rowOperand, row, columns, ignore ptx.Value, fault faultParams, f func(class ptx.Value) ptx.Value) {
	class := target.atRow(row).p.Load()
	result := b.Var(b.Const(computing(s.typ.Compute()), real(0)))
	b.If(class.Ne(ignore), func() {
		bound := columns.Cvt(ptx.S64)
		b.IfElse(class.Bitcast(ptx.U64).Lt(bound.Bitcast(ptx.U64)),
			func() { result.Set(f(class.Cvt(ptx.U32))) },
			func() { fault.report(b, class, bound, row.Cvt(ptx.S64)) })
	})
	loss.atRow(row).p.Store(result)
}

// buildLoss emits the kernel that computes losses of logits.
func (s crossEntropySpec) buildLoss(b *ptx.Builder, rows, columns ptx.Value) {
	t, value := computing(s.typ.Compute()), s.typ.Compute()
	loss, tops := declareRows(b, "loss", value, true), declareRows(b, "top", value, true)
	rests, target := declareRows(b, "rest", value, true), declareRows(b, "target", dtype.I64, true)
	x := declareRows(b, "x", s.typ, s.unit)
	ignore := b.Param("ignore", ptx.S64)
	if value == dtype.F64 {
		b.MinBlocks(3) // float64 values need twice the registers of float32 values
	}
	fault := declareFault(b)
	w := newRows(b, s.group, s.typ, rows, columns)
	x = x.atRow(w.row)
	w.access(s.form, x)
	b.Comment("the logarithm of the sum of exponentials")
	load := w.loadAll(x)
	top, sum := w.exponentials(t, load)
	rest := call(b, "log", sum)
	b.If(w.lane.Eq(num(0)), func() {
		b.Comment("the loss of the row")
		tops.atRow(w.row).p.Store(top)
		rests.atRow(w.row).p.Store(rest)
		s.storeLoss(b, loss, target, w.row, columns, ignore, fault, func(class ptx.Value) ptx.Value { return x.load(b, class).Sub(top).Sub(rest).Neg() })
	})
}
