package device_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/device/devicetest"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/shape"
)

// opTypes returns the names of the package's op types: those with a Clone method that returns Op.
func opTypes(t *testing.T) (names []string) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			m, ok := d.(*ast.FuncDecl)
			if !ok || m.Recv == nil || m.Name.Name != "Clone" || m.Type.Results == nil {
				continue
			}
			result, _ := m.Type.Results.List[0].Type.(*ast.Ident)
			pointer, _ := m.Recv.List[0].Type.(*ast.StarExpr)
			if result != nil && result.Name == "Op" && pointer != nil {
				names = append(names, pointer.X.(*ast.Ident).Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// TestOpsAreListed compares [devicetest.Ops], the list of ops for tests, with the op types of
// package device. Each type must be in the list.
func TestOpsAreListed(t *testing.T) {
	var listed []string
	for _, op := range devicetest.Ops(dense) {
		listed = append(listed, reflect.TypeOf(op).Elem().Name())
	}
	slices.Sort(listed)
	if listed, names := slices.Compact(listed), opTypes(t); !slices.Equal(listed, names) {
		t.Errorf("devicetest.Ops has %v, package device %v", listed, names)
	}
}

// TestSenselessOps calls Check of ops that are zero values or have unknown kinds. Check must refuse
// them and give a reason.
func TestSenselessOps(t *testing.T) {
	senseless := func(what string, op device.Op) {
		t.Helper()
		if _, reason := op.Check(); reason == "" || op.Name() == "" {
			t.Errorf("%s of %T, named %q, is not refused", what, op, op.Name())
		}
	}
	for _, op := range devicetest.Ops(dense) {
		senseless("the zero value", reflect.New(reflect.TypeOf(op).Elem()).Interface().(device.Op))
		// change a copy of the Reduction, because several ops may share one
		if r, ok := op.(*device.Reduce); ok {
			c := *r.Reduction
			r.Reduction = &c
		}
		if kind := reflect.ValueOf(op).Elem().FieldByName("Kind"); kind.IsValid() {
			kind.SetUint(200)
			senseless("an unknown kind", op)
		}
	}
}

// TestOps checks properties that every op must have, such as a name and a Clone that shares no
// slice.
func TestOps(t *testing.T) {
	for _, op := range devicetest.Ops(dense) {
		if arg, reason := op.Check(); reason != "" || op.Name() == "" {
			t.Fatalf("%T, named %q: %s: %s", op, op.Name(), arg, reason)
		}
		n := 0
		for ; op.Operand(n).View != nil; n++ {
			if o := op.Operand(n); o.Name == "" || n == 0 && !o.Written {
				t.Errorf("%s: operand %d is %+v", op.Name(), n, o)
			}
		}
		for i := range 4 {
			if o := op.Operand(n + i); o != (device.Operand{}) {
				t.Errorf("%s: operand %d of %d is %+v", op.Name(), n+i, n, o)
			}
		}
		c := op.Clone()
		if _, reason := c.Check(); reason != "" || !reflect.DeepEqual(c, op) || c.Work() != op.Work() || c.Name() != op.Name() {
			t.Errorf("the clone of %+v is %+v: %s", op, c, reason)
		}
		for i := range n {
			if c.Operand(i).View == op.Operand(i).View {
				t.Errorf("%s: the clone shares operand %d", op.Name(), i)
			}
		}
		if path := shared(reflect.ValueOf(op).Elem(), reflect.ValueOf(c).Elem()); path != "" {
			t.Errorf("%s: the clone shares the slice %s", op.Name(), path)
		}
	}
	for _, op := range devicetest.Ops(func(t dtype.Type, d ...int) device.View { return dense(t, append([]int{0}, d[1:]...)...) }) {
		if _, reason := op.Check(); reason == "" && op.Work() != (device.Work{}) {
			t.Errorf("%s without elements has work %+v", op.Name(), op.Work())
		}
	}
}

// shared returns the field and the type of a slice that a and b share. If they share no memory, it
// returns "".
func shared(a, b reflect.Value) string {
	switch a.Kind() {
	case reflect.Slice:
		if a.Len() > 0 && a.Pointer() == b.Pointer() {
			return a.Type().String()
		}
		for i := range a.Len() {
			if path := shared(a.Index(i), b.Index(i)); path != "" {
				return path
			}
		}
	case reflect.Struct:
		for i := range a.NumField() {
			if path := shared(a.Field(i), b.Field(i)); path != "" {
				return a.Type().Field(i).Name + " " + path
			}
		}
	}
	return ""
}

// refused runs op and checks that Run returns an error for the argument arg without calling the
// driver.
func refused(t *testing.T, what string, op device.Op, arg string) {
	t.Helper()
	dev := &testDevice{run: func(device.Stream, device.Op, *device.KernelEvent) error {
		t.Errorf("%s: the driver is called", what)
		return nil
	}}
	err := device.Run(dev, nil, op)
	var e *device.OperandError
	if !errors.As(err, &e) || e.Device != "puppet" || e.Op != op.Name() || !strings.HasPrefix(e.Arg, arg) || e.Reason == "" {
		t.Errorf("%s: error %v, want an OperandError of %q", what, err, arg)
	}
}

// TestSenselessViews checks that Run refuses invalid views, for every op and operand.
func TestSenselessViews(t *testing.T) {
	for _, op := range devicetest.Ops(dense) {
		for i := 0; op.Operand(i).View != nil; i++ {
			o := op.Operand(i)
			if o.View.Absent() {
				continue
			}
			for what, change := range map[string]func(v *device.View){
				"no type":             func(v *device.View) { v.Type = dtype.Invalid },
				"strides of less":     func(v *device.View) { v.Strides = v.Strides.Tail(1) },
				"a negative size":     func(v *device.View) { v.Shape = v.Shape.With(0, -1) },
				"elements that share": func(v *device.View) { v.Strides = v.Strides.With(0, 0) },
			} {
				if what == "elements that share" && (!o.Written || o.View.Shape.At(0) == 1) {
					continue
				}
				bad := op.Clone()
				change(bad.Operand(i).View)
				refused(t, op.Name()+" with "+what+" in "+o.Name, bad, "")
			}
		}
	}
}

// TestCheck checks that the error for a wrong operand names the operand.
func TestCheck(t *testing.T) {
	f := func(d ...int) device.View { return dense(dtype.F32, d...) }
	list := func(v ...device.View) []device.View { return v }
	lower := func(e *expr.Expr, in ...dtype.Type) *expr.Program {
		return expr.MustLower([]*expr.Expr{e}, []dtype.Type{dtype.F32}, in, -1)
	}
	id, add := lower(expr.X(0), dtype.F32), lower(expr.X(0).Add(expr.X(1)), dtype.F32, dtype.F32)
	scaled := lower(expr.X(0).Mul(expr.Param(0)), dtype.F32)
	sum := &device.Reduction{Map: id}
	i64, groups := dense(dtype.I64, 1), [][]device.View{{f(2)}, {f(3)}}
	rms := device.RowNorm{RMS: true, Period: 1, Inner: 1}
	thirds := rms
	thirds.Period = 3
	channels, column := f(2, 3, 4), f(3)
	column.Strides = shape.Of(2)
	pairs := device.Window{Rank: 1, Kernel: [3]int{2}, Stride: [3]int{1}, Dilation: [3]int{1}}
	for _, c := range []struct {
		name, arg string
		op        device.Op
	}{
		{"map of fewer results", "out", &device.Map{Program: id, Ins: list(f(2))}},
		{"map of fewer operands", "in", &device.Map{Program: add, Outs: list(f(2)), Ins: list(f(2))}},
		{"map of another shape", "in 1", &device.Map{Program: add, Outs: list(f(2)), Ins: list(f(2), f(3))}},
		{"map of another type", "in", &device.Map{Program: id, Outs: list(f(2)), Ins: list(dense(dtype.I32, 2))}},
		{"map without a parameter", "params", &device.Map{Program: scaled, Outs: list(f(2)), Ins: list(f(2))}},
		{"sum to a shape that is none of the operand's", "out", &device.Reduce{Reduction: sum, Out: f(2, 1), Ins: list(f(3, 4))}},
		{"sum to nothing", "out", &device.Reduce{Reduction: sum, Ins: list(f())}},
		{"argmax of no elements", "in", &device.Reduce{Reduction: &device.Reduction{Kind: device.ArgMax, Map: id}, Out: dense(dtype.I64, 2, 1), Ins: list(f(2, 0))}},
		{"sum finished as another type", "finish", &device.Reduce{Reduction: &device.Reduction{Map: id, Finish: id}, Out: dense(dtype.F64, 1), Ins: list(f(3))}},
		{"matmul", "out", &device.MatMul{Out: f(1, 2, 2), A: f(1, 2, 3), B: f(1, 2, 3)}},
		{"int32 matrices to int8", "out", &device.MatMul{Out: dense(dtype.I8, 1, 2, 2), A: dense(dtype.I32, 1, 2, 3), B: dense(dtype.I32, 1, 3, 2)}},
		{"uint8 matrices to int32", "out", &device.MatMul{Out: dense(dtype.I32, 1, 2, 2), A: dense(dtype.U8, 1, 2, 3), B: dense(dtype.U8, 1, 3, 2)}},
		{"int8 by int32", "b", &device.MatMul{Out: dense(dtype.I32, 1, 2, 2), A: dense(dtype.I8, 1, 2, 3), B: dense(dtype.I32, 1, 3, 2)}},
		{"gather by floats", "index", &device.Gather{Out: f(2), Src: f(3), Index: f(2)}},
		{"scatter along no axis", "axis", &device.Scatter{Dst: f(3), Src: f(1), Index: i64, Axis: 1}},
		{"cross-entropy with a top and no rest", "rest", &device.CrossEntropy{Loss: f(3), Top: f(3), X: f(3, 2), Target: dense(dtype.I64, 3)}},
		{"a gradient of logits without a rest", "x", &device.CrossEntropyGrad{DX: f(3, 2), Top: f(3), Target: dense(dtype.I64, 3)}},
		{"a gradient of logarithms in a vector", "dx", &device.CrossEntropyGrad{DX: f(3), Target: dense(dtype.I64, 3)}},
		{"cross-entropy of no classes", "x", &device.CrossEntropy{Loss: f(3), Top: f(3), Rest: f(3), X: f(3, 0), Target: dense(dtype.I64, 3)}},
		{"a weight of rank 2", "weight", &device.Norm{Out: f(1, 3), Rstd: f(1), X: f(1, 3), Weight: f(1, 3), RowNorm: rms}},
		{"a period that does not divide the rows", "x", &device.NormGrad{DX: f(1, 3), G: f(1, 3), X: f(1, 3), Rstd: f(1), RowNorm: thirds}},
		{"a norm gradient of nothing", "dx", &device.NormGrad{G: f(1, 3), X: f(1, 3), Rstd: f(1), RowNorm: rms}},
		{"an addend without a result", "add", &device.NormGrad{DBias: f(3), G: f(1, 3), X: f(1, 3), Rstd: f(1), Add: f(1, 3), RowNorm: rms}},
		{"a sum for each element", "dweight", &device.NormGrad{DWeight: f(1, 3), G: f(1, 3), X: f(1, 3), Rstd: f(1), RowNorm: rms}},
		{"a float32 gradient of float16 rows", "g", &device.NormGrad{DX: dense(dtype.F16, 1, 3), G: f(1, 3), X: dense(dtype.F16, 1, 3), Rstd: f(1), RowNorm: rms}},
		{"a mean of x's shape", "mean", &device.ChannelNormGrad{Sum: f(3), Product: f(3), DX: channels, G: channels, X: channels, Mean: channels, Rstd: f(3)}},
		{"7 groups", "y", &device.Convolution{X: f(1, 2, 5), W: f(4, 2, 3), Y: f(1, 4, 3), Rank: 1, Groups: 7, Stride: [3]int{1}, Dilation: [3]int{1}}},
		{"an empty kernel", "window", &device.SumWindows{Y: f(1, 3), X: f(1, 3), Window: device.Window{Rank: 1, Stride: [3]int{1}, Dilation: [3]int{1}}}},
		{"columns of another kernel", "y", &device.Unfold{Y: f(1, 1, 3, 3), X: f(1, 1, 5), Window: pairs}},
		{"columns of more channels", "x", &device.Unfold{Y: f(1, 2, 2, 3), X: f(1, 1, 5), Window: pairs}},
		{"columns of planes without channels", "x", &device.Unfold{Y: f(1, 2, 3), X: f(1, 5), Window: pairs}},
		{"columns of another type", "x", &device.Unfold{Y: dense(dtype.F16, 1, 1, 2, 3), X: f(1, 1, 5), Window: pairs}},
		{"columns of an empty kernel", "window", &device.Unfold{Y: f(1, 1, 0, 3), X: f(1, 1, 5), Window: device.Window{Rank: 1, Stride: [3]int{1}, Dilation: [3]int{1}}}},
		{"a fold of another kernel", "x", &device.Fold{X: f(1, 1, 3, 3), Y: f(1, 1, 5), Window: pairs}},
		{"a blend of int64", "x", &device.Blend{Out: f(1, 2, 1), X: dense(dtype.I64, 1, 2, 1), Index: dense(dtype.I64, 1, 2)}},
		{"a blend to other rows", "out", &device.Blend{Out: f(1, 2, 3), X: f(1, 2, 1), Index: dense(dtype.I64, 1, 2)}},
		{"a blend of three taps", "index", &device.Blend{Out: f(1, 2, 1), X: f(1, 2, 1), Index: dense(dtype.I64, 3, 2)}},
		{"a blend of two taps without weights", "weight", &device.Blend{Out: f(1, 2, 1), X: f(1, 2, 1), Index: dense(dtype.I64, 2, 2)}},
		{"a blend with a weight for all", "weight", &device.Blend{Out: f(1, 2, 1), X: f(1, 2, 1), Index: dense(dtype.I64, 2, 2), Weight: f(2, 1)}},
		{"a scan of two operands", "in", &device.Scan{Out: f(1, 2, 1), Ins: list(f(1, 2, 1), f(1, 2, 1))}},
		{"more positions than elements", "out", &device.Argsort{Out: dense(dtype.I64, 1, 4), X: f(1, 3)}},
		{"multi-map of fewer results", "outs", &device.MultiMap{Program: id, Outs: groups[:1], Ins: groups, Params: i64}},
		{"multi-map without its scalars", "params", &device.MultiMap{Program: scaled}},
		{"multi-map that tells in a float16", "found", &device.MultiMap{Program: id, Params: i64, Found: dense(dtype.F16, 1)}},
		{"multi-map of a column", "group 1: in", &device.MultiMap{Program: id, Outs: groups, Ins: [][]device.View{{f(2)}, {column}}, Params: i64}},
	} {
		refused(t, c.name, c.op, c.arg)
	}
	if got := device.Refuse(&testDevice{}, &device.Map{Program: add, Outs: list(f(2)), Ins: list(f(2), f(2))}, 2, "it is wet").Error(); got != "puppet: map: in 1: it is wet" {
		t.Error(got)
	}
}

// TestRunDoesNotAllocate checks that Run allocates nothing before it calls the driver.
func TestRunDoesNotAllocate(t *testing.T) {
	dev := &testDevice{run: func(device.Stream, device.Op, *device.KernelEvent) error { return nil }}
	s := dev.DefaultStream()
	for _, op := range devicetest.Ops(dense) {
		if n := testing.AllocsPerRun(20, func() { _ = device.Run(dev, s, op) }); n != 0 {
			t.Errorf("%s: %v allocations", op.Name(), n)
		}
	}
}
