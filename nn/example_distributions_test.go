package nn_test

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// The losses of this package compute what a policy needs from torch.distributions: log densities,
// entropies and divergences. The printed numbers are PyTorch's.
func Example_distributions() {
	l, a := tensor.From([]float32{1, 2, 0.5}, 1, 3), tensor.From([]int64{2})
	fmt.Printf("Categorical: log_prob %.4f, entropy %.4f\n", nn.CrossEntropy(l, a, nn.None).Neg().Item(), nn.CrossEntropy(l, l.Softmax(-1), nn.None).Item())
	q := l.MulScalar(2)
	fmt.Printf("to another:  %.4f\n", nn.KLDivLoss{LogTarget: true, Reduction: nn.None}.Forward(q.LogSoftmax(-1), l.LogSoftmax(-1)).Sum(-1).Item())

	mu, std, x := tensor.Full(1), tensor.Full(2), tensor.Full(2.5)
	logProb := (&nn.GaussianNLLLoss{Full: true, Eps: 1e-12, Reduction: nn.None}).Forward(mu, x, std.Square()).Neg()
	fmt.Printf("Normal:      log_prob %.4f, entropy %.4f\n", logProb.Item(), std.Log().AddScalar(0.5+0.5*math.Log(2*math.Pi)).Item())
	fmt.Printf("to standard: %.4f\n", mu.Square().Add(std.Square()).SubScalar(1).MulScalar(0.5).Sub(std.Log()).Item())

	b := tensor.Full(0.7)
	fmt.Printf("Bernoulli:   log_prob %.4f, entropy %.4f\n", nn.BCEWithLogits(b, tensor.Full(1), nil, nn.None).Neg().Item(), nn.BCEWithLogits(b, b.Sigmoid(), nil, nn.None).Item())
	// Output:
	// Categorical: log_prob -1.9644, entropy 0.9060
	// to another:  0.1471
	// Normal:      log_prob -1.8933, entropy 2.1121
	// to standard: 1.3069
	// Bernoulli:   log_prob -0.4032, entropy 0.6355
}
