package device

import (
	"fmt"

	"github.com/flambeau-go/flambeau/shape"
)

// A Norm describes a normalisation of rows: y = (x - mean)·rstd·weight + bias, with mean the row's mean and rstd = 1/√(v + Eps),
// where v is the mean square distance from the mean, in two passes. RMS takes mean as 0.
//
// Weight and bias are one value for each Inner neighbouring columns of each of Period rows, which repeat: element (r, c) has that of
// index (r mod Period · columns + c) / Inner. A layer normalisation has Period 1 and Inner 1; one of groups has Period groups, and
// Inner is the number of elements of a channel.
type Norm struct {
	Eps    float64
	RMS    bool
	Zero   bool // without a bias 0 is added, which makes -0 a 0
	Period int
	Inner  int
}

// Affine is the number of weights for rows of the given number of columns.
func (n Norm) Affine(columns int) int { return n.Period * columns / n.Inner }

// Normer is satisfied by devices with fused normalisations of the rows of rank-2 views. All views are contiguous. x, out, dx and g have
// x's type and shape [rows, columns]; mean and rstd are [rows] of x's computing type; weight and bias are [Affine(columns)] of x's type
// or its computing type. Views without a buffer stand for what is absent: mean with RMS, weight, bias.
type Normer interface {
	// Norm sets out, mean and rstd.
	Norm(s Stream, out, mean, rstd, x, weight, bias View, n Norm) error
	// NormGrad sets dx from g, the gradient of the result: rstd·(h - m(h) - z·m(h·z)) with h = g·weight, z = (x - mean)·rstd and m the
	// mean over the row, m(h) left out with RMS.
	NormGrad(s Stream, dx, g, x, mean, rstd, weight View, n Norm) error
}

// Check says what is wrong with the views of a call beside their memory, "" for nothing: matrices of x's shape and type, columns of one
// value a row, and weight and bias.
func (n Norm) Check(matrices, columns, affine []View) string {
	x := matrices[0]
	if x.Shape.Rank() != 2 || !x.Type.IsFloat() {
		return fmt.Sprintf("%v of %v, want [rows, columns] of a float type", x.Shape, x.Type)
	}
	cols := x.Shape.At(1)
	if n.Period < 1 || n.Inner < 1 || n.Period*cols%n.Inner != 0 || n.Inner > 1 && cols%n.Inner != 0 || x.Shape.At(0)%n.Period != 0 {
		return fmt.Sprintf("weights for every %d columns of %d rows do not fit shape %v", n.Inner, n.Period, x.Shape)
	}
	for _, v := range matrices {
		if v.Shape != x.Shape || v.Type != x.Type || !v.Contiguous() {
			return fmt.Sprintf("%v of %v with strides %v, want contiguous %v of %v as all", v.Shape, v.Type, v.Strides, x.Shape, x.Type)
		}
	}
	for _, v := range columns {
		if v.Shape != shape.Of(x.Shape.At(0)) || v.Type != x.Type.Compute() || !v.Contiguous() {
			return fmt.Sprintf("%v of %v for a value a row, want contiguous [%d] of %v", v.Shape, v.Type, x.Shape.At(0), x.Type.Compute())
		}
	}
	for _, v := range affine {
		if v.Shape != shape.Of(n.Affine(cols)) || v.Type != x.Type && v.Type != x.Type.Compute() || !v.Contiguous() {
			return fmt.Sprintf("weight or bias %v of %v, want contiguous [%d] of %v or %v", v.Shape, v.Type, n.Affine(cols), x.Type, x.Type.Compute())
		}
	}
	return ""
}
