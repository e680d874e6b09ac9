package tensor

// New returns a maker in x's scope and on its device, what a Forward makes tensors with:
//
//	position := x.New().Arange(x.Dim(1)) // torch.arange(x.size(1), device=x.device)
//
// Types are the maker's defaults, int64 for Arange and float32 elsewhere; x.New().Typed(t) chooses
// another one, and [Tensor.NewZeros] and its neighbours take x's.
func (x *Tensor) New() Maker {
	x.use("new")
	return x.scope.On(x.st.dev)
}

// typedNew is New with x's type: torch's new_….
func (x *Tensor) typedNew(op string) Maker {
	x.use(op)
	return x.scope.On(x.st.dev).Typed(x.dtype)
}

// NewEmpty returns a tensor with undefined contents of shape dims, of x's type, in its scope and on
// its device. As all of the family it has no part in x's graph.
func (x *Tensor) NewEmpty(dims ...int) *Tensor { return x.typedNew("new_empty").Empty(dims...) }

// NewZeros is [Tensor.NewEmpty] with zeros.
func (x *Tensor) NewZeros(dims ...int) *Tensor { return x.typedNew("new_zeros").Zeros(dims...) }

// NewOnes is [Tensor.NewEmpty] with ones.
func (x *Tensor) NewOnes(dims ...int) *Tensor { return x.typedNew("new_ones").Ones(dims...) }

// NewFull is [Tensor.NewEmpty] with the value v, which a type of integers must hold as in
// [Tensor.Fill].
func (x *Tensor) NewFull(v float64, dims ...int) *Tensor {
	return x.typedNew("new_full").Full(v, dims...)
}

// NewTensor copies the values of v, a slice, a nested slice or a number as in [Maker.From], to x's
// scope, type and device. A tensor is refused: Clone copies one, [Tensor.In] lends it to a scope.
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

// like returns the maker of tensors in x's scope, of x's type and on x's device. dims is x's shape.
func (x *Tensor) like(op string) (m Maker, dims []int) {
	x.use(op)
	return Maker{x.scope, x.dtype, x.st.dev}, x.layout.Shape.Slice()
}

// EmptyLike returns a tensor with undefined contents, of x's shape, type and device, in its scope.
func (x *Tensor) EmptyLike() *Tensor { m, dims := x.like("empty_like"); return m.Empty(dims...) }

// ZerosLike returns zeros of x's shape, type and device, in its scope.
func (x *Tensor) ZerosLike() *Tensor { m, dims := x.like("zeros_like"); return m.Zeros(dims...) }

// OnesLike returns ones of x's shape, type and device, in its scope.
func (x *Tensor) OnesLike() *Tensor { m, dims := x.like("ones_like"); return m.Ones(dims...) }

// FullLike returns a tensor of the value v, of x's shape, type and device, in its scope.
func (x *Tensor) FullLike(v float64) *Tensor {
	m, dims := x.like("full_like")
	return m.Full(v, dims...)
}

// RandLike returns random numbers, uniform in [0, 1), of x's shape, floating point type and device,
// in its scope.
func (x *Tensor) RandLike() *Tensor { m, dims := x.like("rand_like"); return m.Rand(dims...) }

// RandnLike returns random numbers of the standard normal distribution, of x's shape, floating
// point type and device, in its scope.
func (x *Tensor) RandnLike() *Tensor { m, dims := x.like("randn_like"); return m.Randn(dims...) }

// RandIntLike returns random integers in [lo, hi), of x's shape, type and device, in its scope.
func (x *Tensor) RandIntLike(lo, hi int) *Tensor {
	m, dims := x.like("randint_like")
	return m.RandInt(lo, hi, dims...)
}
