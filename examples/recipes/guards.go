package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// guards is the recipe for `with torch.device(d):`. It also shows the error for operands on
// different devices.
func guards(dev device.Device, w io.Writer) error {
	tensor.Do(func(s *tensor.Scope) { // with torch.device(dev):
		x := s.Ones(2, 2)
		s.Do(func(s *tensor.Scope) { // with torch.device("cpu"):
			y := s.Ones(2, 2)
			fmt.Fprintln(w, "inside:", y.Device() == device.Device(cpu.Get()))
			err := tensor.Try(func() { x.Add(y) })
			mixed := x.Device() != y.Device()
			fmt.Fprintln(w, "an error where the devices differ:", mixed == errors.Is(err, tensor.ErrDevice))
			fmt.Fprintln(w, "moved:", x.Add(y.To(dev)).Sum().Item())
		}, tensor.On(cpu.Get()))
		fmt.Fprintln(w, "outside:", x.Device() == dev, s.Device() == dev)
	}, tensor.On(dev))
	return nil
}
