package models_test

import (
	"bytes"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// For every kind of model, a step with checkpointing is bitwise equal to a step without it, and its
// peak memory is much lower.
func TestCheckpointing(t *testing.T) {
	type model struct {
		m     any
		parts int
		loss  func(s *tensor.Scope) *tt
	}
	// modelsOf returns models of the given size. The test trains the small ones. For large ones it
	// only measures the memory.
	modelsOf := func(s *tensor.Scope, layers, width, batch, length, image int) map[string]model {
		in := nn.In(s)
		tokens := s.Typed(dtype.I64).Zeros(batch, length)
		pixels := s.Zeros(batch, 3, image, image).AddScalar(0.5)
		gpt := models.NewGPT(models.GPTConfig{Vocab: 40, Context: length, Layers: layers, Heads: 2, Width: width, Dropout: 0.1}, in)
		bert := models.NewBERT(models.BERTConfig{Vocab: 40, Context: length, Layers: layers, Heads: 2, Width: width, Dropout: 0.1}, in)
		vit := models.NewViT(models.ViTConfig{Image: image, Patch: 8, Layers: layers, Heads: 2, Width: width, Classes: 10, Dropout: 0.1}, in)
		sizes := make([]int, 2*layers)
		for i := range sizes {
			sizes[i] = width
		}
		mlp := models.NewMLP(sizes, 0.1, in)
		resnet := models.ResNet18(10, 3, in)
		return map[string]model{
			"gpt": {gpt, layers, func(s *tensor.Scope) *tt { return gpt.Loss(tokens.In(s), tokens.In(s)) }},
			"bert": {bert, layers, func(s *tensor.Scope) *tt {
				return bert.Features(tokens.In(s), models.BERTInput{Mask: s.Ones(batch, length).Cast(dtype.Bool)}).Square().Mean()
			}},
			"mlp":    {mlp, 1, func(s *tensor.Scope) *tt { return mlp.Forward(s.Ones(64*batch, width)).Square().Mean() }},
			"vit":    {vit, layers, func(s *tensor.Scope) *tt { return vit.Forward(pixels.In(s)).Square().Mean() }},
			"resnet": {resnet, 12, func(s *tensor.Scope) *tt { return resnet.Forward(pixels.In(s)).Square().Mean() }},
		}
	}
	gpus, err := cuda.Emulate("emulate,mode=meta,mem=16GiB")
	if err != nil {
		t.Fatal(err)
	}
	tensor.Do(func(s *tensor.Scope) {
		for name, c := range modelsOf(s, 2, 8, 2, 6, 16) {
			step := func() (bits []byte) {
				s.Generator().SetState(7, 0)
				nn.ZeroGrad(c.m)
				s.Do(func(s *tensor.Scope) {
					loss := c.loss(s)
					loss.Backward()
					bits = loss.Bytes()
				})
				for _, p := range nn.Parameters(c.m) {
					if p.Grad() != nil {
						bits = append(bits, p.Grad().Bytes()...)
					}
				}
				return bits
			}
			want := step()
			if n := nn.SetCheckpointing(c.m, true); n != c.parts {
				t.Errorf("%s: %d parts know how, not %d", name, n, c.parts)
			}
			if !bytes.Equal(step(), want) {
				t.Errorf("%s: not the same bits", name)
			}
		}
	})
	dev := gpus[0]
	tensor.Do(func(s *tensor.Scope) {
		for name, c := range modelsOf(s, 12, 64, 8, 64, 64) {
			peak := func() int {
				nn.ZeroGrad(c.m)
				before := dev.Stats().Allocated
				dev.ResetPeak()
				s.Do(func(s *tensor.Scope) { c.loss(s) })
				return dev.Stats().AllocatedPeak - before
			}
			peak()
			plain := peak()
			nn.SetCheckpointing(c.m, true)
			less, most := peak(), plain/3
			switch name {
			// Even without checkpointing, an MLP keeps little for its gradients: the result of each
			// layer's activation.
			case "mlp":
				most = plain / 2
			case "resnet": // half of its memory belongs to the layers before the blocks
				most = plain * 3 / 4
			}
			if less > most {
				t.Errorf("%s: %d bytes with checkpointing, %d without", name, less, plain)
			} else {
				t.Logf("%s: %d bytes with checkpointing, %d without", name, less, plain)
			}
		}
	}, tensor.On(dev))
}
