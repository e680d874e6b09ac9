package tensor

// Max returns the greatest elements along one dimension, and their positions in that dimension as
// int64. Among equal elements it selects the first. Add [KeepDim] to keep the dimension. NaN counts
// as greatest. The gradient goes to the element at the position. For several dimensions or the
// whole tensor use [Tensor.Amax].
func (x *Tensor) Max(dims ...int) (values, indices *Tensor) { return x.extreme("max", argmaxOp, dims) }

// Min returns the least elements along one dimension, and their positions in that dimension as
// int64. Among equal elements it selects the first. Add [KeepDim] to keep the dimension. NaN counts
// as least. The gradient goes to the element at the position. For several dimensions or the whole
// tensor use [Tensor.Amin].
func (x *Tensor) Min(dims ...int) (values, indices *Tensor) { return x.extreme("min", argminOp, dims) }

func (x *Tensor) extreme(op string, arg *Reduction, dims []int) (values, indices *Tensor) {
	x.use(op)
	dim, n, keep := 0, 0, false
	for _, d := range dims {
		if d == KeepDim {
			keep = true
			continue
		}
		dim, n = d, n+1
	}
	if n != 1 {
		e := newError(op, ErrShape, []*Tensor{x}, "takes one dimension, not "+itoa(n))
		panic(e.hint("Amax and Amin take any number"))
	}
	a := x.axis(op, dim)
	if x.Rank() == 0 {
		return x.Clone(), arg.Apply(x)
	}
	indices = arg.Apply(x, a, KeepDim)
	values = Apply(gatherFunc{a, op}, x, indices)
	if keep {
		return values, indices
	}
	return values.Squeeze(a), indices.Squeeze(a)
}
