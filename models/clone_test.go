package models_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// Every model can be cloned, also with checkpointing. Changing the original does not affect the
// clone.
func TestModelsAreCloned(t *testing.T) {
	r := tensor.Root()
	picture, ids, rows := r.Randn(1, 3, 32, 32), r.RandInt(0, 10, 1, 5), r.Randn(2, 8)
	for _, c := range []struct {
		m nn.Module
		x *tensor.Tensor
	}{
		{models.NewMLP([]int{8, 8, 2}, 0.1), rows},
		{models.NewCNN(1, 10), r.Randn(1, 1, 28, 28)},
		{models.NewLeNet(28, 1, 10), r.Randn(1, 1, 28, 28)},
		{models.NewResNet(models.ResNetConfig{Blocks: [4]int{1, 1, 1, 1}, Width: 4, Classes: 3, Channels: 3}), picture},
		{models.NewViT(models.ViTConfig{Image: 32, Patch: 16, Layers: 1, Heads: 2, Width: 8, Hidden: 8, Classes: 3}), picture},
		{models.NewGPT(models.GPTConfig{Vocab: 10, Context: 8, Layers: 2, Heads: 2, Width: 8}), ids},
		{models.NewMaskedLM(models.BERTConfig{Vocab: 10, Context: 8, Layers: 1, Heads: 2, Width: 8, Hidden: 8, Types: 2}), ids},
	} {
		nn.Eval(c.m)
		nn.SetCheckpointing(c.m, true)
		n := nn.Clone(c.m)
		want := c.m.Forward(c.x)
		for _, p := range nn.Named(c.m) {
			p.Tensor.Detach().Zero()
		}
		if got := n.Forward(c.x); !got.AllClose(want, 0, 0) {
			t.Errorf("%T: the clone computes something else", c.m)
		}
	}
}
