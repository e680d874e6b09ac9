package nn_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// The expected values are the results of torch 2.15 for each layer at the inputs -2.5, -0.25, 0.75
// and 8, in float64.
func TestActivations(t *testing.T) {
	x := []float64{-2.5, -0.25, 0.75, 8}
	for name, c := range map[string]struct {
		layer nn.Module
		want  [4]float64
	}{
		"Identity":      {nn.Identity{}, [4]float64{-2.5, -0.25, 0.75, 8.0}},
		"ReLU6":         {nn.ReLU6{}, [4]float64{0.0, 0.0, 0.75, 6.0}},
		"SELU":          {nn.SELU{}, [4]float64{-1.6137857588732425, -0.388890197478119, 0.7880257405166103, 8.405607898843844}},
		"Mish":          {nn.Mish{}, [4]float64{-0.19681620390653337, -0.129926963679141, 0.6100183352182934, 7.999998200644843}},
		"Softsign":      {nn.Softsign{}, [4]float64{-0.7142857142857143, -0.2, 0.42857142857142855, 0.8888888888888888}},
		"Tanhshrink":    {nn.Tanhshrink{}, [4]float64{-1.5133857018485697, -0.005081337596290869, 0.1148510476127127, 7.000000225070324}},
		"LogSigmoid":    {nn.LogSigmoid{}, [4]float64{-2.5788897342925496, -0.8259394198788436, -0.38687100611489994, -0.00033540637289576885}},
		"Hardswish":     {nn.Hardswish{}, [4]float64{-0.20833333333333334, -0.11458333333333333, 0.46875, 8.0}},
		"Hardsigmoid":   {nn.Hardsigmoid{}, [4]float64{0.08333333333333333, 0.4583333333333333, 0.625, 1.0}},
		"LeakyReLU":     {nn.NewLeakyReLU(0.01), [4]float64{-0.025, -0.0025, 0.75, 8.0}},
		"PReLU":         {nn.NewPReLU(1, 0.25, nn.Typed(dtype.F64)), [4]float64{-0.625, -0.0625, 0.75, 8.0}},
		"ELU":           {nn.NewELU(1), [4]float64{-0.9179150013761013, -0.22119921692859512, 0.75, 8.0}},
		"CELU":          {nn.NewCELU(2), [4]float64{-1.4269904062796197, -0.2350061948308092, 0.75, 8.0}},
		"Softplus":      {nn.NewSoftplus(1, 20), [4]float64{0.07888973429254963, 0.5759394198788436, 1.1368710061148999, 8.000335406372896}},
		"Softplus of 3": {nn.NewSoftplus(3, 20), [4]float64{0.00018431049178693214, 0.1289570020383, 0.7834021863055823, 8.0}},
		"Hardtanh":      {nn.NewHardtanh(-1, 1), [4]float64{-1.0, -0.25, 0.75, 1.0}},
		"Hardshrink":    {nn.NewHardshrink(0.5), [4]float64{-2.5, 0.0, 0.75, 8.0}},
		"Softshrink":    {nn.NewSoftshrink(0.5), [4]float64{-2.0, 0, 0.25, 7.5}},
		"Threshold":     {nn.NewThreshold(0.1, 20), [4]float64{20.0, 20.0, 0.75, 8.0}},
		"Softmax":       {nn.NewSoftmax(0), [4]float64{2.750896873188241e-05, 0.00026099782845874687, 0.0007094656543666826, 0.9990020275484427}},
		"LogSoftmax":    {nn.NewLogSoftmax(-1), [4]float64{-10.500998470757622, -8.250998470757622, -7.250998470757622, -0.0009984707576223832}},
		"ReLU":          {nn.ReLU{}, [4]float64{0.0, 0.0, 0.75, 8.0}},
		"GELU":          {nn.GELU{}, [4]float64{-0.015524163314440398, -0.10032341857926907, 0.5800294857173489, 7.999999999999995}},
		"GELU by tanh":  {nn.GELU{Tanh: true}, [4]float64{-0.015084266089998577, -0.100324649298315, 0.5799605551656203, 8.0}},
		"SiLU":          {nn.SiLU{}, [4]float64{-0.18964545005310887, -0.10945587477855048, 0.5093840243815447, 7.997317198956269}},
		"Tanh":          {nn.Tanh{}, [4]float64{-0.9866142981514303, -0.24491866240370913, 0.6351489523872873, 0.9999997749296758}},
		"Sigmoid":       {nn.Sigmoid{}, [4]float64{0.07585818002124355, 0.43782349911420193, 0.679178699175393, 0.9996646498695336}},
	} {
		tensor.Do(func(s *tensor.Scope) {
			got := nn.NewSequential(c.layer).Forward(s.Typed(dtype.F64).From(x)).Floats()
			for i, w := range c.want {
				if math.Abs(got[i]-w) > 1e-12*(1+math.Abs(w)) {
					t.Errorf("%s of %v is %v, want %v", name, x[i], got[i], w)
				}
			}
		})
	}
}

func TestPReLULearns(t *testing.T) {
	l := nn.NewPReLU(2, 0.25)
	if n := nn.Named(l); len(n) != 1 || n[0].Name != "weight" {
		t.Fatalf("parameters %v", n)
	}
	tensor.Do(func(s *tensor.Scope) {
		y := l.Forward(s.From([][]float32{{-4, -8}, {-1, 2}}))
		y.Sum().Backward()
		if v, g := y.Floats(), l.Weight.Grad().Floats(); v[0] != -1 || v[1] != -2 || v[2] != -0.25 || v[3] != 2 || g[0] != -5 || g[1] != -8 {
			t.Errorf("%v, gradient %v", v, g)
		}
		if err := tensor.Try(func() { l.Forward(s.Ones(2, 3)) }); err == nil {
			t.Error("3 channels for 2 weights")
		}
		g := nn.NewGLU(-1)
		if v := g.Forward(s.From([][]float32{{2, 3, 0, 100}})).Floats(); v[0] != 1 || v[1] != 3 {
			t.Errorf("GLU gives %v", v)
		}
		if err := tensor.Try(func() { g.Forward(s.Ones(2, 3)) }); err == nil {
			t.Error("GLU of an odd dimension")
		}
	})
}

func TestSoftmaxLayers(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float64{1, 2, 3, 4, 5, 6, 7, 8}).Reshape(2, 2, 2, 1)
		y := nn.Softmax2d{}.Forward(x).Floats() // the two channels of each pixel differ by 2
		if want := 1 / (1 + math.Exp(2)); math.Abs(y[0]-want) > 1e-12 || math.Abs(y[2]-(1-want)) > 1e-12 {
			t.Errorf("softmax over channels: %v", y)
		}
		z := nn.NewSoftmin(0).Forward(s.From([]float64{1, 3})).Floats()
		if want := 1 / (1 + math.Exp(-2)); math.Abs(z[0]-want) > 1e-12 {
			t.Errorf("softmin: %v", z)
		}
		if err := tensor.Try(func() { nn.Softmax2d{}.Forward(x.Flatten(0, 2)) }); !errors.Is(err, tensor.ErrShape) {
			t.Errorf("softmax2d of a matrix: %v", err)
		}
	})
}

func TestBilinear(t *testing.T) {
	tensor.ManualSeed(4)
	l := nn.NewBilinear(25, 3, 40)
	if n := nn.Named(l); len(n) != 2 || n[0].Name != "weight" || n[1].Name != "bias" {
		t.Errorf("parameters %v", n)
	}
	for _, w := range []*tt{l.Weight, l.Bias} {
		if hi, lo := w.Amax().Item(), w.Amin().Item(); hi > 0.2 || lo < -0.2 || hi < 0.18 || lo > -0.18 {
			t.Errorf("weights lie in [%v, %v], not ±0.2", lo, hi)
		}
	}
	tensor.Do(func(s *tensor.Scope) {
		y := l.Forward(s.Ones(2, 25), s.Ones(2, 3))
		y.Sum().Backward()
		if y.Dim(1) != 40 || l.Bias.Grad().Floats()[3] != 2 || l.Weight.Grad().Floats()[7] != 2 {
			t.Errorf("%v, gradients %v", y.Shape(), l.Bias.Grad())
		}
		if n := len(nn.Parameters(nn.NewBilinear(2, 2, 2, nn.NoBias()))); n != 1 {
			t.Errorf("%d parameters without a bias", n)
		}
	})
}

// Forward refuses a struct literal in which a setting is zero although torch's default is not. The
// error names the constructor call with torch's default. A layer that the constructor made with
// zero is accepted.
func TestActivationLiterals(t *testing.T) {
	x := tensor.From([]float32{-2, -0.5, 0.5, 2})
	for _, c := range []struct {
		want          string
		literal, made nn.Module
		y             string
	}{
		{"leaky_relu: Slope of the literal is 0 (nn.NewLeakyReLU(0.01) ", nn.LeakyReLU{}, nn.NewLeakyReLU(0), "[0 0 0.5 2]"},
		{"elu: Alpha of the literal is 0 (nn.NewELU(1) ", nn.ELU{}, nn.NewELU(0), "[0 0 0.5 2]"},
		{"softplus: Beta of the literal is 0 (nn.NewSoftplus(1, 20) ", nn.Softplus{}, nn.NewSoftplus(1e9, 0), "[0 0 0.5 2]"},
		{"softplus: Threshold of the literal is 0 ", nn.Softplus{Beta: 1}, nn.NewSoftplus(1e9, 0), "[0 0 0.5 2]"},
		{"hardtanh: Max of the literal is 0 (nn.NewHardtanh(-1, 1) ", nn.Hardtanh{}, nn.NewHardtanh(0, 0), "[0 0 0 0]"},
		{"hardshrink: Lambda of the literal is 0 (nn.NewHardshrink(0.5) ", nn.Hardshrink{}, nn.NewHardshrink(0), "[-2 -0.5 0.5 2]"},
		{"softshrink: Lambda of the literal is 0 (nn.NewSoftshrink(0.5) ", nn.Softshrink{}, nn.NewSoftshrink(0), "[-2 -0.5 0.5 2]"},
		{"rrelu: Upper of the literal is 0 (nn.NewRReLU(1./8, 1./3) ", &nn.RReLU{}, nn.NewRReLU(0, 0), "[0 0 0.5 2]"},
	} {
		err := tensor.Try(func() { c.literal.Forward(x) })
		if !errors.Is(err, tensor.ErrValue) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
		if y := fmt.Sprint(c.made.Forward(x).AddScalar(0).Floats()); y != c.y {
			t.Errorf("%T: %s, want %s", c.made, y, c.y)
		}
	}
	if y := fmt.Sprint(nn.Hardtanh{Max: 1}.Forward(x).Floats()); y != "[0 0 0.5 1]" {
		t.Error(y)
	}
}
