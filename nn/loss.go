package nn

import "github.com/flambeau-go/flambeau/tensor"

// IgnoreIndex is the target that [CrossEntropy] ignores, as in torch.
const IgnoreIndex = -100

// CrossEntropy returns the mean over the rows of logits [n, classes] of -log softmax(row)[target], with target [n] of int64
// classes. Rows whose target is [IgnoreIndex] do not count. Logits of more dimensions have their classes last here, and target the
// shape of the others.
func CrossEntropy(logits, target *tensor.Tensor) *tensor.Tensor {
	if logits.Rank() > 2 {
		logits, target = logits.Flatten(0, -2), target.Flatten(0, -1)
	}
	return logits.CrossEntropy(target, IgnoreIndex).Sum().Div(target.NeScalar(IgnoreIndex).Sum().Cast(logits.Type()))
}

// MSE returns the reduction, the mean if none is given, of (x - y)².
func MSE(x, y *tensor.Tensor, r ...Reduction) *tensor.Tensor {
	return reduce("mse_loss", x.Sub(y).Square(), r)
}
