package tensor

import (
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// catFunc concatenates tensors along an axis. If stacks is true, the axis is a new one.
type catFunc struct {
	axis   int
	out    shape.Dims
	t      dtype.Type
	stacks bool
}

func (catFunc) Name() string { return "cat" }

func (f catFunc) Forward(c *Context, in []*Tensor) *Tensor {
	s := c.Scope()
	y := alloc("cat", s, in[0].st.dev, f.t, f.out)
	at := 0
	for i, x := range in {
		if f.stacks {
			runPart("cat", s, castProgram(x.dtype, f.t), y, y.layout.Select(f.axis, i), x)
			continue
		}
		if x.layout.Shape == shape.Of(0) {
			continue
		}
		n := x.layout.Shape.At(f.axis)
		runPart("cat", s, castProgram(x.dtype, f.t), y, y.layout.Narrow(f.axis, at, n, 1), x)
		at += n
	}
	return y
}

func (f catFunc) lean(c *Context, in []*Tensor) *Tensor { return f.Forward(c, in) }

func (f catFunc) VJP(c *Context, g *Tensor) []*Tensor {
	grads := make([]*Tensor, len(c.n.operands))
	at := 0
	for i, x := range c.n.operands {
		if f.stacks {
			if c.Wants(i) {
				grads[i] = g.Select(f.axis, i).Cast(x.dtype)
			}
			continue
		}
		if x.shape == shape.Of(0) {
			grads[i] = c.Scope().On(x.dev).Typed(x.dtype).Zeros(0)
			continue
		}
		n := x.shape.At(f.axis)
		if c.Wants(i) {
			grads[i] = g.Narrow(f.axis, at, n).Cast(x.dtype)
		}
		at += n
	}
	return grads
}

// Cat concatenates tensors along dimension dim. Their shapes may differ in this dimension only. The
// result has their promoted type. As in torch, empty vectors (shape [0]) are ignored.
func Cat(dim int, x ...*Tensor) *Tensor {
	if len(x) == 0 {
		fail("cat", ErrValue, nil, "there are no tensors to join")
	}
	youngest("cat", x)
	sameDevice("cat", x)
	var in []*Tensor
	for _, p := range x {
		if p.layout.Shape != shape.Of(0) {
			in = append(in, p)
		}
	}
	if len(in) == 0 {
		in = x[:1]
	}
	a := in[0].axis("cat", dim)
	if in[0].Rank() == 0 {
		panic(newError("cat", ErrShape, x, "tensors of rank 0 have no dimension to be joined along").hint("use Stack"))
	}
	out, n := in[0].layout.Shape, 0
	for i, p := range in {
		if p.Rank() != out.Rank() {
			fail("cat", ErrShape, x, "tensor %d has %d dimensions, the first %d; shapes are %s", i, p.Rank(), out.Rank(), shapes(x))
		}
		if p.layout.Shape.With(a, 1) != out.With(a, 1) {
			fail("cat", ErrShape, x, "shapes %v and %v (tensor %d) differ in another dimension than %d", in[0].Shape(), p.Shape(), i, a)
		}
		n += p.layout.Shape.At(a)
	}
	return Apply(catFunc{a, out.With(a, n), promoteAll(x), false}, x...)
}

// Stack joins tensors of one shape along a new dimension dim of the result. A negative dim counts
// from the result's last dimension.
func Stack(dim int, x ...*Tensor) *Tensor {
	if len(x) == 0 {
		fail("stack", ErrValue, nil, "there are no tensors to join")
	}
	youngest("stack", x)
	sameDevice("stack", x)
	n := x[0].Rank() + 1
	if dim < -n || dim >= n || n > shape.MaxRank {
		fail("stack", ErrShape, x, "dimension %d is out of range for a result of rank %d", dim, n)
	}
	if dim < 0 {
		dim += n
	}
	for i, p := range x {
		if p.layout.Shape != x[0].layout.Shape {
			e := newError("stack", ErrShape, x, "shapes "+x[0].Shape().String()+" and "+p.Shape().String()+" (tensor "+itoa(i)+") differ")
			panic(e.hint("Cat joins shapes that differ in one dimension"))
		}
	}
	return Apply(catFunc{dim, x[0].layout.Shape.Insert(dim, len(x)), promoteAll(x), true}, x...)
}

func promoteAll(x []*Tensor) dtype.Type {
	t := x[0].dtype
	for _, p := range x[1:] {
		t = dtype.Promote(t, p.dtype)
	}
	return t
}
