package main

import (
	"fmt"
	"io"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/profile"
	"github.com/flambeau-go/flambeau/tensor"
)

// profiler is the recipe for torch.profiler: prof.key_averages().table(sort_by="cuda_time_total"),
// with a name for a part of the program.
func profiler(dev device.Device, w io.Writer) error {
	model := classifier(dev)
	prof, err := profile.Start(profile.Options{Shapes: true})
	if err != nil {
		return err
	}
	tensor.Do(func(s *tensor.Scope) {
		nn.CrossEntropy(model.Forward(s.Randn(64, 64)), s.RandInt(0, 10, 64)).Backward()
	}, tensor.On(dev), tensor.Named("training step"))
	if err := prof.Stop(); err != nil {
		return err
	}
	table, err := prof.KeyAverages().Table(profile.SortBy("cuda_time_total"), profile.Rows(20))
	if err != nil {
		return err
	}
	fmt.Fprintln(w, table)
	return nil
}
