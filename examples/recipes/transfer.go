package main

import (
	"fmt"
	"io"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// transfer copies to the device and back without waiting, while another stream computes. An op that
// reads a copied tensor waits for the copy automatically.
func transfer(dev device.Device, w io.Writer) error {
	side, err := dev.NewStream(0)
	if err != nil {
		return err
	}
	numbers := []float32{1, 2, 3}
	tensor.Do(func(s *tensor.Scope) {
		x := s.From(numbers)
		if cuda.IsAvailable() {
			x = x.PinMemory()
		}
		y := x.To(dev, tensor.NonBlocking())
		var z *tensor.Tensor
		s.Do(func(c *tensor.Scope) { // with torch.cuda.stream(side):
			z = y.In(c).Square()
			c.Close(z)
		}, tensor.Stream(side), tensor.On(dev))
		back := z.To(cpu.Get(), tensor.NonBlocking())
		fmt.Fprintln(w, back, back.Device().Name())
	})
	return nil
}
