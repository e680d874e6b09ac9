package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Reduction says what becomes of the losses of elements.
type Reduction uint8

// The reductions. Mean is what a loss does when none is given, as in torch.
const (
	Mean Reduction = iota // their mean
	Sum                   // their sum
	None                  // nothing: the result has the elements' shape
	// their sum by the size of the first dimension, torch's "batchmean"; of a scalar itself
	BatchMean
)

// reduce applies the reduction among r, at most one, to losses that no one else has: they are
// freed.
func reduce(op string, loss *tensor.Tensor, r []Reduction) *tensor.Tensor {
	how := Mean
	if len(r) > 1 {
		misuse(op, tensor.ErrValue, fmt.Sprintf("%d reductions; there is one", len(r)), loss)
	}
	if len(r) == 1 {
		how = r[0]
	}
	if how == None {
		return loss
	}
	defer loss.Free()
	switch how {
	case Mean:
		return loss.Mean()
	case Sum:
		return loss.Sum()
	case BatchMean:
		sum := loss.Sum()
		if loss.Rank() == 0 {
			return sum
		}
		defer sum.Free()
		return sum.DivScalar(float64(loss.Dim(0)))
	}
	misuse(op, tensor.ErrValue, fmt.Sprintf("there is no reduction %d", how), loss)
	return nil
}

// integers reports whether all operands are of integer types; bool among such is refused, as torch
// refuses to subtract it.
func integers(op string, operands ...*tensor.Tensor) bool {
	given(op, operands...)
	bools := false
	for _, x := range operands {
		if x.Type().IsFloat() {
			return false
		}
		bools = bools || x.Type() == dtype.Bool
	}
	if bools {
		hinted(op, tensor.ErrType, "is not defined for bool", "use Float", operands...)
	}
	return true
}

// reduceWeighted is reduce with torch's mean of weighted losses: their sum by that of the weights.
// nil weights are 1.
func reduceWeighted(op string, loss, weight *tensor.Tensor, r []Reduction) *tensor.Tensor {
	if weight == nil {
		return reduce(op, loss, r)
	}
	if weight.Shape() != loss.Shape() {
		misuse(op, tensor.ErrShape, fmt.Sprintf("weights have the shape of the losses, %v, not %v", loss.Shape(), weight.Shape()), loss, weight)
	}
	defer loss.Free()
	return inChild(func(c *tensor.Scope) *tensor.Tensor {
		loss := loss.In(c).Mul(weight)
		if len(r) == 0 || len(r) == 1 && r[0] == Mean {
			return loss.Sum().Div(weight.In(c).Sum())
		}
		return reduce(op, loss, r)
	}, loss, weight)
}
