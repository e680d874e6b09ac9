package models_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// What a ResNet-50 takes for eight images, on a GPU without memory: in evaluation the results of
// its blocks and what one block makes inside; in training what the gradients need; nothing stays.
func TestResNetMemory(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mode=meta,mem=16GiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	const mib = 1 << 20
	// Bytes of the results of the blocks of each stage. For the gradients PyTorch 2.15 saves 656
	// MiB of this model; its parameters' gradients are 98 MiB.
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
