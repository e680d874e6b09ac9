package optest

import (
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestPeaks limits the peak memory of ops, as a multiple of the result's size, and the memory that
// the gradient needs afterwards. So the test fails if an op keeps temporary tensors for too long.
func TestPeaks(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := device.Device(gpus[0])
	tensor.Do(func(s *tensor.Scope) {
		c := s.New(tensor.On(dev))
		x := c.Rand(4, 8, 16, 16).RequiresGrad()
		w := c.Rand(8, 8, 3, 3).RequiresGrad()
		for name, f := range map[string]struct {
			most float64 // limit of the peak memory, as a multiple of the result's size
			f    func() *tensor.Tensor
		}{
			"bilinear": {5, func() *tensor.Tensor {
				return x.Interpolate(tensor.InterpolateOptions{Size: []int{20, 20}, Mode: tensor.InterpolateLinear})
			}},
			"bicubic": {5, func() *tensor.Tensor {
				return x.Interpolate(tensor.InterpolateOptions{Size: []int{20, 20}, Mode: tensor.InterpolateCubic})
			}},
			// the peak consists of 9 elements per window, the padded input, and the result twice
			"conv2d": {13, func() *tensor.Tensor {
				return x.Conv2d(w, nil, tensor.ConvOptions{Padding: []int{1}})
			}},
			"group_norm": {1.1, func() *tensor.Tensor { return x.GroupNorm(2, nil, nil, 1e-5) }},
			"dropout2d":  {1.1, func() *tensor.Tensor { return x.Dropout2d(0.5) }},
		} {
			before := dev.Stats().Allocated
			dev.ResetPeak()
			y := f.f()
			size := float64(y.Size() * y.Type().Size())
			if peak := float64(dev.Stats().AllocatedPeak-before) / size; peak > f.most {
				t.Errorf("%s: %.2f times its result at one time, %v are allowed", name, peak, f.most)
			}
			if held := float64(dev.Stats().Allocated-before) / size; held > 1.2 {
				t.Errorf("%s: holds %.2f times its result", name, held)
			}
			y.Free() // keep only the tensors that the gradient needs
		}
		c.Close()
		if left := dev.Stats().Allocated; left != 0 {
			t.Errorf("%d bytes are left", left)
		}
	})
}
