package tensor

// New returns a maker in x's scope and on x's device. A Forward uses it to make tensors:
//
//	position := x.New().Arange(x.Dim(1)) // torch.arange(x.size(1), device=x.device)
//
// The element type is the maker's default: int64 for Arange, float32 elsewhere. x.New().Typed(t)
// chooses another type. [Tensor.NewZeros] and the other New methods use x's type.
func (x *Tensor) New() Maker {
	x.use("new")
	return x.scope.On(x.st.dev)
}

// typedNew returns a maker with x's scope, device and type, for torch's new_… functions.
func (x *Tensor) typedNew(op string) Maker {
	x.use(op)
	return x.scope.On(x.st.dev).Typed(x.dtype)
}

// NewEmpty returns a tensor with undefined contents and shape dims. It has x's type, device and
// scope. Like all methods whose names begin with New, it does not connect the result to x's graph.
func (x *Tensor) NewEmpty(dims ...int) *Tensor { return x.typedNew("new_empty").Empty(dims...) }

// NewZeros is [Tensor.NewEmpty] filled with zeros.
func (x *Tensor) NewZeros(dims ...int) *Tensor { return x.typedNew("new_zeros").Zeros(dims...) }

// NewOnes is [Tensor.NewEmpty] filled with ones.
func (x *Tensor) NewOnes(dims ...int) *Tensor { return x.typedNew("new_ones").Ones(dims...) }

// NewFull is [Tensor.NewEmpty] filled with v. An integer type must be able to hold v, as for
// [Tensor.Fill].
func (x *Tensor) NewFull(v float64, dims ...int) *Tensor {
	return x.typedNew("new_full").Full(v, dims...)
}

// NewTensor copies the values of v into a tensor with x's scope, type and device. v is a slice, a
// nested slice or a number, as for [Maker.From]. A tensor is refused: Clone copies one, and
// [Tensor.In] lends one to a scope.
func (x *Tensor) NewTensor(v any, dims ...int) *Tensor {
	m := x.typedNew("new_tensor")
	if t, ok := v.(*Tensor); ok {
		in := []*Tensor{x}
		if t != nil {
			in = append(in, t)
		}
		panic(newError("new_tensor", ErrValue, in, "the values are a tensor, not a slice or a number").
			hint("t.Clone() copies a tensor, t.In(x.Scope()) lends it, t.To(device) and t.Cast(type) convert it"))
	}
	return m.From(v, dims...)
}

// like returns a maker with x's scope, type and device. dims is x's shape.
func (x *Tensor) like(op string) (m Maker, dims []int) {
	x.use(op)
	return Maker{x.scope, x.dtype, x.st.dev}, x.layout.Shape.Slice()
}

// EmptyLike returns a tensor with undefined contents, and with x's shape, type, device and scope.
func (x *Tensor) EmptyLike() *Tensor { m, dims := x.like("empty_like"); return m.Empty(dims...) }

// ZerosLike returns zeros with x's shape, type, device and scope.
func (x *Tensor) ZerosLike() *Tensor { m, dims := x.like("zeros_like"); return m.Zeros(dims...) }

// OnesLike returns ones with x's shape, type, device and scope.
func (x *Tensor) OnesLike() *Tensor { m, dims := x.like("ones_like"); return m.Ones(dims...) }

// FullLike returns a tensor whose elements are all v, with x's shape, type, device and scope.
func (x *Tensor) FullLike(v float64) *Tensor {
	m, dims := x.like("full_like")
	return m.Full(v, dims...)
}

// RandLike returns random numbers, uniform in [0, 1), with x's shape, type, device and scope. The
// type must be floating point.
func (x *Tensor) RandLike() *Tensor { m, dims := x.like("rand_like"); return m.Rand(dims...) }

// RandnLike returns random numbers of the standard normal distribution, with x's shape, type,
// device and scope. The type must be floating point.
func (x *Tensor) RandnLike() *Tensor { m, dims := x.like("randn_like"); return m.Randn(dims...) }

// RandIntLike returns random integers in [lo, hi), with x's shape, type, device and scope.
func (x *Tensor) RandIntLike(lo, hi int) *Tensor {
	m, dims := x.like("randint_like")
	return m.RandInt(lo, hi, dims...)
}
