package nn_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// First and second derivatives of layers and losses with respect to operands, parameters and
// targets equal central differences.
func TestSecondOrder(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		numbers := func(dims ...int) *tensor.Tensor {
			return s.Typed(dtype.F64).Rand(dims...).MulScalar(1.6).AddScalar(0.2)
		}
		check := func(name string, f func(x []*tensor.Tensor) *tensor.Tensor, in ...*tensor.Tensor) {
			t.Helper()
			if err := autograd.Check(f, in, autograd.CheckOptions{SecondOrder: true}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		f64 := nn.Typed(dtype.F64)
		for name, l := range map[string]nn.Module{
			"Linear": nn.NewLinear(4, 2, f64, nn.In(s)), "LayerNorm": nn.NewLayerNorm([]int{4}, f64, nn.In(s)), "RMSNorm": nn.NewRMSNorm([]int{4}, f64, nn.In(s)),
			"Flatten": nn.Flatten{}, "Identity": nn.Identity{}, "PReLU": nn.NewPReLU(1, 0.25, f64, nn.In(s)), "ReLU": nn.ReLU{}, "ReLU6": nn.ReLU6{}, "GELU": nn.GELU{},
			"GELU, tanh": nn.GELU{Tanh: true}, "SiLU": nn.SiLU{}, "Tanh": nn.Tanh{}, "Sigmoid": nn.Sigmoid{}, "SELU": nn.SELU{}, "Mish": nn.Mish{}, "Softsign": nn.Softsign{},
			"Tanhshrink": nn.Tanhshrink{}, "LogSigmoid": nn.LogSigmoid{}, "Hardswish": nn.Hardswish{}, "Hardsigmoid": nn.Hardsigmoid{}, "LeakyReLU": nn.NewLeakyReLU(0.1),
			"ELU": nn.NewELU(1.5), "CELU": nn.NewCELU(1.5), "Softplus": nn.NewSoftplus(2, 20), "Hardtanh": nn.NewHardtanh(-1, 1), "Hardshrink": nn.NewHardshrink(0.5),
			"Softshrink": nn.NewSoftshrink(0.5), "Threshold": nn.NewThreshold(0.5, 0.1), "Softmax": nn.NewSoftmax(-1), "LogSoftmax": nn.NewLogSoftmax(0), "GLU": nn.NewGLU(-1),
		} {
			x := numbers(2, 4)
			x.Select(0, 1).NegInPlace()
			in := []*tensor.Tensor{x}
			// derivatives are also taken with respect to these parameters of the layer
			var fields []**tensor.Tensor
			switch l := l.(type) {
			case *nn.Linear:
				fields = []**tensor.Tensor{&l.Weight, &l.Bias}
			case *nn.LayerNorm:
				fields = []**tensor.Tensor{&l.Weight, &l.Bias}
			case *nn.RMSNorm:
				fields = []**tensor.Tensor{&l.Weight}
			case *nn.PReLU:
				fields = []**tensor.Tensor{&l.Weight}
			}
			for _, p := range fields {
				in = append(in, *p)
			}
			check(name, func(x []*tensor.Tensor) *tensor.Tensor {
				for i, p := range fields {
					*p = x[i+1]
				}
				return l.Forward(x[0])
			}, in...)
			for i, p := range fields {
				*p = in[i+1]
			}
		}
		type loss = func(x, y *tensor.Tensor) *tensor.Tensor
		for name, f := range map[string]loss{
			"MSE": func(x, y *tensor.Tensor) *tensor.Tensor { return nn.MSE(x, y) }, "L1": func(x, y *tensor.Tensor) *tensor.Tensor { return nn.L1(x, y, nn.Sum) },
			"SmoothL1": func(x, y *tensor.Tensor) *tensor.Tensor { return nn.SmoothL1(x, y, 0.3) }, "Huber": func(x, y *tensor.Tensor) *tensor.Tensor { return nn.Huber(x, y, 0.3, nn.None) },
			"BCEWithLogits": func(x, y *tensor.Tensor) *tensor.Tensor { return nn.BCEWithLogits(x, y, nil) },
			"KLDiv":         func(x, y *tensor.Tensor) *tensor.Tensor { return nn.KLDiv(x, y, nn.BatchMean) },
			"KLDivLog":      func(x, y *tensor.Tensor) *tensor.Tensor { return nn.KLDivLog(x, y, nn.BatchMean) },
		} {
			check(name, func(x []*tensor.Tensor) *tensor.Tensor { return f(x[0], x[1]) }, numbers(2, 3), numbers(2, 3))
		}
		inside := func(dims ...int) *tensor.Tensor {
			return s.Typed(dtype.F64).Rand(dims...).MulScalar(0.8).AddScalar(0.1)
		}
		check("BCE", func(x []*tensor.Tensor) *tensor.Tensor { return nn.BCE(x[0], x[1]) }, inside(2, 3), inside(2, 3))
		check("BCEWithLogits, weights", func(x []*tensor.Tensor) *tensor.Tensor { return nn.BCEWithLogits(x[0], x[1], x[2]) }, numbers(2, 3), inside(2, 3), inside(3))
		classes := s.From([]int64{2, 0})
		check("CrossEntropy", func(x []*tensor.Tensor) *tensor.Tensor { return nn.CrossEntropy(x[0], x[1]) }, numbers(2, 3), classes)
		check("NLL", func(x []*tensor.Tensor) *tensor.Tensor { return nn.NLL(x[0], x[1]) }, numbers(2, 3), classes)
		// With a fixed seed, dropout uses the same random numbers in every call.
		check("Dropout", func(x []*tensor.Tensor) *tensor.Tensor {
			c := x[0].Scope().New(tensor.Seed(3))
			y := x[0].In(c).Square().Dropout(0.4)
			c.Close(y)
			return y
		}, numbers(3, 4))
		check("casts", func(x []*tensor.Tensor) *tensor.Tensor {
			return x[0].Square().Cast(dtype.F64).Mul(x[1]).To(x[0].Device())
		}, numbers(3), numbers(3))
	}, tensor.Seed(11))
	// Central differences are inexact for a rounded function, so the gradients of a cast are
	// compared with exact derivatives.
	x := tensor.From([]float64{2, 3}).RequiresGrad()
	// g is the derivative of x⁴, computed through casts.
	g := tensor.Gradients(x.Float().Square().BFloat16().Float().Square().Double().Sum(), []*tensor.Tensor{x}, tensor.CreateGraph())[0]
	h := tensor.Gradients(g.Sum(), []*tensor.Tensor{x})[0].Floats()
	if h[0] != 48 || h[1] != 108 {
		t.Errorf("the second derivative of x⁴ through casts is %v", h)
	}
}
