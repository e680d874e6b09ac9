package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// outOfMemory is the recipe for `except torch.cuda.OutOfMemoryError:`, followed by a smaller batch.
// It limits the device to 8 MiB more than the memory in use.
func outOfMemory(dev device.Device, w io.Writer) error {
	model := classifier(dev)
	dev.Empty()
	limited := dev.(interface{ SetMemoryLimit(bytes int) })
	limited.SetMemoryLimit(dev.Stats().Reserved + 8<<20)
	defer limited.SetMemoryLimit(0)
	for batch := 1 << 17; batch > 0; batch /= 2 {
		err := tensor.Try(func() {
			tensor.Do(func(s *tensor.Scope) {
				model.Forward(s.Zeros(batch, 64)).Square().Mean().Backward()
				nn.ZeroGrad(model)
			}, tensor.On(dev))
		})
		if errors.Is(err, device.ErrOutOfMemory) {
			dev.Empty() // torch.cuda.empty_cache()
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(w, "a smaller batch fits:", batch < 1<<17)
		return nil
	}
	return errors.New("not even one sample fits")
}
