package dist

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// differentiable is an op that runs a collective and has a gradient.
type differentiable struct {
	name string
	run  func(op string, x *tensor.Tensor) *tensor.Tensor
	back func(g *tensor.Tensor) *tensor.Tensor
}

func (f *differentiable) Name() string { return f.name }

func (f *differentiable) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	op := f.name
	if c.Needs(0) {
		op += " with a gradient"
	}
	return f.run(op, in[0])
}

func (f *differentiable) VJP(_ *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	return []*tensor.Tensor{f.back(g)}
}

// AllReduce returns the [Sum] or [Mean] of all ranks' x, which must have the same shape. The
// gradient of x is the same combination of all ranks' gradients. For other combinations see
// [Group.AllReduce].
//
// Five collectives are functions with gradients, as in torch.distributed.nn.functional: AllReduce,
// [AllGather], [ReduceScatter], [Broadcast] and [AllToAll]. They return new contiguous tensors in
// the scope of x, and have gradients of any order. The gradients are those of the sum of all ranks'
// losses. The gradient of a collective is a collective too.
//
// Therefore all ranks must call the same collectives in the same order, and all must run Backward.
// Backward runs the collectives of the gradients in the opposite order, which is then also the same
// on all ranks. Either the x of all ranks require a gradient or none does. Otherwise the call fails
// with an [Error] of the kind [ErrMismatch]. If a rank's loss does not depend on the result of a
// collective, its Backward skips the gradient's collective. The other ranks then wait until they
// get [ErrLeft] or [ErrTimeout]. To avoid this, multiply the unused result by 0 and add it to the
// loss.
func AllReduce(g *Group, x *tensor.Tensor, c Combine) *tensor.Tensor {
	const name = "all reduce"
	g.linear(name, c)
	return allReduce(g, name, "", x, c)
}

func allReduce(g *Group, name, of string, x *tensor.Tensor, c Combine) *tensor.Tensor {
	return tensor.Apply(&differentiable{name,
		func(op string, x *tensor.Tensor) *tensor.Tensor {
			y := x.Clone()
			g.begin(signature{op: op, kind: device.KindAllReduce, combine: c}, of, y, y, 1)
			return y
		},
		func(d *tensor.Tensor) *tensor.Tensor { return allReduce(g, name, of, d, c) },
	}, x)
}

// AllGather returns all ranks' x, each of shape [n, …], concatenated to the shape [World·n, …]. If
// each x is a scalar, the result has the shape [World]. Each rank's result contains a copy of x.
// The gradient of x is the sum of the gradients of these copies. All ranks must run Backward, as
// [AllReduce] explains.
func AllGather(g *Group, x *tensor.Tensor) *tensor.Tensor {
	if x.Rank() == 0 {
		x = x.Reshape(1)
	}
	dims := x.Shape().Slice()
	dims[0] *= g.World()
	return tensor.Apply(&differentiable{"all gather",
		func(op string, x *tensor.Tensor) *tensor.Tensor {
			y := x.NewEmpty(dims...)
			g.begin(signature{op: op, kind: device.KindAllGather}, "", y, x.Contiguous(), 1)
			return y
		},
		func(d *tensor.Tensor) *tensor.Tensor { return ReduceScatter(g, d, Sum) },
	}, x)
}

// ReduceScatter computes the [Sum] or [Mean] of all ranks' x, of shape [World·n, …], and returns
// this rank's part, of shape [n, …]. The gradient of x is the concatenation of all ranks'
// gradients, divided by World for a mean. All ranks must run Backward, as [AllReduce] explains.
func ReduceScatter(g *Group, x *tensor.Tensor, c Combine) *tensor.Tensor {
	const name = "reduce scatter"
	g.linear(name, c)
	dims := g.parts(name, x)
	dims[0] /= g.World()
	return tensor.Apply(&differentiable{name,
		func(op string, x *tensor.Tensor) *tensor.Tensor {
			y := x.NewEmpty(dims...)
			g.begin(signature{op: op, kind: device.KindReduceScatter, combine: c}, "", y, x.Contiguous(), 1)
			return y
		},
		func(d *tensor.Tensor) *tensor.Tensor {
			if c == Mean {
				d = d.DivScalar(float64(g.World()))
			}
			return AllGather(g, d)
		},
	}, x)
}

// Broadcast returns the x of rank root. The other ranks' x must have the same shape and type. They
// must require a gradient if the root's x does. The gradient of the root's x is the sum of all
// ranks' gradients; the gradient of the other ranks' x is 0. All ranks must run Backward, as
// [AllReduce] explains.
func Broadcast(g *Group, x *tensor.Tensor, root int) *tensor.Tensor {
	const name = "broadcast"
	g.ranked(name, root)
	return tensor.Apply(&differentiable{name,
		func(op string, x *tensor.Tensor) *tensor.Tensor {
			y := x.Clone()
			g.begin(signature{op: op, kind: device.KindBroadcast, root: root}, "", y, y, 1)
			return y
		},
		func(d *tensor.Tensor) *tensor.Tensor { return reduceTo(g, d, root) },
	}, x)
}

// reduceTo returns the sum of all ranks' x on rank root, and 0 on the other ranks.
func reduceTo(g *Group, x *tensor.Tensor, root int) *tensor.Tensor {
	return tensor.Apply(&differentiable{"reduce",
		func(op string, x *tensor.Tensor) *tensor.Tensor {
			y := x.Clone()
			g.begin(signature{op: op, kind: device.KindAllReduce, root: root}, "", y, y, 1)
			if g.rank != root {
				return x.NewZeros(x.Shape().Slice()...)
			}
			return y
		},
		func(d *tensor.Tensor) *tensor.Tensor { return Broadcast(g, d, root) },
	}, x)
}

// AllToAll divides x, of shape [World·n, …], into World parts, and sends part p to rank p. It
// returns the parts that it receives, in the order of ranks. In the backward pass, the gradient of
// each part goes back to the rank that sent the part. All ranks must run Backward, as [AllReduce]
// explains.
func AllToAll(g *Group, x *tensor.Tensor) *tensor.Tensor {
	const name = "all to all"
	g.parts(name, x)
	return tensor.Apply(&differentiable{name,
		func(op string, x *tensor.Tensor) *tensor.Tensor {
			y := x.NewEmpty(x.Shape().Slice()...)
			g.begin(signature{op: op, kind: device.KindAllToAll}, "", y, x.Contiguous(), 1)
			return y
		},
		func(d *tensor.Tensor) *tensor.Tensor { return AllToAll(g, d) },
	}, x)
}

// linear panics if c is neither Sum nor Mean. The gradients of other combinations are not
// collectives of the same kind.
func (g *Group) linear(op string, c Combine) {
	if c != Sum && c != Mean {
		panic(g.misuse(op, tensor.ErrValue, fmt.Sprintf("there is no gradient of a %v over ranks; Sum and Mean have one", c)))
	}
}

// parts returns the shape of this rank's part of x, which the ranks divide along dimension 0.
func (g *Group) parts(op string, x *tensor.Tensor) []int {
	if x.Rank() == 0 || x.Dim(0)%g.World() != 0 {
		panic(g.misuse(op, tensor.ErrShape, fmt.Sprintf("the first dimension of shape %v cannot be divided among %d ranks", x.Shape(), g.World())))
	}
	return x.Shape().Slice()
}
