package tensor

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// matmulFunc computes the product of two matrices, or of two equally large batches of matrices.
type matmulFunc struct {
	columns bool // true if the second operand is stored column by column, as a transposed weight is
	// type of the result: F32 for 16-bit operands, or Invalid for the operands' type
	to dtype.Type
}

func (matmulFunc) Name() string { return "matmul" }

// These are the two products whose result has the operands' type. They are allocated once, because
// the allocation takes about as long as a small product.
var rowsProduct, columnsProduct Function = matmulFunc{}, matmulFunc{columns: true}

// productBy returns the Function that multiplies by y, which may be stored by rows or by columns.
func productBy(y *Tensor) Function {
	if y.byColumns() {
		return columnsProduct
	}
	return rowsProduct
}

func (f matmulFunc) Forward(c *Context, in []*Tensor) *Tensor {
	a, b := in[0], in[1]
	out := a.layout.Shape.With(a.Rank()-1, b.layout.Shape.At(b.Rank()-1))
	s, t := c.Scope(), a.dtype
	if f.to != dtype.Invalid {
		t = f.to
	}
	y := alloc("matmul", s, a.st.dev, t, out)
	multiplyAdd("matmul", s, y, a, b, nil)
	if c.Needs(0) {
		c.Save(b)
	}
	if c.Needs(1) {
		c.Save(a)
	}
	return y
}

func (f matmulFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

// byColumns reports whether the matrix x is dense and stored column by column.
func (x *Tensor) byColumns() bool {
	l := x.layout
	return l.Shape.At(0) > 1 && l.Strides.At(0) == 1 && l.Strides.At(1) == l.Shape.At(0)
}

// multiply writes the product of a and b to the tensor out. a and b are matrices or batches of
// matrices.
func multiply(op string, s *Scope, out, a, b *Tensor) {
	m := matmulOps.get()
	m.TF32 = s.takesTF32(a.dtype)
	out.batchInto(&m.Out)
	a.batchInto(&m.A)
	b.batchInto(&m.B)
	launch(op, s, m, out, nil, nil, a, b)
	m.Out.Buf, m.A.Buf, m.B.Buf = nil, nil, nil
	matmulOps.free.Put(m)
}

// multiplyAdd writes the product of a and b to the tensor out. It adds bias to each row unless bias
// is nil. For 16-bit operands, the tensor out may be float32. If the device cannot do this in one
// op, the product is first computed in the operands' type.
func multiplyAdd(op string, s *Scope, out, a, b, bias *Tensor) {
	v := device.MatMul{TF32: s.takesTF32(a.dtype)}
	out.batchInto(&v.Out)
	a.batchInto(&v.A)
	b.batchInto(&v.B)
	if bias != nil {
		v.Bias = bias.operand()
	}
	if m := matmulOps.supported(s, out.st.dev, v); m != nil {
		launch(op, s, m, out, nil, nil, a, b, bias)
		matmulOps.put(m)
		return
	}
	if out.dtype == a.dtype {
		multiply(op, s, out, a, b)
	} else {
		product := alloc(op, s, a.st.dev, a.dtype, out.layout.Shape)
		defer product.Free()
		multiply(op, s, product, a, b)
		run(op, s, castProgram(a.dtype, out.dtype), out, []*Tensor{product}, nil)
	}
	if bias != nil {
		run(op, s, addProgram(out.dtype, bias.dtype), out, []*Tensor{out, bias.detachedIn(s).expand(out.layout.Shape)}, nil)
	}
}

// batchInto sets the type and the layout of v to those of x, as a batch of matrices. v gets no
// buffer.
func (x *Tensor) batchInto(v *device.View) {
	if v.Type = x.dtype; x.Rank() == 2 {
		v.Layout = x.layout.Unsqueeze(0)
	} else {
		v.Layout = x.layout
	}
}

func (f matmulFunc) VJP(c *Context, g *Tensor) []*Tensor {
	var da, db *Tensor
	g = g.Cast(c.n.operands[0].dtype)
	k := 0
	if c.Needs(0) {
		k++
	}
	// Compute the gradient of the second operand first. If the second operand is a weight, its
	// gradient is small. The first operand, a batch, can then be freed before its own gradient is
	// allocated.
	if c.Needs(1) {
		var a *Tensor
		if c.Wants(1) {
			a = c.Saved(k)
			db = f.secondGrad(a, g)
		}
		c.release(k, a)
	}
	if c.Wants(0) {
		da = Apply(rowsProduct, g, c.Saved(0).T())
	}
	return []*Tensor{da, db}
}

func (f matmulFunc) secondGrad(a, g *Tensor) *Tensor {
	// The gradient of an operand stored by columns is stored by columns too. If the operand is the
	// transpose of a leaf, the leaf can use the gradient without a copy.
	if f.columns {
		return Apply(rowsProduct, g.T(), a).T()
	}
	t := a.T()
	defer t.Free()
	return Apply(rowsProduct, t, g)
}

// MatMul returns the matrix product x·y, as torch.matmul does. Vectors are rows or columns, and two
// vectors give their dot product. Dimensions before the last two are batches, and are broadcast.
// Both operands have the same element type. float32 is computed in IEEE float32 unless [AllowTF32]
// says otherwise. 16-bit floats accumulate in float32.
func (x *Tensor) MatMul(y *Tensor) *Tensor {
	if y := underAutocast("matmul", AutocastLow, func(in []*Tensor) *Tensor { return in[0].MatMul(in[1]) }, x, y); y != nil {
		return y
	}
	in := []*Tensor{x, y}
	youngest("matmul", in)
	sameDevice("matmul", in)
	if x.dtype != y.dtype {
		e := newError("matmul", ErrType, in, fmt.Sprintf("operands are %v and %v", x.dtype, y.dtype))
		panic(e.hint("Cast one of them"))
	}
	if x.dtype == dtype.Bool {
		fail("matmul", ErrType, in, "bool matrices cannot be multiplied")
	}
	return x.product("matmul", y)
}

// product returns the matrix product x·y by the op with this name: matmul, or int_mm of int8. The
// types are checked already.
func (x *Tensor) product(op string, y *Tensor) *Tensor {
	in := []*Tensor{x, y}
	if x.Rank() == 0 || y.Rank() == 0 {
		fail(op, ErrShape, in, "both operands need at least one dimension, they have shapes %s", shapes(in))
	}
	if x.Rank() == 1 {
		if k := y.Dim(max(-2, -y.Rank())); x.Dim(0) != k {
			e := newError(op, ErrShape, in, fmt.Sprintf("%v × %v: inner dimensions %d and %d differ", x.Shape(), y.Shape(), x.Dim(0), k))
			if y.Rank() > 1 && x.Dim(0) == y.Dim(-1) {
				e.hint("did you mean y.T()?")
			}
			panic(e)
		}
		if y.Rank() == 1 {
			return x.Unsqueeze(0).product(op, y.Unsqueeze(1)).reshape(shape.Dims{})
		}
		return x.Unsqueeze(0).product(op, y).Squeeze(-2)
	}
	if y.Rank() == 1 {
		return x.product(op, y.Unsqueeze(1)).Squeeze(-1)
	}
	k, k2 := x.Dim(-1), y.Dim(-2)
	if k != k2 {
		e := newError(op, ErrShape, in, fmt.Sprintf("%v × %v: inner dimensions %d and %d differ", x.Shape(), y.Shape(), k, k2))
		if k == y.Dim(-1) {
			e.hint("did you mean y.T()?")
		} else if k2 == x.Dim(-2) {
			e.hint("did you mean x.T()?")
		} else if x.Rank() > 2 && x.Size() == x.Dim(0)*k2 {
			e.hint("did you mean x.Flatten(1, -1)?")
		}
		panic(e)
	}
	whole, matrices := intProduct, intProduct
	if op == "matmul" {
		if matrices = rowsProduct; y.Rank() == 2 {
			whole = productBy(y)
		}
	}
	switch {
	case x.Rank() == 2 && y.Rank() == 2:
		return Apply(whole, in...)
	case y.Rank() == 2: // one product computes the rows of all batches
		out := x.layout.Shape.With(x.Rank()-1, y.Dim(-1))
		rows := x.Size() / max(k, 1)
		if k == 0 {
			rows = out.Size() / max(y.Dim(-1), 1)
		}
		a := x.reshape(shape.Of(rows, k))
		return freeView(Apply(whole, a, y), a, x).reshaped(out)
	}
	bx, by := x.layout.Shape.Head(x.Rank()-2), y.layout.Shape.Head(y.Rank()-2)
	batch, _, ok := shape.Broadcast(bx, by)
	if !ok {
		fail(op, ErrShape, in, "%v × %v: batch dimensions %v and %v do not broadcast", x.Shape(), y.Shape(), bx, by)
	}
	n := batch.Size()
	flat := func(t *Tensor) *Tensor {
		r, c := t.Dim(-2), t.Dim(-1)
		wide := t.expand(batch.Append(r, c))
		return freeView(wide.reshape(shape.Of(n, r, c)), wide, t)
	}
	a, b := flat(x), flat(y)
	p := Apply(matrices, a, b)
	return freeView(freeView(p, a, x), b, y).reshaped(batch.Append(x.Dim(-2), y.Dim(-1)))
}

// freeView frees view, unless it is x or y itself, and returns y. view is a handle that nothing
// else uses. Without this call, view would keep x's memory alive as long as the scope.
func freeView(y, view, x *Tensor) *Tensor {
	if view != x && view != y {
		view.Free()
	}
	return y
}

// reshaped does what x.reshape does, and frees x, which nothing else uses.
func (x *Tensor) reshaped(s shape.Dims) *Tensor { return freeView(x.reshape(s), x, nil) }
