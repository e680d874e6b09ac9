package tensor_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Under autocast the loss of logits in 16 bits, and its gradient, have the bits of what a copy in
// float32 gives.
func TestCrossEntropyOf16BitsUnderAutocast(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	bits := func(x *tensor.Tensor) (list []uint32) {
		for _, v := range tensor.Data[float32](x.Detach().Float()) {
			list = append(list, math.Float32bits(v))
		}
		return list
	}
	for _, dev := range []device.Device{cpu, gpus[0]} {
		for _, low := range []dtype.Type{dtype.BF16, dtype.F16} {
			for name, o := range map[string]tensor.CrossEntropyOptions{"": {}, "ignored": {IgnoreIndex: new(3)}, "smoothed": {LabelSmoothing: 0.1}} {
				for _, higher := range []bool{false, true} {
					what := fmt.Sprintf("%v, %v, %q, create graph %v", dev.Name(), low, name, higher)
					tensor.Do(func(s *tensor.Scope) {
						target := s.RandInt(0, 37, 5)
						x := s.Randn(5, 37).Cast(low).Detach().RequiresGrad()
						losses, grads := [2][]uint32{}, [2][]uint32{}
						for k := range 2 {
							logits := x
							if k == 1 { // what autocast's class says in general
								logits = x.Cast(dtype.F32)
							}
							y := logits.CrossEntropy(target, o)
							if y.Type() != dtype.F32 {
								t.Errorf("%s: the loss is %v", what, y.Type())
							}
							options := []tensor.GradOption{tensor.GradOutput(s.Full(0.3, 5))}
							if higher {
								options = append(options, tensor.CreateGraph())
							}
							g := tensor.Gradients(y, []*tensor.Tensor{x}, options...)[0]
							if g.Type() != low {
								t.Errorf("%s: the gradient is %v", what, g.Type())
							}
							losses[k], grads[k] = bits(y), bits(g)
						}
						if !slices.Equal(losses[0], losses[1]) || !slices.Equal(grads[0], grads[1]) {
							t.Errorf("%s: losses %x and %x, gradients %x and %x", what, losses[0], losses[1], grads[0], grads[1])
						}
					}, tensor.On(dev), tensor.Autocast(low), tensor.Seed(2))
				}
			}
		}
	}
}
