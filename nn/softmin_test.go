package nn_test

import (
	"errors"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestSoftmaxLayers(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float64{1, 2, 3, 4, 5, 6, 7, 8}).Reshape(2, 2, 2, 1)
		y := nn.Softmax2d{}.Forward(x).Floats() // over pairs that differ by 2
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
