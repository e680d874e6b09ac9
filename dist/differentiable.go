package dist

import (
	"fmt"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// A differentiable is a collective as an op, by its gradient.
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

// AllReduce returns the combination of all ranks' x, of one shape: [Sum] or [Mean]. The gradient
// of x is the same combination of all ranks' gradients. For others see [Group.AllReduce].
//
// It is one of the collectives that are functions, as in torch.distributed.nn.functional:
// AllReduce, [AllGather], [ReduceScatter], [Broadcast] and [AllToAll]. They return new tensors,
// contiguous and in the scope of x, and have gradients of any order. What is differentiated is the
// sum of all ranks' losses, and the gradient of a collective is a collective too.
//
// So all ranks compute with the same collectives in the same order, and all run Backward. It goes
// from the last op to the first, which makes the order of its collectives the same too. The x of
// all ranks require a gradient or none does: a mixture is an [Error] of the kind [ErrMismatch]. A
// rank whose loss does not depend on a result leaves that gradient out, and the others wait for it
// in vain, until [ErrLeft] or [ErrTimeout]. Add the result times 0 to the loss there.
func AllReduce(g *Group, x *tensor.Tensor, c Combine) *tensor.Tensor {
	const name = "all reduce"
	g.linear(name, c)
	return allReduce(g, name, "", x, c)
}

func allReduce(g *Group, name, of string, x *tensor.Tensor, c Combine) *tensor.Tensor {
	return tensor.Apply(&differentiable{name,
		func(op string, x *tensor.Tensor) *tensor.Tensor {
			y := x.Clone()
			g.begin(what{op: op, kind: device.KindAllReduce, combine: c}, of, y, y, 1)
			return y
		},
		func(d *tensor.Tensor) *tensor.Tensor { return allReduce(g, name, of, d, c) },
	}, x)
}

// AllGather returns all ranks' x, of one shape [n, …], one behind the other: [World·n, …]. Scalars
// give [World]. The gradient of x is the sum of all ranks' gradients of its part. See [AllReduce].
func AllGather(g *Group, x *tensor.Tensor) *tensor.Tensor {
	if x.Rank() == 0 {
		x = x.Reshape(1)
	}
	dims := x.Shape().Slice()
	dims[0] *= g.World()
	return tensor.Apply(&differentiable{"all gather",
		func(op string, x *tensor.Tensor) *tensor.Tensor {
			y := x.NewEmpty(dims...)
			g.begin(what{op: op, kind: device.KindAllGather}, "", y, x.Contiguous(), 1)
			return y
		},
		func(d *tensor.Tensor) *tensor.Tensor { return ReduceScatter(g, d, Sum) },
	}, x)
}

// ReduceScatter returns part Rank of the combination of all ranks' x, [Sum] or [Mean]: of [World·n,
// …] it is [n, …]. The gradient of x is all ranks' gradients, one behind the other, and for a mean
// divided by World. See [AllReduce].
func ReduceScatter(g *Group, x *tensor.Tensor, c Combine) *tensor.Tensor {
	const name = "reduce scatter"
	g.linear(name, c)
	dims := g.parts(name, x)
	dims[0] /= g.World()
	return tensor.Apply(&differentiable{name,
		func(op string, x *tensor.Tensor) *tensor.Tensor {
			y := x.NewEmpty(dims...)
			g.begin(what{op: op, kind: device.KindReduceScatter, combine: c}, "", y, x.Contiguous(), 1)
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

// Broadcast returns the x of the rank root. The others' x have its shape and type, and require a
// gradient where it does. That of the root's x is the sum of all ranks' gradients, that of the
// others' x is 0. See [AllReduce].
func Broadcast(g *Group, x *tensor.Tensor, root int) *tensor.Tensor {
	const name = "broadcast"
	g.ranked(name, root)
	return tensor.Apply(&differentiable{name,
		func(op string, x *tensor.Tensor) *tensor.Tensor {
			y := x.Clone()
			g.begin(what{op: op, kind: device.KindBroadcast, root: root}, "", y, y, 1)
			return y
		},
		func(d *tensor.Tensor) *tensor.Tensor { return reduceTo(g, d, root) },
	}, x)
}

// reduceTo returns the sum of all ranks' x at the rank root, and 0 at the others.
func reduceTo(g *Group, x *tensor.Tensor, root int) *tensor.Tensor {
	return tensor.Apply(&differentiable{"reduce",
		func(op string, x *tensor.Tensor) *tensor.Tensor {
			y := x.Clone()
			g.begin(what{op: op, kind: device.KindAllReduce, root: root}, "", y, y, 1)
			if g.rank != root {
				return x.NewZeros(x.Shape().Slice()...)
			}
			return y
		},
		func(d *tensor.Tensor) *tensor.Tensor { return Broadcast(g, d, root) },
	}, x)
}

// AllToAll gives part p of x, [World·n, …], to rank p, and returns the parts that it gets, by rank.
// The gradient goes back the same way. See [AllReduce].
func AllToAll(g *Group, x *tensor.Tensor) *tensor.Tensor {
	const name = "all to all"
	g.parts(name, x)
	return tensor.Apply(&differentiable{name,
		func(op string, x *tensor.Tensor) *tensor.Tensor {
			y := x.NewEmpty(x.Shape().Slice()...)
			g.begin(what{op: op, kind: device.KindAllToAll}, "", y, x.Contiguous(), 1)
			return y
		},
		func(d *tensor.Tensor) *tensor.Tensor { return AllToAll(g, d) },
	}, x)
}

// linear refuses combinations whose gradient is none of the same kind.
func (g *Group) linear(op string, c Combine) {
	if c != Sum && c != Mean {
		panic(g.misuse(op, tensor.ErrValue, fmt.Sprintf("there is no gradient of a %v over ranks; Sum and Mean have one", c)))
	}
}

// parts returns the sizes of x, whose first dimension is divided among the ranks.
func (g *Group) parts(op string, x *tensor.Tensor) []int {
	if x.Rank() == 0 || x.Dim(0)%g.World() != 0 {
		panic(g.misuse(op, tensor.ErrShape, fmt.Sprintf("the first dimension of shape %v cannot be divided among %d ranks", x.Shape(), g.World())))
	}
	return x.Shape().Slice()
}
