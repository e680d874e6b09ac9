package tensor

import (
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// rowShapes returns the shape of x as a matrix of rows, and the shape of a tensor with one value
// for each row.
func rowShapes(x *Tensor) (rows, column shape.Dims) {
	s := x.layout.Shape
	column = shape.Of(s.At(0) * s.At(1))
	return column.Append(s.At(2) * s.At(3)), column
}

// rows describes the normalisation of x's rows to the device's primitives.
func (f *normalizeFunc) rows(x *Tensor) device.RowNorm {
	s := x.layout.Shape
	return device.RowNorm{Eps: f.eps, RMS: f.rms, Zero: f.zero, Period: s.At(1), Inner: s.At(3)}
}

// The kernels for rows assign each row to one worker. If there are fewer than fewRows rows, and
// they are longer than longRow, reductions are faster, because they divide a row among workers. The
// bounds are the same on all devices. So they do not make the order of additions differ between
// devices.
const (
	fewRows = 64
	longRow = 1 << 14
)

func (f *normalizeFunc) suitsRows(x *Tensor) bool {
	l := x.layout.Shape
	return f.kind == normRows && x.Size() > 0 && (l.At(2)*l.At(3) <= longRow || l.At(0)*l.At(1) >= fewRows)
}

// fastForward normalises rows by the device's kernel. y is nil if the device has no such kernel.
func (f *normalizeFunc) fastForward(s *Scope, o *normOperands) (mean, rstd, y *Tensor) {
	x, w, b := o.x, o.w, o.b
	if !f.suitsRows(x) || f.bias && !f.weight {
		return nil, nil, nil
	}
	rows, column := rowShapes(x)
	acc := x.dtype.Compute()
	stat := resultOf(acc, column)
	to := f.resultType
	if to == dtype.Invalid {
		to = x.dtype
	}
	op := device.Norm{Out: resultOf(to, rows), Rstd: stat, X: resultOf(x.dtype, rows), Weight: w.flat(), Bias: b.flat(), RowNorm: f.rows(x)}
	if !f.rms {
		op.Mean = stat
	}
	k := normOps.supported(s, x.st.dev, op)
	if k == nil {
		return nil, nil, nil
	}
	x, w, b = x.Contiguous(), w.contiguous(), b.contiguous()
	kept := shape.Of(x.layout.Shape.At(0), x.layout.Shape.At(1), 1, 1)
	if !f.rms {
		mean = alloc(f.op, s, x.st.dev, acc, kept)
	}
	rstd, y = alloc(f.op, s, x.st.dev, acc, kept), alloc(f.op, s, x.st.dev, to, x.layout.Shape)
	k.X, k.Weight, k.Bias = x.operandAs(rows), w.flat(), b.flat()
	launch(f.op, s, k, y, mean, rstd, x, w, b)
	normOps.put(k)
	return mean, rstd, y
}

// A rowGradients says which gradients of a normalisation of rows are wanted.
type rowGradients struct{ x, weight, bias bool }

// fastGradients computes the wanted gradients by the device's kernel. ok is false if the device has
// no such kernel. If other VJPs have already sent a gradient for x, dx includes that gradient.
func (f *normalizeFunc) fastGradients(c *Context, wants rowGradients, g, x, w, mean, rstd *Tensor) (dx, dw, db *Tensor, ok bool) {
	if wants == (rowGradients{}) {
		return nil, nil, nil, true
	}
	if !f.suitsRows(x) {
		return nil, nil, nil, false
	}
	s := c.scope
	rows, column := rowShapes(x)
	acc, each := x.dtype.Compute(), shape.Of(x.layout.Shape.At(1)*x.layout.Shape.At(2))
	r := resultOf(x.dtype, rows)
	op := device.NormGrad{G: resultOf(g.dtype, rows), X: r, Mean: mean.operandAs(column), Rstd: rstd.operandAs(column), RowNorm: f.rows(x)}
	var more *Tensor
	if wants.x {
		op.DX, op.Weight = r, w.flat()
		if more = c.pending(0); more != nil {
			op.Add = r
		}
	} else {
		w = nil
	}
	if wants.weight {
		op.DWeight = resultOf(acc, each)
	}
	if wants.bias {
		op.DBias = resultOf(acc, each)
	}
	k := normGradOps.supported(s, x.st.dev, op)
	if k == nil {
		return nil, nil, nil, false
	}
	x, g, w = x.Contiguous(), g.Contiguous(), w.contiguous()
	name, kept := f.op+".grad", shape.Of(1, x.layout.Shape.At(1), x.layout.Shape.At(2), 1)
	if wants.x {
		dx = alloc(name, s, x.st.dev, x.dtype, x.layout.Shape)
	}
	if wants.weight {
		dw = alloc(name, s, x.st.dev, acc, kept)
	}
	if wants.bias {
		db = alloc(name, s, x.st.dev, acc, kept)
	}
	k.X, k.G, k.Weight, k.Add = x.operandAs(rows), g.operandAs(rows), w.flat(), more.operandAs(rows)
	launch(name, s, k, dx, dw, db, g, x, mean, rstd, w, more)
	normGradOps.put(k)
	if more != nil {
		c.took = 1
	}
	return dx, dw, db, true
}

// flat returns x as a vector operand without a buffer. x is contiguous, or the caller makes x
// contiguous later. For a nil x, flat returns an absent operand.
func (x *Tensor) flat() device.View {
	if x == nil {
		return device.View{}
	}
	return x.operandAs(shape.Of(x.Size()))
}

// contiguous returns x.Contiguous(), or nil for a nil x.
func (x *Tensor) contiguous() *Tensor {
	if x == nil {
		return nil
	}
	return x.Contiguous()
}
