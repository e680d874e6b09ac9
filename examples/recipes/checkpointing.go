package main

import (
	"fmt"
	"io"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// checkpointing is the recipe for torch.utils.checkpoint on each block. It needs less memory and
// gives the same gradients.
func checkpointing(dev device.Device, w io.Writer) error {
	var blocks []*nn.Sequential
	for range 4 {
		blocks = append(blocks, nn.To(nn.NewSequential(nn.NewLinear(64, 64), nn.GELU{}), dev))
	}
	held := func(block func(b *nn.Sequential, x *tensor.Tensor) *tensor.Tensor) (bytes int, grad []float64) {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Full(0.1, 256, 64)
			before := dev.Stats().Allocated
			for _, b := range blocks {
				y := block(b, x)
				x.Free() // the graph keeps the values that it needs
				x = y
			}
			bytes = dev.Stats().Allocated - before
			x.Square().Sum().Backward()
			grad = blocks[0].Layers[0].(*nn.Linear).Weight.Grad().Floats()
			nn.ZeroGrad(blocks)
		}, tensor.On(dev))
		return bytes, grad
	}
	plain, want := held((*nn.Sequential).Forward)
	less, got := held(func(b *nn.Sequential, x *tensor.Tensor) *tensor.Tensor {
		return autograd.Checkpoint(func(x ...*tensor.Tensor) *tensor.Tensor { return b.Forward(x[0]) }, x)
	})
	same := true
	for i := range want {
		same = same && want[i] == got[i]
	}
	fmt.Fprintln(w, "less memory:", less < plain, "same gradients:", same)
	return nil
}
