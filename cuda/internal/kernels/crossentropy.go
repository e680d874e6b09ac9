package kernels

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/ptx"
)

// crossEntropySpec describes a fused cross-entropy kernel, or its gradient.
type crossEntropySpec struct {
	typ   dtype.Type // of x and dx
	grad  bool
	unit  bool
	group int
}

func (s crossEntropySpec) name() string {
	name := "crossentropy"
	if s.grad {
		name += "_grad"
	}
	if !s.unit {
		name += "_strided"
	}
	return fmt.Sprintf("%s_%v_%d", name, s.typ, s.group)
}

// CrossEntropy plans loss[i] = lse[n+i] - (x[i, target[i]] - lse[i]) with lse[i] the greatest of x[i] and lse[n+i] =
// log Σ exp(x[i] - lse[i]), for x of shape [n, classes], target I64 [n], and loss [n] and lse [2n] of x's computing type. Where target is ignore the loss is 0; a target outside of the
// classes gives 0 and is reported in the fault record.
func CrossEntropy(loss, lse, x, target Operand, ignore int64, fault uint64, tag uint32) ([]Launch, error) {
	const op = "cross-entropy"
	if err := checkCrossEntropy(op, x, target, lse, loss); err != nil || x.Shape.At(0) == 0 {
		return nil, err
	}
	s := crossEntropySpec{typ: x.Type, unit: unitColumns(x), group: rowGroup(x.Shape.At(1))}
	k, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 128)
	p.u32(uint32(x.Shape.At(0)))
	p.u32(uint32(x.Shape.At(1)))
	for _, o := range []Operand{loss, lse, target} {
		p.packRows(o, true)
	}
	p.packRows(x, s.unit)
	p.u64(uint64(ignore))
	p.packFault(fault, tag)
	l, err := p.launch(k, rowBlocks(x.Shape.At(0), x.Shape.At(1)))
	return []Launch{l}, err
}

// CrossEntropyGrad plans dx = (exp(x - lse[i] - lse[n+i]) - onehot(target))·g[i], 0 in rows whose target is ignore or not a class.
func CrossEntropyGrad(dx, x, lse, target, g Operand, ignore int64) ([]Launch, error) {
	const op = "cross-entropy gradient"
	if err := checkCrossEntropy(op, x, target, lse, g); err != nil || x.Shape.Size() == 0 {
		return nil, err
	}
	if err := checkRows(op, dx, x); err != nil {
		return nil, err
	}
	s := crossEntropySpec{typ: x.Type, grad: true, unit: unitColumns(x, dx), group: rowGroup(x.Shape.At(1))}
	k, err := kernelOf(s)
	if err != nil {
		return nil, err
	}
	p := make(packer, 0, 128)
	p.u32(uint32(x.Shape.At(0)))
	p.u32(uint32(x.Shape.At(1)))
	for _, o := range []Operand{lse, g, target} {
		p.packRows(o, true)
	}
	p.packRows(x, s.unit)
	p.packRows(dx, s.unit)
	p.u64(uint64(ignore))
	l, err := p.launch(k, rowBlocks(x.Shape.At(0), x.Shape.At(1)))
	return []Launch{l}, err
}

// checkCrossEntropy checks x, the targets, the two values a row of lse and a vector of one value a row.
func checkCrossEntropy(op string, x, target, lse, vector Operand) error {
	if err := checkRows(op, x); err != nil {
		return err
	}
	n := x.Shape.At(0)
	if target.Type != dtype.I64 || target.Shape.Rank() != 1 || target.Shape.At(0) != n {
		return fail(op, "target is %v %v, not int64 [%d]", target.Type, target.Shape, n)
	}
	for i, v := range []Operand{vector, lse} {
		if v.Type != x.Type.Compute() || v.Shape.Rank() != 1 || v.Shape.At(0) != (i+1)*n {
			return fail(op, "operand %v %v, not %v [%d]", v.Type, v.Shape, x.Type.Compute(), (i+1)*n)
		}
	}
	return nil
}

func (s crossEntropySpec) build(b *ptx.Builder, _ []*expr.Program) [3]int {
	roomForRegisters(b)
	rows, columns := b.Param("rows", ptx.U32), b.Param("columns", ptx.U32)
	t := computing(s.typ.Compute())
	value := s.typ.Compute()
	if s.grad {
		lse, g, target := declareRows(b, "lse", value, true), declareRows(b, "g", value, true), declareRows(b, "target", dtype.I64, true)
		x, dx := declareRows(b, "x", s.typ, s.unit), declareRows(b, "dx", s.typ, s.unit)
		ignore := b.Param("ignore", ptx.S64)
		w := newRows(b, s.group, s.typ, rows, columns)
		x, dx = x.at(w.row), dx.at(w.row)
		class := target.at(w.row).p.Load()
		// A target that is no class was reported by the forward kernel.
		ok := class.Ne(ignore).And(class.Bitcast(ptx.U64).Lt(columns.Cvt(ptx.U64)))
		b.IfElse(ok, func() {
			top, sum, scale := lse.at(w.row).p.Load(), lse.at(w.row.Add(rows)).p.Load(), g.at(w.row).p.Load()
			hot := class.Cvt(ptx.U32)
			w.each(loadAll(b, x), func(i ptx.Value, v []ptx.Value) {
				p := call(b, "exp", v[0].Sub(top).Sub(sum))
				dx.store(b, i, i.Eq(hot).Select(p.Sub(real(1)), p).Mul(scale).Add(real(0))) // +0 for -0: torch subtracts products from g
			})
		}, func() {
			w.each(loadAll(b), func(i ptx.Value, _ []ptx.Value) { dx.store(b, i, b.Const(t, real(0))) })
		})
		return [3]int{rowThreads, 1, 1}
	}
	loss, lse, target := declareRows(b, "loss", value, true), declareRows(b, "lse", value, true), declareRows(b, "target", dtype.I64, true)
	x := declareRows(b, "x", s.typ, s.unit)
	ignore := b.Param("ignore", ptx.S64)
	fault := declareFault(b)
	w := newRows(b, s.group, s.typ, rows, columns)
	x = x.at(w.row)
	b.Comment("the logarithm of the sum of exponentials")
	load := loadAll(b, x)
	top := w.max(t, load, itself)
	sum := w.sum(t, load, func(v []ptx.Value) ptx.Value { return call(b, "exp", v[0].Sub(top)) })
	total := call(b, "log", sum)
	b.If(w.lane.Eq(num(0)), func() {
		b.Comment("the loss of the row")
		lse.at(w.row).p.Store(top)
		lse.at(w.row.Add(rows)).p.Store(total)
		class := target.at(w.row).p.Load()
		result := b.Var(b.Const(t, real(0)))
		b.If(class.Ne(ignore), func() {
			bound := columns.Cvt(ptx.S64)
			b.IfElse(class.Bitcast(ptx.U64).Lt(bound.Bitcast(ptx.U64)),
				func() { result.Set(x.load(b, class.Cvt(ptx.U32)).Sub(top).Sub(total).Neg()) },
				func() { fault.report(b, class, bound, w.row.Cvt(ptx.S64)) })
		})
		loss.at(w.row).p.Store(result)
	})
	return [3]int{rowThreads, 1, 1}
}
