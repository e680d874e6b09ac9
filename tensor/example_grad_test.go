package tensor_test

import (
	"errors"
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// Backward adds the gradient to every leaf for which RequiresGrad was called.
func ExampleTensor_Backward() {
	w := tensor.From([]float32{1, 2, 3}).RequiresGrad()
	w.Square().Sum().Backward()
	fmt.Println(w.Grad())
	w.Sum().Backward() // gradients accumulate until ZeroGrad
	fmt.Println(w.Grad())
	w.ZeroGrad()
	fmt.Println(w.Grad() == nil)
	// Output:
	// tensor([2., 4., 6.])
	// tensor([3., 5., 7.])
	// true
}

// A result that is not a scalar needs a gradient to start from.
func ExampleGradOutput() {
	x := tensor.From([]float32{1, 2, 3}).RequiresGrad()
	x.Square().Backward(tensor.GradOutput(tensor.From([]float32{1, 0, 1})))
	fmt.Println(x.Grad())
	// Output:
	// tensor([2., 0., 6.])
}

// Backward frees the graph. With RetainGraph the graph stays for another Backward.
func ExampleRetainGraph() {
	x := tensor.From(3.0).RequiresGrad()
	y := x.Square()
	y.Backward(tensor.RetainGraph())
	y.Backward()
	fmt.Println(x.Grad().Item())
	err := tensor.Try(func() { y.Backward() })
	fmt.Println(err.(*tensor.Error).Msg)
	fmt.Println(err.(*tensor.Error).Hint)
	// Output:
	// 12
	// cannot go back through square: the graph was freed by an earlier Backward
	// pass RetainGraph to the first one
}

// Gradient returns a gradient instead of adding it to a leaf. With CreateGraph it can be
// differentiated again: here the first three derivatives of x⁴ at 2.
func ExampleGradient() {
	x := tensor.From(2.0).RequiresGrad()
	y := x.PowScalar(4)
	for range 3 {
		y = tensor.Gradient(y, x, tensor.CreateGraph())
		fmt.Print(y.Item(), " ")
	}
	fmt.Println()
	// Output:
	// 32 48 48
}

// One call of Gradients returns the gradients with respect to several inputs, in their order.
func ExampleGradients() {
	x, z := tensor.From([]float32{1, 2}).RequiresGrad(), tensor.From([]float32{3, 4}).RequiresGrad()
	g := tensor.Gradients(x.Mul(z).Sum(), []*tensor.Tensor{x, z})
	fmt.Println(g[0], g[1])
	// Output:
	// tensor([3., 4.]) tensor([1., 2.])
}

// Gradients also returns gradients of intermediate results. An input that the result does not
// depend on is an error, unless AllowUnused permits nil.
func ExampleAllowUnused() {
	x := tensor.From([]float32{1, 2}).RequiresGrad()
	other := tensor.From([]float32{5}).RequiresGrad()
	h := x.MulScalar(3)
	y := h.Square().Sum()
	g := tensor.Gradients(y, []*tensor.Tensor{h, other}, tensor.AllowUnused())
	fmt.Println(g[0], g[1] == nil)
	// Output:
	// tensor([ 6., 12.]) true
}

// In a scope opened with NoGrad results record no graph. Inside of it WithGrad switches recording
// on again.
func ExampleNoGrad() {
	w := tensor.Ones(2).RequiresGrad()
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([]float32{1, 2})
		fmt.Println(x.Mul(w).NeedsGrad())
		s.Do(func(s *tensor.Scope) {
			fmt.Println(s.From([]float32{1, 2}).Mul(w).NeedsGrad())
		}, tensor.WithGrad())
	}, tensor.NoGrad())
	// Output:
	// false
	// true
}

// Detach returns a value without its graph. Backward treats it as a constant.
func ExampleTensor_Detach() {
	x := tensor.From(3.0).RequiresGrad()
	x.Mul(x.Detach()).Backward() // x·3 is differentiated, not x²
	fmt.Println(x.Grad().Item())
	// Output: 3
}

// If a value that a gradient still needs is changed in place, computing the gradient is an error.
func ExampleTensor_Version() {
	x := tensor.From([]float32{1, 2}).RequiresGrad()
	y := x.Exp() // the gradient of exp needs its result
	before := y.Version()
	y.MulScalarInPlace(2)
	fmt.Println(y.Version() - before)
	err := tensor.Try(func() { y.Sum().Backward() })
	fmt.Println(err.(*tensor.Error).Msg)
	fmt.Println(errors.Is(err, tensor.ErrInPlace))
	// Output:
	// 1
	// a value needed for its gradient was modified by an in-place operation: it is at version 1, saved at version 0
	// true
}

// snake is the activation x + sin²x (L. Ziyin et al., arXiv:2006.08195), declared as a formula. Its
// gradient is derived from the formula, and it runs on every device.
var snake = tensor.Declare(&tensor.Elementwise{
	Name: "snake", Arity: 1, Result: tensor.Floating,
	Expr:   expr.X(0).Add(expr.X(0).Sin().Mul(expr.X(0).Sin())),
	Ref:    func(x, _ []float64) float64 { return x[0] + math.Pow(math.Sin(x[0]), 2) },
	Domain: [][2]float64{{-8, 8}},
})

// A declaration, such as that of snake above, is all that an elementwise op of a program needs. The
// op is differentiable and runs on every device.
func ExampleDeclare() {
	x := tensor.From([]float32{-1, 0, 1}).RequiresGrad()
	y := snake.Apply([]*tensor.Tensor{x})
	y.Sum().Backward()
	fmt.Println(y)
	fmt.Println(x.Grad()) // the gradient is 1 + sin 2x
	// Output:
	// tensor([-0.2919,  0.0000,  1.7081], grad_fn=<snake>)
	// tensor([0.0907, 1.0000, 1.9093])
}

// huber is a declared op of two operands and a run-time scalar, the width δ of the quadratic part.
var huber = tensor.Declare(&tensor.Elementwise{
	Name: "huber", Arity: 2, Result: tensor.Floating, Params: []float64{1}, Domain: [][2]float64{{-3, 3}, {-3, 3}},
	Expr: func() *expr.Expr {
		d, delta := expr.X(0).Sub(expr.X(1)).Abs(), expr.Param(0)
		return d.Lt(delta).Select(d.Mul(d).Scale(0.5), delta.Mul(d.Sub(delta.Scale(0.5))))
	}(),
	Ref: func(x, p []float64) float64 {
		d := math.Abs(x[0] - x[1])
		if d < p[0] {
			return d * d / 2
		}
		return p[0] * (d - p[0]/2)
	},
})

// Operands are broadcast to a common shape. Run-time scalars are passed to Apply, so a new value
// needs no new kernel.
func ExampleElementwise_Apply() {
	guess := tensor.From([]float32{0.5, 3, -4}).RequiresGrad()
	loss := huber.Apply([]*tensor.Tensor{guess, tensor.From(float32(0))}, 1)
	loss.Sum().Backward()
	fmt.Println(loss)
	fmt.Println(guess.Grad())
	// Output:
	// tensor([0.1250, 2.5000, 3.5000], grad_fn=<huber>)
	// tensor([ 0.5000,  1.0000, -1.0000])
}

// clipped is a Function that returns its operand and limits the gradient.
type clipped struct{ limit float64 }

func (clipped) Name() string { return "clipped" }

func (clipped) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	return in[0].Clone()
}

func (f clipped) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	return []*tensor.Tensor{g.Clamp(-f.limit, f.limit)}
}

// To write a torch.autograd.Function, define a type with three methods and call Apply.
func ExampleApply() {
	x := tensor.From([]float32{0.1, 10}).RequiresGrad()
	tensor.Apply(clipped{limit: 1}, x).Square().Sum().Backward()
	fmt.Println(x.Grad())
	// Output:
	// tensor([0.2000, 1.0000])
}

// cube is a Function that computes x³. Its Forward saves x in the Context for the gradient.
type cube struct{}

func (cube) Name() string { return "cube" }

func (cube) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	c.Save(in[0])
	return in[0].Square().Mul(in[0])
}

func (cube) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	if !c.Needs(0) {
		return []*tensor.Tensor{nil}
	}
	return []*tensor.Tensor{c.Saved(0).Square().MulScalar(3).Mul(g)}
}

// A VJP that is written with tensor ops can itself be differentiated.
func ExampleFunction() {
	x := tensor.From(2.0).RequiresGrad()
	y := tensor.Apply(cube{}, x)
	first := tensor.Gradient(y, x, tensor.CreateGraph())
	second := tensor.Gradient(first, x)
	fmt.Println(y.Item(), first.Item(), second.Item())
	// Output: 8 12 12
}
