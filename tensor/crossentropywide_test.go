package tensor_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestCrossEntropyOf16BitsUnderAutocast computes the loss of 16-bit logits under autocast. Loss and
// gradient must have the same bits as those of a float32 copy of the logits.
func TestCrossEntropyOf16BitsUnderAutocast(t *testing.T) {
	bits := func(x *tensor.Tensor) (list []uint32) {
		for _, v := range tensor.Data[float32](x.Detach().Float()) {
			list = append(list, math.Float32bits(v))
		}
		return list
	}
	for _, dev := range hostAndGPU(t) {
		for _, low := range []dtype.Type{dtype.BF16, dtype.F16} {
			for name, o := range map[string]tensor.CrossEntropyOptions{"": {}, "ignored": {IgnoreIndex: new(3)}, "smoothed": {LabelSmoothing: 0.1}} {
				for _, higher := range []bool{false, true} {
					what := fmt.Sprintf("%v, %v, %q, create graph %v", dev.Name(), low, name, higher)
					tensor.Do(func(s *tensor.Scope) {
						target := s.RandInt(0, 37, 5)
						x := s.Randn(5, 37).Cast(low).Detach().RequiresGrad()
						losses, grads := [2][]uint32{}, [2][]uint32{}
						for k := range 2 {
							logits := x
							// the operand is cast first, as AutocastHigh does in other ops
							if k == 1 {
								logits = x.Cast(dtype.F32)
							}
							y := logits.CrossEntropy(target, o)
							if y.Type() != dtype.F32 {
								t.Errorf("%s: the loss is %v", what, y.Type())
							}
							options := []tensor.GradOption{tensor.GradOutput(s.Full(0.3, 5))}
							if higher {
								options = append(options, tensor.CreateGraph())
							}
							g := tensor.Gradients(y, []*tensor.Tensor{x}, options...)[0]
							if g.Type() != low {
								t.Errorf("%s: the gradient is %v", what, g.Type())
							}
							losses[k], grads[k] = bits(y), bits(g)
						}
						if !slices.Equal(losses[0], losses[1]) || !slices.Equal(grads[0], grads[1]) {
							t.Errorf("%s: losses %x and %x, gradients %x and %x", what, losses[0], losses[1], grads[0], grads[1])
						}
					}, tensor.On(dev), tensor.Autocast(low), tensor.Seed(2))
				}
			}
		}
	}
}

// TestCrossEntropyMean compares the mean of the losses with their sum divided by the number of
// targets that are not ignored. Values and gradients must have the same bits. Backward starts from
// a given gradient, or by default from 1, for which no tensor is made unless one is needed. Hooks,
// retained gradients and graphs of gradients must see the gradient as usual.
func TestCrossEntropyMean(t *testing.T) {
	bits := func(x *tensor.Tensor) []uint32 {
		var list []uint32
		for _, v := range tensor.Data[float32](x.Detach().Contiguous()) {
			list = append(list, math.Float32bits(v))
		}
		return list
	}
	ways := map[string]func(y, x *tensor.Tensor) *tensor.Tensor{
		"1": func(y, x *tensor.Tensor) *tensor.Tensor { y.Backward(); return x.Grad() },
		"given": func(y, x *tensor.Tensor) *tensor.Tensor {
			y.Backward(tensor.GradOutput(y.New().Full(0.3)))
			return x.Grad()
		},
		"twice": func(y, x *tensor.Tensor) *tensor.Tensor { y.Backward(tensor.Also(y, nil)); return x.Grad() },
		"kept": func(y, x *tensor.Tensor) *tensor.Tensor {
			y.RetainGrad()
			if y.Backward(); y.Grad() == nil || y.Grad().Item() != 1 {
				t.Errorf("the kept gradient is %v", y.Grad())
			}
			return x.Grad()
		},
		"hook": func(y, x *tensor.Tensor) *tensor.Tensor {
			y.RegisterHook(func(g *tensor.Tensor) *tensor.Tensor { return g.MulScalar(3) })
			y.Backward()
			return x.Grad()
		},
		"graph": func(y, x *tensor.Tensor) *tensor.Tensor {
			return tensor.Gradients(y, []*tensor.Tensor{x}, tensor.CreateGraph())[0]
		},
		"more than the loss": func(y, x *tensor.Tensor) *tensor.Tensor {
			y.Backward(tensor.Also(y.MulScalar(2), nil))
			return x.Grad()
		},
	}
	for _, dev := range hostAndGPU(t) {
		for _, n := range []int{1, 5, 700} {
			for name, o := range map[string]tensor.CrossEntropyOptions{"": {}, "ignored": {IgnoreIndex: new(3)}, "smoothed": {LabelSmoothing: 0.1}} {
				for way, grad := range ways {
					what := fmt.Sprintf("%v, %d rows, %q, %s", dev.Name(), n, name, way)
					tensor.Do(func(s *tensor.Scope) {
						target := s.RandInt(0, 7, n)
						from := s.Randn(n, 7)
						var losses, grads [2][]uint32
						for k := range 2 {
							x := from.Clone().RequiresGrad()
							var y *tensor.Tensor
							if o := o; k == 0 {
								o.Mean = true
								y = x.CrossEntropy(target, o)
							} else {
								y = x.CrossEntropy(target, o).Sum().Div(target.NeScalar(float64(o.Ignored())).Sum())
							}
							losses[k], grads[k] = bits(y), bits(grad(y, x))
						}
						if !slices.Equal(losses[0], losses[1]) {
							t.Errorf("%s: losses %x and %x", what, losses[0], losses[1])
						}
						if !slices.Equal(grads[0], grads[1]) {
							t.Errorf("%s: gradients differ", what)
						}
					}, tensor.On(dev), tensor.Seed(2))
				}
			}
		}
		tensor.Do(func(s *tensor.Scope) {
			x := s.Randn(4, 3).RequiresGrad()
			y := x.CrossEntropy(s.Typed(dtype.I64).Full(-100, 4), tensor.CrossEntropyOptions{Mean: true})
			if y.Backward(); !math.IsNaN(y.Item()) || x.Grad().CountNonzero().Item() != 0 {
				t.Errorf("%s: of ignored targets alone the mean is %v, its gradient %v", dev.Name(), y, x.Grad())
			}
		}, tensor.On(dev))
	}
}

// TestCrossEntropySmoothed computes gradients by one op, and again with CreateGraph, which composes
// them of several ops. Both must have the same bits.
func TestCrossEntropySmoothed(t *testing.T) {
	for _, dev := range hostAndGPU(t) {
		for _, typ := range []dtype.Type{dtype.F32, dtype.F64, dtype.BF16} {
			for _, smoothing := range []float64{0.1, 1} {
				tensor.Do(func(s *tensor.Scope) {
					target := s.RandInt(0, 37, 9)
					x := s.Randn(9, 37).Cast(typ).Detach().RequiresGrad()
					y := x.CrossEntropy(target, tensor.CrossEntropyOptions{LabelSmoothing: smoothing, IgnoreIndex: new(3)})
					g := tensor.GradOutput(s.Randn(9).Cast(typ))
					one := tensor.Gradients(y, []*tensor.Tensor{x}, g, tensor.RetainGraph())[0]
					composed := tensor.Gradients(y, []*tensor.Tensor{x}, g, tensor.CreateGraph())[0]
					if !slices.Equal(one.Bytes(), composed.Detach().Bytes()) {
						t.Errorf("%v, %v, smoothing %v: the gradients differ", dev.Name(), typ, smoothing)
					}
				}, tensor.On(dev), tensor.Seed(2))
			}
		}
	}
}
