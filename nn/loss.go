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
	Mean      Reduction = iota // their mean
	Sum                        // their sum
	None                       // nothing: the result has the elements' shape
	BatchMean                  // their sum by the size of the first dimension, torch's "batchmean"; of a scalar itself
)

// reduce applies the reduction among r, at most one, to losses that no one else has: they are freed.
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

// misuse panics with the library's error.
func misuse(op string, kind error, msg string, operands ...*tensor.Tensor) {
	panic(tensor.NewError(op, kind, msg, operands...))
}

// given refuses operands that are nil, and those that were freed or whose scope was closed.
func given(op string, operands ...*tensor.Tensor) {
	for _, x := range operands {
		if x == nil {
			misuse(op, tensor.ErrValue, "an operand is nil")
		}
		if err := tensor.Try(func() { tensor.Youngest(x) }); err != nil {
			err.(*tensor.Error).Op = op
			panic(err)
		}
	}
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

const scalarInput = "the input is a scalar, it needs a last dimension of features"

// features refuses what a layer cannot be applied to: another number of features in the last dimension of x than its weight, whose last
// dimension it is, was made for, another device, and another type where autocast does not change it.
func features(op string, x, weight *tensor.Tensor) {
	given(op, x)
	if weight == nil {
		hinted(op, tensor.ErrValue, "the layer has no weight", "its New function makes one", x)
	}
	if x.Rank() == 0 {
		misuse(op, tensor.ErrShape, scalarInput, x, weight)
	}
	if n, want := x.Dim(-1), weight.Dim(-1); n != want {
		hint := fmt.Sprintf("make the layer for %d, or check the one before it", n)
		if x.Rank() > 2 && x.Size() == x.Dim(0)*want {
			hint = "did you mean x.Flatten(1, -1)?"
		}
		hinted(op, tensor.ErrShape, fmt.Sprintf("the input has %d features in its last dimension, the layer was made for %d", n, want), hint, x, weight)
	}
	// A weight without memory is the product's to refuse, which tells of SkipInit.
	if x.Device() != weight.Device() && x.Device().Info().Meta == weight.Device().Info().Meta {
		hinted(op, tensor.ErrDevice, fmt.Sprintf("the input is on %s and the layer on %s", x.Device().Name(), weight.Device().Name()),
			"x.To(dev) or nn.Follow(model, x) moves the input, nn.To(model, dev) the model", x, weight)
	}
	if x.Type() != weight.Type() && tensor.Youngest(x, weight).Autocast() == dtype.Invalid {
		hint := "Cast the input, or the model with nn.Cast"
		switch {
		case x.Type() == dtype.F64:
			hint += "; Go's []float64 makes float64 tensors, []float32 float32"
		case !x.Type().IsFloat():
			hint = "Cast the input; indices are for nn.Embedding or OneHot"
		}
		hinted(op, tensor.ErrType, fmt.Sprintf("the input is %v and the layer %v", x.Type(), weight.Type()), hint, x, weight)
	}
}

// hinted is misuse that says how to mend it.
func hinted(op string, kind error, msg, hint string, operands ...*tensor.Tensor) {
	e := tensor.NewError(op, kind, msg, operands...)
	e.Hint = hint
	panic(e)
}

// reduceWeighted is reduce with torch's mean of weighted losses: their sum by that of the weights. nil weights are 1.
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
