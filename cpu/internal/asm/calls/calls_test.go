package calls

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
)

func lower(t *testing.T, e *expr.Expr, in ...dtype.Type) *expr.Program {
	t.Helper()
	p, err := expr.Lower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, in, -1)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func names(found []Call) (ns []string) {
	for _, c := range found {
		ns = append(ns, c.Name)
	}
	return ns
}

func all(string) bool { return true }

func TestFind(t *testing.T) {
	x, y := expr.X(0), expr.X(1)
	call := func(name string, e *expr.Expr) *expr.Expr { return expr.Call(name, e) }
	for _, c := range []struct {
		name string
		e    *expr.Expr
		want []string
	}{
		{"exp", call("exp", x), []string{"exp"}},
		{"exp of a product", call("exp", x.Mul(y)), []string{"exp"}},
		{"exp of an exp", call("exp", call("exp", x)), []string{"exp", "exp"}},
		{"gelu", x.Mul(expr.C(0.5)).Mul(call("erf", x.Mul(expr.C(math.Sqrt2/2))).Add(expr.C(1))), []string{"erf"}},
		{"softplus", call("log1p", call("exp", x)).Add(y), []string{"exp", "log1p"}},
		{"none", x.Mul(y).Add(expr.C(1)), nil},
		{"tanh holds no exp", call("tanh", x), []string{"tanh"}},
		{"sum of two", call("sin", x).Add(call("log", y)), []string{"sin", "log"}},
	} {
		p := lower(t, c.e, dtype.F32, dtype.F32)
		got := names(Find(p, all))
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
	// Find must skip functions for which hasKernel returns false, and functions of float64.
	p := lower(t, call("exp", x), dtype.F32)
	if found := Find(p, func(string) bool { return false }); len(found) != 0 {
		t.Errorf("found %v for a caller without kernels", found)
	}
	p, err := expr.Lower([]*expr.Expr{call("exp", x)}, []dtype.Type{dtype.F64}, []dtype.Type{dtype.F64}, -1)
	if err != nil {
		t.Fatal(err)
	}
	if found := Find(p, all); len(found) != 0 {
		t.Errorf("found %v in float64", found)
	}
}

// TestEveryFunction lowers each function that has a kernel, applied to a sum. Find must find it.
func TestEveryFunction(t *testing.T) {
	for _, variant := range asm.Variants() {
		restore := asm.Use(variant)
		for name, f := range expr.Funcs() {
			if f.Arity != 1 || asm.Function(name) == nil {
				continue
			}
			p := lower(t, expr.Call(name, expr.X(0).Add(expr.X(1))), dtype.F32, dtype.F32)
			found := Find(p, func(n string) bool { return asm.Function(n) != nil })
			if len(found) != 1 || found[0].Name != name || found[0].Root != p.Outs[0] || p.Code[found[0].Arg].Op != expr.OpAdd {
				t.Errorf("%s: %s: found %v in\n%v", variant, name, found, p)
			}
		}
		restore()
	}
}

// TestLive evaluates programs in two ways: with calls and only the primitives that Live marks, and
// with all primitives. Both must give the same bits.
func TestLive(t *testing.T) {
	x := expr.X(0)
	e := expr.Call("exp", x.Mul(expr.C(0.25)))
	programs := map[string]*expr.Expr{
		"gelu":   x.Mul(expr.C(0.5)).Mul(expr.Call("erf", x.Mul(expr.C(math.Sqrt2/2))).Add(expr.C(1))),
		"shared": expr.Call("tanh", e).Add(expr.Call("log", e)).Mul(e),
		"diff":   expr.Diff(expr.Call("erf", x).Mul(x), 0),
	}
	r := rand.New(rand.NewPCG(1, 2))
	for name, e := range programs {
		p := lower(t, e, dtype.F32)
		found := Find(p, all)
		if len(found) == 0 {
			t.Errorf("%s: nothing found", name)
		}
		live := Live(p, found)
		kept := 0
		for v, l := range live {
			if l && p.Code[v].Op.Arity() > 0 {
				kept++
			}
		}
		if kept > 12 {
			t.Errorf("%s: %d instructions are left of %d", name, kept, p.Cost())
		}
		for range 200 {
			bits := uint64(math.Float32bits(float32(r.NormFloat64() * 3)))
			want := p.Eval(nil, []uint64{bits}, nil, 0)[0]
			if got := evalCalls(t, p, found, live, bits); got != want {
				t.Fatalf("%s(%v): %x by calls, %x by primitives", name, math.Float32frombits(uint32(bits)), got, want)
			}
		}
	}
}

// evalCalls evaluates p. It computes each call with a program that has only the called function. A
// value whose entry in live is false becomes NaN.
func evalCalls(t *testing.T, p *expr.Program, found []Call, live []bool, x uint64) uint64 {
	vals := make([]uint64, len(p.Code))
	for v, c := range p.Code {
		vals[v] = 0x7fc00000
		if !live[v] {
			continue
		}
		if k := slices.IndexFunc(found, func(c Call) bool { return c.Root == int32(v) }); k >= 0 {
			f := lower(t, expr.Call(found[k].Name, expr.X(0)), dtype.F32)
			vals[v] = f.Eval(nil, []uint64{vals[found[k].Arg]}, nil, 0)[0]
			continue
		}
		switch c.Op {
		case expr.OpX:
			vals[v] = x
		case expr.OpConst:
			vals[v] = c.Imm
		default: // compute this instruction alone
			q := &expr.Program{Out: []dtype.Type{c.Type}, Outs: []int32{0}}
			operand := [3]int32{-1, -1, -1}
			for k, o := range [3]int32{c.A, c.B, c.C} {
				if k < c.Op.Arity() {
					operand[k] = int32(len(q.Code))
					q.Code = append(q.Code, expr.Instr{Op: expr.OpConst, Type: p.Code[o].Type, A: -1, B: -1, C: -1, Imm: vals[o]})
				}
			}
			q.Outs[0] = int32(len(q.Code))
			q.Code = append(q.Code, expr.Instr{Op: c.Op, Type: c.Type, A: operand[0], B: operand[1], C: operand[2], Imm: c.Imm})
			vals[v] = q.Eval(nil, nil, nil, 0)[0]
		}
	}
	return vals[p.Outs[0]]
}
