package kernels

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// sumsSpec is what a kernel for products sums up beside them.
type sumsSpec struct {
	rows    bool // of a
	columns bool // of b
}

// suffix is what it adds to a kernel's name.
func (s sumsSpec) suffix() string {
	name := ""
	if s.rows {
		name += "_sums"
	}
	if s.columns {
		name += "_columns"
	}
	return name
}

// summing is what is summed up beside o.
func (o *ProductOperands) summing() sumsSpec {
	return sumsSpec{o.Sums.Type != dtype.Invalid, o.ColumnSums.Type != dtype.Invalid}
}

// sumsBehind is what has launches of its own. It is all where blocks cannot sum up, as in a product
// with a vector, and where they round factors. Columns beside rows are another case: there are
// registers for sums of one kind.
func (o *ProductOperands) sumsBehind(scratch Scratch) sumsSpec {
	m, n, s := o.Out.Shape.At(1), o.Out.Shape.At(2), o.summing()
	switch {
	case m < 2 || n < 2 || scratch == nil || o.tf32() || o.A.Type != o.B.Type:
		return s
	case s.rows:
		return sumsSpec{columns: s.columns}
	}
	return sumsSpec{}
}

// summed plans some of the sums alone, which o then has no more.
func (o *ProductOperands) summed(which sumsSpec, scratch Scratch) (list []Launch, err error) {
	turned := o.B
	turned.Layout = o.B.Transpose(1, 2)
	for _, s := range []struct {
		yes  bool
		sums *Operand
		of   Operand
	}{{which.rows, &o.Sums, o.A}, {which.columns, &o.ColumnSums, turned}} {
		if !s.yes {
			continue
		}
		if s.sums.Shape.Size() > 0 {
			l, err := sumRows(*s.sums, s.of, scratch)
			if err != nil {
				return nil, err
			}
			list = append(list, l...)
		}
		*s.sums = Operand{}
	}
	return list, nil
}

// sumRows sums up the rows of the one matrix of a batch.
func sumRows(sums, of Operand, scratch Scratch) ([]Launch, error) {
	sums.Shape, sums.Strides = shape.Of(1, sums.Shape.At(0), 1), shape.Of(0, sums.Strides.At(0), 0)
	return Reduce(&device.Reduction{Map: identities[of.Type]}, sums, []Operand{of}, nil, scratch)
}
