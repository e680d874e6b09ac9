package nn_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/tensor/optest"
)

type tt = tensor.Tensor

func reductionOf(a golden.Args) nn.Reduction {
	return map[string]nn.Reduction{"mean": nn.Mean, "sum": nn.Sum, "none": nn.None, "batchmean": nn.BatchMean}[a.Text("reduction")]
}

// goldenLayers maps the op names in the golden files to functions that run the op.
var goldenLayers = map[string]func(a golden.Args, x []*tt) *tt{}

var goldenFiles = []string{"testdata/losses.safetensors.gz", "testdata/lossoptions.safetensors.gz", "testdata/ctc.safetensors.gz"}

// Results and gradients equal PyTorch's within the tolerance of golden.Rule, on the CPU and on an
// emulated GPU.
func TestGolden(t *testing.T) {
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range goldenFiles {
		f, err := golden.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Cases) < 30 {
			t.Fatalf("%s has %d cases", path, len(f.Cases))
		}
		for _, c := range f.Cases {
			out, grads := goldenTerms(c)
			goldenCase(t, cpu, c, dtype.F32, out, grads)
			goldenCase(t, cpu, c, dtype.F64, out, grads)
			goldenCase(t, gpus[0], c, dtype.F32, out, grads)
		}
	}
}

// placed copies a golden operand to dev, converts it to type ty if it is floating-point, and
// applies the views that the operand lists.
func placed(s *tensor.Scope, dev device.Device, o golden.Operand, ty dtype.Type) *tt {
	var x *tt
	if o.Base.IsFloat() {
		x = tensor.From(o.Base.Float64s()).Cast(ty)
	} else {
		x = tensor.From(o.Base.Int64s())
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
	return x
}

func goldenCase(t *testing.T, dev device.Device, c golden.Case, ty dtype.Type, out []float64, terms [][]float64) {
	where := fmt.Sprintf("%s %s %v on %s", c.Op, c.Name, ty, dev.Name())
	err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) {
			var in, leaves []*tt
			var grads []int
			for i, o := range c.In {
				x := placed(s, dev, o, ty)
				if in = append(in, x); o.GradF32 != nil {
					leaves, grads = append(leaves, x.RequiresGrad()), append(grads, i)
				}
			}
			y := goldenLayers[c.Op](c.Args, in)
			checkNear(t, where, y, ty, c.Out[0].F32, c.Out[0].F64, out)
			if c.Out[0].Seed == nil {
				return
			}
			seed := s.From(c.Out[0].Seed.Float64s()).Reshape(c.Out[0].Seed.Shape...).Cast(ty).To(dev)
			for k, g := range tensor.Gradients(y, leaves, tensor.GradOutput(seed)) {
				i := grads[k]
				checkNear(t, fmt.Sprintf("%s, gradient %d", where, i), g, ty, *c.In[i].GradF32, *c.In[i].GradF64, terms[i])
			}
		})
	})
	if err != nil {
		t.Errorf("%s: %v", where, err)
	}
}

// checkNear fails the test if an element of got differs from PyTorch's by more than golden.Rule's
// tolerance.
func checkNear(t *testing.T, where string, got *tt, ty dtype.Type, t32, t64 golden.Tensor, terms []float64) {
	t.Helper()
	if got.Type() != ty || !slices.Equal(got.Shape().Slice(), t64.Shape) && got.Rank()+len(t64.Shape) > 0 {
		t.Errorf("%s: %v %v, want shape %v", where, got.Type(), got.Shape(), t64.Shape)
		return
	}
	if msg := (golden.Rule{Terms: terms}).Wrong(got.Floats(), ty == dtype.F64, t32, t64); msg != "" {
		t.Errorf("%s: %s", where, msg)
	}
}

// For every op of goldenLayers, the golden files have cases with every kind of operand.
func TestGoldenIsComplete(t *testing.T) {
	have := map[string]map[string]bool{}
	for _, path := range goldenFiles {
		f, err := golden.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range f.Cases {
			if have[c.Op] == nil {
				have[c.Op] = map[string]bool{}
			}
			for _, k := range c.Kinds() {
				have[c.Op][k] = true
			}
		}
	}
	for op := range goldenLayers {
		for _, k := range golden.Kinds {
			if !have[op][k] {
				t.Errorf("%s: no golden case with operands of kind %s", op, k)
			}
		}
	}
}

// The losses declared with [tensor.Declare] equal reference functions, and their gradients equal
// central differences, for all element types and layouts.
func TestLossesAreWalked(t *testing.T) {
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	mine := []string{"l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "binary_cross_entropy_weighted", "kl_div", "kl_div_log_target",
		"margin_ranking_loss", "hinge_embedding_loss", "cosine_embedding_loss", "poisson_nll_loss", "poisson_nll_loss_log", "stirling", "gaussian_nll_loss", "soft_margin_loss", "multi_margin_loss", "lacking", "multilabel_soft_margin_loss", "ctc_step"}
	n := 0
	for _, e := range tensor.Declared() {
		if slices.Contains(mine, e.Name) {
			n++
		}
	}
	if n != len(mine) {
		t.Errorf("%d of %d losses are declared", n, len(mine))
	}
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	isMine := func(op string) bool { return slices.Contains(mine, op) }
	for _, d := range []device.Device{cpu, gpus[0]} {
		walked := optest.Run(t, d, optest.Options{Only: isMine, FirstOrder: d != cpu})
		for _, msg := range walked.Differences(func(o optest.Op) bool { return isMine(o.Name) }) {
			t.Errorf("%s: %s", d.Name(), msg)
		}
	}
}
