package models_test

import (
	"slices"
	"testing"

	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// With SkipInit no model draws random numbers. Each model then computes with the weights that it
// loads.
func TestSkipInit(t *testing.T) {
	gpt := models.GPTConfig{Vocab: 7, Context: 4, Layers: 2, Heads: 2, Width: 8}
	bert := models.BERTConfig{Vocab: 7, Context: 4, Layers: 1, Heads: 2, Width: 8}
	vit := models.ViTConfig{Image: 8, Patch: 4, Layers: 1, Heads: 2, Width: 8, Classes: 3}
	ids, image := tensor.From([]int64{1, 5, 2}, 1, 3), tensor.Root().Rand(1, 3, 32, 32)
	small := tensor.Root().Rand(1, 3, 8, 8)
	for name, r := range map[string]struct {
		make  func(opts ...nn.Option) nn.Module
		input *tensor.Tensor
	}{
		"gpt":       {func(o ...nn.Option) nn.Module { return models.NewGPT(gpt, o...) }, ids},
		"bert":      {func(o ...nn.Option) nn.Module { return models.NewMaskedLM(bert, o...) }, ids},
		"sequences": {func(o ...nn.Option) nn.Module { return models.NewSequenceClassifier(bert, 3, o...) }, ids},
		"vit":       {func(o ...nn.Option) nn.Module { return models.NewViT(vit, o...) }, small},
		"resnet18":  {func(o ...nn.Option) nn.Module { return models.ResNet18(3, 3, o...) }, image},
		"resnet": {func(o ...nn.Option) nn.Module {
			return models.NewResNet(models.ResNetConfig{Blocks: [4]int{1, 1, 1, 1}, Bottleneck: true, Width: 4, Classes: 3}, o...)
		}, image},
		"cnn":   {func(o ...nn.Option) nn.Module { return models.NewCNN(3, 3, o...) }, image},
		"lenet": {func(o ...nn.Option) nn.Module { return models.NewLeNet(32, 3, 3, o...) }, image},
		"mlp":   {func(o ...nn.Option) nn.Module { return models.NewMLP([]int{32, 4}, 0.5, o...) }, image},
	} {
		from := nn.Eval(r.make())
		_, before := tensor.Root().Generator().State()
		to := nn.Eval(r.make(nn.SkipInit()))
		if _, after := tensor.Root().Generator().State(); after != before {
			t.Errorf("%s: %d numbers were drawn", name, after-before)
		}
		for _, p := range nn.NamedParameters(to) {
			if !p.Tensor.Device().Info().Meta || !p.Tensor.NeedsGrad() {
				t.Errorf("%s: %s has memory", name, p.Name)
			}
		}
		if err := nn.LoadStateDict(to, nn.StateDict(from), nn.Assign()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(to.Forward(r.input).Floats(), from.Forward(r.input).Floats()) {
			t.Errorf("%s: it computes something else", name)
		}
	}
}

// The last layer's weight of a language model is also its token table. A file that contains it
// under both names loads with nn.LoadStateDict and with the model's own LoadStateDict.
func TestTiedNamesOfLanguageModels(t *testing.T) {
	gpt := models.NewGPT(models.GPTConfig{Vocab: 7, Context: 4, Layers: 1, Heads: 2, Width: 8})
	bert := models.NewMaskedLM(models.BERTConfig{Vocab: 7, Context: 4, Layers: 1, Heads: 2, Width: 8})
	for _, m := range []any{gpt, bert} {
		sd := map[string]*tensor.Tensor{}
		for name, x := range nn.StateDict(m) {
			sd[name] = x.Clone()
		}
		for other, name := range m.(nn.Tied).TiedNames() {
			sd[other] = sd[name].Clone()
		}
		if err := nn.LoadStateDict(m, sd); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		for other := range m.(nn.Tied).TiedNames() {
			sd[other] = sd[other].AddScalar(1)
			if err := nn.LoadStateDict(m, sd); err == nil {
				t.Errorf("%T: two values for %s were taken", m, other)
			}
		}
	}
}
