package golden

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOpFiles checks the recorded ops. There must be at least five cases per op, and gradients must
// have the operands' shapes. The float32 results must agree with the float64 results within the
// precision of float32.
func TestOpFiles(t *testing.T) {
	paths, err := filepath.Glob("../../tensor/optest/testdata/*.safetensors.gz")
	if err != nil || len(paths) < 6 {
		t.Fatalf("found %d files (%v), want at least the six that ops.py writes", len(paths), err)
	}
	perOp := map[string]int{}
	for _, path := range paths {
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if f.Meta["torch"] == "" || !strings.HasPrefix(f.Meta["script"], "_golden/") {
			t.Errorf("%s does not say what made it: %v", path, f.Meta)
		}
		seen := map[string]bool{}
		for _, c := range f.Cases {
			name := c.Op + "/" + c.Name
			if seen[name] {
				t.Errorf("%s occurs twice", name)
			}
			seen[name] = true
			perOp[c.Op]++
			for i, in := range c.In {
				if (in.GradF32 == nil) != (in.GradF64 == nil) {
					t.Errorf("%s: operand %d has a gradient in one precision only", name, i)
				}
				if in.GradF32 == nil {
					continue
				}
				if shape := shapeOf(in); !slices.Equal(in.GradF32.Shape, shape) || !slices.Equal(in.GradF64.Shape, shape) {
					t.Errorf("%s: operand %d has shape %v, its gradients %v and %v", name, i, shape, in.GradF32.Shape, in.GradF64.Shape)
				}
				if !strings.HasPrefix(c.Name, "extreme") {
					agree(t, fmt.Sprintf("%s gradient %d", name, i), *in.GradF32, *in.GradF64)
				}
			}
			out := c.Out[0]
			if out.Seed != nil && !slices.Equal(out.Seed.Shape, out.F32.Shape) {
				t.Errorf("%s: result %v, seed %v", name, out.F32.Shape, out.Seed.Shape)
			}
			agree(t, name, out.F32, out.F64)
		}
	}
	for op, n := range perOp {
		if n < 5 {
			t.Errorf("%s has %d cases, want at least 5", op, n)
		}
	}
	for _, op := range []string{
		"add", "sub", "mul", "div", "neg", "exp", "log", "sqrt", "square", "abs", "tanh", "sigmoid", "relu", "gelu", "pow", "minimum", "maximum",
		"clamp", "where", "eq", "ne", "lt", "le", "gt", "ge", "sum", "mean", "amax", "amin", "argmax", "argmin", "matmul", "linear", "softmax",
		"log_softmax", "cross_entropy", "reshape", "transpose", "permute", "expand", "narrow", "select", "cat", "stack",
		"index_select", "embedding",
	} {
		if perOp[op] == 0 {
			t.Errorf("no case of %s", op)
		}
	}
}

// shapeOf returns the shape that an operand has after its views.
func shapeOf(in Operand) []int {
	shape := slices.Clone(in.Base.Shape)
	at := func(dim int) int { return (dim + len(shape)) % len(shape) }
	for _, v := range in.Views {
		switch a := v.Args; v.Name {
		case "transpose":
			shape[at(a[0])], shape[at(a[1])] = shape[at(a[1])], shape[at(a[0])]
		case "narrow":
			shape[at(a[0])] = a[2]
		case "expand":
			shape = slices.Clone(a)
		}
	}
	return shape
}

// agree checks got, computed in float32, against want, computed in float64. If the final conversion
// to float32 overflows or underflows, want is rounded to float32 first. If an intermediate result
// overflows or underflows, got and want cannot be compared.
func agree(t *testing.T, what string, got, want Tensor) {
	t.Helper()
	if !slices.Equal(got.Shape, want.Shape) {
		t.Errorf("%s: shapes %v and %v", what, got.Shape, want.Shape)
		return
	}
	g, w := got.Float64s(), want.Float64s()
	scale := 1.0 // largest added number; with cancellation, the float32 error is relative to it
	for _, v := range w {
		if a := math.Abs(v); a > scale && a < 1e6 {
			scale = a
		}
	}
	for i := range g {
		rounded := w[i]
		if got.DType == "F32" {
			rounded = float64(float32(rounded))
		} else if g[i] != w[i] {
			t.Errorf("%s: element %d is %v, then %v", what, i, g[i], w[i])
		}
		if math.IsNaN(g[i]) || math.IsInf(g[i], 0) || math.IsNaN(rounded) || math.IsInf(rounded, 0) {
			continue
		}
		if d := math.Abs(g[i] - rounded); d > 1e-4*scale+1e-4*math.Abs(rounded) {
			t.Errorf("%s: element %d is %v in float32, %v in float64", what, i, g[i], w[i])
		}
	}
}

// TestMLPFirstLoss computes the first loss from the recorded inputs and the generated weights. It
// must be the recorded loss. This shows that the file holds what its documentation says.
func TestMLPFirstLoss(t *testing.T) {
	m, err := OpenMLP()
	if err != nil {
		t.Fatal(err)
	}
	if m.Steps != 50 || m.Batch != 64 || len(m.LossF32) != 50 || len(m.LossF64) != 50 || len(m.Params) != 6 {
		t.Fatalf("%d steps of %d, %d and %d losses, %d parameters", m.Steps, m.Batch, len(m.LossF32), len(m.LossF64), len(m.Params))
	}
	x, labels := m.Input(0)
	loss := 0.0
	for row, label := range labels {
		h := make([]float64, mlpPixels)
		for i := range h {
			h[i] = float64(x[row*mlpPixels+i])
		}
		for layer := range 3 {
			w, b := m.Params[2*layer], m.Params[2*layer+1]
			out := make([]float64, w.Shape[0])
			for o := range out {
				sum := float64(b.Init[o])
				for i, v := range h {
					sum += v * float64(w.Init[o*len(h)+i])
				}
				out[o] = sum
				if layer < 2 {
					out[o] = max(sum, 0)
				}
			}
			h = out
		}
		sum := 0.0
		for _, v := range h {
			sum += math.Exp(v)
		}
		loss += (math.Log(sum) - h[label]) / float64(m.Batch)
	}
	if d := math.Abs(loss - m.LossF64[0]); d > 1e-13 {
		t.Errorf("first loss %.17g, recorded %.17g", loss, m.LossF64[0])
	}
	for i := range m.LossF32 {
		if d := math.Abs(float64(m.LossF32[i]) - m.LossF64[i]); d > 1e-5 {
			t.Errorf("step %d: losses %g and %g", i, m.LossF32[i], m.LossF64[i])
		}
	}
	if first, last := m.LossF64[0], m.LossF64[49]; last > 0.5*first {
		t.Errorf("the run does not learn: %g to %g", first, last)
	}
}

// TestOptimizersReplay repeats AdamW's trajectories with the formulas of Loshchilov and Hutter
// (2019). The results must be equal. This shows that the file has the documented layout of steps
// and arguments.
func TestOptimizersReplay(t *testing.T) {
	f, err := Optimizers()
	if err != nil {
		t.Fatal(err)
	}
	replayed := 0
	for _, c := range f.Cases {
		if c.Op != "AdamW" || c.Args.Bool("amsgrad") || c.Args.Bool("maximize") {
			continue
		}
		replayed++
		lr, eps, decay, betas := c.Args.Float("lr"), c.Args.Float("eps"), c.Args.Float("weight_decay"), c.Args.Floats("betas")
		for i := range 2 {
			p, g, want := c.In[i].Base.Float64s(), c.In[2+i].Base.Float64s(), c.Out[i].F64.Float64s()
			n := len(p)
			m, v := make([]float64, n), make([]float64, n)
			for step := range 10 {
				for j := range p {
					d := g[step*n+j]
					m[j] = betas[0]*m[j] + (1-betas[0])*d
					v[j] = betas[1]*v[j] + (1-betas[1])*d*d
					mHat := m[j] / (1 - math.Pow(betas[0], float64(step+1)))
					vHat := v[j] / (1 - math.Pow(betas[1], float64(step+1)))
					p[j] -= lr*decay*p[j] + lr*mHat/(math.Sqrt(vHat)+eps)
					if w := want[step*n+j]; math.Abs(p[j]-w) > 1e-12*max(1, math.Abs(w)) {
						t.Fatalf("%s: parameter %d[%d] after step %d is %.15g, recorded %.15g", c.Name, i, j, step, p[j], w)
					}
				}
			}
		}
	}
	if replayed < 3 {
		t.Errorf("%d trajectories replayed, want 3", replayed)
	}
	for _, c := range f.Cases {
		for i := range 2 {
			if !slices.Equal(c.Out[i].F32.Shape, c.In[2+i].Base.Shape) {
				t.Errorf("%s %s: trajectory %v of gradients %v", c.Op, c.Name, c.Out[i].F32.Shape, c.In[2+i].Base.Shape)
			}
		}
	}
}

func TestPrints(t *testing.T) {
	rows, err := Prints()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Print{}
	for _, p := range rows {
		if _, twice := byName[p.Name]; twice {
			t.Errorf("%s occurs twice", p.Name)
		}
		byName[p.Name] = p
		n := 1
		for _, d := range p.Shape {
			n *= d
		}
		if got := len(p.Floats) + len(p.Ints); got != n {
			t.Errorf("%s: %d elements of shape %v", p.Name, got, p.Shape)
		}
		for _, v := range p.Floats {
			if p.DType == "float32" && !math.IsNaN(v) && float64(float32(v)) != v {
				t.Errorf("%s: %v is no float32", p.Name, v)
			}
		}
	}
	for name, want := range map[string]string{
		"whole floats":     "tensor([ 1.,  2., -3.])",
		"nan and inf":      "tensor([1., nan, inf, -inf])",
		"bools":            "tensor([ True, False,  True])",
		"large ints":       "tensor([                   1,     9007199254740993, -9223372036854775808])",
		"matrix on cuda:0": "",
	} {
		p, ok := byName[name]
		if !ok || want != "" && p.Repr != want {
			t.Errorf("%s prints as %q, want %q", name, p.Repr, want)
		}
	}
	if got := byName["large ints"].Ints; !slices.Equal(got, []int64{1, 1<<53 + 1, math.MinInt64}) {
		t.Errorf("large ints are %d", got)
	}
	if got := byName["negative zero"].Floats[0]; !math.Signbit(got) {
		t.Errorf("negative zero is %v", got)
	}
}
