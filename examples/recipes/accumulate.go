package main

import (
	"fmt"
	"io"

	"github.com/flambeau-go/flambeau/autograd"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// accumulate adds up the gradients of four parts of a batch (micro-batches). The sum is the
// gradient of the whole batch.
func accumulate(dev device.Device, w io.Writer) error {
	set, err := digits.Load()
	if err != nil {
		return err
	}
	first := make([]int, 64)
	for i := range first {
		first[i] = i
	}
	x, y, err := set.GetBatch(first)
	if err != nil {
		return err
	}
	model := classifier(dev)
	tensor.Do(func(s *tensor.Scope) {
		x, y := s.From(x), s.From(y)
		for i := 0; i < 64; i += 16 {
			loss := nn.CrossEntropy(model.Forward(x.Narrow(0, i, 16)), y.Narrow(0, i, 16))
			autograd.BackwardShare(loss, 16, 64) // (loss * 16 / 64).backward()
		}
		var parts []*tensor.Tensor
		for _, p := range nn.Parameters(model) {
			parts = append(parts, s.From(p.TakeGrad()))
		}
		nn.CrossEntropy(model.Forward(x), y).Backward()
		for i, p := range nn.Parameters(model) {
			fmt.Fprintln(w, p.Shape(), p.Grad().AllClose(parts[i], 1e-4, 1e-6))
		}
	}, tensor.On(dev))
	return nil
}
