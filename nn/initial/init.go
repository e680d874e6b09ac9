// Package initial sets parameters to their first values, as torch.nn.init does.
//
// Each function overwrites its tensor in place and without a graph. Use [KaimingNormal] for a
// weight before a ReLU, [XavierUniform] for a weight before a tanh, and [Constant] for a bias.
// [Gain] returns the gain of an activation, which most of the functions take.
//
// Random numbers come from the generator of the tensor's scope. A tensor on a device without
// memory, such as a parameter that nn.SkipInit made, has no values. The functions check such a
// tensor, but draw no numbers and do not change it.
package initial

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Bound returns 1/√fan, or 0 if fan is not positive: torch's default bound for a bias.
func Bound(fan int) float64 {
	if fan <= 0 {
		return 0
	}
	return 1 / math.Sqrt(float64(fan))
}

// LeakyGain returns √(2/(1+a²)), the gain of a leaky ReLU with negative slope a. LeakyGain(0) is
// ReLU's gain (He et al., arXiv:1502.01852).
func LeakyGain(a float64) float64 { return math.Sqrt(2 / (1 + a*a)) }

// A Nonlinearity is the activation that follows a layer. It is the argument of [Gain].
type Nonlinearity uint8

// These are the activations with a gain of their own. Linear is for all other activations, whose
// gain in torch is 1.
const (
	Linear    Nonlinearity = iota // gain 1, also for convolutions and sigmoid
	Tanh                          // gain 5/3
	ReLU                          // gain √2
	LeakyReLU                     // gain for slope 0.01; LeakyGain computes it for other slopes
	SELU                          // gain 3/4
)

// Gain returns the factor for the standard deviation of a layer's weights: torch's
// calculate_gain. With this factor, a layer followed by the activation f roughly preserves the
// variance.
func Gain(f Nonlinearity) float64 {
	switch f {
	case Tanh:
		return 5.0 / 3
	case ReLU:
		return LeakyGain(0)
	case LeakyReLU:
		return LeakyGain(0.01)
	case SELU:
		return 0.75
	}
	return 1
}

// A Fan selects the number by which the variance of weights is divided: the number of inputs or of
// outputs of a layer.
type Fan uint8

// FanIn, the default, keeps the variance constant from layer to layer in the forward pass. FanOut
// keeps the variance of gradients constant in the backward pass.
const (
	FanIn Fan = iota
	FanOut
)

// requireNonNil raises an error if w is nil, such as the bias of a layer without a bias.
func requireNonNil(op string, w *tensor.Tensor) {
	if w == nil {
		panic(tensor.NewError(op, tensor.ErrValue, "the parameter is nil; was the layer made without it?"))
	}
}

// fans returns the numbers of inputs and outputs of a weight [out, in, ...].
func fans(op string, w *tensor.Tensor) (in, out int) {
	requireNonNil(op, w)
	s := w.Shape()
	if s.Rank() < 2 {
		panic(tensor.NewError(op, tensor.ErrShape, fmt.Sprintf("a weight of shape %v has no number of inputs and outputs; it needs two dimensions", s), w))
	}
	field := s.Tail(2).Size()
	return s.At(1) * field, s.At(0) * field
}

func fan(op string, w *tensor.Tensor, mode []Fan) int {
	in, out := fans(op, w)
	if len(mode) > 0 && mode[0] == FanOut {
		return out
	}
	return in
}

func lacksMemory(w *tensor.Tensor) bool { return w != nil && w.Device().Info().Meta }

// Uniform fills w with values from the uniform distribution on [lo, hi).
func Uniform(w *tensor.Tensor, lo, hi float64) {
	if !lacksMemory(w) {
		w.UniformInPlace(lo, hi)
	}
}

// Normal fills w with values from the normal distribution with the given mean and standard
// deviation.
func Normal(w *tensor.Tensor, mean, std float64) {
	if !lacksMemory(w) {
		w.NormalInPlace(mean, std)
	}
}

// TruncNormal fills w with values from the normal distribution restricted to [lo, hi]. torch's
// defaults are mean 0, standard deviation 1, and the interval [-2, 2].
func TruncNormal(w *tensor.Tensor, mean, std, lo, hi float64) {
	if !lacksMemory(w) {
		w.TruncNormalInPlace(mean, std, lo, hi)
	}
}

// Constant sets every element to v.
func Constant(w *tensor.Tensor, v float64) {
	requireNonNil("constant", w)
	noGrad(w, func(w *tensor.Tensor) { w.Fill(v) })
}

// Zeros sets every element to 0.
func Zeros(w *tensor.Tensor) { Constant(w, 0) }

// Ones sets every element to 1.
func Ones(w *tensor.Tensor) { Constant(w, 1) }

// KaimingUniform draws values uniformly from ±gain·√(3/fan), where mode selects fan. The default
// mode is FanIn (He et al., arXiv:1502.01852).
func KaimingUniform(w *tensor.Tensor, gain float64, mode ...Fan) {
	b := gain * math.Sqrt(3) * Bound(fan("kaiming_uniform", w, mode))
	Uniform(w, -b, b)
}

// KaimingNormal draws values from the normal distribution with standard deviation gain/√fan, where
// mode selects fan. The default mode is FanIn.
func KaimingNormal(w *tensor.Tensor, gain float64, mode ...Fan) {
	Normal(w, 0, gain*Bound(fan("kaiming_normal", w, mode)))
}

// XavierUniform draws values uniformly from ±gain·√(6/(fan in + fan out)) (X. Glorot, Y. Bengio,
// 2010).
func XavierUniform(w *tensor.Tensor, gain float64) {
	in, out := fans("xavier_uniform", w)
	b := gain * math.Sqrt(6) * Bound(in+out)
	Uniform(w, -b, b)
}

// XavierNormal draws values from the normal distribution with standard deviation gain·√(2/(fan in +
// fan out)).
func XavierNormal(w *tensor.Tensor, gain float64) {
	in, out := fans("xavier_normal", w)
	Normal(w, 0, gain*math.Sqrt2*Bound(in+out))
}

// Eye sets a matrix to ones on the diagonal and zeros elsewhere. The matrix need not be square.
func Eye(w *tensor.Tensor) {
	requireNonNil("eye", w)
	if w.Rank() != 2 {
		panic(tensor.NewError("eye", tensor.ErrShape, fmt.Sprintf("the identity is a matrix, not of shape %v", w.Shape()), w))
	}
	noGrad(w, func(w *tensor.Tensor) { w.Zero().Diagonal(0, 0, 1).Fill(1) })
}

// Dirac makes a convolution pass its input through. The weight is [out, in/groups, ...]. Output
// channel k of each group is the group's input channel k, if both exist.
func Dirac(w *tensor.Tensor, groups int) {
	requireNonNil("dirac", w)
	s := w.Shape()
	if s.Rank() < 3 || groups < 1 || s.At(0)%groups != 0 {
		panic(tensor.NewError("dirac", tensor.ErrShape, fmt.Sprintf("the weight of a convolution of %d groups has three dimensions or more, of which the groups divide the first; this one has shape %v", groups, s), w))
	}
	noGrad(w, func(w *tensor.Tensor) {
		w.Zero()
		for s.Size() > 0 && w.Rank() > 2 {
			w = w.Select(2, w.Dim(2)/2)
		}
		out := s.At(0) / groups
		n := min(out, s.At(1))
		for g := range groups {
			if s.Size() > 0 {
				w.Narrow(0, g*out, n).Narrow(1, 0, n).Diagonal(0, 0, 1).Fill(1)
			}
		}
	})
}

// Orthogonal sets w to gain times a matrix with orthonormal rows. A weight [out, ...] counts as a
// matrix [out, rest]. If there are more rows than columns, the columns are orthonormal instead. The
// matrix is drawn uniformly from all such matrices (F. Mezzadri, arXiv:math-ph/0609050). It is the
// factor Q of the QR decomposition of a matrix of normal numbers, with each column multiplied by
// the sign of the diagonal element of R. The host computes the decomposition.
func Orthogonal(w *tensor.Tensor, gain float64) {
	requireNonNil("orthogonal", w)
	if w.Rank() < 2 {
		panic(tensor.NewError("orthogonal", tensor.ErrShape, fmt.Sprintf("the weight has at least two dimensions, not shape %v", w.Shape()), w))
	}
	if w.Size() == 0 {
		return
	}
	noGrad(w, func(w *tensor.Tensor) {
		rows := w.Dim(0)
		cols := w.Size() / rows
		t := w.Type()
		if t.Size() < 4 {
			t = dtype.F32
		}
		q, r := w.Scope().On(w.Device()).Typed(t).Randn(max(rows, cols), min(rows, cols)).QR(false)
		q = q.Mul(r.Diagonal(0, 0, 1).Sign())
		if rows < cols {
			q = q.T()
		}
		w.Copy(q.MulScalar(gain).Reshape(w.Shape().Slice()...))
	})
}

// Sparse fills a matrix from the normal distribution with mean 0 and standard deviation std. In
// each column, it then sets random elements to zero (J. Martens, 2010). Their number is the
// fraction sparsity of the column, rounded up. torch's default for std is 0.01.
func Sparse(w *tensor.Tensor, sparsity, std float64) {
	requireNonNil("sparse", w)
	if w.Rank() != 2 || !(sparsity >= 0 && sparsity <= 1) {
		panic(tensor.NewError("sparse", tensor.ErrValue, fmt.Sprintf("it needs a matrix and a share of zeros, not shape %v and %v", w.Shape(), sparsity), w))
	}
	Normal(w, 0, std)
	if zeros := int(math.Ceil(sparsity * float64(w.Dim(0)))); zeros > 0 && w.Size() > 0 {
		noGrad(w, func(w *tensor.Tensor) {
			order := w.Scope().On(w.Device()).Typed(dtype.F32).Rand(w.Dim(0), w.Dim(1)).Argsort(0, false)
			w.ScatterScalarInPlace(0, order.Narrow(0, 0, zeros), 0)
		})
	}
}

func noGrad(w *tensor.Tensor, f func(*tensor.Tensor)) {
	if lacksMemory(w) {
		return
	}
	w.Scope().Do(func(s *tensor.Scope) { f(w.In(s)) }, tensor.NoGrad())
}
