package cuda

import (
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// Matrix products of bool count pairs of true elements in int32, which is exact for up to 2³¹-1
// terms.
var (
	countTrue = expr.MustLower([]*expr.Expr{expr.X(0).Cvt(dtype.I32)}, []dtype.Type{dtype.I32}, []dtype.Type{dtype.Bool}, -1)
	anyTrue   = expr.MustLower([]*expr.Expr{expr.X(0).Ne(expr.C(0))}, []dtype.Type{dtype.Bool}, []dtype.Type{dtype.I32}, -1)
)

// matMul plans a matrix product. For operands of type bool, it computes the product in int32 and
// compares each element with 0.
func (t *scratch) matMul(o *device.MatMul) ([]kernels.Launch, error) {
	out, a, b := operand(&o.Out), operand(&o.A), operand(&o.B)
	if out.Type != dtype.Bool {
		return kernels.MatMulSplit(t.d.gpu, kernels.ProductOperands{Out: out, Pre: operand(&o.Pre), Sums: operand(&o.Sums),
			A: a, B: b, Bias: operand(&o.Bias), ColumnSums: operand(&o.ColumnSums),
			With: operand(&o.With), Act: o.Act, TF32: o.TF32, Counters: t.s.counters, Choose: t.chooser()}, t.alloc)
	}
	ia, list, err := t.counted(a)
	if err != nil {
		return nil, err
	}
	ib, l, err := t.counted(b)
	if err != nil {
		return nil, err
	}
	list = append(list, l...)
	sum, err := t.temporary(dtype.I32, out.Shape)
	if err != nil {
		return nil, err
	}
	if l, err = kernels.MatMul(t.d.gpu, sum, ia, ib); err != nil {
		return nil, err
	}
	list = append(list, l...)
	l, err = kernels.Map(anyTrue, []kernels.Operand{out}, []kernels.Operand{sum}, nil)
	return append(list, l...), err
}

// counted plans the conversion of a bool operand to int32 in scratch memory.
func (t *scratch) counted(o kernels.Operand) (kernels.Operand, []kernels.Launch, error) {
	i, err := t.temporary(dtype.I32, o.Shape)
	if err != nil {
		return i, nil, err
	}
	l, err := kernels.Map(countTrue, []kernels.Operand{i}, []kernels.Operand{o}, nil)
	return i, l, err
}
