package vision

import (
	"math"
	"math/rand/v2"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// Mixup returns λ·a + (1−λ)·b for each image a of a batch, where b is the image before it. For the
// first image, b is the last one. λ is drawn once for the batch, from Beta(alpha, alpha). x is the
// batch, floating-point numbers [N,C,H,W], and y holds its classes, int64 [N]. target has the
// classes mixed in the same way, as float32 probabilities [N, classes], which nn.CrossEntropy
// accepts. x and y do not change. Source: Zhang et al., https://arxiv.org/abs/1710.09412.
func Mixup(x, y *tensor.Tensor, classes int, alpha float64, rng *rand.Rand) (mixed, target *tensor.Tensor) {
	checkMix("mixup", x, y, alpha)
	lambda := beta(rng, alpha)
	x.Scope().Do(func(s *tensor.Scope) {
		x, y := x.In(s), y.In(s)
		mixed, target = mixWithPrevious(x, lambda), mixWithPrevious(y.OneHot(classes).Float(), lambda)
		s.Close(mixed, target)
	}, tensor.NoGrad())
	return mixed, target
}

// CutMix copies a rectangle of the previous image into each image of a batch. For the first image,
// the previous image is the last one. The rectangle has the fraction 1−λ of the image's area. Its
// part outside of the image is cut off. λ is drawn from Beta(alpha, alpha). CutMix mixes the
// targets in proportion to the copied area. Arguments and results are those of [Mixup]. Source: Yun
// et al., https://arxiv.org/abs/1905.04899.
func CutMix(x, y *tensor.Tensor, classes int, alpha float64, rng *rand.Rand) (mixed, target *tensor.Tensor) {
	checkMix("cutmix", x, y, alpha)
	if x.Dim(-1) == 0 || x.Dim(-2) == 0 {
		panic(tensor.NewError("cutmix", tensor.ErrShape, "there is nothing to cut in images without pixels", x, y))
	}
	r, lambda := cutParams(rng, x.Dim(-2), x.Dim(-1), beta(rng, alpha))
	x.Scope().Do(func(s *tensor.Scope) {
		x, y := x.In(s), y.In(s)
		mixed = x.Clone()
		if r.h > 0 && r.w > 0 {
			part := func(t *tensor.Tensor) *tensor.Tensor { return t.Narrow(-2, r.top, r.h).Narrow(-1, r.left, r.w) }
			part(mixed).Copy(part(x).Roll([]int{1}, []int{0}))
		}
		target = mixWithPrevious(y.OneHot(classes).Float(), lambda)
		s.Close(mixed, target)
	}, tensor.NoGrad())
	return mixed, target
}

func checkMix(op string, x, y *tensor.Tensor, alpha float64) {
	if x.Rank() != 4 || !x.Type().IsFloat() || y.Rank() != 1 || y.Type() != dtype.I64 || y.Dim(0) != x.Dim(0) {
		panic(tensor.NewError(op, tensor.ErrShape, "the operands are a batch of images [N,C,H,W] of floating-point numbers, and classes [N] int64", x, y))
	}
	if !(alpha > 0) || math.IsInf(alpha, 0) {
		panic(tensor.NewError(op, tensor.ErrValue, "alpha is not positive", x, y))
	}
}

// mixWithPrevious returns λ·t + (1−λ)·t', where t' is t rolled by one along the batch, and λ is
// lambda.
func mixWithPrevious(t *tensor.Tensor, lambda float64) *tensor.Tensor {
	return t.Roll([]int{1}, []int{0}).MulScalar(1 - lambda).Add(t.MulScalar(lambda))
}

// cutParams draws a rectangle whose centre is anywhere in the image. It returns the part of the
// rectangle within the image, and the new λ: the fraction of the image outside of that part.
func cutParams(rng *rand.Rand, h, w int, lambda float64) (rect, float64) {
	cx, cy := rng.IntN(w), rng.IntN(h)
	half := 0.5 * math.Sqrt(1-lambda)
	hw, hh := int(half*float64(w)), int(half*float64(h))
	x1, y1, x2, y2 := max(cx-hw, 0), max(cy-hh, 0), min(cx+hw, w), min(cy+hh, h)
	r := rect{y1, x1, y2 - y1, x2 - x1}
	return r, 1 - float64(r.h*r.w)/float64(h*w)
}

// beta draws from Beta(a, a), as X/(X+Y) with two Gamma(a) numbers X and Y. It computes with
// logarithms, which do not underflow for small a.
func beta(rng *rand.Rand, a float64) float64 {
	return 1 / (1 + math.Exp(logGamma(rng, a)-logGamma(rng, a)))
}

// logGamma draws the logarithm of a Gamma(a) number (G. Marsaglia, W. Tsang, "A simple method for
// generating gamma variables", 2000). For a < 1 it uses Gamma(a) = Gamma(a+1)·U^(1/a), where U is
// uniform.
func logGamma(rng *rand.Rand, a float64) float64 {
	more := 0.0
	if a < 1 {
		more = math.Log(1-rng.Float64()) / a
		a++
	}
	d := a - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if u := 1 - rng.Float64(); math.Log(u) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return math.Log(d*v) + more
		}
	}
}
