package expr

import (
	"regexp"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
)

func TestNames(t *testing.T) {
	f32, bf16 := []dtype.Type{dtype.F32}, []dtype.Type{dtype.BF16}
	pair := []dtype.Type{dtype.F32, dtype.F32}
	long := X(0)
	for range 20 {
		long = long.Mul(C(3)).Add(C(1)).Exp().Sqrt().Neg()
	}
	random := RandomUniform(dtype.F32, Param(0, dtype.I64), Param(1, dtype.I64), Index(dtype.I64))
	for _, c := range []struct {
		want    string // KEY stands for the first digits of the key
		outs    []*Expr
		out, in []dtype.Type
	}{
		{"gelu_tanh_bfloat16", []*Expr{Call("gelu_tanh", X(0))}, bf16, bf16},
		{"gelu_tanh_float32_bfloat16", []*Expr{Call("gelu_tanh", X(0))}, bf16, f32},
		{"cast_float32_bfloat16", []*Expr{X(0)}, bf16, f32},
		{"copy_float32", []*Expr{X(0)}, f32, f32},
		{"copy_float32", []*Expr{X(0).Cvt(dtype.F32).Named("sum")}, f32, f32},
		{"cast_uint8_float32", []*Expr{X(0).Cvt(dtype.F32)}, f32, []dtype.Type{dtype.U8}},
		// this cast wraps; a plain cast saturates
		{"cast_float32_uint8_KEY", []*Expr{X(0).Cvt(dtype.U8)}, []dtype.Type{dtype.U8}, f32},
		{"add_float32", []*Expr{X(0).Add(X(1))}, f32, pair},
		{"lt_float32_float32_bool", []*Expr{X(0).Lt(X(1))}, []dtype.Type{dtype.Bool}, pair},
		// the operands are in reverse order
		{"sub_float32_KEY", []*Expr{X(1).Sub(X(0))}, f32, pair},
		{"mul_float32_KEY", []*Expr{X(0).Mul(X(0))}, f32, f32},
		{"mul_float32_KEY", []*Expr{X(0).Mul(Param(0))}, f32, f32},
		{"mul_add_float32_KEY", []*Expr{X(0).Mul(C(2)).Mul(C(3)).Add(C(1))}, f32, f32},
		{"x_mul_float32_KEY", []*Expr{X(0).Named("x").Mul(X(1))}, f32, pair},
		{"fill_float32_KEY", []*Expr{C(1)}, f32, nil},
		{"index_int64_KEY", []*Expr{Index(dtype.I64)}, []dtype.Type{dtype.I64}, nil},
		{"random_float32_KEY", []*Expr{random}, f32, nil},
		{"adam_w__float32_KEY", []*Expr{X(0).Add(X(1)).Named("adam w²"), X(0).Named("adam w²")}, pair, pair},
		{"mul_add_exp_sqrt_neg_mul_add_exp_float32_KEY", []*Expr{long}, f32, f32},
	} {
		p := MustLower(c.outs, c.out, c.in, -1)
		want := strings.Replace(c.want, "KEY", p.Key()[:8], 1)
		if p.Name() != want {
			t.Errorf("%s is called %s", want, p.Name())
		}
		if !regexp.MustCompile(`^[A-Za-z0-9_]{1,96}$`).MatchString(p.Name()) {
			t.Errorf("%q is no name of an entry point", p.Name())
		}
	}
}

// TestNamed checks that a name does not change the computation. A node that already has the name
// must be returned unchanged.
func TestNamed(t *testing.T) {
	f32 := []dtype.Type{dtype.F32}
	e := X(0).Mul(C(3))
	a, b := MustLower([]*Expr{e}, f32, f32, -1), MustLower([]*Expr{e.Named("triple")}, f32, f32, -1)
	if a.Key() != b.Key() || a.String() != b.String() {
		t.Errorf("a name changes the program:\n%v%v", a, b)
	}
	if a.Name() == b.Name() || !strings.HasPrefix(b.Name(), "triple_") {
		t.Errorf("programs are called %s and %s", a.Name(), b.Name())
	}
	if e.Named("mul") != e {
		t.Error("a product named mul is another expression")
	}
}

// TestNamesWithoutKeys checks that no two programs have the same name if the name contains no key.
func TestNamesWithoutKeys(t *testing.T) {
	keys := map[string]string{}
	types := []dtype.Type{dtype.F32, dtype.F64, dtype.BF16, dtype.I32, dtype.I64, dtype.U8, dtype.Bool}
	check := func(e *Expr, out dtype.Type, in ...dtype.Type) {
		p, err := Lower([]*Expr{e}, []dtype.Type{out}, in, -1)
		if err != nil || strings.HasSuffix(p.Name(), p.Key()[:8]) {
			return
		}
		if k, ok := keys[p.Name()]; ok && k != p.Key() {
			t.Errorf("two programs are called %s", p.Name())
		}
		keys[p.Name()] = p.Key()
	}
	for _, a := range types {
		for _, out := range types {
			check(X(0), out, a)
			check(X(0).Cvt(dtype.I32), out, a)
			check(X(0).Exp(), out, a)
			check(X(0).Exp().Exp(), out, a)
			check(X(0).Neg(), out, a)
			for _, b := range types {
				check(X(0).Add(X(1)), out, a, b)
				check(X(1).Add(X(0)), out, a, b)
				check(X(0).Lt(X(1)), out, a, b)
				check(X(1).Lt(X(0)), out, a, b)
				check(X(0).Cvt(dtype.F64).Add(X(1)), out, a, b)
				check(X(0), out, a, b)
				check(X(1), out, a, b)
				check(X(0).Neg(), out, a, b)
			}
		}
	}
	if len(keys) < 200 {
		t.Errorf("%d names were compared", len(keys))
	}
}

// TestNamesOfFunctions checks the two cases in which a function's name contains a key: a name has
// no room for the types of all operands, or the function has the name of an operation.
func TestNamesOfFunctions(t *testing.T) {
	for _, f := range []Func{{Name: "four", Arity: 4}, {Name: "add", Arity: 2}} {
		f.Expand = func(_ dtype.Type, x []*Expr) *Expr { return x[0].Sub(x[1]) }
		Define(f)
		var x []*Expr
		var in []dtype.Type
		for i := range f.Arity {
			x, in = append(x, X(i)), append(in, dtype.F32)
		}
		p := MustLower([]*Expr{Call(f.Name, x...)}, []dtype.Type{dtype.BF16}, in, -1)
		if !strings.HasSuffix(p.Name(), "_"+p.Key()[:8]) {
			t.Errorf("%s is called %s", f.Name, p.Name())
		}
		delete(funcs, f.Name)
	}
}
