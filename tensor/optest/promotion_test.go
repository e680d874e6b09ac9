package optest

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// promotions holds PyTorch's rules of types, as _golden/promotion.py has recorded them.
type promotions struct {
	Binary map[string]map[string][][]string
	Scalar map[string]map[string][]string
	Unary  map[string][]string
	Casts  [][4]json.RawMessage
	Wraps  [][5]json.RawMessage
}

func readPromotions(t *testing.T) (p promotions) {
	t.Helper()
	f, err := os.Open("testdata/promotion.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err == nil {
		err = json.NewDecoder(z).Decode(&p)
	}
	if err != nil || len(p.Binary) < 20 || len(p.Casts) != 100 {
		t.Fatalf("promotion.json.gz: %v, %d functions, %d casts", err, len(p.Binary), len(p.Casts))
	}
	return p
}

var binaryForms = map[string]func(x, y *tt) *tt{
	"add": (*tt).Add, "sub": (*tt).Sub, "mul": (*tt).Mul, "div": (*tt).Div, "pow": (*tt).Pow, "floor_divide": (*tt).FloorDivide, "trunc_divide": (*tt).TruncDivide,
	"remainder": (*tt).Remainder, "fmod": (*tt).Fmod, "minimum": (*tt).Minimum, "maximum": (*tt).Maximum, "fmax": (*tt).Fmax, "fmin": (*tt).Fmin, "eq": (*tt).Eq, "lt": (*tt).Lt,
	"atan2": (*tt).Atan2, "copysign": (*tt).CopySign, "xlogy": (*tt).XLogY, "logical_and": (*tt).LogicalAnd, "bitwise_and": (*tt).BitwiseAnd,
	"bitwise_left_shift": (*tt).BitwiseLeftShift, "bitwise_right_shift": (*tt).BitwiseRightShift,
	"where": func(x, y *tt) *tt { return tensor.Where(x.Scope().From([]bool{true, false}).To(x.Device()), x, y) },
}

var scalarForms = map[string]func(x *tt, v float64) *tt{
	"add": (*tt).AddScalar, "sub": (*tt).SubScalar, "rsub": (*tt).RSubScalar, "mul": (*tt).MulScalar, "div": (*tt).DivScalar, "rdiv": (*tt).RDivScalar, "pow": (*tt).PowScalar,
	"rpow": (*tt).RPowScalar, "floor_divide": (*tt).FloorDivideScalar, "rfloor_divide": (*tt).RFloorDivideScalar, "remainder": (*tt).RemainderScalar, "fmod": (*tt).FmodScalar,
	"eq": (*tt).EqScalar, "lt": (*tt).LtScalar, "clamp_min": (*tt).ClampMin, "copysign": (*tt).CopySignScalar,
	"where": func(x *tt, v float64) *tt {
		return tensor.WhereScalar(x.Scope().From([]bool{true, false}).To(x.Device()), x, v)
	},
}

var unaryForms = map[string]func(x *tt) *tt{
	"nan_to_num": func(x *tt) *tt { return x.NanToNum() }, "logsumexp": func(x *tt) *tt { return x.LogSumExp(0) }, "relu": (*tt).Relu, "square": (*tt).Square,
}

// outcome returns the name of the result's type, or "error".
func outcome(t *testing.T, f func() *tt) (s string) {
	t.Helper()
	if err := tensor.Try(func() { s = f().Type().String() }); err != nil {
		return "error"
	}
	return s
}

// goTypes returns the type that this library uses if PyTorch uses the given type. It applies the
// documented differences.
func goTypes(op string, torch string, operands ...dtype.Type) string {
	floats := slices.ContainsFunc(operands, dtype.Type.IsFloat)
	truth := slices.Contains(operands, dtype.Bool)
	switch {
	// PyTorch refuses these operands, as docs/from-pytorch/torch.md says.
	case torch == "error" && op == "sub" && truth && len(operands) == 2 && operands[0] != operands[1]:
		return strings.Replace(operands[0].String()+operands[1].String(), "bool", "", 1)
	case torch == "error" && op == "mean":
		return "float32"
	case torch == "error" && op == "argmax":
		return "int64"
	case torch == "error" && (op == "relu" || op == "abs"):
		return "bool"
	case strings.HasSuffix(op, "pow") && !floats && (torch == "error" || !strings.Contains(torch, "float")):
		return "float32" // this library computes powers in floating point
	}
	return torch
}

func TestPromotionIsTorchs(t *testing.T) {
	p := readPromotions(t)
	types := dtype.Types()
	wrong := 0
	hold := func(what, got, want string) {
		t.Helper()
		if got != want {
			if wrong++; wrong <= 60 {
				t.Errorf("%s gives %s, want %s", what, got, want)
			}
		}
	}
	// One device is enough: the library chooses the types before it calls a device.
	tensor.Do(func(s *tensor.Scope) {
		for op, forms := range p.Binary {
			if testing.Short() && !someOps(op) {
				continue
			}
			f := binaryForms[op]
			if f == nil {
				t.Errorf("%s is recorded, and not known to the test", op)
				continue
			}
			for form, want := range forms {
				dims := map[string][2][]int{"tensors": {{2}, {2}}, "right 0-dim": {{2}, {}}, "left 0-dim": {{}, {2}}, "both 0-dim": {}}[form]
				for i, a := range types {
					for j, b := range types {
						got := outcome(t, func() *tt { return f(s.Typed(a).Ones(dims[0]...), s.Typed(b).Ones(dims[1]...)) })
						hold(op+" of "+a.String()+" and "+b.String()+", "+form, got, goTypes(op, want[i][j], a, b))
					}
				}
			}
		}
		for op, forms := range p.Scalar {
			if testing.Short() && !someOps(op) {
				continue
			}
			f := scalarForms[op]
			if f == nil {
				t.Errorf("%s of a number is recorded, and not known to the test", op)
				continue
			}
			for number, want := range forms {
				v, _ := strconv.ParseFloat(number, 64)
				for i, a := range types {
					expected := goTypes(op, want[i], a)
					if a == dtype.Bool && (op == "sub" || op == "rsub") {
						// PyTorch refuses to subtract bools. In this library sub of bools has the
						// same type as add.
						expected = p.Scalar["add"][number][i]
					}
					hold(op+" of "+a.String()+" and "+number, outcome(t, func() *tt { return f(s.Typed(a).Ones(2), v) }), expected)
				}
			}
		}
		for op, want := range p.Unary {
			if testing.Short() && !someOps(op) {
				continue
			}
			f := unaryForms[op]
			if m, ok := methods[op]; f == nil && ok {
				f = func(x *tt) *tt { return m.call([]*tt{x}, nil) }
			} else if r, ok := reduceMethods[op]; f == nil && ok {
				f = func(x *tt) *tt { return r.call(x) }
			}
			if f == nil {
				t.Errorf("%s is recorded, and not known to the test", op)
				continue
			}
			for i, a := range types {
				hold(op+" of "+a.String(), outcome(t, func() *tt { return f(s.Typed(a).Ones(2)) }), goTypes(op, want[i], a))
			}
		}
	})
	if wrong > 60 {
		t.Errorf("and %d more", wrong-60)
	}
}

func typeNamed(t *testing.T, name json.RawMessage) dtype.Type {
	t.Helper()
	for _, ty := range dtype.Types() {
		if `"`+ty.String()+`"` == string(name) {
			return ty
		}
	}
	t.Fatalf("no type is called %s", name)
	return dtype.Invalid
}

// recorded makes a tensor of type ty from the elements that _golden/promotion.py recorded, in
// Python's notation.
func recorded(t *testing.T, s *tensor.Scope, raw json.RawMessage, ty dtype.Type) *tt {
	t.Helper()
	var text []string
	if err := json.Unmarshal(raw, &text); err != nil {
		t.Fatal(err)
	}
	switch {
	case ty == dtype.Bool:
		v := make([]bool, len(text))
		for i := range text {
			v[i] = text[i] == "True"
		}
		return s.From(v)
	case ty.IsInteger():
		v := make([]int64, len(text))
		for i := range text {
			n, err := strconv.ParseInt(text[i], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			v[i] = n
		}
		return s.From(v).Cast(ty)
	}
	v := make([]float64, len(text))
	for i := range text {
		x, err := strconv.ParseFloat(text[i], 64)
		if err != nil {
			t.Fatal(err)
		}
		v[i] = x
	}
	return s.From(v).Cast(ty)
}

func equalBits(a, b *tt) bool {
	if a.Type() != b.Type() || a.Size() != b.Size() {
		return false
	}
	x, y, n := a.Bytes(), b.Bytes(), a.Type().Size()
	f, g := a.Floats(), b.Floats()
	for i := range f {
		if string(x[i*n:i*n+n]) != string(y[i*n:i*n+n]) && !(math.IsNaN(f[i]) && math.IsNaN(g[i])) {
			return false
		}
	}
	return true
}

// TestCastsAndOverflowAreTorchs checks that casts between all types, and overflowing integers, give
// the same bits as PyTorch on every device. C does not define casts of floats outside the range of
// an integer type. TestCasts checks those casts.
func TestCastsAndOverflowAreTorchs(t *testing.T) {
	p := readPromotions(t)
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		tensor.Do(func(s *tensor.Scope) {
			for _, c := range p.Casts {
				from, to := typeNamed(t, c[0]), typeNamed(t, c[1])
				x, want := recorded(t, s, c[2], from), recorded(t, s, c[3], to)
				if got := x.To(dev).Cast(to); !equalBits(got, want) {
					t.Errorf("%v of %v to %v on %s is %v, want %v", x.Floats(), from, to, dev.Name(), got.Floats(), want.Floats())
				}
			}
			for _, c := range p.Wraps {
				var op string
				if err := json.Unmarshal(c[0], &op); err != nil {
					t.Fatal(err)
				}
				ty := typeNamed(t, c[1])
				x, y, want := recorded(t, s, c[2], ty), recorded(t, s, c[3], ty), recorded(t, s, c[4], ty)
				if op == "pow" {
					continue // this library computes pow in floating point, even for integers
				}
				if got := binaryForms[op](x.To(dev), y.To(dev)); !equalBits(got, want) {
					t.Errorf("%s of %v %v and %v on %s is %v, want %v", op, ty, x.Floats(), y.Floats(), dev.Name(), got.Floats(), want.Floats())
				}
			}
		})
	}
}
