package tensor

// Glu returns the gated linear unit: the first half of x along dimension dim times the sigmoid of the second (Y. Dauphin et al.,
// arXiv:1612.08083). The dimension's size is even.
func (x *Tensor) Glu(dim int) *Tensor {
	x.use("glu")
	in := []*Tensor{x}
	rank := x.Rank()
	if dim < -rank || dim >= rank {
		fail("glu", ErrShape, in, "dimension %d of a tensor of rank %d", dim, rank)
	}
	n := x.layout.Shape.At((dim + rank) % rank)
	if n%2 != 0 {
		fail("glu", ErrShape, in, "dimension %d has the odd size %d, it cannot be halved", dim, n)
	}
	return x.Narrow(dim, 0, n/2).Mul(x.Narrow(dim, n/2, n/2).Sigmoid())
}
