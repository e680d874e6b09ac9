package main

import (
	"fmt"
	"io"

	"github.com/flambeau-go/flambeau/amp"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// mixedPrecision is the recipe for torch.autocast with torch.amp.GradScaler, with clipped
// gradients.
func mixedPrecision(dev device.Device, w io.Writer) error {
	model := classifier(dev)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 0.01})
	scaler := amp.NewGradScaler()
	var first, last float64
	tensor.Do(func(s *tensor.Scope) {
		x, y := s.Randn(64, 64), s.RandInt(0, 10, 64)
		for i := range 20 {
			s.Do(func(s *tensor.Scope) {
				// In lends x to s, and the mode of s makes products float16
				logits := model.Forward(x.In(s))
				loss := nn.CrossEntropy(logits, y)
				scaler.Scale(loss).Backward()
				scaler.Unscale(opt)
				optim.ClipGradNorm(opt.Params(), 1)
				scaler.Step(opt)
				scaler.Update()
				opt.ZeroGrad()
				if last = loss.Item(); i == 0 {
					first = last
					fmt.Fprintln(w, "logits", logits.Type(), "loss", loss.Type())
				}
			}, tensor.Autocast(dtype.F16))
		}
	}, tensor.On(dev))
	fmt.Fprintln(w, "the loss fell:", last < first/2, "scale:", scaler.Value())
	return nil
}
