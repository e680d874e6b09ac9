package devicetest

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

var floats = []dtype.Type{dtype.F32, dtype.F64}

// lower compiles expression e to a program with one result of type t. If t is Invalid, the result
// has the type in which e is computed.
func lower(e *expr.Expr, t dtype.Type, in ...dtype.Type) *expr.Program {
	return expr.MustLower([]*expr.Expr{e}, []dtype.Type{t}, in, -1)
}

// sizes returns lengths close to multiples of the width of a vector or of a block, where kernels
// change from one loop to another.
func (r *rig) sizes() []int {
	if r.large {
		return []int{1, 7, 33, 130, 1500}
	}
	return []int{1, 33}
}

// testMapPrimitives runs every operation of package expr in every type for which it is defined.
func testMapPrimitives(r *rig) {
	x, y, z := expr.X(0), expr.X(1), expr.X(2)
	type prim struct {
		name  string
		e     *expr.Expr
		arity int
	}
	arith := []prim{{"add", x.Add(y), 2}, {"sub", x.Sub(y), 2}, {"mul", x.Mul(y), 2}, {"neg", x.Neg(), 1}, {"abs", x.Abs(), 1}, {"min", x.Min(y), 2}, {"max", x.Max(y), 2},
		{"eq", x.Eq(y), 2}, {"ne", x.Ne(y), 2}, {"lt", x.Lt(y), 2}, {"le", x.Le(y), 2}, {"gt", x.Gt(y), 2}, {"ge", x.Ge(y), 2}, {"select", x.Lt(y).Select(z, y), 3}}
	float := []prim{{"div", x.Div(y), 2}, {"fma", x.FMA(y, z), 3}, {"sqrt", x.Sqrt(), 1}, {"floor", x.Floor(), 1}, {"trunc", x.Trunc(), 1}, {"roundeven", x.Mul(expr.C(4)).RoundEven(), 1}}
	bits := []prim{{"and", x.And(y), 2}, {"or", x.Or(y), 2}, {"xor", x.Xor(y), 2}, {"not", x.Not(), 1}, {"shl", x.Shl(y), 2}, {"shr", x.Shr(y), 2}}
	truth := []prim{{"and", x.And(y), 2}, {"or", x.Or(y), 2}, {"xor", x.Xor(y), 2}, {"not", x.Not(), 1}, {"select", x.Select(y, z), 3}, {"eq", x.Eq(y), 2}, {"lt", x.Lt(y), 2}}
	run := func(t dtype.Type, prims []prim, wrap func(*expr.Expr) *expr.Expr, form string) {
		for _, p := range prims {
			e := p.e
			if wrap != nil {
				e = wrap(e)
			}
			in := make([]dtype.Type, p.arity)
			for i := range in {
				in[i] = t
			}
			prog := lower(e, dtype.Invalid, in...)
			for _, n := range r.sizes() {
				s := shape.Of(n)
				ins := make([]*array, p.arity)
				for i := range ins {
					ins[i] = r.random(t, s, contiguous)
				}
				out := r.empty(prog.Out[0], s, contiguous)
				r.checkMap(fmt.Sprintf("map %s%s of %v", form, p.name, t), prog, []*array{out}, ins, nil)
			}
			r.end()
		}
	}
	for _, t := range dtype.Types() {
		switch {
		case t == dtype.Bool:
			run(t, truth, nil, "")
		case t.IsFloat():
			run(t, arith, nil, "")
			run(t, float, nil, "")
		default:
			run(t, arith, nil, "")
			run(t, bits, nil, "")
		}
	}
	// Run each operation on U32 and U64, which exist only inside expressions.
	for _, u := range []dtype.Type{dtype.U32, dtype.U64} {
		as := func(e *expr.Expr) *expr.Expr {
			return expr.Substitute(e, func(i int) *expr.Expr { return expr.X(i).Cvt(u) }, nil)
		}
		back := func(e *expr.Expr) *expr.Expr { return as(e).Cvt(dtype.I64) }
		run(dtype.I64, bits, back, u.String()+" ")
		run(dtype.I64, []prim{{"add", x.Add(y), 2}, {"sub", x.Sub(y), 2}, {"mul", x.Mul(y), 2}, {"min", x.Min(y), 2}, {"max", x.Max(y), 2}, {"lt", x.Lt(y), 2}, {"ge", x.Ge(y), 2}}, back, u.String()+" ")
	}
	hi := lower(x.Cvt(dtype.U32).MulHi(y.Cvt(dtype.U32)).Cvt(dtype.I64), dtype.I64, dtype.I64, dtype.I64)
	s := shape.Of(50)
	r.checkMap("map mulhi", hi, []*array{r.empty(dtype.I64, s, contiguous)}, []*array{r.random(dtype.I64, s, contiguous), r.random(dtype.I64, s, contiguous)}, nil)
	for _, c := range []struct{ a, b dtype.Type }{{dtype.F32, dtype.I32}, {dtype.I32, dtype.F32}, {dtype.F64, dtype.I64}, {dtype.I64, dtype.F64}} {
		p := lower(x.Bitcast(c.b), c.b, c.a)
		r.checkMap(fmt.Sprintf("map bitcast %v to %v", c.a, c.b), p, []*array{r.empty(c.b, s, contiguous)}, []*array{r.small(c.a, s, contiguous)}, nil)
	}
}

// testMapCasts converts all pairs of types, both with a map that only converts and with conversions
// inside expressions.
func testMapCasts(r *rig) {
	s := shape.Of(67)
	for _, from := range dtype.Types() {
		for _, to := range dtype.Types() {
			p := lower(expr.X(0), to, from)
			r.checkMap(fmt.Sprintf("map cast %v to %v", from, to), p, []*array{r.empty(to, s, contiguous)}, []*array{r.random(from, s, contiguous)}, nil)
			p = lower(expr.X(0).Cvt(to.Compute()).Cvt(dtype.F64), dtype.F64, from)
			r.checkMap(fmt.Sprintf("map cast %v to %v to float64", from, to.Compute()), p, []*array{r.empty(dtype.F64, s, contiguous)}, []*array{r.random(from, s, contiguous)}, nil)
		}
		for _, u := range []dtype.Type{dtype.U32, dtype.U64} {
			p := lower(expr.X(0).Cvt(u).Cvt(dtype.I64), dtype.I64, from)
			r.checkMap(fmt.Sprintf("map cast %v to %v to int64", from, u), p, []*array{r.empty(dtype.I64, s, contiguous)}, []*array{r.random(from, s, contiguous)}, nil)
			p = lower(expr.X(0).Cvt(u).Cvt(dtype.F32), dtype.F32, from)
			r.checkMap(fmt.Sprintf("map cast %v to %v to float32", from, u), p, []*array{r.empty(dtype.F32, s, contiguous)}, []*array{r.random(from, s, contiguous)}, nil)
		}
		r.end()
	}
}

// shapes returns shapes of all ranks, some empty and some with dimensions of size 1.
func (r *rig) shapes() []shape.Dims {
	s := []shape.Dims{shape.Of(), shape.Of(1), shape.Of(0), shape.Of(17), shape.Of(3, 5), shape.Of(4, 0, 2), shape.Of(2, 1, 3, 4), shape.Of(2, 2, 1, 2, 3, 1, 2)}
	if r.large {
		s = append(s, shape.Of(2500), shape.Of(3, 600), shape.Of(40, 45), shape.Of(600, 3), shape.Of(3, 7, 9, 11), shape.Of(2, 260, 3))
	}
	return s
}

// testMapLayouts combines every layout of results with every layout of operands.
func testMapLayouts(r *rig) {
	types := []dtype.Type{dtype.F32, dtype.BF16, dtype.Bool, dtype.I64}
	for _, s := range r.shapes() {
		for i, fo := range outForms {
			for j, fi := range inForms {
				t := types[(i+j)%len(types)]
				e := expr.X(0).Add(expr.X(1))
				if t == dtype.Bool {
					e = expr.X(0).And(expr.X(1))
				}
				other := inForms[(i*3+j)%len(inForms)]
				p := lower(e, t, t, t)
				r.checkMap(fmt.Sprintf("map add of %v", s), p, []*array{r.empty(t, s, fo)}, []*array{r.random(t, s, fi), r.random(t, s, other)}, nil)
				id := lower(expr.X(0), t, t)
				r.checkMap(fmt.Sprintf("map copy of %v", s), id, []*array{r.empty(t, s, fo)}, []*array{r.random(t, s, fi)}, nil)
				r.end()
			}
		}
		for _, fo := range outForms {
			for _, t := range []dtype.Type{dtype.I64, dtype.U32} {
				p := lower(expr.Index(t).Mul(expr.C(3)).Cvt(dtype.I64).Add(expr.X(0)), dtype.I64, dtype.I64)
				r.checkMap(fmt.Sprintf("map index %v of %v", t, s), p, []*array{r.empty(dtype.I64, s, fo)}, []*array{r.random(dtype.I64, s, transposed)}, nil)
			}
			p := lower(expr.C(1.5), dtype.F16)
			r.checkMap(fmt.Sprintf("map fill of %v", s), p, []*array{r.empty(dtype.F16, s, fo)}, nil, nil)
		}
		r.end()
	}
}

// testMapForms runs four sorts of maps: with several results, with parameters, in place, and with
// long programs.
func testMapForms(r *rig) {
	x, y := expr.X(0), expr.X(1)
	for _, n := range r.sizes() {
		s := shape.Of(n)
		a, b := r.random(dtype.F32, s, contiguous), r.random(dtype.F32, s, contiguous)
		two := expr.MustLower([]*expr.Expr{x.Add(y), x.Mul(y), x}, []dtype.Type{dtype.F32, dtype.BF16, dtype.F64}, []dtype.Type{dtype.F32, dtype.F32}, -1)
		r.checkMap("map of three results", two, []*array{r.empty(dtype.F32, s, contiguous), r.empty(dtype.BF16, s, strided), r.empty(dtype.F64, s, offset)}, []*array{a, b}, nil)
		twice := expr.MustLower([]*expr.Expr{x.Add(y), x.Add(y)}, []dtype.Type{dtype.F32, dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, -1)
		r.checkMap("map of one value stored twice", twice, []*array{r.empty(dtype.F32, s, contiguous), r.empty(dtype.F32, s, strided)}, []*array{a, b}, nil)

		scaled := lower(x.Mul(expr.Param(0)).Add(expr.Param(1).Mul(expr.Param(0)).Sqrt()), dtype.F32, dtype.F32)
		for _, v := range []float64{2, -3.5, math.Inf(1)} { // values of the parameter
			params := []uint64{expr.Encode(dtype.F32, v), expr.Encode(dtype.F32, 0.25)}
			r.checkMap(fmt.Sprintf("map with parameter %v", v), scaled, []*array{r.empty(dtype.F32, s, contiguous)}, []*array{a}, params)
		}
		r.checkMap("map of parameters alone", lower(expr.Param(0, dtype.I64).Mul(expr.Param(0, dtype.I64)), dtype.I32), []*array{r.empty(dtype.I32, s, strided)}, nil, []uint64{7})

		for _, f := range []form{contiguous, strided} {
			// Run in place: over the first operand, over the second, with two results over both
			// operands, and over an operand that the program reads again after its first use.
			a, b := r.random(dtype.F32, s, f), r.random(dtype.F32, s, f)
			r.checkMap("map in place over operand 0", lower(x.Sub(y).Mul(x).Sub(y), dtype.F32, dtype.F32, dtype.F32), []*array{a}, []*array{a, b}, nil)
			r.checkMap("map in place over operand 1", lower(x.Sub(y), dtype.F32, dtype.F32, dtype.F32), []*array{b}, []*array{a, b}, nil)
			swap := expr.MustLower([]*expr.Expr{x.Add(y), x.Sub(y).Mul(x.Add(y)).Add(x)}, []dtype.Type{dtype.F32, dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, -1)
			want := eval(swap, []*array{a, b}, nil, n)
			both := views([]*array{a, b})
			r.run("map in place over both", &device.Map{Program: swap, Outs: both, Ins: both})
			a.equal("map in place over both, result 0", want[0])
			b.equal("map in place over both, result 1", want[1])
			exchange := expr.MustLower([]*expr.Expr{y, x}, []dtype.Type{dtype.F32, dtype.F32}, []dtype.Type{dtype.F32, dtype.F32}, -1)
			want = eval(exchange, []*array{a, b}, nil, n)
			r.run("map that exchanges", &device.Map{Program: exchange, Outs: both, Ins: both})
			a.equal("map that exchanges, result 0", want[0])
			b.equal("map that exchanges, result 1", want[1])
		}
		h := r.random(dtype.F16, s, contiguous)
		r.checkMap("map in place of float16", lower(x.Mul(x), dtype.F16, dtype.F16), []*array{h}, []*array{h}, nil)

		// This program needs many 32-bit and 64-bit values at the same time, and it calls
		// functions.
		var sum *expr.Expr
		var terms []*expr.Expr
		for k := range 24 {
			terms = append(terms, x.Add(expr.C(float64(k))).Mul(y.Sub(expr.C(float64(k)*0.5))))
		}
		for k := range terms {
			e := terms[len(terms)-1-k].Cvt(dtype.F64).Mul(terms[k].Cvt(dtype.F64))
			if sum == nil {
				sum = e
			} else {
				sum = sum.Add(e)
			}
		}
		r.checkMap("map of a long program", lower(sum, dtype.F32, dtype.F32, dtype.F32), []*array{r.empty(dtype.F32, s, contiguous)}, []*array{a, b}, nil)
		for name, f := range expr.Funcs() {
			if f.Arity != 1 {
				continue
			}
			for _, t := range floats {
				v := r.random(t, s, contiguous)
				r.checkMap("map "+name, lower(expr.Call(name, x), t, t), []*array{r.empty(t, s, contiguous)}, []*array{v}, nil)
			}
		}
		r.end()
	}
}
