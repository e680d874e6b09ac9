package cuda

import (
	"github.com/flambeau-go/flambeau/cuda/internal/kernels"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

// scatter plans a scatter. For 16-bit floats, sums and products are computed in a float32 copy of
// the destination, because otherwise each addition or multiplication would be rounded to 16 bits.
func (t *scratch) scatter(o *device.Scatter, fault uint64) ([]kernels.Launch, error) {
	dst, src, index := operand(&o.Dst), operand(&o.Src), operand(&o.Index)
	rounds := o.Kind == device.ScatterAdd || o.Kind == device.ScatterProd
	if index.Shape.Size() == 0 || !rounds || !dst.Type.IsHalf() || o.Distinct || kernels.ScatterSorts(dst, src, index, o.Axis) {
		return kernels.Scatter(o.Kind, dst, src, index, o.Axis, o.Distinct, fault, o.Tag, t.alloc)
	}
	var list []kernels.Launch
	cast := func(to, from kernels.Operand) error {
		p, err := expr.Lower([]*expr.Expr{expr.X(0)}, []dtype.Type{to.Type}, []dtype.Type{from.Type}, -1)
		if err != nil {
			return err
		}
		l, err := kernels.Map(p, []kernels.Operand{to}, []kernels.Operand{from}, nil)
		list = append(list, l...)
		return err
	}
	wide := [2]kernels.Operand{dst, src}
	for i, narrow := range wide {
		var err error
		if wide[i], err = t.temporary(dtype.F32, narrow.Shape); err != nil {
			return nil, err
		}
		if err = cast(wide[i], narrow); err != nil {
			return nil, err
		}
	}
	l, err := kernels.Scatter(o.Kind, wide[0], wide[1], index, o.Axis, false, fault, o.Tag, t.alloc)
	if err != nil {
		return nil, err
	}
	list = append(list, l...)
	err = cast(dst, wide[0])
	return list, err
}
