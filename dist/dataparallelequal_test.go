package dist_test

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

type tt = tensor.Tensor

// gpus returns emulated devices of one driver.
func gpus(t testing.TB, spec string) []device.Device {
	t.Helper()
	list, err := cuda.Emulate("emulate" + spec)
	if err != nil {
		t.Fatal(err)
	}
	var out []device.Device
	for _, d := range list {
		out = append(out, d)
	}
	return out
}

// host returns the CPU.
func host(t testing.TB) device.Device {
	t.Helper()
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// mlp is a model of three layers.
func mlp(s *tensor.Scope) nn.Module {
	return nn.NewSequential(nn.NewLinear(6, 16), &nn.Tanh{}, nn.NewLinear(16, 8), &nn.GELU{}, nn.NewLinear(8, 3))
}

// convs is a model with a normalisation whose buffers change.
func convs(s *tensor.Scope) nn.Module {
	return nn.NewSequential(nn.NewConv2d(2, 4, 3), nn.NewBatchNorm2d(4), &nn.ReLU{}, nn.NewFlatten(1, -1), nn.NewLinear(4*2*2, 3))
}

// chars is a small transformer over characters, whose embedding is its last layer too.
type chars struct {
	nn.Base
	Embed   *nn.Embedding
	Encoder *nn.TransformerEncoder
	Out     *nn.Linear
}

func newChars() *chars {
	o := nn.TransformerOptions{}
	return &chars{Embed: nn.NewEmbedding(11, 8), Encoder: nn.NewTransformerEncoder(8, 2, 2, o), Out: nn.NewLinear(8, 11)}
}

func (m *chars) Forward(x *tt) (y *tt) {
	defer m.Enter(&x, &y)()
	return m.Out.Forward(m.Encoder.Forward(m.Embed.Forward(x)))
}

// near reports the largest difference between two tensors.
func near(t *testing.T, what string, got, want *tt, tolerance float64) {
	t.Helper()
	if (got == nil) != (want == nil) {
		t.Errorf("%s: %v and %v", what, got, want)
		return
	}
	if got == nil {
		return
	}
	a, b := got.Double().Floats(), want.Double().Floats()
	if len(a) != len(b) {
		t.Errorf("%s: %v and %v", what, got.Shape(), want.Shape())
		return
	}
	for i := range a {
		if !(math.Abs(a[i]-b[i]) <= tolerance*(1+math.Abs(b[i]))) {
			t.Errorf("%s: element %d is %v, want %v", what, i, a[i], b[i])
			return
		}
	}
}
