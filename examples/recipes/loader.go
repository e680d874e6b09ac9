package main

import (
	"fmt"
	"io"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// loader is the recipe for DataLoader(num_workers=2, pin_memory=True) and x.to(device,
// non_blocking=True). Two goroutines make batches. The batches are copied to the device before the
// loop needs them, through page-locked memory.
func loader(dev device.Device, w io.Writer) error {
	set, err := digits.Load()
	if err != nil {
		return err
	}
	batches, err := data.NewLoader(set, data.Config{
		Batch: 128, Shuffle: true, Seed: 1, Workers: 2, Device: dev, Pin: true,
	})
	if err != nil {
		return err
	}
	var sum float64
	for batch, err := range batches.Batches() {
		if err != nil {
			return err
		}
		tensor.Do(func(s *tensor.Scope) {
			x := s.From(batch.X) // From gives the batch to s, which frees it; In would only lend it
			sum += x.Sum().Item()
		}, tensor.On(dev))
	}
	fmt.Fprintf(w, "%d batches, ink %.1f\n", batches.Len(), sum)
	return nil
}
