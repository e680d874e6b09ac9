package tensor_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

func ExampleExpr() {
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float32{-1, 0, 1, 2}).RequiresGrad()
		a := s.From([]float32{2}).RequiresGrad()
		// Expr computes the whole formula in one kernel.
		y := tensor.Expr("max(0, a*x + b)", tensor.Vars{"a": a, "x": x, "b": 0.5})
		y.Sum().Backward()
		fmt.Println(y.Floats())
		fmt.Println(x.Grad().Floats(), a.Grad().Floats())
	})
	err := tensor.Try(func() { tensor.Expr("exp(-x) * sgima", tensor.Vars{"x": tensor.Ones(2), "sigma": 2}) })
	fmt.Println(strings.Split(err.Error(), "\n  at ")[0])
	// Output:
	// [0 0.5 2.5 4.5]
	// [0 2 2 2] [3]
	// tensor: expr: column 11: unknown name sgima
	//     exp(-x) * sgima
	//               ^ (did you mean sigma?)
}

// TestExprErrors checks that the error for a wrong expression shows the column, the text, and a
// mark under the wrong part.
func TestExprErrors(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x, i, b := s.Ones(2), s.Typed(dtype.I32).Ones(2), s.Typed(dtype.Bool).Ones(2)
		many, sum := tensor.Vars{}, []string{}
		for k := range 13 {
			name := fmt.Sprintf("x%d", k)
			many[name], sum = x, append(sum, name)
		}
		for _, c := range []struct {
			text string
			vars tensor.Vars
			kind error
			says []string
		}{
			{"a*x", tensor.Vars{"x": x}, tensor.ErrValue, []string{"column 1: unknown name a", "a*x\n    ^", "(given are x; known are false, inf, nan, pi, true)"}},
			{"2*PI", nil, nil, []string{"unknown name PI", "did you mean pi?"}},
			{"mean((x - y)*(x - y))", tensor.Vars{"x": x, "y": x}, nil, []string{"column 1: mean is not elementwise", "apply .Mean to what Expr returns"}},
			{"Mean(x)", tensor.Vars{"x": x}, nil, []string{"Mean is not elementwise", "apply .Mean to"}},
			{"x / softmax(x)", tensor.Vars{"x": x}, nil, []string{"column 5: softmax is not elementwise", ".Softmax"}},
			{"x + pow(x, 2) + gleu(x)", tensor.Vars{"x": x}, nil, []string{"column 17: unknown function gleu", "\n                    ^", "did you mean gelu?"}},
			{"x + frobnicate(x)", tensor.Vars{"x": x}, nil, []string{"unknown function frobnicate"}},
			{"exp(x, x)", tensor.Vars{"x": x}, nil, []string{"column 1: exp takes 1 argument, it is given 2"}},
			{"x + where(x)", tensor.Vars{"x": x}, nil, []string{"column 5: where takes 3 arguments, it is given 1"}},
			{"max(x)", tensor.Vars{"x": x}, nil, []string{"max takes 2 or more arguments, it is given 1", ".Amax or .Amin"}},
			{"y = x", tensor.Vars{"x": x}, nil, []string{"column 3: an assignment is a statement", "== compares"}},
			{"x; x", tensor.Vars{"x": x}, nil, []string{"column 2: this is not one expression"}},
			{"if x { }", tensor.Vars{"x": x}, nil, []string{"column 1:"}},
			{"(x + 1", tensor.Vars{"x": x}, nil, []string{"column 7: this is not one expression"}},
			{"", tensor.Vars{"x": x}, nil, []string{"column 1: the expression is empty"}},
			{"x**2", tensor.Vars{"x": x}, nil, []string{"column 2: the operator **", "pow(x, 2)"}},
			{"0 < x < 1", tensor.Vars{"x": x}, nil, []string{"column 7: comparisons do not chain", "a < b && b < c"}},
			{"torch.exp(x)", tensor.Vars{"x": x}, nil, []string{"only a function's name can be called"}},
			{"x.y", tensor.Vars{"x": x}, nil, []string{"a name with a dot"}},
			{"x[0]", tensor.Vars{"x": x}, nil, []string{"an index"}},
			{"x + 'a'", tensor.Vars{"x": x}, nil, []string{"column 5: 'a' is not a real number"}},
			{"x + 2i", tensor.Vars{"x": x}, nil, []string{"2i is not a real number"}},
			{"x + 1e999", tensor.Vars{"x": x}, nil, []string{"1e999 is out of range"}},
			{"x + 99999999999999999999", tensor.Vars{"x": x}, nil, []string{"out of range"}},
			{"&x", tensor.Vars{"x": x}, nil, []string{"the operator & has no meaning here"}},
			{"x + b", tensor.Vars{"x": x, "b": 1, "c": 2}, nil, []string{`the operand "c" is given and not used`}},
			{"x", tensor.Vars{"x": "no"}, nil, []string{`the operand "x" is of type string`}},
			{"x", tensor.Vars{"x": nil}, nil, []string{`the operand "x" is nil`}},
			{"x", tensor.Vars{"x": (*tensor.Tensor)(nil)}, nil, []string{`the operand "x" is a nil tensor`}},
			{"x + n", tensor.Vars{"x": x, "n": 1<<53 + 1}, nil, []string{"beyond the 53 bits"}},
			{"x + y", tensor.Vars{"x": 1, "y": 2}, nil, []string{"nothing here is a tensor"}},
			{"x +\n\tz", tensor.Vars{"x": x}, nil, []string{"line 2, column 2: unknown name z", "    \tz\n    \t^"}},
			{"ü*x + z", tensor.Vars{"x": x, "ü": 1}, nil, []string{"column 7: unknown name z", "\n          ^"}},
			{"where(x, x, 0)", tensor.Vars{"x": x}, tensor.ErrType, []string{"column 7: the condition of where must be bool"}},
			{"x & 1", tensor.Vars{"x": x}, tensor.ErrType, []string{"column 3: & needs integer or bool operands, not float32"}},
			{"x + (1.5 & 2)", tensor.Vars{"x": x}, tensor.ErrType, []string{"column 10: & needs integers"}},
			{"i * 4294967296", tensor.Vars{"i": i}, tensor.ErrValue, []string{"column 5: the number 4.294967296e+09 is not of type int32"}},
			{"selu(i)", tensor.Vars{"i": i}, tensor.ErrType, []string{"selu needs floating point operands, not int32"}},
			{"floor(b)", tensor.Vars{"b": b}, tensor.ErrType, []string{"floor is not defined for bool"}},
			{"i * n", tensor.Vars{"i": i, "n": 1 << 40}, tensor.ErrValue, []string{"column 5: the number here is", "which int32 does not hold"}},
			{"x + y", tensor.Vars{"x": x, "y": s.Ones(3)}, tensor.ErrShape, []string{"do not broadcast"}},
			{strings.Repeat("(", 200) + "x" + strings.Repeat(")", 200), tensor.Vars{"x": x}, nil, []string{"column 101: the expression is nested more than 100 deep"}},
			{strings.Repeat("x+", 300) + "x", tensor.Vars{"x": x}, nil, []string{"deep"}},
			{strings.Repeat(" ", 5000) + "x", tensor.Vars{"x": x}, nil, []string{"has 5001 bytes, at most 4096"}},
			{strings.Join(sum, "+"), many, nil, []string{"x12 is tensor number 13", "at most 12"}},
		} {
			err := tensor.Try(func() { tensor.Expr(c.text, c.vars) })
			e, ok := err.(*tensor.Error)
			if !ok || e.Op != "expr" || e.Site == "" || !errors.Is(err, orValue(c.kind)) {
				t.Errorf("%.40q: %v", c.text, err)
				continue
			}
			for _, says := range c.says {
				if !strings.Contains(e.Error(), says) {
					t.Errorf("%.40q: %q is not in\n%v", c.text, says, e)
				}
			}
		}
	})
}

func orValue(kind error) error {
	if kind == nil {
		return tensor.ErrValue
	}
	return kind
}

// TestExprTypes checks the types of expressions. The types must follow the rules of the ops in the
// text: a number raises a tensor's type only if the number has a higher class than the tensor. For
// example, a float makes an int32 tensor float32, but leaves a float16 tensor float16.
func TestExprTypes(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		vars := tensor.Vars{"n": 2, "v": 2.0, "f": true}
		for name, ty := range map[string]dtype.Type{"x": dtype.F32, "d": dtype.F64, "h": dtype.F16, "w": dtype.BF16, "i": dtype.I32, "l": dtype.I64, "c": dtype.I8, "u": dtype.U8, "b": dtype.Bool} {
			vars[name] = s.Typed(ty).Full(1, 2)
			vars[name+"0"] = s.Typed(ty).Full(1)
		}
		for text, want := range map[string]string{
			"x*d": "float64 1", "x*d0": "float32 1", "h*x0": "float16 1", "h*w": "float32 1", "h+v": "float16 3", "i*n": "int32 2", "i*v": "float32 2",
			"i/n": "float32 0.5", "b*n": "int64 2", "b*2.0": "float32 2", "b+b": "bool 1", "b+f": "bool 1", "i*d0": "float64 1", "l*i": "int64 1", "c*u": "int16 1",
			"i > v": "bool 0", "i >= 0.5": "bool 1", "x > 0 && i > 1": "bool 0", "x > 0 || i > 1": "bool 1", "!x": "bool 0", "where(b, 1, 0)": "int64 1",
			"where(b, 1, 0.5)": "float32 1", "where(x > 2, d, h)": "float64 1", "exp(i - i)": "float32 1", "pow(i, 2)": "float32 1", "i % 2": "int32 1",
			"floor(x / 2)": "float32 0", "-i % 3": "int32 2", "c + 127": "int8 -128", "(c + 127) / 2": "float32 -64", "u - 2": "uint8 255", "i << n": "int32 4",
			"i ^ 3 | 8": "int32 10", "^i": "int32 -2", "x*(n/4)": "float32 0.5", "x + min(n, v, 7)": "float32 3", "+x": "float32 1", "x": "float32 1", "b": "bool 1", "x*pi": "float32 3.1415927410125732",
			"x + where(f, n, 5)": "float32 3", "clamp(i*7, 0, n)": "int32 2", "clamp(x*7, x, d)": "float64 1", "isnan(x*nan)": "bool 1", "max(i, v)": "float32 2", "min(x0*3, n)": "float32 2",
			"floor_divide(l, 2)": "int64 0", "x*(7 % 4)": "float32 3", "x == true": "bool 1",
		} {
			used := tensor.Vars{}
			for name, v := range vars {
				if named(text, name) {
					used[name] = v
				}
			}
			y := tensor.Expr(text, used)
			if got := fmt.Sprintf("%v %v", y.Type(), y.Floats()[0]); got != want {
				t.Errorf("%s is %s, want %s", text, got, want)
			}
		}
	})
}

// named reports whether name occurs in text as a word.
func named(text, name string) bool {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ()+-*/%^|&!<>=,.", r) }) {
		if word == name {
			return true
		}
	}
	return false
}

// TestExprCompilesOnce checks that a text is parsed and compiled once for each combination of
// operand types. Other values of a number do not compile it again.
func TestExprCompilesOnce(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(4)
		call := func(k int) {
			s.Do(func(c *tensor.Scope) {
				y := tensor.Expr("x*k + exp(-k)*x", tensor.Vars{"x": x.In(c), "k": k})
				if k == 0 && y.Floats()[0] != 1 {
					t.Error(y)
				}
			})
		}
		call(0)
		before := tensor.ExprPlans()
		for k := range 100 {
			call(k)
		}
		if n := tensor.ExprPlans(); n != before {
			t.Errorf("%d plans, then %d", before, n)
		}
		for k := range 600 { // more texts than the cache keeps
			tensor.Expr(fmt.Sprintf("x + %d", k), tensor.Vars{"x": x})
		}
		if n := tensor.ExprPlans(); n > 512 {
			t.Errorf("%d plans", n)
		}
	})
}

// FuzzExpr checks that any text is either an expression or leads to an error with a position.
func FuzzExpr(f *testing.F) {
	for _, text := range []string{"max(0, a*x + b)", "where(x > 0, x, -x) / (1 + exp(-x))", "x**2", "((((x", "y = x", "0x1p-2*x", "x % 3 << 1", "clamp(x, 0, b)", "\"\\\n", "x\x00", "func() {}", "a.b.c", "x+/**/a"} {
		f.Add(text)
	}
	x, a := tensor.Ones(3), tensor.Typed(dtype.I32).Ones(1)
	f.Fuzz(func(t *testing.T, text string) {
		err := tensor.Try(func() {
			vars := tensor.Vars{}
			for name, v := range map[string]any{"x": x, "a": a, "b": 0.5} {
				if named(text, name) {
					vars[name] = v
				}
			}
			y := tensor.Expr(text, vars)
			if y.Size() != 3 && y.Size() != 1 {
				t.Errorf("%q: %v", text, y)
			}
		})
		if err == nil {
			return
		}
		e := err.(*tensor.Error)
		if e.Op != "expr" || !strings.Contains(e.Msg, "given and not used") && (!strings.Contains(e.Msg, "column ") || !strings.Contains(e.Msg, "^")) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// TestExprWholes tries to call ops that are not elementwise in an expression. The error must name a
// method to call instead, and the method must exist. No op may be both refused and known.
func TestExprWholes(t *testing.T) {
	methods := reflect.TypeFor[*tensor.Tensor]()
	for name, method := range tensor.ExprWholes {
		if _, ok := methods.MethodByName(method); !ok {
			t.Errorf("%s: there is no method %s", name, method)
		}
		for _, e := range tensor.Declared() {
			if e.Name == name && e.Arity <= 3 && len(e.Params) == 0 {
				t.Errorf("%s is declared as elementwise", name)
			}
		}
	}
}
