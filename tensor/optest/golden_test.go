package optest

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

type goldenOp func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor

func unaryOp(f func(*tensor.Tensor) *tensor.Tensor) goldenOp {
	return func(_ golden.Args, x []*tensor.Tensor) *tensor.Tensor { return f(x[0]) }
}

func binaryOp(f func(x, y *tensor.Tensor) *tensor.Tensor) goldenOp {
	return func(_ golden.Args, x []*tensor.Tensor) *tensor.Tensor { return f(x[0], x[1]) }
}

func dims(a golden.Args) []int {
	var d []int
	if a.Has("dim") {
		if d = nil; a["dim"][0] == '[' {
			d = a.Ints("dim")
		} else {
			d = []int{a.Int("dim")}
		}
	}
	if a.Has("keepdim") && a.Bool("keepdim") {
		d = append(d, tensor.KeepDim)
	}
	return d
}

func reduceOp(f func(x *tensor.Tensor, dims ...int) *tensor.Tensor) goldenOp {
	return func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor { return f(x[0], dims(a)...) }
}

// reduced applies the reduction that torch's argument reduction names: "mean", "sum" or "none".
func reduced(a golden.Args, x *tensor.Tensor) *tensor.Tensor {
	switch a.Text("reduction") {
	case "mean":
		return x.Mean()
	case "sum":
		return x.Sum()
	}
	return x
}

var goldenOps = map[string]goldenOp{
	"neg": unaryOp((*tensor.Tensor).Neg), "exp": unaryOp((*tensor.Tensor).Exp), "sqrt": unaryOp((*tensor.Tensor).Sqrt),
	"square": unaryOp((*tensor.Tensor).Square), "abs": unaryOp((*tensor.Tensor).Abs), "tanh": unaryOp((*tensor.Tensor).Tanh),
	"sigmoid": unaryOp((*tensor.Tensor).Sigmoid), "relu": unaryOp((*tensor.Tensor).Relu), "log": unaryOp((*tensor.Tensor).Log),
	"gelu": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor {
		if a.Text("approximate") == "tanh" {
			return x[0].GeluTanh()
		}
		return x[0].Gelu()
	},
	"pow": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor { return x[0].PowScalar(a.Float("exponent")) },
	"clamp": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor {
		switch {
		case !a.Has("max"):
			return x[0].ClampMin(a.Float("min"))
		case !a.Has("min"):
			return x[0].ClampMax(a.Float("max"))
		}
		return x[0].Clamp(a.Float("min"), a.Float("max"))
	},
	"add": binaryOp((*tensor.Tensor).Add), "sub": binaryOp((*tensor.Tensor).Sub), "mul": binaryOp((*tensor.Tensor).Mul),
	"div": binaryOp((*tensor.Tensor).Div), "minimum": binaryOp((*tensor.Tensor).Minimum), "maximum": binaryOp((*tensor.Tensor).Maximum),
	"eq": binaryOp((*tensor.Tensor).Eq), "ne": binaryOp((*tensor.Tensor).Ne), "lt": binaryOp((*tensor.Tensor).Lt),
	"le": binaryOp((*tensor.Tensor).Le), "gt": binaryOp((*tensor.Tensor).Gt), "ge": binaryOp((*tensor.Tensor).Ge),
	"where": func(_ golden.Args, x []*tensor.Tensor) *tensor.Tensor { return tensor.Where(x[0], x[1], x[2]) },

	"sum": reduceOp((*tensor.Tensor).Sum), "mean": reduceOp((*tensor.Tensor).Mean), "amax": reduceOp((*tensor.Tensor).Amax),
	"amin": reduceOp((*tensor.Tensor).Amin), "argmax": reduceOp((*tensor.Tensor).Argmax), "argmin": reduceOp((*tensor.Tensor).Argmin),

	"matmul": binaryOp((*tensor.Tensor).MatMul),
	"linear": func(_ golden.Args, x []*tensor.Tensor) *tensor.Tensor {
		y := x[0].MatMul(x[1].T())
		if len(x) > 2 {
			y = y.Add(x[2])
		}
		return y
	},
	"softmax":     func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor { return x[0].Softmax(a.Int("dim")) },
	"log_softmax": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor { return x[0].LogSoftmax(a.Int("dim")) },
	"cross_entropy": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor {
		o := tensor.CrossEntropyOptions{IgnoreIndex: new(a.Int("ignore_index")), LabelSmoothing: a.Float("label_smoothing")}
		loss := x[0].CrossEntropy(x[1], o)
		if a.Text("reduction") == "mean" {
			return loss.Sum().Div(x[1].NeScalar(a.Float("ignore_index")).Sum().Cast(loss.Type()))
		}
		return reduced(a, loss)
	},

	"reshape": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor { return x[0].Reshape(a.Ints("shape")...) },
	"transpose": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor {
		return x[0].Transpose(a.Int("dim0"), a.Int("dim1"))
	},
	"permute": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor { return x[0].Permute(a.Ints("dims")...) },
	"expand":  func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor { return x[0].Expand(a.Ints("size")...) },
	"narrow": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor {
		return x[0].Narrow(a.Int("dim"), a.Int("start"), a.Int("length"))
	},
	"select": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor {
		return x[0].Select(a.Int("dim"), a.Int("index"))
	},
	"cat":          func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor { return tensor.Cat(dimOr0(a), x...) },
	"stack":        func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor { return tensor.Stack(dimOr0(a), x...) },
	"index_select": func(a golden.Args, x []*tensor.Tensor) *tensor.Tensor { return x[0].IndexSelect(a.Int("dim"), x[1]) },
	"embedding":    binaryOp((*tensor.Tensor).Embedding),
}

// TestGolden compares all ops with the results that PyTorch gave for the cases in testdata. One
// rule decides for all cases how large an error may be.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.safetensors.gz")
	if err != nil || len(files) < 6 {
		t.Fatalf("golden files: %v, %v", files, err)
	}
	cpu := hostDevice()
	ran := 0
	for _, path := range files {
		f, err := golden.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range f.Cases {
			if testing.Short() && !someOps(c.Op) {
				continue
			}
			ran++
			for _, msg := range goldenCase(cpu, c) {
				t.Errorf("%s %s: %s", c.Op, c.Name, msg)
			}
			if strings.Contains(path, "loss") || strings.Contains(path, "norms") {
				for _, msg := range goldenCase(cpu, c, tensor.Composed()) {
					t.Errorf("%s %s, composed: %s", c.Op, c.Name, msg)
				}
			}
		}
	}
	if ran < 5000 && !testing.Short() {
		t.Errorf("only %d cases ran", ran)
	}
}

// place makes a leaf on dev from an operand of a golden case. It converts floats to t and applies
// the operand's views.
func place(s *tensor.Scope, dev device.Device, o golden.Operand, t dtype.Type) *tensor.Tensor {
	var x *tensor.Tensor
	switch {
	case o.Base.IsFloat():
		x = tensor.From(o.Base.Float64s(), o.Base.Shape...).Cast(t)
	case o.Base.DType == "I64":
		x = tensor.From(o.Base.Int64s(), o.Base.Shape...)
	default:
		x = tensor.From(o.Base.Bools(), o.Base.Shape...)
	}
	x = x.Reshape(o.Base.Shape...).To(dev).In(s)
	for _, v := range o.Views {
		switch v.Name {
		case "transpose":
			x = x.Transpose(v.Args[0], v.Args[1])
		case "narrow":
			x = x.Narrow(v.Args[0], v.Args[1], v.Args[2])
		case "expand":
			x = x.Expand(v.Args...)
		}
	}
	if o.GradF32 != nil {
		x.RequiresGrad()
	}
	return x
}

var stored = map[string]dtype.Type{"F32": dtype.F32, "F64": dtype.F64, "I64": dtype.I64, "BOOL": dtype.Bool}

func arrayOf(t golden.Tensor) array { return array{t.Shape, t.Float64s()} }

// goldenCase runs one case on dev and describes what is wrong. On the CPU it runs the case in
// float32 and in float64. On other devices it uses only float32: float64 would need more kernels,
// and TestCUDA compares float64 results between devices.
func goldenCase(dev device.Device, c golden.Case, mode ...tensor.Option) (wrong []string) {
	op := goldenOps[c.Op]
	if op == nil {
		return []string{"no such op is known to the test"}
	}
	terms := caseTerms(c)
	for _, run := range []struct {
		t         dtype.Type
		out, seed golden.Tensor
	}{{dtype.F32, c.Out[0].F32, golden.Tensor{}}, {dtype.F64, c.Out[0].F64, golden.Tensor{}}} {
		if run.t == dtype.F64 && dev != hostDevice() {
			continue
		}
		err := tensor.Try(func() {
			tensor.Do(func(s *tensor.Scope) {
				var in, leaves []*tensor.Tensor
				var grads []int
				for i, o := range c.In {
					x := place(s, dev, o, run.t)
					in = append(in, x)
					if o.GradF32 != nil {
						leaves, grads = append(leaves, x), append(grads, i)
					}
				}
				y := op(c.Args, in)
				if msg := compareGolden(y, stored[run.out.DType], c.Out[0].F32, c.Out[0].F64, golden.Rule{Terms: terms.out, Torn: c.Out[0].Torn}); msg != "" {
					wrong = append(wrong, fmt.Sprintf("%v: %s", run.t, msg))
				}
				if c.Out[0].Seed == nil {
					return
				}
				seed := s.From(c.Out[0].Seed.Float64s(), c.Out[0].Seed.Shape...).Reshape(c.Out[0].Seed.Shape...).Cast(run.t).To(dev)
				for k, g := range tensor.Gradients(y, leaves, tensor.GradOutput(seed)) {
					i := grads[k]
					if msg := compareGolden(g, run.t, *c.In[i].GradF32, *c.In[i].GradF64, golden.Rule{Terms: terms.grads[i], Rounded64: rounded64[c.Op]}); msg != "" {
						wrong = append(wrong, fmt.Sprintf("%v: gradient %d: %s", run.t, i, msg))
					}
				}
			}, mode...)
		})
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%v: %v", run.t, err))
		}
	}
	return wrong
}

// rounded64 lists the relative error of PyTorch's float64 gradients, by op. The rule for float32
// also uses these gradients as its reference. Their error is small enough for float32.
var rounded64 = map[string]float64{
	"hardsigmoid": 0x1p-24, // PyTorch multiplies by 1/6 in float32
}

// compareGolden compares a result with torch's by golden.Rule. Types and shapes must be equal.
func compareGolden(got *tensor.Tensor, t dtype.Type, t32, t64 golden.Tensor, rule golden.Rule) string {
	if got.Type() != t {
		return fmt.Sprintf("type is %v, want %v", got.Type(), t)
	}
	if !slices.Equal(got.Shape().Slice(), t64.Shape) && len(t64.Shape)+got.Rank() > 0 {
		return fmt.Sprintf("shape is %v, want %v", got.Shape(), t64.Shape)
	}
	switch {
	case t == dtype.I64: // float64 cannot hold every int64
		if got, want := tensor.Data[int64](got), t64.Int64s(); !slices.Equal(got, want) {
			return fmt.Sprintf("is %v, want %v", got, want)
		}
		return ""
	case !t.IsFloat():
		return differ(got.Floats(), arrayOf(t64), func(int) float64 { return 0 })
	}
	return rule.Wrong(got.Floats(), t == dtype.F64, t32, t64)
}
