package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// ChannelNorm normalises the channels of X, [n, channels, inner], over a batch: Out = (X -
// Mean)·Rstd·Weight + Bias. Mean and the biased Variance are computed over all elements of a
// channel, in two passes. Rstd is 1/√(Variance + Eps). Out has X's shape. The other views have the
// shape [channels]. All views are contiguous float32. Weight and Bias may be absent.
type ChannelNorm struct {
	Out, Mean, Variance, Rstd, X, Weight, Bias View
	Eps                                        float64
	// if Bias is absent, add 0 to each element of Out; this changes -0 to 0
	Zero bool
}

// Name returns "channel norm".
func (*ChannelNorm) Name() string { return "channel norm" }

// Operand returns operand i: the results come first, then the inputs.
func (o *ChannelNorm) Operand(i int) Operand {
	return nth(i, Operand{"out", &o.Out, true}, Operand{"mean", &o.Mean, true},
		Operand{"variance", &o.Variance, true}, Operand{"rstd", &o.Rstd, true},
		Operand{"x", &o.X, false}, Operand{"weight", &o.Weight, false},
		Operand{"bias", &o.Bias, false})
}

// Check checks the shapes and types of the operands.
func (o *ChannelNorm) Check() (arg, reason string) {
	return checkChannels(o, &o.X)
}

// Work counts 7 operations for each element: a sum for Mean; a difference, a square and a sum for
// Variance; a difference, a product and a sum for Out.
func (o *ChannelNorm) Work() Work {
	return Work{7 * o.X.Size(), bytesOf(o.Out, o.Mean, o.Variance, o.Rstd, o.X, o.Weight, o.Bias)}
}

// Clone copies the op.
func (o *ChannelNorm) Clone() Op { c := *o; return &c }

// ChannelNormGrad is the gradient of a [ChannelNorm]. G is the gradient of its result. With z = (X
// - Mean)·Rstd, ChannelNormGrad sets Sum to Σ G and Product to Σ G·z, for each channel. Sum is the
// gradient of the bias, and Product is the gradient of the weight. ChannelNormGrad sets DX to (G -
// m(G) - z·m(G·z))·Rstd·Weight, where m is the mean over a channel. DX and Weight may be absent.
type ChannelNormGrad struct {
	Sum, Product, DX, G, X, Mean, Rstd, Weight View
}

// Name returns "channel norm gradient".
func (*ChannelNormGrad) Name() string { return "channel norm gradient" }

// Operand returns operand i: the results come first, then the inputs.
func (o *ChannelNormGrad) Operand(i int) Operand {
	return nth(i, Operand{"sum", &o.Sum, true}, Operand{"product", &o.Product, true},
		Operand{"dx", &o.DX, true}, Operand{"g", &o.G, false}, Operand{"x", &o.X, false},
		Operand{"mean", &o.Mean, false}, Operand{"rstd", &o.Rstd, false},
		Operand{"weight", &o.Weight, false})
}

// Check checks the shapes and types of the operands.
func (o *ChannelNormGrad) Check() (arg, reason string) {
	return checkChannels(o, &o.X)
}

// Work counts 4 operations for each element of X: a sum for the result Sum; a difference and a
// product for z; a sum for the result Product. If DX is present it counts 5 more: a difference, and
// two products, each followed by an addition.
func (o *ChannelNormGrad) Work() Work {
	each := 4
	if !o.DX.Absent() {
		each += 5
	}
	return Work{each * o.X.Size(),
		bytesOf(o.Sum, o.Product, o.DX, o.G, o.X, o.Mean, o.Rstd, o.Weight)}
}

// Clone copies the op.
func (o *ChannelNormGrad) Clone() Op { c := *o; return &c }

// checkChannels checks the operands of op. The operands named "out", "dx" and "g" must have x's
// shape, [n, channels, inner]. All other operands must have the shape [channels]. The operands
// named "dx", "weight" and "bias" may be absent.
func checkChannels(op Op, x *View) (arg, reason string) {
	if x.Shape.Rank() != 3 || x.Size() == 0 {
		return "x", fmt.Sprintf("shape %v, want [n, channels, inner] with elements", x.Shape)
	}
	for i := 0; ; i++ {
		o := op.Operand(i)
		if o.View == nil {
			return "", ""
		}
		want := shape.Of(x.Shape.At(1))
		switch o.Name {
		case "out", "dx", "g", "x":
			want = x.Shape
		}
		switch o.Name {
		case "dx", "weight", "bias":
			if o.View.Absent() {
				continue
			}
		}
		if o.View.Type != dtype.F32 || o.View.Shape != want || !o.View.Contiguous() {
			return o.Name, sparse(o.View, dtype.F32, want)
		}
	}
}
