package autograd

import "github.com/flambeau-go/flambeau/tensor"

// BackwardShare is Backward of loss·part/total: what one micro-batch adds to the gradients of a
// batch that is computed in pieces. loss is the mean over the part of the batch's total that the
// piece has, of whatever the mean is taken of: samples, or, where targets are ignored, those that
// are not. So the gradients of all pieces together are those of the mean over the batch, whatever
// the sizes of the pieces. Dividing each mean by the number of pieces, as is often seen, is right
// for pieces of one size only. Losses that are sums need no share: call Backward. An empty piece
// adds nothing. The options are those of Backward but GradOutput.
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
		return // a mean of nothing is NaN
	}
	g := loss.Detach().OnesLike().MulScalar(float64(part) / float64(total))
	defer g.Free()
	loss.Backward(append(opts[:len(opts):len(opts)], tensor.GradOutput(g))...)
}

// Accumulate computes the gradients of a batch of n samples in micro-batches of at most size
// samples, the last of which may be smaller, and returns the batch's mean loss, in s and without a
// graph. f is called for samples from … to-1 and returns their mean loss. It runs in a scope of its
// own, which ends with the micro-batch's Backward. So only one micro-batch is in memory. Gradients
// are added to what leaves have: those of the whole batch but for rounding, for losses that are
// means over independent samples. Layers that mix the samples of a batch, as batch normalisation
// does in training, see micro-batches.
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
