package train

import (
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// modes returns the options of the scopes in which Fit runs the model, such as autocast.
func (c *Config) modes() []tensor.Option {
	var list []tensor.Option
	if c.Autocast != dtype.Invalid {
		list = append(list, tensor.Autocast(c.Autocast))
	}
	if c.TF32 {
		list = append(list, tensor.AllowTF32())
	}
	return list
}

// measure evaluates a batch in parts of at most limit samples; 0 means the whole batch. It returns
// the number of samples that fit, as the limit for the next batch.
func (c *Config) measure(b *data.Batch, limit int, mean *MeanMetric) (int, error) {
	defer b.Free()
	n := len(b.Index)
	opts := append([]tensor.Option{tensor.On(c.Device), tensor.WithGenerator(c.Generator), tensor.NoGrad()}, c.modes()...)
	var none Adapt
	none.c.Model, none.c.Device, none.c.Keep = c.Model, c.Device, true
	again := false
	for from := 0; from < max(n, 1); {
		to := n
		if limit > 0 {
			to = min(n, from+limit)
		}
		var failed error
		var unmeasured *MemoryError
		scopeOf(b).Do(func(s *tensor.Scope) {
			var output, target, loss *tensor.Tensor
			if failed = outOfMemory(func() { output, target, loss = c.computePart(s, part(s, b, from, to, n), b, n) }); failed != nil {
				return
			}
			unmeasured = c.add(n, func() { mean.Add(loss, float64(to-from)) }, output, target)
		}, opts...)
		if unmeasured != nil {
			return 0, unmeasured
		}
		if failed == nil {
			from, again = max(to, 1), false
			continue
		}
		spared := c.spare != nil && c.spare()
		c.Device.Empty()
		// Before the part is split, it is tried again as a whole, because splitting it changes the
		// rounding of the sum.
		if spared || !again && retryMayHelp(failed) {
			again = again || !spared
			continue
		}
		again = false
		if why := indivisible(b, n); to-from < 2 || why != "" {
			e := none.memoryError("an evaluation", n, failed)
			e.Advice = e.Advice[1:]
			if why != "" {
				e.Advice = append([]string{why}, e.Advice...)
			}
			return 0, e
		}
		limit = ceil(to-from, 2)
	}
	return limit, nil
}

// add calls the function loss, which adds the loss of n samples to a mean. Then it passes output
// and target to the metrics.
func (c *Config) add(n int, loss func(), output, target *tensor.Tensor) *MemoryError {
	one := func(name string, f func()) *MemoryError {
		if outOfMemory(f) == nil {
			return nil
		}
		c.Device.Empty()
		err := outOfMemory(f)
		if err == nil {
			return nil
		}
		var none Adapt
		none.c.Model, none.c.Device, none.c.Keep = c.Model, c.Device, true
		e := none.memoryError("the metric "+name, n, err)
		e.Advice = e.Advice[1:] // the first advice is only for optimizers
		return e
	}
	if err := one("loss", loss); err != nil {
		return err
	}
	for _, m := range c.Metrics {
		if err := one(m.Name(), func() { m.Update(output, target) }); err != nil {
			return err
		}
	}
	return nil
}
