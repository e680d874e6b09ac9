package autograd

import "github.com/flambeau-go/flambeau/tensor"

// BackwardShare calls Backward on loss·part/total, the contribution of one micro-batch to the loss
// of a batch. loss is a mean over the micro-batch. part is the number of samples of the
// micro-batch, and total is the number of samples of the batch. If the loss ignores some targets,
// do not count these targets in either number. The gradients of all micro-batches then add up to
// the gradients of the mean over the batch, for any sizes of the micro-batches. Many programs
// divide each mean by the number of micro-batches. This is right only if all micro-batches have the
// same size. A loss that is a sum needs no share: call Backward on it. An empty micro-batch adds
// nothing to the gradients. The options are those of Backward, without GradOutput.
func BackwardShare(loss *tensor.Tensor, part, total int, opts ...tensor.GradOption) {
	const op = "backward_share"
	switch {
	case loss == nil:
		misuse(op, tensor.ErrValue, "the loss is nil")
	case part < 0 || total < 1 || part > total:
		misuse(op, tensor.ErrValue, "a part of %d of %d; it lies between 0 and the total, which is positive", part, total)
	case loss.Size() != 1:
		misuse(op, tensor.ErrShape, "the loss has shape %v; it is a mean, a scalar", loss.Shape())
	case part == 0:
		return // the mean over no samples is NaN
	}
	g := loss.Detach().OnesLike().MulScalar(float64(part) / float64(total))
	defer g.Free()
	loss.Backward(append(opts[:len(opts):len(opts)], tensor.GradOutput(g))...)
}

// Accumulate computes the gradients of a batch of n samples in micro-batches of the given size. The
// last micro-batch may be smaller. Accumulate returns the batch's mean loss, in s and without a
// graph. f receives a range of indices, whose end is excluded, and returns the mean loss of the
// samples in the range. Each call of f runs in a scope of its own, which ends after the
// micro-batch's Backward, so only one micro-batch is in memory. Accumulate adds the gradients to
// the gradients of the leaves. If the loss is a mean over independent samples, the sum equals the
// gradient of the whole batch, except for rounding. Layers that mix the samples of a batch, such as
// batch normalisation in training, see only one micro-batch at a time.
func Accumulate(s *tensor.Scope, n, size int, f func(s *tensor.Scope, from, to int) *tensor.Tensor) *tensor.Tensor {
	const op = "accumulate"
	switch {
	case s == nil || f == nil:
		misuse(op, tensor.ErrValue, "the scope or the function is nil")
	case n < 1 || size < 1:
		misuse(op, tensor.ErrValue, "%d samples in micro-batches of %d; both are positive", n, size)
	}
	var mean *tensor.Tensor
	for from := 0; from < n; from += size {
		to := min(from+size, n)
		s.Do(func(c *tensor.Scope) {
			loss := f(c, from, to)
			if loss == nil {
				misuse(op, tensor.ErrValue, "the function returns nil for samples %d to %d", from, to-1)
			}
			BackwardShare(loss, to-from, n)
			share := loss.Detach().MulScalar(float64(to-from) / float64(n))
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
