package train

import (
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// measure evaluates a batch on all ranks. It returns done as false if the batch cannot be
// distributed, or if a device lacks memory for its part. The first device must then evaluate the
// batch alone, in parts.
func (t *team) measure(b *data.Batch, mean *MeanMetric) (done bool, err error) {
	a, c, n := t.t.adapt, &t.t.c, len(b.Index)
	ranks := 1
	if n > 1 {
		ranks = a.ranks(b, n)
	}
	if ranks == 1 {
		return false, nil
	}
	j := t.plan(b, n, ranks, 1, 1)
	j.measured = true
	outcomes, err := t.run(j)
	defer func() {
		for _, o := range outcomes {
			for _, x := range [...]*tensor.Tensor{o.output, o.target, o.loss} {
				if x != nil {
					x.Free()
				}
			}
		}
	}()
	if err != nil {
		return false, err
	}
	for _, o := range outcomes {
		if o.err != nil {
			c.Device.Empty()
			return false, nil
		}
	}
	t.again = false
	opts := append([]tensor.Option{tensor.On(c.Device), tensor.NoGrad()}, c.modes()...)
	for _, o := range outcomes {
		lo, hi := dealt(n, ranks, o.rank)
		if lo == hi {
			continue
		}
		var unmeasured *MemoryError
		scopeOf(b).Do(func(s *tensor.Scope) {
			in := func(x *tensor.Tensor) *tensor.Tensor {
				if x == nil {
					return nil
				}
				return x.In(s)
			}
			weight := float64(hi - lo)
			add := func() { mean.Add(in(o.loss), weight) }
			if a.c.Reduction == ReductionSum {
				add = func() { mean.Add(in(o.loss).MulScalar(float64(n)/weight), weight) }
			}
			unmeasured = c.add(n, add, in(o.output), in(o.target))
		}, opts...)
		if unmeasured != nil {
			return false, unmeasured
		}
	}
	return true, nil
}

// measure evaluates the samples lo … hi-1 of a batch.
func (m *member) measure(j *job, lo, hi int, out *outcome) {
	home := m.g.Devices()[0]
	opts := append([]tensor.Option{tensor.On(m.c.Device), tensor.WithGenerator(m.c.Generator), tensor.NoGrad()}, m.c.modes()...)
	out.err = outOfMemory(func() {
		scopeOf(j.b).Do(func(s *tensor.Scope) {
			output, target, loss := m.c.computePart(s, part(s, j.b, lo, hi, j.n), j.b, j.n)
			var kept []*tensor.Tensor
			keep := func(x *tensor.Tensor) *tensor.Tensor {
				if x != nil {
					x = x.In(s).Detach().To(home) // Detach makes a handle that outlives s
					kept = append(kept, x)
				}
				return x
			}
			output, target, loss = keep(output), keep(target), keep(loss)
			s.Close(kept...)
			out.output, out.target, out.loss = output, target, loss
		}, opts...)
	})
}
