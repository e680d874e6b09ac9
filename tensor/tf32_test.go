package tensor_test

import (
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// The constant fine is rounded to 1 in TF32, but not in float32.
const fine = 1 + 0x1p-12

// tf32Products are products of x with ones. x is [4, 16], and all its elements are the constant
// fine. An element of a result is 16·fine in float32 and 16 in TF32.
var tf32Products = map[string]func(x *tensor.Tensor) *tt{
	"matmul": func(x *tensor.Tensor) *tensor.Tensor { return x.MatMul(x.New().Typed(x.Type()).Ones(16, 8)) },
	"batches": func(x *tensor.Tensor) *tensor.Tensor {
		return x.Expand(3, 4, 16).MatMul(x.New().Typed(x.Type()).Ones(3, 16, 8))
	},
	"linear": func(x *tensor.Tensor) *tensor.Tensor {
		return x.Linear(x.New().Typed(x.Type()).Ones(8, 16), x.New().Typed(x.Type()).Zeros(8))
	},
	"linear and relu": func(x *tensor.Tensor) *tensor.Tensor {
		return x.LinearAct(x.New().Typed(x.Type()).Ones(8, 16), nil, (*tensor.Tensor).Relu)
	},
	"linearT": func(x *tensor.Tensor) *tensor.Tensor { return x.LinearT(x.New().Typed(x.Type()).Ones(16, 8), nil) },
	"einsum": func(x *tensor.Tensor) *tensor.Tensor {
		return tensor.Einsum("ij,jk->ki", x, x.New().Typed(x.Type()).Ones(16, 8))
	},
	"conv2d": func(x *tensor.Tensor) *tensor.Tensor {
		return x.Unflatten(1, 16, 1, 1).Expand(4, 16, 3, 3).Conv2d(x.New().Typed(x.Type()).Ones(8, 16, 1, 1), nil, tensor.ConvOptions{})
	},
	"conv1d of windows": func(x *tensor.Tensor) *tensor.Tensor {
		return x.Unsqueeze(1).Conv1d(x.New().Typed(x.Type()).Ones(8, 1, 16), nil, tensor.ConvOptions{})
	},
}

// all fails unless all elements of x are v.
func all(t *testing.T, what string, x *tensor.Tensor, v float64) {
	t.Helper()
	for i, got := range x.Floats() {
		if got != v {
			t.Errorf("%s: element %d is %v, want %v", what, i, got, v)
			return
		}
	}
}

// TestTF32 checks which products and convolutions use TF32: those of float32 on a GPU, in a scope
// that permits TF32 and in the children of this scope. On the CPU, for other types and without the
// permission, the results must have all bits of float32.
func TestTF32(t *testing.T) {
	dev := gpu(t, 1)
	for name, product := range tf32Products {
		for _, c := range []struct {
			name string
			dev  device.Device
			typ  dtype.Type
			want float64
			opts []tensor.Option
		}{
			{"default", dev, dtype.F32, 16 * fine, nil},
			{"tf32", dev, dtype.F32, 16, []tensor.Option{tensor.AllowTF32()}},
			{"allowed and not", dev, dtype.F32, 16 * fine, []tensor.Option{tensor.AllowTF32(), tensor.NoTF32()}},
			{"composed", dev, dtype.F32, 16, []tensor.Option{tensor.AllowTF32(), tensor.Composed()}},
			{"float64", dev, dtype.F64, 16 * fine, []tensor.Option{tensor.AllowTF32()}},
			{"processor", device.Device(nil), dtype.F32, 16 * fine, []tensor.Option{tensor.AllowTF32()}},
		} {
			opts := c.opts
			if c.dev != nil {
				opts = append(opts, tensor.On(c.dev))
			}
			tensor.Do(func(s *tensor.Scope) {
				s.Do(func(s *tensor.Scope) { all(t, name+", "+c.name, product(s.Typed(c.typ).Full(fine, 4, 16)), c.want) })
				s.Do(func(s *tensor.Scope) {
					if c.name == "tf32" {
						all(t, name+", switched off", product(s.Full(fine, 4, 16)), 16*fine)
					}
				}, tensor.NoTF32())
			}, opts...)
		}
	}
	tensor.Do(func(s *tensor.Scope) {
		s.Do(func(c *tensor.Scope) {
			if !s.TF32() || c.TF32() {
				t.Error("a scope does not say what it permits")
			}
		}, tensor.NoTF32())
	}, tensor.AllowTF32())
}

// TestTF32Gradients checks that a gradient uses tf32 if the forward op was permitted to use it. The
// mode of the scope that computes the gradient does not matter. The same holds for second
// derivatives, for a captured step and for recomputed segments.
func TestTF32Gradients(t *testing.T) {
	dev := gpu(t, 1)
	permitted := map[bool][]tensor.Option{false: {tensor.NoTF32()}, true: {tensor.AllowTF32()}}
	wants := map[bool]float64{false: 8 * fine, true: 8}
	for forward, want := range wants {
		for backward := range wants {
			tensor.Do(func(s *tensor.Scope) {
				m := s.On(dev)
				x, w, g := m.Ones(4, 16).RequiresGrad(), m.Ones(16, 8).RequiresGrad(), m.Full(fine, 4, 8)
				c := s.New(permitted[forward]...)
				y := x.In(c).MatMul(w)
				c.Close(y)
				s.Do(func(s *tensor.Scope) { y.In(s).Mul(g).Sum().Backward() }, permitted[backward]...)
				all(t, "the gradient of x", x.Grad(), want)
				all(t, "the gradient of w", w.Grad(), want/2)
			})
		}
		tensor.Do(func(s *tensor.Scope) {
			m := s.On(dev)
			x, w, g := m.Ones(4, 16).RequiresGrad(), m.Ones(16, 8).RequiresGrad(), m.Full(fine, 4, 8)
			product := func(in []*tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{in[0].MatMul(in[1])} }
			tensor.Recompute(product, x, w)[0].Mul(g).Sum().Backward()
			all(t, "computed again", x.Grad(), want)
			// The gradient of x, g·wᵀ, is itself differentiated: the gradient of w is gᵀ·1.
			dx := tensor.Gradients(x.MatMul(w).Mul(g).Sum(), []*tensor.Tensor{x}, tensor.CreateGraph())[0]
			all(t, "the second derivative", tensor.Gradients(dx.Sum(), []*tensor.Tensor{w})[0], want/2)
			// A linear layer follows an activation. The gradients of the activation's input, of the
			// weight and of the bias are checked.
			in, weight, bias := m.Ones(4, 16).RequiresGrad(), m.Ones(8, 16).RequiresGrad(), m.Zeros(8).RequiresGrad()
			in.Relu().Linear(weight, bias).Mul(g).Sum().Backward()
			all(t, "the gradient before an activation", in.Grad(), want)
			all(t, "the gradient of a weight beside that of a bias", weight.Grad(), want/2)
			all(t, "the gradient of a bias", bias.Grad(), 4*fine)
			weight.ZeroGrad()
			in.LinearT(weight.T(), bias).Mul(g).Sum().Backward()
			all(t, "the gradient of a weight by inputs", weight.Grad(), want/2)
			// These are the gradients of a 1×1 convolution with respect to its input and its
			// weight.
			image, kernel := m.Ones(2, 16, 3, 3).RequiresGrad(), m.Ones(8, 16, 1, 1).RequiresGrad()
			image.Conv2d(kernel, nil, tensor.ConvOptions{}).MulScalar(fine).Sum().Backward()
			all(t, "the gradient of an image", image.Grad(), want)
			all(t, "the gradient of a kernel", kernel.Grad(), want*18/8)
		}, permitted[forward]...)
	}
	for allowed, want := range wants {
		m := tensor.Root().On(dev)
		x, w, g := m.Ones(4, 16).RequiresGrad(), m.Ones(16, 8).RequiresGrad(), m.Full(fine, 4, 8)
		graph := capture(t, dev, func(s *tensor.Scope) { x.In(s).MatMul(w).Mul(g).Sum().Backward() }, permitted[allowed]...)
		ok(t, graph.Replay())
		all(t, "a captured step", x.Grad(), want)
		ok(t, graph.Close())
	}
}

// TestTF32UnderAutocast combines AllowTF32 with autocast. Products under autocast have 16-bit
// operands, so AllowTF32 must change no bit. Products that are not autocast must use TF32.
func TestTF32UnderAutocast(t *testing.T) {
	dev := gpu(t, 1)
	run := func(opts ...tensor.Option) (numbers []float64) {
		tensor.Do(func(s *tensor.Scope) {
			x, w, b := s.Randn(9, 24).RequiresGrad(), s.Randn(16, 24).RequiresGrad(), s.Randn(16).RequiresGrad()
			y := x.Linear(w, b)
			y.Square().Sum().Backward()
			for _, v := range []*tensor.Tensor{y.Detach(), x.Grad(), w.Grad(), b.Grad()} {
				numbers = append(numbers, v.Floats()...)
			}
		}, append(opts, tensor.On(dev), tensor.Seed(5))...)
		return numbers
	}
	low := run(tensor.Autocast(dtype.BF16))
	if !slices.Equal(low, run(tensor.Autocast(dtype.BF16), tensor.AllowTF32())) {
		t.Error("tf32 changes the numbers of autocast")
	}
	if plain := run(); slices.Equal(plain, run(tensor.AllowTF32())) || slices.Equal(plain, low) {
		t.Error("the three precisions have the same numbers")
	}
	tensor.Do(func(s *tensor.Scope) {
		s.Do(func(s *tensor.Scope) {
			x := s.Full(fine, 4, 16)
			all(t, "no autocast inside", x.MatMul(s.Ones(16, 8)), 16)
		}, tensor.NoAutocast())
	}, tensor.On(dev), tensor.Autocast(dtype.BF16), tensor.AllowTF32())
}
