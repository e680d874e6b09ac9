package nn_test

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// lossWalks lists the losses that consist of several ops, with the shapes of their operands. The
// operands are sampled where the losses are smooth.
var lossWalks = []struct {
	name string
	in   [][]int
	f    func(s *tensor.Scope, x []*tt) *tt
}{
	{"cross entropy", [][]int{{4, 3}, {3}}, func(s *tensor.Scope, x []*tt) *tt {
		return nn.CrossEntropyLoss{Weight: x[1].Square(), LabelSmoothing: 0.2}.Forward(x[0], classes(x[0], 4))
	}},
	{"cross entropy of pixels", [][]int{{2, 3, 2}}, func(s *tensor.Scope, x []*tt) *tt { return nn.CrossEntropy(x[0], classes(x[0], 2, 2)) }},
	{"cross entropy of probabilities", [][]int{{4, 3}, {4, 3}}, func(s *tensor.Scope, x []*tt) *tt { return nn.CrossEntropy(x[0], x[1].Softmax(1), nn.Sum) }},
	{"nll", [][]int{{2, 3, 2}, {3}}, func(s *tensor.Scope, x []*tt) *tt {
		return nn.NLLLoss{Weight: x[1].Square(), IgnoreIndex: new(1)}.Forward(x[0].LogSoftmax(1), classes(x[0], 2, 2))
	}},
	{"weighted squares", [][]int{{4, 3}, {4, 3}, {4, 3}}, func(s *tensor.Scope, x []*tt) *tt { return nn.MSELoss{Weight: x[2].Square()}.Forward(x[0], x[1]) }},
	{"weighted logits", [][]int{{4, 3}, {4, 3}, {3}, {3}}, func(s *tensor.Scope, x []*tt) *tt {
		return nn.BCEWithLogitsLoss{Weight: x[2], PosWeight: x[3].Square()}.Forward(x[0], x[1].Sigmoid())
	}},
	{"cosine embedding", [][]int{{4, 3}, {4, 3}}, func(s *tensor.Scope, x []*tt) *tt {
		return nn.CosineEmbeddingLoss{Margin: -1}.Forward(x[0], x[1], classes(x[0], 4).ClampMax(1).MulScalar(2).SubScalar(1))
	}},
	{"triplet", [][]int{{4, 3}, {4, 3}, {4, 3}}, func(s *tensor.Scope, x []*tt) *tt {
		l := nn.NewTripletMarginLoss()
		l.Margin, l.P = 9, 3
		return l.Forward(x[0], x[1], x[2])
	}},
	{"poisson", [][]int{{4, 3}, {4, 3}}, func(s *tensor.Scope, x []*tt) *tt {
		return (&nn.PoissonNLLLoss{LogInput: true, Full: true}).Forward(x[0], x[1].Square().AddScalar(2))
	}},
	{"gaussian", [][]int{{4, 3}, {4, 3}, {4}}, func(s *tensor.Scope, x []*tt) *tt {
		return (&nn.GaussianNLLLoss{Full: true, Eps: 1e-6}).Forward(x[0], x[1], x[2].Square().AddScalar(0.5))
	}},
	{"multi-margin", [][]int{{4, 3}, {3}}, func(s *tensor.Scope, x []*tt) *tt {
		return (&nn.MultiMarginLoss{P: 2, Margin: 9, Weight: x[1]}).Forward(x[0], classes(x[0], 4))
	}},
	{"ctc", [][]int{{5, 2, 3}}, func(s *tensor.Scope, x []*tt) *tt {
		lengths := func(v ...int64) *tt { return s.On(x[0].Device()).From(v) }
		return nn.CTCLoss{}.Forward(x[0].LogSoftmax(-1), classes(x[0], 2, 2).ClampMin(1), lengths(5, 4), lengths(2, 1))
	}},
	{"multi-label margin", [][]int{{4, 3}}, func(s *tensor.Scope, x []*tt) *tt {
		return nn.MultiLabelMarginLoss{}.Forward(x[0], classes(x[0], 4, 3).SubScalar(1))
	}},
	{"multi-label", [][]int{{4, 3}, {4, 3}, {3}}, func(s *tensor.Scope, x []*tt) *tt {
		return nn.MultiLabelSoftMarginLoss{Weight: x[2]}.Forward(x[0], x[1].Sigmoid())
	}},
}

// classes returns a tensor of targets 0, 1, 2, 0 …, on x's device.
func classes(x *tt, dims ...int) *tt {
	return x.Scope().On(x.Device()).Typed(dtype.I64).Arange(size(dims)).RemainderScalar(3).Reshape(dims...)
}

func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// lossOperands returns random operands whose values bfloat16 can represent.
func lossOperands(s *tensor.Scope, dims [][]int, t dtype.Type, dev device.Device) []*tt {
	c := s.New(tensor.Seed(5))
	x := make([]*tt, len(dims))
	for i, d := range dims {
		x[i] = c.Typed(dtype.BF16).Uniform(-2, 2, d...).Cast(t).To(dev).Detach()
	}
	c.Close(x...)
	for i := range x {
		x[i].RequiresGrad()
	}
	return x
}

// Losses and gradients agree between all element types except for rounding, on the CPU and on a
// GPU.
func TestLossesOfAllTypes(t *testing.T) {
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range lossWalks {
		tensor.Do(func(s *tensor.Scope) {
			var want [][]float64
			for _, dev := range []device.Device{cpu, gpus[0]} {
				for _, ty := range []dtype.Type{dtype.F64, dtype.F32, dtype.BF16, dtype.F16} {
					x := lossOperands(s, c.in, ty, dev)
					y := c.f(s, x)
					if y.Type() != ty || y.Device() != dev {
						t.Errorf("%s: %v on %s of %v on %s", c.name, y.Type(), y.Device().Name(), ty, dev.Name())
					}
					got := [][]float64{y.Floats()}
					for _, g := range tensor.Gradients(y, x) {
						got = append(got, g.Floats())
					}
					if want == nil {
						want = got
					}
					unit := map[dtype.Type]float64{dtype.F64: 0x1p-48, dtype.F32: 0x1p-20, dtype.BF16: 0x1p-5, dtype.F16: 0x1p-8}[ty]
					for k := range got {
						for i, v := range got[k] {
							if !(math.Abs(v-want[k][i]) <= unit*(1+math.Abs(want[k][i]))) {
								t.Errorf("%s %v on %s: result %d[%d] is %v, want %v", c.name, ty, dev.Name(), k, i, v, want[k][i])
								break
							}
						}
					}
				}
			}
		})
	}
}

// The second derivatives of losses equal central differences.
func TestLossesTwice(t *testing.T) {
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	const step = 1e-5
	for _, c := range lossWalks {
		tensor.Do(func(s *tensor.Scope) {
			sum := func(x []*tt, opts ...tensor.GradOption) *tt {
				total := s.Typed(dtype.F64).Zeros()
				for i, g := range tensor.Gradients(c.f(s, x).Square(), x, opts...) {
					total = total.Add(g.Mul(g.AddScalar(float64(i + 1))).Sum())
				}
				return total
			}
			x := lossOperands(s, c.in, dtype.F64, cpu)
			got := tensor.Gradients(sum(x, tensor.CreateGraph()), x)
			for k := range x {
				v, g := x[k].Floats(), got[k].Floats()
				for i := range v {
					at := func(to float64) float64 {
						moved := append([]float64(nil), v...)
						moved[i] = to
						in := append([]*tt(nil), x...)
						in[k] = s.From(moved).Reshape(x[k].Shape().Slice()...).RequiresGrad()
						return sum(in).Item()
					}
					want := (at(v[i]+step) - at(v[i]-step)) / (2 * step)
					if math.Abs(g[i]-want) > 1e-6*(1+math.Abs(want)) {
						t.Errorf("%s: the second gradient of operand %d[%d] is %v, differences give %v", c.name, k, i, g[i], want)
					}
				}
			}
		})
	}
}
