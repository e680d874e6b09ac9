package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/shape"
)

// RowNorm describes a normalisation of rows: y = (x - mean)·rstd·weight + bias. mean is the mean of
// the row, and rstd = 1/√(v + Eps), where v is the biased variance of the row, computed in two
// passes. If RMS is set, mean is 0.
//
// Weights and biases repeat every Period rows. Inner neighbouring columns share a weight and a
// bias. The element in row r and column c uses the weight with index ((r mod Period)·columns + c) /
// Inner, rounded down. A layer normalisation has Period 1 and Inner 1. A group normalisation has
// Period groups, and Inner is the number of elements of a channel.
type RowNorm struct {
	Eps    float64
	RMS    bool
	Zero   bool // if Bias is absent, add 0 to the result; this changes -0 to 0
	Period int
	Inner  int
}

// Affine returns the number of weights for rows of the given number of columns: Period·columns /
// Inner.
func (n RowNorm) Affine(columns int) int { return n.Period * columns / n.Inner }

// Norm normalises the rows of X and sets Out, Mean and Rstd. All views are contiguous. X and Out
// have the same shape [rows, columns]. Either both have the same type, or X is float32 and Out a
// 16-bit float. In the second case the result is rounded once, as a cast rounds. Mean and Rstd have
// the shape [rows] and the type in which X is computed: float32 for 16-bit floats. Weight and Bias
// have the shape [Affine(columns)] and X's type or Mean's type. If RMS is set, Mean is absent.
// Weight and Bias may be absent.
type Norm struct {
	Out, Mean, Rstd, X, Weight, Bias View
	RowNorm
}

// Name returns "norm".
func (*Norm) Name() string { return "norm" }

// Operand returns operand i: the results come first, then the inputs.
func (o *Norm) Operand(i int) Operand {
	return nth(i, Operand{"out", &o.Out, true}, Operand{"mean", &o.Mean, true},
		Operand{"rstd", &o.Rstd, true}, Operand{"x", &o.X, false},
		Operand{"weight", &o.Weight, false}, Operand{"bias", &o.Bias, false})
}

// Check checks the shapes and types of the operands.
func (o *Norm) Check() (arg, reason string) {
	return o.check(&o.X, &o.Mean, &o.Rstd, o.Operand(0), o.Operand(4), o.Operand(5))
}

// Work counts the operations for each element: the sum for the mean, the difference from the mean,
// the square, the sum of squares, and the product with rstd. Weight and bias add one operation
// each. If RMS is set, the operations for the mean and the difference are not counted.
func (o *Norm) Work() Work {
	if o.Rstd.Size() == 0 {
		return Work{}
	}
	each := 3
	if !o.RMS {
		each += 2
	}
	if !o.Weight.Absent() {
		each++
	}
	if !o.Bias.Absent() {
		each++
	}
	return Work{each * o.X.Size(), bytesOf(o.Out, o.Mean, o.Rstd, o.X, o.Weight, o.Bias)}
}

// Clone copies the op.
func (o *Norm) Clone() Op { c := *o; return &c }

// NormGrad is the gradient of a [Norm]. G is the gradient of the norm's result. Let h = g·weight
// and z = (x - mean)·rstd, and let m(…) be the mean over the row. If RMS is set, the term m(h) is
// omitted. NormGrad sets
//
//	DX:      rstd·(h - m(h) - z·m(h·z)) + Add, where Add is another part of x's gradient
//	DWeight: the sum of g·z over the elements that share the weight
//	DBias:   the sum of g over the elements that share the bias
//
// G has the shape and type of Norm's Out. X, Mean, Rstd and Weight are the operands of Norm. DX and
// Add have the shape and type of X. DWeight and DBias have the shape [Affine(columns)] and the type
// of Mean. Any of the three results may be absent, but not all of them. Weight and Add may be
// absent. Add must be absent if DX is.
type NormGrad struct {
	DX, DWeight, DBias, G, X, Mean, Rstd, Weight, Add View
	RowNorm
}

// Name returns "norm gradient".
func (*NormGrad) Name() string { return "norm gradient" }

// Operand returns operand i: the results come first, then the inputs.
func (o *NormGrad) Operand(i int) Operand {
	return nth(i, Operand{"dx", &o.DX, true}, Operand{"dweight", &o.DWeight, true},
		Operand{"dbias", &o.DBias, true}, Operand{"g", &o.G, false}, Operand{"x", &o.X, false},
		Operand{"mean", &o.Mean, false}, Operand{"rstd", &o.Rstd, false},
		Operand{"weight", &o.Weight, false}, Operand{"add", &o.Add, false})
}

// Sums reports whether DWeight or DBias is present.
func (o *NormGrad) Sums() bool { return !o.DWeight.Absent() || !o.DBias.Absent() }

// Check checks the shapes and types of the operands.
func (o *NormGrad) Check() (arg, reason string) {
	if arg, reason := o.check(&o.X, &o.Mean, &o.Rstd, o.Operand(3), o.Operand(7)); reason != "" {
		return arg, reason
	}
	if o.DX.Absent() && !o.Sums() {
		return "dx", "all results are absent"
	}
	if o.DX.Absent() && !o.Add.Absent() {
		return "add", "there is nothing to add it to: dx is absent"
	}
	for _, i := range []int{0, 8} {
		v := o.Operand(i)
		if !v.View.Absent() && (v.View.Shape != o.X.Shape || v.View.Type != o.X.Type || !v.View.Contiguous()) {
			return v.Name, sparse(v.View, o.X.Type, o.X.Shape)
		}
	}
	want, acc := shape.Of(o.Affine(o.X.Shape.At(1))), o.X.Type.Compute()
	for _, i := range []int{1, 2} {
		v := o.Operand(i)
		if !v.View.Absent() && (v.View.Shape != want || v.View.Type != acc || !v.View.Contiguous()) {
			return v.Name, sparse(v.View, acc, want)
		}
	}
	return "", ""
}

// Work counts the operations of DX, of the products g·z, and of the sums in DWeight and DBias.
func (o *NormGrad) Work() Work {
	if o.X.Size() == 0 && !o.Sums() {
		return Work{}
	}
	each := 0
	count := func(n int, when bool) {
		if when {
			each += n
		}
	}
	dx, dw := !o.DX.Absent(), !o.DWeight.Absent()
	count(1, dx || dw)             // the product in z = (x - mean)·rstd
	count(1, (dx || dw) && !o.RMS) // the difference in z
	// h·z and its sum, z·m(h·z), the difference, the product with rstd
	count(5, dx)
	count(2, dx && !o.RMS) // the sum of h, and the subtraction of m(h)
	count(1, dx && !o.Weight.Absent())
	count(1, !o.Add.Absent())
	count(2, dw)
	count(1, !o.DBias.Absent())
	return Work{each * o.X.Size(), bytesOf(o.DX, o.DWeight, o.DBias, o.G, o.X, o.Mean, o.Rstd, o.Weight, o.Add)}
}

// Clone copies the op.
func (o *NormGrad) Clone() Op { c := *o; return &c }

// check checks X, the statistics mean and rstd, and y, which is Norm's result or its gradient. Each
// operand in affine must have one element for each weight.
func (n RowNorm) check(x, mean, rstd *View, y Operand, affine ...Operand) (arg, reason string) {
	if x.Shape.Rank() != 2 || !x.Type.IsFloat() || !x.Contiguous() {
		return "x", fmt.Sprintf("%v of %v with strides %v, want contiguous [rows, columns] of a float type",
			x.Shape, x.Type, x.Strides)
	}
	rows, cols, acc := shape.Of(x.Shape.At(0)), x.Shape.At(1), x.Type.Compute()
	if n.Period < 1 || n.Inner < 1 || n.Period*cols%n.Inner != 0 || n.Inner > 1 && cols%n.Inner != 0 ||
		x.Shape.At(0)%n.Period != 0 {
		return "x", fmt.Sprintf("weights for every %d columns of %d rows do not fit shape %v",
			n.Inner, n.Period, x.Shape)
	}
	narrow := x.Type == dtype.F32 && y.View.Type.IsHalf()
	if y.View.Shape != x.Shape || y.View.Type != x.Type && !narrow || !y.View.Contiguous() {
		return y.Name, sparse(y.View, x.Type, x.Shape)
	}
	if rstd.Shape != rows || rstd.Type != acc || !rstd.Contiguous() {
		return "rstd", sparse(rstd, acc, rows)
	}
	if !n.RMS && (mean.Shape != rows || mean.Type != acc || !mean.Contiguous()) {
		return "mean", sparse(mean, acc, rows)
	}
	for _, o := range affine {
		if v := o.View; !v.Absent() && (v.Shape != shape.Of(n.Affine(cols)) ||
			v.Type != x.Type && v.Type != acc || !v.Contiguous()) {
			return o.Name, sparse(v, acc, shape.Of(n.Affine(cols)))
		}
	}
	return "", ""
}
