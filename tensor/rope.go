package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// RoPEOptions are the options of [Tensor.RoPE]. The zero value rotates all features. It pairs the
// two halves of the features, and uses the positions 0, 1, 2 … and the base 10000.
type RoPEOptions struct {
	Base float64 // base of the frequencies; 0 means 10000
	// Interleaved makes neighbouring features the two parts of a complex number, as GPT-J,
	// torchtune and the paper do. Without it, the first part is from the first half of the
	// features, and the second part is from the second half, as in GPT-NeoX and in Hugging Face's
	// Llama. Use the form with which the model was trained.
	Interleaved bool
	// Dims is the number of features that are rotated, from the first on. It must be even. 0 means
	// all features, or twice the number of the given angles.
	Dims int
	// position of the first entry of x, for example the number of entries in a cache of keys and
	// values
	Offset int
	// int64 or int32 positions in place of Offset; they are broadcast to the shape of the input's
	// leading dimensions, [..., length]
	Positions *Tensor
	// Cos and Sin are the cosines and sines of the angles, from [Tensor.RoPEAngles] or from the
	// model itself. Base, Offset and Positions must then be unset. Cos and Sin have the type in
	// which the input is computed, and one value for each pair of rotated features. Their shape is
	// broadcast to [..., length, features/2].
	Cos, Sin *Tensor
}

// ropeProgram rotates the complex numbers X(0) + i·X(1), of type t, by angles with the cosine X(2)
// and the sine X(3). If inverse is true, it rotates by the negative angles.
func ropeProgram(t, angles dtype.Type, inverse bool) *expr.Program {
	return ropePrograms.get(ropeKey{t, angles, inverse}, func() *expr.Program {
		a, b := x0.Mul(x2).Sub(x1.Mul(x3)), x1.Mul(x2).Add(x0.Mul(x3))
		if inverse {
			a, b = x0.Mul(x2).Add(x1.Mul(x3)), x1.Mul(x2).Sub(x0.Mul(x3))
		}
		return expr.MustLower([]*expr.Expr{a.Named("rope"), b.Named("rope")}, []dtype.Type{t, t}, []dtype.Type{t, t, angles, angles}, -1)
	})
}

type ropeKey struct {
	t, angles dtype.Type
	inverse   bool
}

var ropePrograms cache[ropeKey, *expr.Program]

// ropeFunc rotates the first dims features of its first operand. The other operands are the cosines
// and sines of the angles.
type ropeFunc struct {
	dims        int
	interleaved bool
	inverse     bool
}

func (*ropeFunc) Name() string { return "rope" }

func (f *ropeFunc) Forward(c *Context, in []*Tensor) *Tensor {
	x, cos, sin := in[0], in[1], in[2]
	if c.Needs(0) {
		c.Save(cos, sin)
	}
	s, last := c.scope, x.Rank()-1
	y := alloc("rope", s, x.st.dev, x.dtype, x.layout.Shape)
	part := func(t *Tensor, i int) *Tensor {
		start, step := i*(f.dims/2), 1
		if f.interleaved {
			start, step = i, 2
		}
		return t.handle("rope", s, t.layout.Narrow(last, start, f.dims/2, step))
	}
	p := ropeProgram(x.dtype, cos.dtype, f.inverse)
	runMap("rope", s, p, []*Tensor{part(y, 0), part(y, 1)}, []*Tensor{part(x, 0), part(x, 1), cos, sin}, nil)
	if n := x.Dim(-1) - f.dims; n > 0 {
		rest := func(t *Tensor) *Tensor { return t.handle("rope", s, t.layout.Narrow(last, f.dims, n, 1)) }
		run("rope", s, castProgram(x.dtype, x.dtype), rest(y), []*Tensor{rest(x)}, nil)
	}
	return y
}

func (f *ropeFunc) VJP(c *Context, g *Tensor) []*Tensor {
	back := &ropeFunc{f.dims, f.interleaved, !f.inverse}
	return []*Tensor{Apply(back, g, c.Saved(0), c.Saved(1)), nil, nil}
}

// RoPE returns x, [..., length, features], with pairs of its features rotated by angles that grow
// with the position. Pair k of n is rotated by position·base^(-k/n) (J. Su et al.,
// arXiv:2104.09864). Rotate queries and keys before attention, but not values. The product of a
// query and a key then depends on the distance of their positions. Angles, cosines and sines are
// computed in float64 and rounded to the type in which x is computed. Most implementations use
// float32, which is inexact at far positions. The gradient is rotated back. Positions and
// frequencies are not scaled for contexts that are longer than those in training. For that, pass
// scaled angles as Cos and Sin.
//
// x may be a view: for [batch, length, heads, features] pass Transpose(1, 2). Queries and keys that
// are next to each other in memory can be rotated together. The op needs one launch for the angles,
// unless they are given. It needs one launch for the rotated features, and one for the features
// that are not rotated.
func (x *Tensor) RoPE(o RoPEOptions) *Tensor {
	const op = "rope"
	s, dims := x.checkRoPE(op, o)
	if x.Size() == 0 || dims == 0 {
		return x
	}
	return within(s, func(c *Scope) *Tensor {
		cos, sin := o.Cos, o.Sin
		if cos == nil {
			cos, sin = x.ropeAngles(op, c, dims, o)
		}
		return Apply(&ropeFunc{dims, o.Interleaved, false}, x.In(c), cos.In(c), sin.In(c))
	})
}

// RoPEAngles returns the cosines and sines of the angles by which [Tensor.RoPE] rotates x with
// these options. Their shape is [length, features/2], or the shape of o.Positions followed by
// features/2. They have the type in which x is computed. Pass them as Cos and Sin for queries, keys
// and all layers of a step.
func (x *Tensor) RoPEAngles(o RoPEOptions) (cos, sin *Tensor) {
	const op = "rope_angles"
	s, dims := x.checkRoPE(op, o)
	if o.Cos != nil {
		fail(op, ErrValue, []*Tensor{x}, "the angles are given already")
	}
	c := s.child()
	defer c.recycle()
	cos, sin = x.ropeAngles(op, c, dims, o)
	c.close([]*Tensor{cos, sin}, false)
	return cos, sin
}

// ropeAngleProgram computes cosines and sines of position·base^(k·step), for element k of each row.
// The parameters are the base, the step, and the length of a row. If positions are not operand
// X(0), a fourth parameter is the first position.
func ropeAngleProgram(t, positions dtype.Type) *expr.Program {
	return ropeAnglePrograms.get([2]dtype.Type{t, positions}, func() *expr.Program {
		p := func(i int) *expr.Expr { return expr.Param(i, dtype.F64) }
		i := expr.Index(dtype.I64).Cvt(dtype.F64)
		row := i.Div(p(2)).Floor() // row is exact, because the index and the length are exact
		k := i.Sub(row.Mul(p(2)))
		var in []dtype.Type
		position := row.Add(p(3))
		if positions != dtype.Invalid {
			in, position = []dtype.Type{positions}, x0.Cvt(dtype.F64)
		}
		angle := position.Mul(p(0).Pow(k.Mul(p(1))))
		cos, sin := expr.Call("cos", angle), expr.Call("sin", angle)
		return expr.MustLower([]*expr.Expr{cos.Named("rope_angles"), sin.Named("rope_angles")}, []dtype.Type{t, t}, in, -1)
	})
}

var ropeAnglePrograms cache[[2]dtype.Type, *expr.Program]

func (x *Tensor) ropeAngles(op string, s *Scope, dims int, o RoPEOptions) (cos, sin *Tensor) {
	base := o.Base
	if base == 0 {
		base = 10000
	}
	params := []float64{base, -2 / float64(dims), float64(dims / 2), float64(o.Offset)}
	sh, positions := shape.Of(x.Dim(-2)), dtype.Invalid
	var in []*Tensor
	if p := o.Positions; p != nil {
		sh, positions, in = p.layout.Shape, p.dtype, []*Tensor{p.handle(op, s, p.layout.Unsqueeze(p.Rank()))}
		params = params[:3]
	}
	sh = sh.Append(dims / 2)
	t := x.dtype.Compute()
	cos, sin = alloc(op, s, x.st.dev, t, sh), alloc(op, s, x.st.dev, t, sh)
	p := ropeAngleProgram(t, positions)
	runMap(op, s, p, []*Tensor{cos, sin}, in, encode(p, params))
	return cos, sin
}

// checkRoPE checks the operands. It returns the scope of the results and the number of features to
// rotate.
func (x *Tensor) checkRoPE(op string, o RoPEOptions) (*Scope, int) {
	in := []*Tensor{x}
	for _, t := range []*Tensor{o.Positions, o.Cos, o.Sin} {
		if t != nil {
			in = append(in, t)
		}
	}
	s := youngest(op, in)
	sameDevice(op, in)
	x.mustFloat(op)
	if x.Rank() < 2 {
		fail(op, ErrShape, in, "the input is [..., length, features], its shape is %v", x.Shape())
	}
	dims := o.Dims
	if dims == 0 {
		dims = x.Dim(-1)
		if o.Cos != nil && o.Cos.Rank() > 0 {
			dims = 2 * o.Cos.Dim(-1)
		}
	}
	if dims < 0 || dims > x.Dim(-1) || dims%2 != 0 {
		fail(op, ErrShape, in, "%d of %d features (dimension -1) are turned: that must be an even number of them", dims, x.Dim(-1))
	}
	if far, from := int64(1)<<53, int64(o.Offset); from > far-int64(x.Dim(-2)) || from < -far {
		fail(op, ErrValue, in, "the offset is %d; positions are computed in float64, which has no numbers for all of those", o.Offset)
	}
	if o.Base != 0 && (!(o.Base > 0) || math.IsInf(o.Base, 1)) {
		fail(op, ErrValue, in, "the base is %v, it must be a positive number", o.Base)
	}
	if o.Cos != nil || o.Sin != nil {
		x.checkAngles(op, in, dims, o)
	}
	if p := o.Positions; p != nil {
		if o.Offset != 0 {
			fail(op, ErrValue, in, "both positions and an offset are given")
		}
		if p.dtype != dtype.I64 && p.dtype != dtype.I32 {
			e := newError(op, ErrType, in, "positions must be int64 or int32, they are "+p.dtype.String())
			panic(e.hint("use Cast(dtype.I64)"))
		}
		if _, ok := p.layout.Expand(x.layout.Shape.Head(x.Rank() - 1)); !ok {
			e := newError(op, ErrShape, in, "positions of shape "+p.layout.Shape.String()+" do not broadcast to "+x.layout.Shape.Head(x.Rank()-1).String()+", the input's shape without the features")
			if x.Rank() == 4 && p.Rank() == 2 {
				e.hint("for heads in dimension 1 use Positions.Unsqueeze(1)")
			}
			panic(e)
		}
	}
	return s, dims
}

func (x *Tensor) checkAngles(op string, in []*Tensor, dims int, o RoPEOptions) {
	switch {
	case o.Cos == nil || o.Sin == nil:
		fail(op, ErrValue, in, "there must be both Cos and Sin")
	case o.Base != 0 || o.Offset != 0 || o.Positions != nil:
		fail(op, ErrValue, in, "Cos and Sin are given, and what they are computed from too: a base, an offset or positions")
	}
	want := x.layout.Shape.With(x.Rank()-1, dims/2)
	for _, t := range []*Tensor{o.Cos, o.Sin} {
		if t.dtype != x.dtype.Compute() {
			e := newError(op, ErrType, in, "cosines and sines are "+t.dtype.String()+", the input is computed in "+x.dtype.Compute().String())
			panic(e.hint("use Cast, or RoPEAngles of the input"))
		}
		if _, ok := t.layout.Expand(want); !ok || t.Rank() == 0 || t.Dim(-1) != dims/2 {
			fail(op, ErrShape, in, "cosines or sines of shape %v do not broadcast to %v", t.layout.Shape, want)
		}
		if t.needsGrad {
			fail(op, ErrGrad, in, "cosines and sines require a gradient, and get none here; use Detach, or products")
		}
	}
}
