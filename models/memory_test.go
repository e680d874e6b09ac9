package models_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// A ResNet-50 processes eight images on a GPU that stores no values. In evaluation, at most the
// results of the blocks and the tensors inside one block are in memory. In training, the tensors
// that the gradients need are in memory too. At the end the step has freed everything.
func TestResNetMemory(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mode=meta,mem=16GiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	const mib = 1 << 20
	// blocks is the size of the results of all blocks, in bytes. PyTorch 2.15 saves 656 MiB for the
	// gradients of this model. The gradients of its parameters have 98 MiB.
	const blocks = 8 * 4 * (3*256*56*56 + 4*512*28*28 + 6*1024*14*14 + 3*2048*7*7)
	tensor.Do(func(s *tensor.Scope) {
		m := models.ResNet50(1000, 3, nn.In(s))
		x := s.Zeros(8, 3, 224, 224)
		for name, c := range map[string]struct {
			modes []tensor.Option
			run   func(y *tt)
			most  int
		}{
			"evaluation": {[]tensor.Option{tensor.NoGrad()}, func(*tt) {}, blocks + 48*mib},
			"training":   {nil, func(y *tt) { y.Sum().Backward(); nn.ZeroGrad(m) }, (656 + 98 + 32) * mib},
		} {
			if name == "evaluation" {
				nn.Eval(m)
			} else {
				nn.Train(m)
			}
			before := dev.Stats().Allocated
			dev.ResetPeak()
			s.Do(func(c2 *tensor.Scope) { c.run(m.Forward(x.In(c2))) }, c.modes...)
			st := dev.Stats()
			if peak := int(st.AllocatedPeak - before); peak > c.most || peak < c.most/2 || st.Allocated != before {
				t.Errorf("%s: peak of %d MiB, want at most %d; %d bytes stay", name, peak/mib, c.most/mib, st.Allocated-before)
			}
		}
	}, tensor.On(dev))
}
