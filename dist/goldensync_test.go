package dist

import (
	"fmt"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/tensor"
)

// goldenOperand returns a tensor of a golden file.
func goldenOperand(s *tensor.Scope, o golden.Operand) *tensor.Tensor {
	x := s.Typed(dtype.F64).From(o.Base.Float64s()).Reshape(o.Base.Shape...)
	for _, v := range o.Views {
		switch v.Name {
		case "transpose":
			x = x.Transpose(v.Args[0], v.Args[1])
		case "narrow":
			x = x.Narrow(v.Args[0], v.Args[1], v.Args[2])
		default:
			x = x.Expand(v.Args...)
		}
	}
	return x
}

// TestSyncBatchNormGolden divides batches among ranks. It compares the results with recorded
// results of PyTorch for the whole batches. The ranks' combined results, gradients and running
// statistics must equal PyTorch's.
func TestSyncBatchNormGolden(t *testing.T) {
	f, err := golden.Open("../tensor/optest/testdata/norms.safetensors.gz")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, c := range f.Cases {
		if c.Op != "batch_norm" || !c.Args.Bool("training") {
			continue
		}
		for name, l := range lists(t, 2, 3) {
			ran++
			t.Run(c.Name+" "+name, func(t *testing.T) { goldenNorm(t, l, c) })
		}
	}
	if ran < 40 {
		t.Errorf("only %d cases", ran)
	}
}

func goldenNorm(t *testing.T, l DeviceList, c golden.Case) {
	const tol = 1e-9
	compare := func(what string, got []float64, want golden.Tensor) {
		w := want.Float64s()
		if len(got) != len(w) {
			t.Errorf("%s: %d values, want %d", what, len(got), len(w))
			return
		}
		for i, v := range got {
			if both := math.IsNaN(v) && math.IsNaN(w[i]); !both && v != w[i] && !(math.Abs(v-w[i]) <= tol*(1+math.Abs(w[i]))) {
				t.Errorf("%s: element %d is %v, PyTorch has %v", what, i, v, w[i])
				return
			}
		}
	}
	run(t, l, func(g *Group) {
		g.Do(func(s *tensor.Scope) {
			var in [5]*tensor.Tensor
			for i, o := range c.In {
				in[i] = goldenOperand(s, o)
			}
			x, rows := in[0], in[0].Dim(0)
			from, to := g.Rank()*rows/g.World(), (g.Rank()+1)*rows/g.World()
			x = x.Narrow(0, from, to-from).Detach().RequiresGrad()
			for _, w := range in[1:3] {
				if w != nil {
					w.RequiresGrad()
				}
			}
			eps, momentum := c.Args.Float("eps"), c.Args.Float("momentum")
			mean, variance := in[3], in[4]
			if mean != nil {
				mean, variance = mean.Clone(), variance.Clone()
			}
			y := x.SyncBatchNorm(&batchRanks{g, ""}, mean, variance, in[1], in[2], momentum, eps)
			if part := c.Args.Int("part"); part > 0 {
				compare(fmt.Sprintf("%v, statistic %d", g, part), []*tensor.Tensor{mean, variance}[part-1].Floats(), c.Out[0].F64)
				return
			}
			together := func(v []float64) (all []float64) {
				for _, part := range Exchange(g, v) {
					all = append(all, part...)
				}
				return all
			}
			compare(fmt.Sprint(g), together(y.Floats()), c.Out[0].F64)
			if c.In[0].GradF64 == nil {
				return
			}
			seed := s.Typed(dtype.F64).From(c.Out[0].Seed.Float64s()).Reshape(c.Out[0].Seed.Shape...)
			y.Mul(seed.Narrow(0, from, to-from)).Sum().Backward()
			compare(fmt.Sprintf("%v, gradient", g), together(x.Grad().Floats()), *c.In[0].GradF64)
			for i, w := range in[1:3] {
				if w != nil {
					compare(fmt.Sprintf("%v, gradient %d", g, i+1), sumOver(g, w.Grad().Floats()), *c.In[i+1].GradF64)
				}
			}
		})
	})
}
