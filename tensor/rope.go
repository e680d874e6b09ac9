package tensor

import (
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// RoPEOptions are what [Tensor.RoPE] may be told. The zero value turns all features in halves, by
// the positions 0, 1, 2 … and the base 10000.
type RoPEOptions struct {
	Base float64 // of the frequencies; 0 stands for 10000
	// Interleaved takes neighbouring features for the two parts of a number, as GPT-J, torchtune
	// and the paper do. Otherwise they are one of the first half and one of the second, as in
	// GPT-NeoX and in Llama of Hugging Face. A model must use the form that it was trained with.
	Interleaved bool
	// Dims is how many of the features are turned, the first of them, an even number. 0: all, or
	// those that there are angles for.
	Dims   int
	Offset int // the position of the first entry, for a cache that is longer than the input
	// int64 or int32 positions instead, broadcast with the input's shape without the features
	Positions *Tensor
	// Cos and Sin are the angles' cosines and sines, of [Tensor.RoPEAngles] or of a model's own.
	// There are no Base, Offset and Positions then. They have the type in which the input is
	// computed and half of the features turned, broadcast with [..., length, features/2].
	Cos, Sin *Tensor
}

// ropeProgram turns the two parts of a number X(0) + i·X(1), of type t, by the angle of cosine X(2)
// and sine X(3), or back.
func ropeProgram(t, angles dtype.Type, back bool) *expr.Program {
	return ropePrograms.get(ropeKey{t, angles, back}, func() *expr.Program {
		a, b := x0.Mul(x2).Sub(x1.Mul(x3)), x1.Mul(x2).Add(x0.Mul(x3))
		if back {
			a, b = x0.Mul(x2).Add(x1.Mul(x3)), x1.Mul(x2).Sub(x0.Mul(x3))
		}
		return expr.MustLower([]*expr.Expr{a.Named("rope"), b.Named("rope")}, []dtype.Type{t, t}, []dtype.Type{t, t, angles, angles}, -1)
	})
}

type ropeKey struct {
	t, angles dtype.Type
	back      bool
}

var ropePrograms cache[ropeKey, *expr.Program]

// ropeFunc turns the first dims features of its first operand by the angles of which the others are
// the cosines and sines.
type ropeFunc struct {
	dims        int
	interleaved bool
	back        bool
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
	p := ropeProgram(x.dtype, cos.dtype, f.back)
	runMap("rope", s, p, []*Tensor{part(y, 0), part(y, 1)}, []*Tensor{part(x, 0), part(x, 1), cos, sin}, nil)
	if n := x.Dim(-1) - f.dims; n > 0 {
		rest := func(t *Tensor) *Tensor { return t.handle("rope", s, t.layout.Narrow(last, f.dims, n, 1)) }
		run("rope", s, castProgram(x.dtype, x.dtype), rest(y), []*Tensor{rest(x)}, nil)
	}
	return y
}

func (f *ropeFunc) VJP(c *Context, g *Tensor) []*Tensor {
	back := &ropeFunc{f.dims, f.interleaved, !f.back}
	return []*Tensor{Apply(back, g, c.Saved(0), c.Saved(1)), nil, nil}
}

// RoPE returns x, [..., length, features], with pairs of its features turned by angles that grow
// with the position: pair k of n by position·base^(-k/n) (J. Su et al., arXiv:2104.09864). So the
// product of a query and a key depends on the distance of their positions; both are turned before
// attention, values are not. Angles, cosines and sines are computed in float64 and rounded to the
// type in which x is computed, where most implementations do so in float32 and lose exactness at
// far positions. The gradient is turned back. There is no scaling of positions or frequencies for
// contexts longer than those of training: Cos and Sin may be of angles that are.
//
// x may be a view: of [batch, length, heads, features] it is Transpose(1, 2), and queries and keys
// that lie side by side are turned as one. That takes a launch for the angles, none where they are
// given, one for the features that are turned and one for those that are not.
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

// RoPEAngles returns the cosines and sines of the angles by which [Tensor.RoPE] turns x with these
// options. Their shape is [length, features/2], or with positions theirs and features/2. They have
// the type in which x is computed. They serve queries, keys and all layers of a step as Cos and
// Sin.
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

// ropeAngleProgram computes cosines and sines of position·base^(k·step), for element k of its row.
// Params: the base, the step, a row's length and the first position, unless positions are X(0).
func ropeAngleProgram(t, positions dtype.Type) *expr.Program {
	return ropeAnglePrograms.get([2]dtype.Type{t, positions}, func() *expr.Program {
		p := func(i int) *expr.Expr { return expr.Param(i, dtype.F64) }
		i := expr.Index(dtype.I64).Cvt(dtype.F64)
		row := i.Div(p(2)).Floor() // exact, as the index and the length are
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

// checkRoPE returns the scope of the results and how many features are turned.
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

// checkAngles refuses cosines and sines that are not those of x.
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
