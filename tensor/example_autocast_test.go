package tensor_test

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/expr"
	"github.com/flambeau-go/flambeau/tensor"
)

// Under autocast products are computed in 16 bits, and ops that need a wide range in float32. The
// parameter and its gradient stay float32.
func ExampleAutocast() {
	w := tensor.From([][]float32{{1, 2}, {3, 4}}).RequiresGrad()
	tensor.Do(func(s *tensor.Scope) {
		x := s.From([][]float32{{1, 0.5}})
		y := x.MatMul(w)
		loss := y.Exp().Sum()
		loss.Backward()
		fmt.Println(y.Type(), loss.Type(), w.Grad().Type())
	}, tensor.Autocast(dtype.BF16))
	// Output: bfloat16 float32 float32
}

// A part of a model that needs full precision switches autocast off.
func ExampleNoAutocast() {
	tensor.Do(func(s *tensor.Scope) {
		x := s.Ones(2, 2)
		s.Do(func(c *tensor.Scope) {
			fmt.Println(s.Autocast(), x.In(c).MatMul(x).Type())
		}, tensor.NoAutocast())
	}, tensor.Autocast(dtype.F16))
	// Output: float16 float32
}

// product is a custom op with an autocast class. Its operands arrive in the scope's 16-bit type,
// like those of matrix products.
type product struct{ class tensor.AutocastClass }

func (product) Name() string                     { return "product" }
func (p product) Autocast() tensor.AutocastClass { return p.class }
func (product) Forward(c *tensor.Context, in []*tensor.Tensor) *tensor.Tensor {
	c.Save(in[0], in[1])
	fmt.Print(in[0].Type(), " ")
	return in[0].MatMul(in[1])
}
func (product) VJP(c *tensor.Context, g *tensor.Tensor) []*tensor.Tensor {
	a, b := c.Saved(0), c.Saved(1)
	da := g.MatMul(b.T())
	fmt.Println(da.Type())
	return []*tensor.Tensor{da.Cast(a.Type()), a.T().MatMul(g).Cast(b.Type())}
}

// For each class the example prints the type of the operands, and the type of a product in the VJP.
// AutocastLow is torch.amp.custom_fwd with cast_inputs. AutocastWithin is custom_fwd without
// cast_inputs: the products are autocast one by one, also in custom_bwd.
func ExampleAutocastClass() {
	for _, class := range []tensor.AutocastClass{tensor.AutocastLow, tensor.AutocastHigh, tensor.AutocastWithin} {
		tensor.Do(func(s *tensor.Scope) {
			var f tensor.Function = product{class}
			w := s.Ones(2, 2).RequiresGrad()
			tensor.Apply(f, s.Ones(2, 2).RequiresGrad(), w).Sum().Backward()
		}, tensor.Autocast(dtype.BF16))
	}
	// Output:
	// bfloat16 bfloat16
	// float32 float32
	// float32 bfloat16
}

// An op that is composed of others has one class as a whole. This op is computed in float32 for
// operands of every type.
func ExampleWithAutocast() {
	distance := func(x, y *tensor.Tensor) *tensor.Tensor {
		return tensor.WithAutocast("distance", tensor.AutocastHigh, func(in []*tensor.Tensor) *tensor.Tensor {
			return in[0].Sub(in[1]).Square().Sum().Sqrt()
		}, x, y)
	}
	tensor.Do(func(s *tensor.Scope) {
		d := distance(s.Ones(4).Half(), s.Zeros(4).Half())
		fmt.Println(d.Item(), d.Type())
	}, tensor.Autocast(dtype.F16))
	// Output: 2 float32
}

// ItemLater copies a number to the host while the device continues. Here the program reads the loss
// of the previous step, without waiting for the current step.
func ExampleTensor_ItemLater() {
	var last *tensor.LateItem
	w := tensor.From([]float32{3}).RequiresGrad()
	for step := range 3 {
		tensor.Do(func(s *tensor.Scope) {
			loss := w.In(s).Square().Sum()
			if last != nil {
				fmt.Println("step", step-1, "had a loss of", last.Item())
			}
			last = loss.ItemLater()
			s.Do(func(c *tensor.Scope) { w.In(c).SubInPlace(c.Ones(1)) }, tensor.NoGrad())
		})
	}
	fmt.Println("step 2 had a loss of", last.Item())
	// Output:
	// step 0 had a loss of 9
	// step 1 had a loss of 4
	// step 2 had a loss of 1
}

// All gradients are halved in one launch, which also reports whether one of them is infinite or
// NaN. The program has one parameter.
func ExampleUpdateFinite() {
	half := expr.MustLower([]*expr.Expr{expr.X(0).Mul(expr.Param(0, dtype.F32))}, []dtype.Type{dtype.F32}, []dtype.Type{dtype.F32}, -1)
	bits := []uint64{expr.Encode(dtype.F32, 0.5)}
	tensor.Do(func(s *tensor.Scope) {
		a, b := s.From([]float32{2, 4}), s.From([]float32{6})
		groups := [][]*tensor.Tensor{{a}, {b}} // in place: each tensor is result and operand
		params, found := s.From([]int64{int64(bits[0])}), s.From(float32(0))
		tensor.UpdateFinite("halve", half, groups, groups, params, bits, found)
		fmt.Println(a.Floats(), b.Floats(), found.Item() != 0)
		b.Fill(math.Inf(1))
		tensor.UpdateFinite("halve", half, groups, groups, params, bits, found)
		fmt.Println(a.Floats(), b.Floats(), found.Item() != 0)
	})
	// Output:
	// [1 2] [3] false
	// [0.5 1] [+Inf] true
}
