// Package initial sets parameters to their first values, in place and without a graph. Numbers are drawn from the generator of the
// tensor's scope.
package initial

import (
	"math"

	"github.com/flambeau-go/flambeau/tensor"
)

// Bound returns 1/√fan, 0 for a fan of 0: torch's default bound for a bias.
func Bound(fan int) float64 {
	if fan <= 0 {
		return 0
	}
	return 1 / math.Sqrt(float64(fan))
}

// LeakyGain returns the gain √(2/(1+a²)) of a leaky ReLU of negative slope a; LeakyGain(0) is ReLU's (He et al., arXiv:1502.01852).
func LeakyGain(a float64) float64 { return math.Sqrt(2 / (1 + a*a)) }

// fans returns the number of inputs and outputs of a weight [out, in, ...].
func fans(w *tensor.Tensor) (in, out int) {
	s := w.Shape()
	if s.Rank() < 2 {
		return s.Size(), s.Size()
	}
	field := s.Tail(2).Size()
	return s.At(1) * field, s.At(0) * field
}

// Uniform draws from [lo, hi).
func Uniform(w *tensor.Tensor, lo, hi float64) { w.UniformInPlace(lo, hi) }

// Normal draws from the normal distribution.
func Normal(w *tensor.Tensor, mean, std float64) { w.NormalInPlace(mean, std) }

// TruncNormal draws from the normal distribution confined to [lo, hi]; torch's defaults are mean 0, deviation 1 and ±2.
func TruncNormal(w *tensor.Tensor, mean, std, lo, hi float64) {
	w.TruncNormalInPlace(mean, std, lo, hi)
}

// Constant sets every element to v.
func Constant(w *tensor.Tensor, v float64) { noGrad(w, func(w *tensor.Tensor) { w.Fill(v) }) }

// KaimingUniform draws from ±gain·√(3/fan in).
func KaimingUniform(w *tensor.Tensor, gain float64) {
	in, _ := fans(w)
	b := gain * math.Sqrt(3) * Bound(in)
	Uniform(w, -b, b)
}

// KaimingNormal draws from the normal distribution of standard deviation gain/√fan in.
func KaimingNormal(w *tensor.Tensor, gain float64) {
	in, _ := fans(w)
	Normal(w, 0, gain*Bound(in))
}

// XavierUniform draws from ±gain·√(6/(fan in + fan out)) (X. Glorot, Y. Bengio, 2010).
func XavierUniform(w *tensor.Tensor, gain float64) {
	in, out := fans(w)
	b := gain * math.Sqrt(6) * Bound(in+out)
	Uniform(w, -b, b)
}

func noGrad(w *tensor.Tensor, f func(*tensor.Tensor)) {
	w.Scope().Do(func(s *tensor.Scope) { f(w.In(s)) }, tensor.NoGrad())
}
