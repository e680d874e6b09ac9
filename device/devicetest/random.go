package devicetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// generator creates random well-typed expressions. It reuses subexpressions, so that devices must
// keep values live for a long time.
type generator struct {
	r    *rig
	in   []dtype.Type
	pool map[dtype.Type][]*expr.Expr
	pars []dtype.Type
}

func (g *generator) int(n int) int { return g.r.rnd.IntN(n) }

// expr returns a random expression that is computed in type t.
func (g *generator) expr(t dtype.Type, depth int) *expr.Expr {
	if old := g.pool[t]; len(old) > 0 && g.int(4) == 0 {
		return old[g.int(len(old))]
	}
	e := g.fresh(t, depth)
	g.pool[t] = append(g.pool[t], e)
	return e
}

var computing = []dtype.Type{dtype.F32, dtype.F64, dtype.I32, dtype.I64, dtype.U32, dtype.Bool}

func (g *generator) leaf(t dtype.Type) *expr.Expr {
	switch g.int(5) {
	case 0:
		return expr.Bits(t, g.r.tame(t)&0xffffffff)
	case 1:
		if len(g.pars) < 4 && t != dtype.Bool {
			g.pars = append(g.pars, t)
			return expr.Param(len(g.pars)-1, t)
		}
	case 2:
		if t == dtype.I64 || t == dtype.U32 {
			return expr.Index(t)
		}
	}
	return expr.X(g.int(len(g.in))).Cvt(t)
}

func (g *generator) fresh(t dtype.Type, depth int) *expr.Expr {
	if depth == 0 {
		return g.leaf(t)
	}
	sub := func(t dtype.Type) *expr.Expr { return g.expr(t, depth-1) }
	a, b := sub(t), sub(t)
	switch g.int(4) {
	case 0:
		return sub(computing[g.int(len(computing))]).Cvt(t)
	case 1:
		return sub(dtype.Bool).Select(a, b)
	}
	switch {
	case t == dtype.Bool:
		u := computing[g.int(len(computing)-1)]
		x, y := sub(u), sub(u)
		return []*expr.Expr{a.And(b), a.Or(b), a.Xor(b), a.Not(), x.Eq(y), x.Ne(y), x.Lt(y), x.Le(y), x.Gt(y), x.Ge(y)}[g.int(10)]
	case t.IsFloat():
		return []*expr.Expr{a.Add(b), a.Sub(b), a.Mul(b), a.Div(b), a.FMA(b, sub(t)), a.Neg(), a.Abs(), a.Min(b), a.Max(b), a.Sqrt(), a.Floor(), a.Trunc(), a.RoundEven(),
			g.call(a, b)}[g.int(14)]
	}
	all := []*expr.Expr{a.Add(b), a.Sub(b), a.Mul(b), a.Min(b), a.Max(b), a.And(b), a.Or(b), a.Xor(b), a.Not(), a.Shl(b), a.Shr(b)}
	if t == dtype.U32 {
		all = append(all, a.MulHi(b))
	} else {
		all = append(all, a.Neg(), a.Abs())
	}
	return all[g.int(len(all))]
}

// functions returns the names of package expr's functions of one or two arguments.
var functions = sync.OnceValue(func() (names []string) {
	for name, f := range expr.Funcs() {
		if f.Arity <= 2 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
})

// call returns a call of a random function with the argument a, or with the arguments a and b.
func (g *generator) call(a, b *expr.Expr) *expr.Expr {
	name := functions()[g.int(len(functions()))]
	return expr.Call(name, []*expr.Expr{a, b}[:expr.Funcs()[name].Arity]...)
}

// RandomPrograms compares n random programs on a device with [expr.Program.Eval], bit for bit.
// Equal seeds give equal programs and operands.
func RandomPrograms(t *testing.T, dev device.Device, seed uint64, n int) {
	r := newRig(t, dev)
	r.rnd = rand.New(rand.NewPCG(seed, 1))
	r.randomPrograms(n)
}

// testRandomPrograms runs random programs of several operands and results, in random layouts.
func testRandomPrograms(r *rig) {
	if r.large {
		r.randomPrograms(250)
	} else {
		r.randomPrograms(12)
	}
}

func (r *rig) randomPrograms(programs int) {
	stored := dtype.Types()
	for n := range programs {
		g := &generator{r: r, pool: map[dtype.Type][]*expr.Expr{}}
		for range 1 + g.int(3) {
			g.in = append(g.in, stored[g.int(len(stored))])
		}
		var outs []*expr.Expr
		var types []dtype.Type
		for range 1 + g.int(3) {
			t := stored[g.int(len(stored))]
			outs, types = append(outs, g.expr(t.Compute(), 1+g.int(4))), append(types, t)
		}
		p, err := expr.Lower(outs, types, g.in, -1)
		r.must(err, "Lower of random program %d", n)
		s := []shape.Dims{shape.Of(37), shape.Of(5, 9), shape.Of(2, 3, 7)}[g.int(3)]
		if r.large && g.int(4) == 0 {
			s = shape.Of(19, 150)
		}
		ins, results := make([]*array, len(g.in)), make([]*array, len(outs))
		for k, t := range g.in {
			ins[k] = r.random(t, s, inForms[g.int(len(inForms))])
		}
		for k, t := range types {
			results[k] = r.empty(t, s, outForms[g.int(len(outForms))])
		}
		params := make([]uint64, len(g.pars))
		for k, t := range g.pars {
			params[k] = r.tame(t) & (1<<(8*t.Size()-1)<<1 - 1)
		}
		if !r.checkMap(fmt.Sprintf("random program %d", n), p, results, ins, params) {
			return
		}
		r.end()
	}
}
