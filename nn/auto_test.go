package nn_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func TestAuto(t *testing.T) {
	gpus, err := cuda.Emulate("emulate:2,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		m := nn.NewSequential(nn.NewLinear(3, 2, nn.In(s)), nn.NewBatchNorm1d(2, nn.In(s)))
		a := nn.Auto(m)
		x := s.Rand(4, 3).RequiresGrad()
		want := nn.Eval(a).Forward(x).Floats()
		if got := names(nn.NamedParameters(a)); got != "0.weight 0.bias 1.weight 1.bias" || m.Training() || a.Training() {
			t.Errorf("parameters %s", got)
		}
		if a.Device().Name() != "cpu" {
			t.Error(a.Device())
		}
		nn.To(a, gpus[1])
		y := a.Forward(x)
		if y.Device() != gpus[1] || a.Device() != gpus[1] || !y.CPU().AllClose(s.From(want).Reshape(4, 2).Float(), 1e-5, 1e-6) {
			t.Errorf("%v, want %v", y, want)
		}
		y.Sum().Backward()
		if g := x.Grad(); g.Device() != x.Device() || m.Layers[0].(*nn.Linear).Weight.Grad().Device() != gpus[1] {
			t.Error("gradients")
		}
		on := x.Detach().To(gpus[1])
		if in := nn.Follow(m, x); in.Device() != gpus[1] || nn.Follow(m, on) != on || nn.Follow(m, nil) != nil {
			t.Error("one tensor does not follow")
		}
		if in := nn.FollowAll(m, on, nil, x); in[0] != on || in[1] != nil || in[2].Device() != gpus[1] || !slices.Equal(in[2].Floats(), x.Floats()) {
			t.Error("what is there already is not copied")
		}
		if y := a.Forward(x.Detach().To(gpus[0])); y.Device() != gpus[1] {
			t.Error("from another GPU")
		}
		m.Layers[1].(*nn.BatchNorm1d).RunningVar.MoveTo(gpus[0])
		err := tensor.Try(func() { a.Forward(x) })
		if !errors.Is(err, tensor.ErrDevice) {
			t.Fatal(err)
		}
		for _, part := range []string{"0.weight is on cuda:1, 1.running_var on cuda:0", "nn.To", "auto_test.go"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in %v", part, err)
			}
		}
		if y := nn.Auto(nn.ReLU{}).Forward(on); y.Device() != gpus[1] {
			t.Error("a model without parameters")
		}
		if nn.DeviceOf(nn.NewSequential()) != nil {
			t.Error("no device")
		}
		if err := tensor.Try(func() { a.Forward(nil) }); !errors.Is(err, tensor.ErrValue) {
			t.Error(err)
		}
	})
}
