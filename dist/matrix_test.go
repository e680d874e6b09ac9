package dist

import (
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestMatrix trains every kind of model in every way for 20 steps, on two and four ranks, on the
// CPU and on GPUs. The ranks must compute the same as one process with the whole batch, and a
// second run must give the same bits. GPUs take part only with FLAMBEAU_SOAK=1. Other, shorter
// tests always run on GPUs too.
func TestMatrix(t *testing.T) {
	const steps = 20
	for kind, l := range lists(t, 2, 4) {
		if !l.devices[0].Info().Host && os.Getenv("FLAMBEAU_SOAK") != "1" {
			continue
		}
		for _, typ := range []dtype.Type{dtype.F64, dtype.F32} {
			k := kits(typ, 0)
			norms := kit{func() nn.Module { return nn.Train(newCNN(typ, true)) }, k["cnn"].loss}
			for name, d := range map[string]*drill{
				"mlp":                       {kit: k["mlp"], parts: 1},
				"cnn, batch norms of all":   {kit: norms, parts: 1, synced: true},
				"chars, three batches":      {kit: k["chars"], parts: 3},
				"mlp, state shared out":     {kit: k["mlp"], parts: 1, sharded: true},
				"chars, bfloat16, a scaler": {kit: k["chars"], parts: 1, bf16: true},
			} {
				if d.bf16 && typ == dtype.F64 {
					continue
				}
				d.steps = steps
				t.Run(fmt.Sprintf("%s/%s, %v", kind, name, typ), func(t *testing.T) {
					want, losses := d.alone()
					got, means := d.ranks(t, l)
					again, _ := d.ranks(t, l)
					if !slices.Equal(got, again) {
						t.Error("a second run has other bits")
					}
					if d.bf16 {
						for i := range losses {
							if math.Abs(means[i]-losses[i]) > 0.02*losses[i] {
								t.Errorf("loss %d is %v, of one process %v", i, means[i], losses[i])
							}
						}
						return
					}
					far := distance(got, want)
					t.Logf("%.2g from one process", far)
					if !(far <= tolerance(typ)) {
						t.Errorf("the weights are %v from one process", far)
					}
				})
			}
			t.Run(fmt.Sprintf("%s/DataParallel, %v", kind, typ), func(t *testing.T) {
				want := alone(device.Device(tensor.Root().Device()), typ, mlp(typ), steps)
				m := nn.To(mlp(typ), l.devices[0])
				spread := DataParallel(m, l.devices)
				opt := optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1, Momentum: 0.9})
				for step := range steps {
					tensor.Do(func(s *tensor.Scope) {
						x, y := batch(s, typ, step, 0, whole)
						nn.CrossEntropy(spread.Forward(x), y).Backward()
						opt.Step()
						opt.ZeroGrad()
					}, tensor.On(l.devices[0]))
				}
				far := distance(weights(m), want)
				t.Logf("%.2g from one process", far)
				if !(far <= tolerance(typ)) {
					t.Errorf("the weights are %v from one process", far)
				}
			})
		}
	}
}
