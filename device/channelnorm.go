package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// A ChannelNorm normalises the channels of X, [n, channels, inner], over a batch: Out = (X -
// Mean)·Rstd·Weight + Bias. Mean and biased Variance are those of all elements of a channel, in two
// passes. Rstd is 1/√(Variance + Eps). All views are contiguous float32; those of X's shape apart,
// they are [channels]. Weight and Bias may be absent.
type ChannelNorm struct {
	Out, Mean, Variance, Rstd, X, Weight, Bias View
	Eps                                        float64
	Zero                                       bool // without a bias 0 is added, which makes -0 a 0
}

// Name returns "channel norm".
func (*ChannelNorm) Name() string { return "channel norm" }

// Operand returns the results, then the operands.
func (o *ChannelNorm) Operand(i int) Operand {
	return nth(i, Operand{"out", &o.Out, true}, Operand{"mean", &o.Mean, true},
		Operand{"variance", &o.Variance, true}, Operand{"rstd", &o.Rstd, true},
		Operand{"x", &o.X, false}, Operand{"weight", &o.Weight, false},
		Operand{"bias", &o.Bias, false})
}

// Check compares the shapes and types.
func (o *ChannelNorm) Check() (arg, reason string) {
	return checkChannels(o, &o.X)
}

// Work counts sum, distance, square and sum, distance, product and sum.
func (o *ChannelNorm) Work() Work {
	return Work{7 * o.X.Size(), bytesOf(o.Out, o.Mean, o.Variance, o.Rstd, o.X, o.Weight, o.Bias)}
}

// Clone copies the op.
func (o *ChannelNorm) Clone() Op { c := *o; return &c }

// A ChannelNormGrad is the gradient of a [ChannelNorm], of whose result G is the gradient. With z =
// (X - Mean)·Rstd it sets, of each channel, Sum to Σ G and Product to Σ G·z, which are the
// gradients of bias and weight. It sets DX to (G - m(G) - z·m(G·z))·Rstd·Weight with m the mean
// over a channel. DX and Weight may be absent.
type ChannelNormGrad struct {
	Sum, Product, DX, G, X, Mean, Rstd, Weight View
}

// Name returns "channel norm gradient".
func (*ChannelNormGrad) Name() string { return "channel norm gradient" }

// Operand returns the results, then the operands.
func (o *ChannelNormGrad) Operand(i int) Operand {
	return nth(i, Operand{"sum", &o.Sum, true}, Operand{"product", &o.Product, true},
		Operand{"dx", &o.DX, true}, Operand{"g", &o.G, false}, Operand{"x", &o.X, false},
		Operand{"mean", &o.Mean, false}, Operand{"rstd", &o.Rstd, false},
		Operand{"weight", &o.Weight, false})
}

// Check compares the shapes and types.
func (o *ChannelNormGrad) Check() (arg, reason string) {
	return checkChannels(o, &o.X)
}

// Work counts sum, distance, product and sum, and for DX distance and two products with sums.
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

// checkChannels checks the operands: "out", "dx", "g" are of x's shape, the others of channels; dx,
// weight and bias may be absent.
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
