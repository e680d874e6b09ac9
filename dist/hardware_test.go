package dist

import (
	"os"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestRanksOnHardware runs the suite of collectives and a training on up to four GPUs of the
// machine. It uses NCCL first, if that is installed, and then copies between the GPUs. It runs
// only if the variable FLAMBEAU_TEST_GPU is 1.
func TestRanksOnHardware(t *testing.T) {
	if os.Getenv("FLAMBEAU_TEST_GPU") != "1" {
		t.Skip("FLAMBEAU_TEST_GPU is not 1: no GPU is expected")
	}
	l := Devices("cuda:*")
	gpus, err := l.List()
	if err != nil {
		t.Fatal(err)
	}
	if gpus[0].Info().Emulated {
		t.Fatal("the GPUs are emulated: unset FLAMBEAU_CUDA")
	}
	if len(gpus) < 2 {
		t.Skipf("there is one GPU, %s, and ranks need two", gpus[0].Info().Name)
	}
	l = On(gpus[:min(len(gpus), 4)]...)
	want := alone(device.Device(gpus[0]), dtype.F32, mlp(dtype.F32), 20)
	for name, opts := range map[string][]Option{"library": nil, "in process": {InProcess()}} {
		t.Run(name, func(t *testing.T) {
			checkCollectives(t, l, opts...)
			running(t, l, func(g *Group) {
				t.Logf("%v: %s", g, g.Backend())
				m := DDP(nn.To(mlp(dtype.F32), g.Device()), g)
				opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1, Momentum: 0.9})
				n := whole / g.World()
				for step := range 20 {
					g.Do(func(s *tensor.Scope) {
						x, y := batch(s, dtype.F32, step, g.Rank()*n, (g.Rank()+1)*n)
						nn.CrossEntropy(m.Forward(x), y).Backward()
						opt.Step()
						opt.ZeroGrad()
					})
				}
				if d := distance(weights(m), want); whole%g.World() == 0 && !(d <= tolerance(dtype.F32)) {
					t.Errorf("%v: %v from one GPU", g, d)
				}
			}, opts...)
		})
	}
}
