package tensor_test

import (
	"bytes"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/tensor"
)

// TestBackwardWritesOverItsOwn checks which memory Backward overwrites. It may overwrite gradients
// and logits that nothing else uses. It must not overwrite the gradient that the caller passed,
// gradients that results retain or hooks keep, or tensors that have a handle.
func TestBackwardWritesOverItsOwn(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	type tt = tensor.Tensor
	for _, on := range []tensor.Option{tensor.Seed(1), tensor.On(gpus[0])} {
		tensor.Do(func(s *tensor.Scope) {
			x := s.Randn(6, 5).RequiresGrad()
			target := s.From([]int64{0, 4, 1, 1, 3, 2})
			if s.Device().Name() != "cpu" {
				target = target.To(s.Device())
			}
			same := func(what string, a, b []byte) {
				t.Helper()
				if !bytes.Equal(a, b) {
					t.Errorf("%s on %s changed", what, s.Device().Name())
				}
			}
			chain := func(s *tensor.Scope) (parts []*tt) {
				y := x.In(s)
				for _, f := range []func(x *tt) *tt{(*tt).Relu, (*tt).Exp, (*tt).Tanh, func(x *tt) *tt { return x.MulScalar(3) }, (*tt).Sigmoid} {
					y = f(y)
					parts = append(parts, y)
				}
				return parts
			}
			// The expected gradients are computed with CreateGraph, which overwrites nothing.
			var want [][]byte
			s.Do(func(s *tensor.Scope) {
				p := chain(s)
				for _, g := range tensor.Gradients(p[4], append([]*tt{x}, p[:4]...), tensor.GradOutput(p[4].OnesLike().MulScalar(2)), tensor.CreateGraph()) {
					want = append(want, g.Bytes())
				}
			})
			s.Do(func(s *tensor.Scope) {
				p := chain(s)
				seed := p[4].OnesLike().MulScalar(2)
				before := seed.Bytes()
				var hooked *tt
				p[1].RegisterHook(func(g *tt) *tt { hooked = s.From(g); return nil })
				for _, y := range p[:4] {
					y.RetainGrad()
				}
				values := p[2].Bytes()
				p[4].Backward(tensor.GradOutput(seed))
				same("the seed", seed.Bytes(), before)
				same("a value", p[2].Bytes(), values)
				same("the leaf's gradient", x.Grad().Bytes(), want[0])
				same("what a hook took", hooked.Bytes(), want[2])
				for i, y := range p[:4] {
					same("a gradient that is kept", y.Grad().Bytes(), want[i+1])
				}
				x.ZeroGrad()
			})
			s.Do(func(s *tensor.Scope) { // the intermediate results have no handles here
				y := x.In(s)
				for _, f := range []func(x *tt) *tt{(*tt).Relu, (*tt).Exp, (*tt).Tanh, func(x *tt) *tt { return x.MulScalar(3) }, (*tt).Sigmoid} {
					z := f(y)
					y.Free()
					y = z
				}
				y.Backward(tensor.GradOutput(y.OnesLike().MulScalar(2)))
				same("the leaf's gradient", x.Grad().Bytes(), want[0])
				x.ZeroGrad()
			})
			var grads [3][]byte
			for i := range grads {
				s.Do(func(s *tensor.Scope) {
					logits := x.In(s).MulScalar(2)
					loss := logits.CrossEntropy(target.In(s), tensor.CrossEntropyOptions{}).Mean()
					before := logits.Bytes()
					switch i {
					case 0:
						loss.Backward()
						same("the logits", logits.Bytes(), before)
					case 1:
						logits.Free()
						loss.Backward()
					case 2:
						logits.Free()
						loss.Backward(tensor.RetainGraph())
						x.ZeroGrad()
						loss.Backward()
					}
					grads[i] = x.Grad().Bytes()
					x.ZeroGrad()
				})
			}
			same("the gradient by way of logits", grads[0], grads[1])
			same("the gradient of a graph that was kept", grads[0], grads[2])
		}, on)
	}
}
