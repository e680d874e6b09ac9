package autograd

import "github.com/flambeau-go/flambeau/tensor"

// BackwardShare calls Backward on loss·samples/total, the contribution of one micro-batch to the
// loss of a batch. loss is a mean over the micro-batch. samples is the number of samples of the
// micro-batch, and total is the number of samples of the batch. If the loss ignores some targets,
// do not count these targets in either number. The gradients of all micro-batches then add up to
// the gradients of the mean over the batch, for any sizes of the micro-batches. Many programs
// divide each mean by the number of micro-batches. This is right only if all micro-batches have the
// same size. A loss that is a sum needs no share: call Backward on it. An empty micro-batch adds
// nothing to the gradients. The options are those of Backward, without GradOutput.
func BackwardShare(loss *tensor.Tensor, samples, total int, opts ...tensor.GradOption) {
	const op = "backward_share"
	switch {
	case loss == nil:
		misuse(op, tensor.ErrValue, "the loss is nil")
	case samples < 0 || total < 1 || samples > total:
		misuse(op, tensor.ErrValue, "a part of %d of %d; it lies between 0 and the total, which is positive", samples, total)
	case loss.Size() != 1:
		misuse(op, tensor.ErrShape, "the loss has shape %v; it is a mean, a scalar", loss.Shape())
	case samples == 0:
		return // the mean over no samples is NaN
	}
	g := loss.Detach().OnesLike().MulScalar(float64(samples) / float64(total))
	defer g.Free()
	loss.Backward(append(opts[:len(opts):len(opts)], tensor.GradOutput(g))...)
}

// Accumulate computes the gradients of a batch of n samples in micro-batches of the given size. The
// last micro-batch may be smaller. Accumulate returns the mean loss of the batch, as a tensor of s
// without a graph. f receives the range of indices start … end-1, and returns the mean loss of the
// samples in the range. Each call of f runs in a scope of its own, which ends after the
// micro-batch's Backward, so only one micro-batch is in memory. Accumulate adds the gradients to
// the gradients of the leaves. If the loss is a mean over independent samples, the sum equals the
// gradient of the whole batch, except for rounding. Layers that mix the samples of a batch, such as
// batch normalisation in training, see only one micro-batch at a time.
func Accumulate(s *tensor.Scope, n, size int, f func(s *tensor.Scope, start, end int) *tensor.Tensor) *tensor.Tensor {
	const op = "accumulate"
	switch {
	case s == nil || f == nil:
		misuse(op, tensor.ErrValue, "the scope or the function is nil")
	case n < 1 || size < 1:
		misuse(op, tensor.ErrValue, "%d samples in micro-batches of %d; both are positive", n, size)
	}
	var mean *tensor.Tensor
	for start := 0; start < n; start += size {
		end := min(start+size, n)
		s.Do(func(c *tensor.Scope) {
			loss := f(c, start, end)
			if loss == nil {
				misuse(op, tensor.ErrValue, "the function returns nil for samples %d to %d", start, end-1)
			}
			BackwardShare(loss, end-start, n)
			share := loss.Detach().MulScalar(float64(end-start) / float64(n))
			if mean != nil {
				share = share.Add(mean)
			}
			c.Close(share)
			if mean != nil {
				mean.Free()
			}
			mean = share
		})
	}
	return mean
}
