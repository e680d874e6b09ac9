package nn_test

import (
	"math"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/golden"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func init() {
	goldenFiles = append(goldenFiles, "testdata/layers.safetensors.gz")
	goldenLayers["embedding_layer"] = func(a golden.Args, x []*tt) *tt {
		return (&nn.Embedding{Table: tableOf(a, x[0])}).Forward(x[1])
	}
	goldenLayers["embedding_bag"] = func(a golden.Args, x []*tt) *tt {
		mode := map[string]nn.BagMode{"sum": nn.BagSum, "mean": nn.BagMean, "max": nn.BagMax}[a.Text("mode")]
		l := &nn.EmbeddingBag{Table: tableOf(a, x[0]), Mode: mode, IncludeLastOffset: a.Has("include_last_offset")}
		if x[1].Rank() == 1 {
			return l.Bags(x[1], x[2], append(x, nil)[3])
		}
		if len(x) == 2 {
			return l.Forward(x[1])
		}
		return l.Bags(x[1], nil, x[2])
	}
	goldenLayers["rrelu"] = func(a golden.Args, x []*tt) *tt {
		l := nn.NewRReLU(a.Float("lower"), a.Float("upper"))
		if !a.Has("training") {
			nn.Eval(l)
		}
		return l.Forward(x[0])
	}
}

// tableOf returns a table with the options of a golden case. Its weight is w or, if max_norm lets
// lookups change the weight, a clone of w. In both cases w gets a gradient.
func tableOf(a golden.Args, w *tt) (t nn.Table) {
	t.Weight = w
	if a.Has("padding_idx") {
		t.Padding = new(a.Int("padding_idx"))
	}
	if a.Has("max_norm") {
		t.MaxNorm = a.Float("max_norm")
		t.Weight = w.Clone()
	}
	if a.Has("norm_type") {
		if t.NormType = math.Inf(1); string(a["norm_type"]) != `"inf"` {
			t.NormType = a.Float("norm_type")
		}
	}
	t.ScaleGradByFreq = a.Has("scale_grad_by_freq")
	return t
}

// absoluteTerms returns golden.Rule's error terms for embeddings and bags. These are the results
// and gradients for the absolute values of all operands. The other ops of this file compute no
// sums, so they have no error terms.
func absoluteTerms(c golden.Case) (out []float64, grads [][]float64) {
	grads = make([][]float64, len(c.In))
	if c.Op != "embedding_layer" && (c.Op != "embedding_bag" || c.Args.Text("mode") == "max") || c.Out[0].Seed == nil {
		return nil, grads
	}
	cpu, err := device.Open("cpu")
	if err != nil {
		panic(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		var in, leaves []*tt
		var at []int
		for i, o := range c.In {
			x := placed(s, cpu, o, dtype.F64)
			if o.GradF32 != nil {
				x = x.Abs().Detach().RequiresGrad()
				leaves, at = append(leaves, x), append(at, i)
			}
			in = append(in, x)
		}
		y := goldenLayers[c.Op](c.Args, in)
		out = y.Floats()
		seed := s.From(c.Out[0].Seed.Float64s()).Reshape(c.Out[0].Seed.Shape...).Abs()
		for k, g := range tensor.Gradients(y, leaves, tensor.GradOutput(seed)) {
			grads[at[k]] = g.Floats()
		}
	})
	return out, grads
}
