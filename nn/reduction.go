package nn

import (
	"fmt"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Reduction says how a loss combines the losses of all elements into one result.
type Reduction uint8

// These are the reductions. As in torch, the default of a loss is Mean.
const (
	Mean Reduction = iota // the mean of the losses
	Sum                   // the sum of the losses
	None                  // no reduction: the result has a loss for each element
	// BatchMean is the sum of the losses divided by the size of the first dimension, torch's
	// "batchmean". A scalar loss does not change.
	BatchMean
)

// reduce applies the reduction r[0], or Mean if r is empty. It frees loss, or returns loss itself
// with None. The caller must not use loss afterwards.
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

// integers reports whether all operands have integer types. It raises an error for bools, which
// torch refuses to subtract.
func integers(op string, operands ...*tensor.Tensor) bool {
	requireUsable(op, operands...)
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

// reduceWeighted multiplies the losses by weight and reduces them. As in torch, Mean divides by the
// sum of the weights. A nil weight means that all weights are 1.
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
