package models_test

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// autocastModels returns small models. Each has its own loss.
func autocastModels(s *tensor.Scope) map[string]struct {
	model any
	loss  func(c *tensor.Scope) *tt
} {
	type entry = struct {
		model any
		loss  func(c *tensor.Scope) *tt
	}
	in := nn.In(s)
	gpt := models.NewGPT(models.GPTConfig{Vocab: 40, Context: 16, Layers: 2, Heads: 2, Width: 32}, in)
	bert := models.NewMaskedLM(models.BERTConfig{Vocab: 40, Context: 16, Layers: 2, Heads: 2, Width: 32}, in)
	resnet := models.NewResNet(models.ResNetConfig{Blocks: [4]int{1, 1, 1, 1}, Bottleneck: true, Classes: 10, Width: 8}, in)
	vit := models.NewViT(models.ViTConfig{Image: 16, Patch: 4, Layers: 2, Heads: 2, Width: 32, Classes: 10}, in)
	ids, labels := s.RandInt(0, 40, 3, 16), s.RandInt(0, 40, 3, 16)
	images, classes := s.Randn(4, 3, 16, 16), s.RandInt(0, 10, 4)
	return map[string]entry{
		"GPT": {gpt, func(c *tensor.Scope) *tt { return gpt.Loss(ids.In(c), labels.In(c)) }},
		"BERT": {bert, func(c *tensor.Scope) *tt {
			return nn.CrossEntropy(bert.Forward(ids.In(c)).Flatten(0, 1), labels.In(c).Flatten(0, 1))
		}},
		"ResNet": {resnet, func(c *tensor.Scope) *tt { return nn.CrossEntropy(resnet.Forward(images.In(c)), classes.In(c)) }},
		"ViT":    {vit, func(c *tensor.Scope) *tt { return nn.CrossEntropy(vit.Forward(images.In(c)), classes.In(c)) }},
	}
}

// The models can be trained under autocast: losses are near those in float32, and every parameter
// gets a finite float32 gradient.
func TestModelsUnderAutocast(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for name, m := range autocastModels(s) {
			want := 0.0
			for _, low := range []dtype.Type{dtype.Invalid, dtype.BF16, dtype.F16} {
				s.Do(func(c *tensor.Scope) {
					loss := m.loss(c)
					loss.Backward()
					got := loss.Item()
					if low == dtype.Invalid {
						want = got
					}
					if math.Abs(got-want) > map[dtype.Type]float64{dtype.BF16: 0.03, dtype.F16: 0.005}[low]*want || loss.Type() != dtype.F32 {
						t.Errorf("%s under autocast to %v: the loss is %v %v, in float32 %v", name, low, got, loss.Type(), want)
					}
					for _, p := range nn.NamedParameters(m.model) {
						if g := p.Tensor.Grad(); g == nil || g.Type() != dtype.F32 || g.Detach().IsFinite().All().Item() != 1 {
							t.Errorf("%s under autocast to %v: the gradient of %s is %v", name, low, p.Name, g)
						}
					}
					nn.ZeroGrad(m.model)
				}, tensor.Autocast(low))
			}
		}
	}, tensor.Seed(1))
}

// Under autocast, the tensors saved for the gradients need less memory.
func TestAutocastMemory(t *testing.T) {
	gpus, err := cuda.Emulate("emulate,mode=meta,mem=16GiB")
	if err != nil {
		t.Fatal(err)
	}
	dev := gpus[0]
	tensor.Do(func(s *tensor.Scope) {
		m := models.ResNet50(1000, 3, nn.In(s))
		g := models.NewGPT(models.GPTConfig{Vocab: 1000, Context: 256, Layers: 6, Heads: 8, Width: 512}, nn.In(s))
		x, ids := s.Zeros(8, 3, 224, 224), s.Typed(dtype.I64).Zeros(8, 256)
		for name, loss := range map[string]func(c *tensor.Scope) *tt{
			"ResNet-50": func(c *tensor.Scope) *tt { return m.Forward(x.In(c)).Sum() },
			"GPT":       func(c *tensor.Scope) *tt { return g.Loss(ids.In(c), ids.In(c)) },
		} {
			var peak [2]int
			for k, low := range []dtype.Type{dtype.Invalid, dtype.BF16} {
				before := dev.Stats().Allocated
				dev.ResetPeak()
				s.Do(func(c *tensor.Scope) {
					loss(c).Backward()
					nn.ZeroGrad(m)
					nn.ZeroGrad(g)
				}, tensor.Autocast(low))
				st := dev.Stats()
				if peak[k] = int(st.AllocatedPeak - before); st.Allocated != before {
					t.Errorf("%s under autocast to %v: %d bytes stay", name, low, st.Allocated-before)
				}
			}
			t.Logf("%s: a peak of %d MiB, in float32 %d MiB", name, peak[1]>>20, peak[0]>>20)
			if 10*peak[1] > 8*peak[0] {
				t.Errorf("%s: a peak of %d MiB, in float32 %d MiB", name, peak[1]>>20, peak[0]>>20)
			}
		}
	}, tensor.On(dev))
}
