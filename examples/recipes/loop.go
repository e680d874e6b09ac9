package main

import (
	"fmt"
	"io"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// loop is the training loop of PyTorch's tutorials: it trains for an epoch, and then measures the
// test set in evaluation mode, without a graph.
func loop(dev device.Device, w io.Writer) error {
	set, err := digits.Load()
	if err != nil {
		return err
	}
	train, test := set.Split()
	batches, err := data.NewLoader(train, data.Config{Batch: 64, Shuffle: true, Device: dev})
	if err != nil {
		return err
	}
	held, err := data.NewLoader(test, data.Config{Batch: 256, Device: dev})
	if err != nil {
		return err
	}
	model := classifier(dev)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 0.01})
	for epoch := range 2 {
		nn.Train(model)
		for batch, err := range batches.Batches() {
			if err != nil {
				return err
			}
			tensor.Do(func(s *tensor.Scope) {
				loss := nn.CrossEntropy(model.Forward(s.From(batch.X)), s.From(batch.Y))
				loss.Backward()
				opt.Step()
				opt.ZeroGrad()
			}, tensor.On(dev))
		}
		nn.Eval(model)
		right := 0.0
		for batch, err := range held.Batches() {
			if err != nil {
				return err
			}
			tensor.Do(func(s *tensor.Scope) { // with torch.no_grad():
				classes := model.Forward(s.From(batch.X)).Argmax(-1)
				right += classes.Eq(s.From(batch.Y)).Sum().Item()
			}, tensor.On(dev), tensor.NoGrad())
		}
		fmt.Fprintf(w, "epoch %d: %.0f %% right\n", epoch+1, 100*right/float64(test.Len()))
	}
	return nil
}
