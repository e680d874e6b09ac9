package kernels

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// sumsSpec says whether a product kernel also sums rows or columns of its factors.
type sumsSpec struct {
	rows    bool // whether the rows of a are summed
	columns bool // whether the columns of b are summed
}

// suffix returns the part of a kernel's name that describes the sums.
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

// summing returns the sums that o requests.
func (o *ProductOperands) summing() sumsSpec {
	return sumsSpec{o.Sums.Type != dtype.Invalid, o.ColumnSums.Type != dtype.Invalid}
}

// separateSums returns the sums that need launches of their own. The product's blocks cannot
// compute sums if a factor is a vector, or if the blocks round the factors. Otherwise a kernel
// has registers for either the sums of rows or the sums of columns. If both are wanted, the sums
// of columns get a launch.
func (o *ProductOperands) separateSums(scratch Scratch) sumsSpec {
	m, n, s := o.Out.Shape.At(1), o.Out.Shape.At(2), o.summing()
	switch {
	case m < 2 || n < 2 || scratch == nil || o.tf32() || o.A.Type != o.B.Type:
		return s
	case s.rows:
		return sumsSpec{columns: s.columns}
	}
	return sumsSpec{}
}

// summed plans launches for the selected sums, and removes these sums from o.
func (o *ProductOperands) summed(selected sumsSpec, scratch Scratch) (list []Launch, err error) {
	turned := o.B
	turned.Layout = o.B.Transpose(1, 2)
	for _, s := range []struct {
		yes  bool
		sums *Operand
		of   Operand
	}{{selected.rows, &o.Sums, o.A}, {selected.columns, &o.ColumnSums, turned}} {
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

// sumRows plans the sums of a matrix's rows. The matrix is a batch of one.
func sumRows(sums, matrix Operand, scratch Scratch) ([]Launch, error) {
	sums.Shape, sums.Strides = shape.Of(1, sums.Shape.At(0), 1), shape.Of(0, sums.Strides.At(0), 0)
	return Reduce(&device.Reduction{Map: identities[matrix.Type]}, sums, []Operand{matrix}, nil, scratch)
}
