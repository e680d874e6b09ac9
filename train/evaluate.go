package train

import (
	"context"
	"fmt"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Evaluate returns the mean loss of c's model over a loader's batches, as "loss". It also returns
// the values of c's metrics, which it first resets. It uses only these fields of c: Model, Forward,
// Loss, Compute, Metrics, Device, Generator, Autocast, TF32 and Log. Log shows the progress: a bar
// on a terminal, and elsewhere a line every ten seconds. A batch that does not fit into memory is
// evaluated in parts. During the call the model is in evaluation mode, and afterwards in training
// mode.
func Evaluate(ctx context.Context, c Config, l Loader) (map[string]float64, error) {
	if err := checkModel(c.Model); err != nil {
		return nil, err
	}
	if c.Device == nil {
		params := nn.Parameters(c.Model)
		if len(params) == 0 {
			return nil, &Error{"Device", "it is not given, and the model has no parameters to tell it"}
		}
		c.Device = params[0].Device()
	}
	if c.Generator == nil {
		c.Generator = tensor.Root().Generator()
	}
	if c.Compute == nil && c.Forward == nil {
		m, ok := c.Model.(nn.Module)
		if !ok {
			return nil, &Error{"Forward", fmt.Sprintf("a %T has no method Forward(x); set Forward or Compute", c.Model)}
		}
		c.Forward = m.Forward
	}
	if c.Loss == nil {
		c.Loss, c.plain = func(output, target *tensor.Tensor) *tensor.Tensor { return nn.CrossEntropy(output, target) }, true
	}
	var out map[string]float64
	var failed error
	var bar *Progress
	if c.Log != nil {
		bar = NewProgress(c.Log)
		defer bar.Done()
	}
	if err := tensor.Try(func() { out, failed = c.evaluate(ctx, l, bar) }); err != nil {
		return nil, err
	}
	return out, failed
}

const noBatches = "the loader gave no batches in an epoch: its dataset is empty, or smaller than a batch that DropLast leaves out"

// evaluate does the same as Evaluate and shows its progress on bar, which may be nil.
func (c *Config) evaluate(ctx context.Context, l Loader, bar *Progress) (map[string]float64, error) {
	nn.Eval(c.Model)
	defer nn.Train(c.Model)
	mean, most := NewMean("loss"), 0
	for _, m := range c.Metrics {
		m.Reset()
	}
	any, done := false, 0
	var part *Progress
	if bar != nil {
		part = bar.part()
		defer func() { bar.width = part.width }()
	}
	for b, err := range l.Batches() {
		if err != nil {
			return nil, err
		}
		any = true
		if ctx.Err() != nil {
			b.Free()
			return nil, fmt.Errorf("train: the evaluation was interrupted: %w", context.Cause(ctx))
		}
		measured := false
		if c.team != nil {
			if measured, err = c.team.measure(b, mean); err != nil {
				c.team.free(b)
				return nil, err
			}
		}
		if measured {
			b.Free()
		} else if most, err = c.measure(b, most, mean); err != nil {
			return nil, err
		}
		if done++; part != nil {
			part.update(done, max(l.Len(), 0), "evaluation")
		}
	}
	if !any {
		return nil, &Error{"Valid", noBatches}
	}
	out := map[string]float64{"loss": mean.Value()}
	mean.Reset()
	for _, m := range c.Metrics {
		out[m.Name()] = m.Value()
	}
	return out, nil
}
