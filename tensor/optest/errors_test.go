package optest

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

var line int

// here stores the line number of its call in the variable line. The mistake is on the same line.
func here() { _, _, line, _ = runtime.Caller(1) }

// TestMistakes makes typical mistakes. Each error must name the op, its operands and the caller's
// line.
func TestMistakes(t *testing.T) {
	for _, dev := range []device.Device{hostDevice(), emulated(t)} {
		t.Run(dev.Info().Kind, func(t *testing.T) { mistakes(t, dev) })
	}
}

func mistakes(t *testing.T, dev device.Device) {
	tensor.Do(func(s *tensor.Scope) {
		on := " on " + dev.Name()
		m := s.On(dev)
		a, b, v := m.Ones(2, 3), m.Ones(2, 4), m.Ones(3)
		ints := m.Typed(dtype.I64).Zeros(3)
		freed := m.Ones(5)
		freed.Free()
		w := m.Ones(2, 3).RequiresGrad()
		other := tensor.NewScope()
		stranger := other.On(dev).Ones(2, 3)
		closed := tensor.NewScope(tensor.Named("step"))
		gone := closed.On(dev).Ones(2, 3)
		closed.Close()
		f16 := m.Typed(dtype.F16).Ones(3, 2)
		far := m.Typed(dtype.I64).From([]int64{0, 2, 7})
		behind := m.Typed(dtype.I64).From([]int64{1, -1})
		// A GPU reports some errors only when this call waits. The error must still name the op and
		// the line that queued the op.
		wait := func() { a.Sum().Item() }
		y := w.MulScalar(2)
		square := w.Mul(w)
		expanded := v.Expand(2, 3)
		q, attend := m.Ones(2, 4, 5, 8), tensor.ScaledDotProductAttention
		constant := tensor.Gradients(w.Square().Sum(), []*tt{w})[0]
		for _, c := range []struct {
			name  string
			kind  error
			wrong func()
			says  []string
		}{
			{"shapes", tensor.ErrShape, func() { here(); a.Add(b) }, []string{"add", "[2, 3] float32" + on, "[2, 4] float32" + on, "dimension -1 is 3 and 4, and neither is 1"}},
			{"inner dimensions", tensor.ErrShape, func() { here(); a.MatMul(b) }, []string{"matmul", "[2, 3]", "[2, 4]", "inner dimensions 3 and 2", "did you mean x.T()?"}},
			{"transposed operand", tensor.ErrShape, func() { here(); a.MatMul(m.Ones(4, 3)) }, []string{"matmul", "y.T()", "did you mean y.T()?"}},
			{"types in matmul", tensor.ErrType, func() { here(); a.MatMul(f16) }, []string{"matmul", "[2, 3] float32" + on, "[3, 2] float16" + on, "Cast"}},
			{"floats in int_mm", tensor.ErrType, func() { here(); a.IntMM(a) }, []string{"int_mm", "float32", "want int8", "MatMul multiplies floats"}},
			{"inner dimensions of int_mm", tensor.ErrShape, func() { here(); a.Cast(dtype.I8).IntMM(m.Ones(4, 3).Cast(dtype.I8)) }, []string{"int_mm", "inner dimensions 3 and 4", "did you mean y.T()?"}},
			{"scalar in matmul", tensor.ErrShape, func() { here(); a.MatMul(m.Ones()) }, []string{"matmul", "[2, 3]", "at least one dimension"}},
			{"batches", tensor.ErrShape, func() { here(); m.Ones(2, 3, 4).MatMul(m.Ones(3, 4, 2)) }, []string{"matmul", "batch dimensions [2] and [3]"}},
			{"dimension", tensor.ErrShape, func() { here(); a.Sum(2) }, []string{"sum", "dimension 2", "rank 2", "[2, 3] float32" + on}},
			{"dimension twice", tensor.ErrShape, func() { here(); a.Mean(1, -1) }, []string{"mean", "dimension -1", "twice"}},
			{"softmax dimension", tensor.ErrShape, func() { here(); a.Softmax(-3) }, []string{"softmax", "dimension -3"}},
			{"softmax of integers", tensor.ErrType, func() { here(); ints.Softmax(0) }, []string{"softmax", "int64"}},
			{"extreme of nothing", tensor.ErrShape, func() { here(); m.Zeros(0, 3).Amax(0) }, []string{"amax", "[0, 3]"}},
			{"freed", tensor.ErrFreed, func() { here(); v.Add(freed) }, []string{"add", "freed", "[5] float32" + on, "Clone"}},
			{"closed scope", tensor.ErrScope, func() { here(); a.Add(gone) }, []string{"add", `"step"`, "opened at", "closed at", "Close(x)"}},
			{"two scopes", tensor.ErrScope, func() { here(); a.Add(stranger) }, []string{"add", "unrelated scopes", "opened at", "Close(x)"}},
			{"reshape", tensor.ErrShape, func() { here(); a.Reshape(4, 2) }, []string{"reshape", "[4, 2] has 8 elements, the tensor 6"}},
			{"reshape with two unknowns", tensor.ErrShape, func() { here(); a.Reshape(-1, -1) }, []string{"reshape", "[-1, -1]"}},
			{"reshape that does not divide", tensor.ErrShape, func() { here(); a.Reshape(4, -1) }, []string{"reshape", "[4, -1]", "6 elements"}},
			{"view of a transposed tensor", tensor.ErrShape, func() { here(); a.T().View(6) }, []string{"view", "strides", "Reshape"}},
			{"negative size", tensor.ErrShape, func() { here(); m.Zeros(2, -3) }, []string{"zeros", "-3"}},
			{"size beyond memory's", tensor.ErrShape, func() { here(); m.Zeros(math.MaxInt64/4, 1<<20) }, []string{"zeros", "too many elements"}},
			{"more than eight dimensions", tensor.ErrShape, func() { here(); a.Reshape(1, 1, 1, 1, 1, 1, 1, 2, 3) }, []string{"reshape", "9 dimensions"}},
			{"expand", tensor.ErrShape, func() { here(); a.Expand(4, 3) }, []string{"expand", "[2, 3]", "[4, 3]", "Repeat"}},
			{"permute", tensor.ErrShape, func() { here(); a.Permute(0, 0) }, []string{"permute", "dimension 0"}},
			{"narrow", tensor.ErrIndex, func() { here(); a.Narrow(1, 2, 2) }, []string{"narrow", "2 to 4", "size 3"}},
			{"select", tensor.ErrIndex, func() { here(); a.Select(0, 2) }, []string{"select", "index 2", "dimension 0", "of size 2"}},
			{"cat", tensor.ErrShape, func() { here(); tensor.Cat(0, a, b) }, []string{"cat", "[2, 3]", "[2, 4]", "tensor 1"}},
			{"stack", tensor.ErrShape, func() { here(); tensor.Stack(0, a, b) }, []string{"stack", "[2, 3]", "[2, 4]", "Cat"}},
			{"condition", tensor.ErrType, func() { here(); tensor.Where(v, v, v) }, []string{"where", "bool", "float32", "NeScalar(0)"}},
			{"mask", tensor.ErrType, func() { here(); v.MaskedFill(ints, 1) }, []string{"masked_fill", "bool", "int64", "NeScalar(0)"}},
			{"gather rank", tensor.ErrShape, func() { here(); a.Gather(0, ints) }, []string{"gather", "[2, 3]", "[3]"}},
			{"float index", tensor.ErrType, func() { here(); a.IndexSelect(0, v) }, []string{"index_select", "int64", "float32"}},
			{"index in gather", tensor.ErrIndex, func() { here(); m.Ones(4).Gather(0, far); wait() }, []string{"gather", "7", "4", "position 2"}},
			{"negative index", tensor.ErrIndex, func() { here(); m.Ones(4).IndexSelect(0, behind); wait() }, []string{"index_select", "-1", "4", "position 1", "does not count from the end"}},
			{"index in embedding", tensor.ErrIndex, func() { here(); m.Ones(4, 2).Embedding(far); wait() }, []string{"embedding", "7", "4"}},
			{"index in scatter_add", tensor.ErrIndex, func() { here(); m.Ones(4).ScatterAdd(0, far, v); wait() }, []string{"scatter_add", "7", "4"}},
			{"class", tensor.ErrIndex, func() { here(); m.Ones(3, 5).CrossEntropy(far, tensor.CrossEntropyOptions{}); wait() }, []string{"cross_entropy", "7", "5", "position 2"}},
			{"targets", tensor.ErrType, func() { here(); m.Ones(3, 5).CrossEntropy(ints.Cast(dtype.I32), tensor.CrossEntropyOptions{}) }, []string{"cross_entropy", "int64", "int32", "Cast"}},
			{"real targets", tensor.ErrShape, func() { here(); m.Ones(3, 5).CrossEntropy(v, tensor.CrossEntropyOptions{}) }, []string{"cross_entropy", "[3, 5] and [3]", "float32", "Cast(dtype.I64)"}},
			{"targets' shape", tensor.ErrShape, func() { here(); a.CrossEntropy(ints, tensor.CrossEntropyOptions{}) }, []string{"cross_entropy", "[2, 3]", "[3]"}},
			{"item", tensor.ErrShape, func() { here(); a.Item() }, []string{"item", "6 elements", "Floats", "Mean"}},
			{"data of another type", tensor.ErrType, func() { here(); tensor.Data[float64](a) }, []string{"data", "float32", "float64"}},
			{"backward of many", tensor.ErrGrad, func() { here(); y.Backward() }, []string{"backward", "[2, 3]", "GradOutput"}},
			{"backward without a graph", tensor.ErrGrad, func() { here(); a.Sum().Backward() }, []string{"backward", "requires a gradient", "call RequiresGrad"}},
			{"backward twice", tensor.ErrGrad, func() { l := square.Sum(); l.Backward(); here(); l.Backward() }, []string{"graph was freed", "RetainGraph"}},
			{"unused input", tensor.ErrGrad, func() { u := m.Ones(2).RequiresGrad(); here(); tensor.Gradients(y.Sum(), []*tt{u}) }, []string{"input 0", "AllowUnused", "[2] float32" + on, "nil"}},
			{"seed's shape", tensor.ErrShape, func() { here(); y.Backward(tensor.GradOutput(v)) }, []string{"GradOutput", "[3]", "[2, 3]"}},
			{"seed's type", tensor.ErrType, func() { here(); y.Backward(tensor.GradOutput(a.Long())) }, []string{"GradOutput", "int64", "float32"}},
			{"leaf in place", tensor.ErrGrad, func() { here(); w.AddInPlace(a) }, []string{"add", "leaf", "NoGrad"}},
			{"saved value changed", tensor.ErrInPlace, func() { p := w.AddScalar(0); q := p.Mul(p); p.AddScalarInPlace(1); here(); q.Sum().Backward() }, []string{"mul", "modified by an in-place operation", "version 1", "version 0", "Clone"}},
			{"expanded in place", tensor.ErrShape, func() { here(); expanded.AddScalarInPlace(1) }, []string{"add_scalar", "expanded", "Clone"}},
			{"wider in place", tensor.ErrShape, func() { here(); v.AddInPlace(a) }, []string{"add", "[2, 3]", "[3]", "returns a new tensor"}},
			{"float into integers", tensor.ErrType, func() { here(); ints.AddInPlace(v) }, []string{"add", "float32", "int64", "Cast"}},
			{"integers into bool", tensor.ErrType, func() { here(); m.Typed(dtype.Bool).Ones(3).AddInPlace(ints) }, []string{"add", "int64", "bool"}},
			{"fraction into integers", tensor.ErrType, func() { here(); ints.MulScalarInPlace(0.5) }, []string{"mul_scalar", "0.5", "int64", "Cast"}},
			{"number into bool", tensor.ErrType, func() { here(); m.Typed(dtype.Bool).Ones(3).AddScalarInPlace(1) }, []string{"add_scalar", "bool"}},
			{"interval", tensor.ErrValue, func() { here(); v.UniformInPlace(2, 1) }, []string{"uniform", "[2, 1)", "[3] float32" + on}},
			{"wide interval", tensor.ErrValue, func() { here(); m.Typed(dtype.F32).Uniform(-3e38, 3e38, 2) }, []string{"uniform", "3e+38", "float32"}},
			{"deviation", tensor.ErrValue, func() { here(); v.NormalInPlace(0, -1) }, []string{"normal", "-1"}},
			{"endless range", tensor.ErrShape, func() { here(); m.ArangeStep(0, 1e30, 1) }, []string{"arange", "1e+30"}},
			{"gradients of integers", tensor.ErrType, func() { here(); ints.RequiresGrad() }, []string{"requires_grad", "int64", "use Float"}},
			{"ragged slice", tensor.ErrValue, func() { here(); m.From([][]float32{{1, 2}, {3}}) }, []string{"from", "ragged"}},
			{"slice of another size", tensor.ErrShape, func() { here(); m.From([]float32{1, 2, 3}, 2, 2) }, []string{"from", "[2, 2]", "3"}},
			{"no number", tensor.ErrValue, func() { here(); a.Dropout(1.5) }, []string{"dropout", "1.5"}},
			{"a number for each row", tensor.ErrShape, func() { here(); a.Mul(m.Ones(2)) }, []string{"mul", "[2, 3] and [2]", "dimension -1", "Unsqueeze(-1) of the second"}},
			{"a number for each channel", tensor.ErrShape, func() { here(); m.Ones(2, 3, 4, 5).Add(a) }, []string{"add", "did you mean Unsqueeze(-1).Unsqueeze(-1) of the second"}},
			{"mask without heads", tensor.ErrShape, func() { here(); attend(q, q, q, tensor.AttentionOptions{Mask: m.Ones(2, 5, 5)}) }, []string{"[2, 5, 5] does not broadcast to [2, 4, 5, 5]", "Unsqueeze(1)"}},
			{"mask of keys", tensor.ErrShape, func() { here(); attend(q, q, q, tensor.AttentionOptions{Mask: m.Ones(2, 5)}) }, []string{"[2, 5] does not broadcast", "Unsqueeze(1).Unsqueeze(1)"}},
			{"gradient of a gradient", tensor.ErrGrad, func() { here(); tensor.Gradients(constant.Sum(), []*tt{w}) }, []string{"grad", "CreateGraph"}},
			{"matrix of the other orientation", tensor.ErrShape, func() { here(); a.Add(m.Ones(3, 2)) }, []string{"add", "[2, 3] and [3, 2]", "did you mean T()"}},
			{"a layer's weight", tensor.ErrShape, func() { here(); m.Ones(32, 100).MatMul(m.Ones(64, 100)) }, []string{"matmul", "[32, 100] × [64, 100]", "inner dimensions 100 and 64", "did you mean y.T()?"}},
			{"vector by matrix", tensor.ErrShape, func() { here(); v.MatMul(m.Ones(4, 3)) }, []string{"matmul", "[3] × [4, 3]", "y.T()"}},
			{"cat of ranks", tensor.ErrShape, func() { here(); tensor.Cat(0, a, v) }, []string{"cat", "tensor 1 has 1 dimensions", "[2, 3] and [3]"}},
			{"cat of nothing", tensor.ErrValue, func() { here(); tensor.Cat(0) }, []string{"cat", "no tensors"}},
			{"cat of scalars", tensor.ErrShape, func() { here(); tensor.Cat(0, m.Ones(), m.Ones()) }, []string{"cat", "Stack"}},
			{"item of nothing", tensor.ErrShape, func() { here(); m.Zeros(0).Item() }, []string{"item", "0 elements"}},
			{"select from a scalar", tensor.ErrIndex, func() { here(); m.Ones().Select(0, 0) }, []string{"select", "rank 0"}},
			{"backward of integers", tensor.ErrGrad, func() { here(); w.Argmax().Backward() }, []string{"backward", "int64", "floating point"}},
			{"backward without gradients", tensor.ErrGrad, func() {
				s.Do(func(c *tensor.Scope) { y := w.In(c).Sum(); here(); y.Backward() }, tensor.NoGrad())
			}, []string{"backward", "NoGrad"}},
			{"backward of detached", tensor.ErrGrad, func() { here(); y.Detach().Sum().Backward() }, []string{"backward", "Detach"}},
			{"gradient's shape", tensor.ErrShape, func() { here(); w.SetGrad(v) }, []string{"set_grad", "[2, 3]", "[3]"}},
			{"weight in a step", tensor.ErrScope, func() {
				old := m.Ones(2, 3)
				s.Do(func(c *tensor.Scope) { g := w.In(c).MulScalar(3); here(); old.AddInPlace(g) })
			}, []string{"add", "NoGrad", "the scope opened at"}},
			{"copy that differs", tensor.ErrShape, func() { here(); v.Copy(a) }, []string{"copy", "[2, 3]", "[3]"}},
			{"copied struct", tensor.ErrValue, func() { c := reflect.New(reflect.TypeFor[tt]()).Interface().(*tt); here(); c.Exp() }, []string{"exp", "by pointer"}},
			{"scope closed twice", tensor.ErrScope, func() { c := tensor.NewScope(); c.Close(); here(); c.Close() }, []string{"scope.close", "is closed already"}},
			//flambeau:ignore unclosedscope the open child is the mistake
			{"scope with open children", tensor.ErrScope, func() { c := tensor.NewScope(); c.New(); here(); c.Close() }, []string{"scope.close", "1 open child"}},
			{"value of a closed scope", tensor.ErrScope, func() { here(); gone.Floats() }, []string{"floats", "closed", "Close(x)"}},
			{"probability that is no number", tensor.ErrValue, func() { here(); a.Dropout(math.NaN()) }, []string{"dropout", "NaN"}},
			{"draws without replacement", tensor.ErrValue, func() { here(); v.Multinomial(4, false) }, []string{"multinomial", "4 draws of 3 classes", "without replacement"}},
			{"dropout of integers", tensor.ErrType, func() { here(); ints.Dropout(0.5) }, []string{"dropout", "int64", "use Float"}},
			{"classes of one-hot", tensor.ErrIndex, func() { here(); far.OneHot(3); wait() }, []string{"one_hot", "7", "3", "position 2"}},
			{"float classes", tensor.ErrType, func() { here(); v.OneHot(3) }, []string{"one_hot", "int64", "float32"}},
			{"float rows of an embedding", tensor.ErrType, func() { here(); a.Embedding(v) }, []string{"embedding", "int64", "float32", "Cast"}},
			{"equation", tensor.ErrShape, func() { here(); tensor.Einsum("ij,jk->ik", a, a) }, []string{"einsum", "names dimensions of sizes 3 and 2", "\"j\""}},
			{"reflection beyond", tensor.ErrShape, func() { here(); a.PadReflect(3, 0) }, []string{"pad", "3"}},
			{"singular matrix", tensor.ErrLinAlg, func() { here(); m.Ones(2, 2).Inverse() }, []string{"inverse", "singular", "[2, 2] float32" + on}},
			{"matrix that is not positive", tensor.ErrLinAlg, func() { here(); m.Ones(2, 2, 2).Cholesky(false) }, []string{"cholesky", "batch element 0", "not positive definite"}},
			{"right-hand side", tensor.ErrShape, func() { here(); m.Ones(2, 2).Solve(v) }, []string{"solve", "2 by 2", "3 rows"}},
			{"inverse of integers", tensor.ErrType, func() { here(); m.Typed(dtype.I64).Ones(2, 2).Inverse() }, []string{"inverse", "int64", "Float"}},
			{"shape of random numbers", tensor.ErrType, func() { here(); m.Typed(dtype.I64).Randn(2) }, []string{"randn", "int64", "RandInt"}},
			{"from what is no number", tensor.ErrValue, func() { here(); m.From([]string{"a"}) }, []string{"from", "string"}},
			{"nil operand", tensor.ErrValue, func() { here(); a.Add(nil) }, []string{"add", "nil"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				err := tensor.Try(c.wrong)
				var e *tensor.Error
				if !errors.As(err, &e) {
					t.Fatalf("no error: %v", err)
				}
				if !errors.Is(err, c.kind) {
					t.Errorf("%v is not %v", err, c.kind)
				}
				for _, part := range append(c.says, fmt.Sprintf("at optest/errors_test.go:%d", line)) {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q is not in:\n%v", part, err)
					}
				}
			})
		}
		other.Close()
	})
}

// TestTwoDevices checks that the error for operands on two devices names the op, both devices and
// the caller's line.
func TestTwoDevices(t *testing.T) {
	gpu := emulated(t)
	tensor.Do(func(s *tensor.Scope) {
		x, y := s.Ones(2, 3), s.On(gpu).Ones(3)
		i, j := s.Typed(dtype.I64).Zeros(3), s.On(gpu).Typed(dtype.I64).Zeros(3)
		for name, wrong := range map[string]func(){
			"add": func() { here(); x.Add(y) }, "matmul": func() { here(); y.MatMul(x.T()) }, "where": func() { here(); tensor.Where(x.GtScalar(0), x, y) },
			"gather": func() { here(); y.Gather(0, i) }, "embedding": func() { here(); x.Embedding(j) }, "cat": func() { here(); tensor.Cat(0, x, y) },
			"cross_entropy": func() { here(); s.Ones(3, 2).CrossEntropy(j, tensor.CrossEntropyOptions{IgnoreIndex: new(-1)}) }, "mul": func() { here(); y.MulInPlace(s.Ones(3)) },
			"scatter_add": func() { here(); y.ScatterAdd(0, j, s.Ones(3)) }, "backward": func() { w := s.Ones(3).RequiresGrad(); here(); w.Exp().Backward(tensor.GradOutput(y)) },
		} {
			err := tensor.Try(wrong)
			if !errors.Is(err, tensor.ErrDevice) {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for _, part := range []string{name, "cpu", "cuda:0", fmt.Sprintf("optest/errors_test.go:%d", line)} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q is not in:\n%v", name, part, err)
				}
			}
		}
	})
}
