package autograd

import (
	"github.com/flambeau-go/flambeau/shape"
	"github.com/flambeau-go/flambeau/tensor"
)

// Jacobian returns, for each input, the derivatives of f's result with respect to that input. Each
// element of the slice has the result's shape followed by the shape of its input. The element for
// an integer input is nil. f runs once; each element of f's result needs a backward pass.
func Jacobian(f func(x []*tensor.Tensor) *tensor.Tensor, inputs []*tensor.Tensor) []*tensor.Tensor {
	return withLeaves("jacobian", inputs, func(leaves, wanted []*tensor.Tensor) []*tensor.Tensor {
		return spread(leaves, rows("jacobian", result("jacobian", f, leaves), wanted))
	})
}

// rows returns the derivatives of y with respect to each of inputs. It makes a backward pass for
// each element of y.
func rows(op string, y *tensor.Tensor, inputs []*tensor.Tensor) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(inputs))
	for k, x := range inputs {
		if y.Rank()+x.Rank() > shape.MaxRank {
			misuse(op, tensor.ErrShape, "derivatives of shape %v by shape %v would have %d dimensions, at most %d are supported", y.Shape(), x.Shape(), y.Rank()+x.Rank(), shape.MaxRank)
		}
		out[k] = y.Scope().On(x.Device()).Typed(x.Type()).Zeros(append([]int{y.Size()}, x.Shape().Slice()...)...)
	}
	if y.NeedsGrad() {
		flat := y.Reshape(-1)
		for i := range y.Size() {
			y.Scope().Do(func(s *tensor.Scope) {
				g := tensor.Gradients(flat.In(s).Select(0, i), inputs, tensor.RetainGraph(), tensor.AllowUnused())
				for k, d := range g {
					if d != nil {
						out[k].In(s).Detach().Select(0, i).Copy(d)
					}
				}
			})
		}
	}
	for k, x := range inputs {
		out[k] = out[k].Reshape(append(y.Shape().Slice(), x.Shape().Slice()...)...)
	}
	return out
}

// Hessian returns the second derivatives of f's result, a scalar. Element [i][j] holds the
// derivatives with respect to input i and input j. Its shape is the shape of input i followed by
// that of input j. The element is nil if input i or j is of integer type. Each element of the
// inputs needs a backward pass.
func Hessian(f func(x []*tensor.Tensor) *tensor.Tensor, inputs []*tensor.Tensor) [][]*tensor.Tensor {
	n := len(inputs)
	flat := withLeaves("hessian", inputs, func(leaves, wanted []*tensor.Tensor) []*tensor.Tensor {
		y := result("hessian", f, leaves)
		scalar("hessian", y)
		g := make([]*tensor.Tensor, len(wanted))
		if y.NeedsGrad() {
			g = tensor.Gradients(y, wanted, tensor.CreateGraph(), tensor.AllowUnused())
		}
		for i, d := range g {
			if d == nil {
				g[i] = wanted[i].Detach().ZerosLike()
			}
		}
		var out []*tensor.Tensor
		for _, d := range spread(leaves, g) {
			if d == nil {
				out = append(out, make([]*tensor.Tensor, n)...)
				continue
			}
			out = append(out, spread(leaves, rows("hessian", d, wanted))...)
		}
		return out
	})
	h := make([][]*tensor.Tensor, n)
	for i := range h {
		h[i] = flat[i*n : (i+1)*n]
	}
	return h
}
