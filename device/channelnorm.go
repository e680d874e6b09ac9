package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A ChannelNorm describes a normalisation of channels over a batch: y = (x - mean)·rstd·weight + bias with mean and biased variance v of
// all elements of a channel, in two passes, and rstd = 1/√(v + Eps).
type ChannelNorm struct {
	Eps  float64
	Zero bool // without a bias 0 is added, which makes -0 a 0
}

// ChannelNormer is satisfied by devices with fused normalisations of the channels of float32 [n, channels, inner]. All views are contiguous
// float32; those of x's shape apart, they are [channels]. Views without a buffer stand for what is absent: weight, bias.
type ChannelNormer interface {
	// ChannelNorm sets out, mean, variance and rstd.
	ChannelNorm(s Stream, out, mean, variance, rstd, x, weight, bias View, n ChannelNorm) error
	// ChannelNormGrad sets, from g, the gradient of the result, sum to Σ g and product to Σ g·z of each channel, z = (x - mean)·rstd, which are
	// the gradients of bias and weight, and dx to (g - m(g) - z·m(g·z))·rstd·weight with m the mean over a channel. Without a buffer dx is not
	// set.
	ChannelNormGrad(s Stream, dx, sum, product, g, x, mean, rstd, weight View) error
}

// CheckChannels says what is wrong with views of [n, channels, inner] and of [channels], beside their memory, "" for nothing.
func CheckChannels(whole, channels []View) string {
	x := whole[0]
	if x.Shape.Rank() != 3 || x.Size() == 0 {
		return fmt.Sprintf("shape %v, want [n, channels, inner] with elements", x.Shape)
	}
	for _, v := range append(whole[:len(whole):len(whole)], channels...) {
		if v.Buf != nil && (v.Type != dtype.F32 || !v.Contiguous()) {
			return fmt.Sprintf("%v of %v with strides %v, want contiguous float32", v.Shape, v.Type, v.Strides)
		}
	}
	for _, v := range whole[1:] {
		if v.Buf != nil && v.Shape != x.Shape {
			return fmt.Sprintf("shape %v, want %v", v.Shape, x.Shape)
		}
	}
	for _, v := range channels {
		if v.Buf != nil && v.Shape != shape.Of(x.Shape.At(1)) {
			return fmt.Sprintf("shape %v for %d channels", v.Shape, x.Shape.At(1))
		}
	}
	return ""
}

// ChannelNormWork is the work of [ChannelNormer].ChannelNorm: sum, distance, square and sum, distance, product and sum.
func ChannelNormWork(out, mean, variance, rstd, x, weight, bias View) Work {
	return Work{7 * x.Size(), bytesOf(out, mean, variance, rstd, x, weight, bias)}
}

// ChannelNormGradWork is the work of [ChannelNormer].ChannelNormGrad: sum, distance, product and sum, and for dx distance and two products
// with sums.
func ChannelNormGradWork(dx, sum, product, g, x, mean, rstd, weight View) Work {
	each := 4
	if dx.Buf != nil {
		each += 5
	}
	return Work{each * x.Size(), bytesOf(dx, sum, product, g, x, mean, rstd, weight)}
}
