package models_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// The small models learn digits in a few dozen steps, and then classify at least nine of ten unseen
// digits correctly.
func TestSmallModelsLearn(t *testing.T) {
	set, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	const train, test, batch = 1024, 256, 64
	index := make([]int, train+test)
	for i := range index {
		index[i] = i
	}
	images, labels, err := set.GetBatch(index)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		make  func(opts ...nn.Option) nn.Module
		prep  func(x *tt) *tt
		steps int
		lr    float64
	}{
		"mlp":   {func(opts ...nn.Option) nn.Module { return models.NewMLP([]int{64, 64, 10}, 0.1, opts...) }, func(x *tt) *tt { return x.Flatten(1, -1) }, 96, 1e-2},
		"cnn":   {func(opts ...nn.Option) nn.Module { return models.NewCNN(1, 10, opts...) }, func(x *tt) *tt { return x }, 32, 3e-3},
		"lenet": {func(opts ...nn.Option) nn.Module { return models.NewLeNet(28, 1, 10, opts...) }, func(x *tt) *tt { return x.Interpolate(tensor.InterpolateOptions{Size: []int{28}}) }, 48, 3e-3},
	} {
		tensor.Do(func(s *tensor.Scope) {
			m := c.make(nn.In(s))
			x := c.prep(images.In(s).Reshape(-1, 1, 8, 8).SubScalar(0.3))
			y := labels.In(s)
			opt := optim.NewAdam(nn.Parameters(m), optim.AdamConfig{LR: c.lr})
			for i := range c.steps {
				at := i * batch % train
				s.Do(func(c *tensor.Scope) {
					nn.CrossEntropy(m.Forward(x.In(c).Narrow(0, at, batch)), y.In(c).Narrow(0, at, batch)).Backward()
					opt.Step()
					opt.ZeroGrad()
				})
			}
			s.Do(func(c *tensor.Scope) {
				right := nn.Eval(m).Forward(x.In(c).Narrow(0, train, test)).Argmax(1).Eq(y.In(c).Narrow(0, train, test)).CountNonzero().Item() / test
				if t.Logf("%s: %.3f", name, right); right < 0.9 {
					t.Errorf("%s: %.3f are right", name, right)
				}
			}, tensor.NoGrad())
		}, tensor.Seed(3))
	}
}

// The vision models have the right initial values, and return results of the right shapes. Mistakes
// cause errors.
func TestVisionModels(t *testing.T) {
	tensor.Do(func(s *tensor.Scope) {
		for _, size := range []int{28, 32} {
			if y := models.NewLeNet(size, 3, 7, nn.In(s)).Forward(s.Rand(2, 3, size, size)); !slices.Equal(y.Shape().Slice(), []int{2, 7}) {
				t.Errorf("lenet of %d: %v", size, y.Shape())
			}
		}
		if n := nn.Count(models.NewLeNet(32, 1, 10, nn.In(s))); n != 61706 {
			t.Errorf("LeNet-5 has 61706 parameters, this one %d", n)
		}
		if y := models.NewCNN(2, 4, nn.In(s)).Forward(s.Rand(3, 2, 9, 4)); !slices.Equal(y.Shape().Slice(), []int{3, 4}) {
			t.Errorf("cnn: %v", y.Shape())
		}
		small := models.ViTConfig{Image: 16, Patch: 8, Layers: 2, Heads: 2, Width: 64, Classes: 3, Dropout: 0.1, AttentionDropout: 0.1}
		v := models.NewViT(small, nn.In(s))
		if v.Config.Hidden != 256 || slices.ContainsFunc(v.Forward(s.Rand(2, 3, 16, 16)).Floats(), func(l float64) bool { return l != 0 }) {
			t.Error("a new ViT has logits of 0")
		}
		for name, want := range map[string]float64{ // standard deviations of initial weights
			"conv_proj.weight": math.Sqrt(1.0 / 192), "encoder.pos_embedding": 0.02, "encoder.layers.encoder_layer_1.mlp.0.weight": math.Sqrt(2.0 / 320),
			"encoder.layers.encoder_layer_0.mlp.3.bias": 1e-6, "encoder.layers.encoder_layer_0.self_attention.in_proj_weight": math.Sqrt(2.0 / 256),
			"class_token": 0, "conv_proj.bias": 0, "encoder.layers.encoder_layer_0.self_attention.out_proj.bias": 0,
		} {
			if d := nn.StateDict(v)[name].Std(0).Item(); math.Abs(d-want) > 0.2*want {
				t.Errorf("%s has the deviation %v, want %v", name, d, want)
			}
		}
		r := models.NewResNet(models.ResNetConfig{Blocks: [4]int{1, 1, 1, 1}, Width: 16}, nn.In(s))
		if d := r.Conv1.Weight.Detach().Std(0).Item(); math.Abs(d-math.Sqrt(2.0/(16*49))) > 0.005 || r.Config.Classes != 1000 {
			t.Errorf("the first convolution has the deviation %v", d)
		}
		// The model's scope is inside the images' scope, and a hook keeps the result of a stage.
		x := s.Rand(1, 3, 32, 32)
		s.Do(func(c *tensor.Scope) {
			r := models.NewResNet(models.ResNetConfig{Blocks: [4]int{1, 1, 1, 1}, Width: 4, Classes: 2}, nn.In(c))
			var seen *tt
			r.Layer2.RegisterForwardHook(func(_, y *tt) *tt { seen = y; return nil })
			if y := nn.Eval(r).Forward(x); y.Scope() != c || seen.Shape().String() != "[1, 8, 4, 4]" || len(seen.Floats()) != 128 {
				t.Errorf("%v, seen %v", y, seen)
			}
			vit := models.NewViT(small, nn.In(c))
			if y := vit.Forward(s.Rand(1, 3, 16, 16)); y.Scope() != c {
				t.Error(y.Scope())
			}
		})
		for says, f := range map[string]func(){
			"images of [n, 3, 16, 16]": nil,
			"1 sizes":                  func() { models.NewMLP([]int{3}, 0) },
			"size 1 is 0":              func() { models.NewMLP([]int{3, 0}, 0) },
			"1.5 is not a probability": func() { models.NewMLP([]int{3, 2}, 1.5) },
			"the size is 28 or 32":     func() { models.NewLeNet(29, 1, 10) },
			"0 channels and 10":        func() { models.NewCNN(0, 10) },
			"are not all positive":     func() { models.NewResNet(models.ResNetConfig{Blocks: [4]int{1, 1, 0, 1}}) },
			"patches of 7×7":           func() { models.NewViT(models.ViTConfig{Image: 16, Patch: 7, Layers: 1, Heads: 1, Width: 8}) },
			"shared by 3 heads":        func() { models.NewViT(models.ViTConfig{Image: 16, Patch: 8, Layers: 1, Heads: 3, Width: 8}) },
			"is not positive":          func() { models.NewViT(models.ViTConfig{Image: 16, Patch: 8, Heads: 1, Width: 8}) },
			"probabilities of dropout": func() {
				models.NewViT(models.ViTConfig{Image: 16, Patch: 8, Layers: 1, Heads: 1, Width: 8, Dropout: -1})
			},
		} {
			if f == nil {
				for _, x := range []*tt{s.Rand(1, 3, 16, 8), s.Rand(3, 16, 16), nil} {
					if err := tensor.Try(func() { v.Forward(x) }); err == nil || !strings.Contains(err.Error(), "images are [n, 3, 16, 16], not") {
						t.Error(err)
					}
				}
				continue
			}
			func() {
				defer func() {
					if e, ok := recover().(*models.Error); !ok || !strings.Contains(e.Error(), says) {
						t.Errorf("%s: %v", says, e)
					}
				}()
				f()
			}()
		}
	}, tensor.Seed(1))
}
