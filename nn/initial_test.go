package nn_test

import (
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// The initial values of layers have PyTorch's distribution: uniform in ±1/√fan, where fan is the
// layer's fan in.
func TestFirstValues(t *testing.T) {
	tensor.ManualSeed(4)
	for name, c := range map[string]struct {
		weight, bias *tensor.Tensor
		fan          float64
	}{
		"conv1d":  fields(nn.NewConv1d(40, 60, 5, nn.Groups(4)), 50),
		"conv2d":  fields(nn.NewConv2d(20, 60, []int{3, 2}), 120),
		"conv3d":  fields(nn.NewConv3d(10, 60, 2), 80),
		"convt1d": fields(nn.NewConvTranspose1d(40, 60, 5, nn.Groups(4)), 75),
		"convt2d": fields(nn.NewConvTranspose2d(40, 60, 3, nn.Groups(2)), 270),
		"convt3d": fields(nn.NewConvTranspose3d(10, 60, 2), 480),
		"linear":  fields(nn.NewLinear(30, 100), 30),
		"biline":  fields(nn.NewBilinear(30, 20, 60), 30),
	} {
		b := float64(float32(1 / math.Sqrt(c.fan)))
		for what, w := range map[string]*tensor.Tensor{"weight": c.weight, "bias": c.bias} {
			v := w.Floats()
			near := 0.99
			if what == "bias" {
				near = 0.85
			}
			if lo, hi := slices.Min(v), slices.Max(v); lo < -b || hi > b || lo > -near*b || hi < near*b {
				t.Errorf("%s of %s: in [%v, %v], want ±%v", what, name, lo, hi, b)
			}
			if _, d := moments(v); what == "weight" && math.Abs(d-b/math.Sqrt(3)) > 0.03*b {
				t.Errorf("%s of %s: deviation %v", what, name, d)
			}
		}
	}
}

func fields(l any, fan float64) struct {
	weight, bias *tensor.Tensor
	fan          float64
} {
	p := nn.Parameters(l)
	return struct {
		weight, bias *tensor.Tensor
		fan          float64
	}{p[0], p[1], fan}
}
