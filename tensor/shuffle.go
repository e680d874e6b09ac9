package tensor

import "github.com/flambeau-go/flambeau/shape"

// PixelShuffle moves channels into positions. From x, [..., channels·r², height, width], it makes
// [..., channels, height·r, width·r]. Position (h·r + i, w·r + j) of channel c is position (h, w)
// of channel c·r² + i·r + j of x. x may have any element type.
func (x *Tensor) PixelShuffle(r int) *Tensor {
	const op = "pixel_shuffle"
	lead := x.image(op, r)
	c, h, w := x.Dim(-3), x.Dim(-2), x.Dim(-1)
	if c%(r*r) != 0 {
		fail(op, ErrShape, []*Tensor{x}, "%d channels cannot be divided by %d, the square of the factor", c, r*r)
	}
	n := lead.Size()
	y := x.reshape(shape.Of(n, c/(r*r), r, r, h, w)).Permute(0, 1, 4, 2, 5, 3)
	return copied(x, y.reshape(lead.Append(c/(r*r), h*r, w*r)))
}

// PixelUnshuffle undoes [Tensor.PixelShuffle]. For x, [..., channels, height·r, width·r], the
// result is [..., channels·r², height, width]. If x has no elements, torch 2.15
// instead returns a tensor with the shape of x.
func (x *Tensor) PixelUnshuffle(r int) *Tensor {
	const op = "pixel_unshuffle"
	lead := x.image(op, r)
	c, h, w := x.Dim(-3), x.Dim(-2), x.Dim(-1)
	if h%r != 0 || w%r != 0 {
		fail(op, ErrShape, []*Tensor{x}, "height %d and width %d cannot both be divided by %d", h, w, r)
	}
	y := x.reshape(shape.Of(lead.Size(), c, h/r, r, w/r, r)).Permute(0, 1, 3, 5, 2, 4)
	return copied(x, y.reshape(lead.Append(c*r*r, h/r, w/r)))
}

// image checks that x has channels, height and width, and returns the dimensions before them.
func (x *Tensor) image(op string, r int) shape.Dims {
	x.use(op)
	if x.Rank() < 3 {
		fail(op, ErrShape, []*Tensor{x}, "needs at least the dimensions channels, height and width, it has shape %v", x.Shape())
	}
	if r < 1 || r > 1<<15 {
		fail(op, ErrValue, []*Tensor{x}, "a factor of %d", r)
	}
	return x.layout.Shape.Head(x.Rank() - 3)
}

// ChannelShuffle interleaves the groups of channels of x, [n, channels, …]. With k channels in a
// group, channel g·k + i becomes channel i·groups + g. groups must divide the number of channels. x
// may have any element type.
func (x *Tensor) ChannelShuffle(groups int) *Tensor {
	const op = "channel_shuffle"
	x.use(op)
	if x.Rank() < 3 || x.Rank() > shape.MaxRank-1 {
		fail(op, ErrShape, []*Tensor{x}, "needs the dimensions n, channels and at least one more, it has shape %v", x.Shape())
	}
	c := x.Dim(1)
	if groups < 1 || c%groups != 0 {
		fail(op, ErrValue, []*Tensor{x}, "%d channels cannot be divided into %d groups", c, groups)
	}
	split := x.layout.Shape.Remove(1).Insert(1, groups, c/groups)
	return copied(x, x.reshape(split).Transpose(1, 2).reshape(x.layout.Shape))
}

// copied returns y, or a copy of it if it is a view of x.
func copied(x, y *Tensor) *Tensor {
	if y.st == x.st {
		return y.Clone()
	}
	return y
}
