package main

import (
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// planned is a model of package models with the sizes of its inputs.
type planned struct {
	name                     string
	seq, context             int // number of tokens in a sample of text, and its maximum
	image, channels, classes int // sizes of the input and output of an image model
	images                   []int
	whole                    bool // whether no part of the model supports checkpointing
	model                    func(o nn.Option) any
	loss                     func(m any, s *tensor.Scope, batch int) *tensor.Tensor
}

// planModels has the functions that return the models, by name.
var planModels = map[string]func(c *planCmd) *planned{
	"gpt2": planGPT(models.GPT2), "gpt2-medium": planGPT(models.GPT2Medium), "gpt2-large": planGPT(models.GPT2Large), "gpt2-xl": planGPT(models.GPT2XL),
	"bert-base": planBERT(models.BERTBase), "bert-large": planBERT(models.BERTLarge),
	"resnet18": planImages(224, 3, 1000, nil, func(p *planned, o nn.Option) nn.Module { return models.ResNet18(p.classes, p.channels, o) }),
	"resnet34": planImages(224, 3, 1000, nil, func(p *planned, o nn.Option) nn.Module { return models.ResNet34(p.classes, p.channels, o) }),
	"resnet50": planImages(224, 3, 1000, nil, func(p *planned, o nn.Option) nn.Module { return models.ResNet50(p.classes, p.channels, o) }),
	"resnet101": planImages(224, 3, 1000, nil, func(p *planned, o nn.Option) nn.Module {
		return models.NewResNet(models.ResNetConfig{Blocks: [4]int{3, 4, 23, 3}, Bottleneck: true, Classes: p.classes, Channels: p.channels}, o)
	}),
	"vit-b/16": planImages(224, 3, 1000, nil, func(p *planned, o nn.Option) nn.Module {
		c := models.ViTB16()
		c.Image, c.Classes = p.image, p.classes
		return models.NewViT(c, o)
	}),
	"mlp": planImages(28, 1, 10, nil, func(p *planned, o nn.Option) nn.Module {
		return nn.NewSequential(&nn.Flatten{}, models.NewMLP([]int{p.channels * p.image * p.image, 512, 256, p.classes}, 0.1, o))
	}),
	"lstm":  planLSTM,
	"cnn":   planImages(28, 1, 10, nil, func(p *planned, o nn.Option) nn.Module { return models.NewCNN(p.channels, p.classes, o) }),
	"lenet": planImages(28, 1, 10, []int{28, 32}, func(p *planned, o nn.Option) nn.Module { return models.NewLeNet(p.image, p.channels, p.classes, o) }),
}

// arbitrary returns an input of the step with arbitrary contents. It launches no kernel, because a
// training needs no kernel to copy its batches to the device.
func arbitrary(s *tensor.Scope, t dtype.Type, dims ...int) *tensor.Tensor {
	return s.Typed(t).Empty(dims...)
}

func (p *planned) tokens(s *tensor.Scope, batch int) *tensor.Tensor {
	return arbitrary(s, dtype.I64, batch, p.seq)
}

func planGPT(config func() models.GPTConfig) func(c *planCmd) *planned {
	return func(c *planCmd) *planned {
		cfg := config()
		p := &planned{name: c.Model, seq: or(c.Seq, cfg.Context), context: cfg.Context}
		p.model = func(o nn.Option) any { return models.NewGPT(cfg, o) }
		p.loss = func(m any, s *tensor.Scope, batch int) *tensor.Tensor {
			x := p.tokens(s, batch)
			return m.(*models.GPT).Loss(x, p.tokens(s, batch))
		}
		return p
	}
}

func planBERT(config func() models.BERTConfig) func(c *planCmd) *planned {
	return func(c *planCmd) *planned {
		cfg := config()
		p := &planned{name: c.Model, seq: or(c.Seq, cfg.Context), context: cfg.Context}
		p.model = func(o nn.Option) any { return models.NewMaskedLM(cfg, o) }
		p.loss = func(m any, s *tensor.Scope, batch int) *tensor.Tensor {
			x := p.tokens(s, batch)
			return m.(*models.MaskedLM).Loss(x, p.tokens(s, batch), models.BERTInput{})
		}
		return p
	}
}

// wordLSTM is a language model: an embedding of words, two LSTM layers and an output layer.
type wordLSTM struct {
	nn.Base
	Embedding *nn.Embedding
	LSTM      *nn.LSTM
	Out       *nn.Linear
}

// Forward returns the logits for the next word after each word. ids is [batch, length], and the
// result is [batch, length, words].
func (m *wordLSTM) Forward(ids *tensor.Tensor) (y *tensor.Tensor) {
	defer m.Enter(&ids, &y)()
	ids.Scope().Do(func(c *tensor.Scope) {
		h, _, _ := m.LSTM.Forward(m.Embedding.Forward(ids.In(c)), nil, nil)
		y = m.Out.Forward(h)
		c.Close(y)
	})
	return y
}

// planLSTM plans a model for 1000 words, with 256 features. Texts may have up to 2¹⁴ tokens. The
// model itself has no limit, but planning takes long, because the LSTM runs a separate step for
// each token.
func planLSTM(c *planCmd) *planned {
	const words, width = 1000, 256
	p := &planned{name: c.Model, seq: or(c.Seq, 128), context: 1 << 14}
	p.model = func(o nn.Option) any {
		return &wordLSTM{Embedding: nn.NewEmbedding(words, width, o), Out: nn.NewLinear(width, words, o),
			LSTM: nn.NewLSTM(width, width, nn.RecurrentOptions{Layers: 2, BatchFirst: true}, o)}
	}
	p.loss = func(m any, s *tensor.Scope, batch int) *tensor.Tensor {
		logits := m.(*wordLSTM).Forward(p.tokens(s, batch))
		defer logits.Free()
		return nn.CrossEntropy(logits.Flatten(0, 1), p.tokens(s, batch).Flatten(0, 1))
	}
	return p
}

func planImages(image, channels, classes int, only []int, model func(p *planned, o nn.Option) nn.Module) func(c *planCmd) *planned {
	return func(c *planCmd) *planned {
		p := &planned{name: c.Model, image: or(c.Image, image), channels: channels, classes: or(c.Classes, classes), images: only}
		p.model = func(o nn.Option) any { return model(p, o) }
		p.loss = func(m any, s *tensor.Scope, batch int) *tensor.Tensor {
			x := arbitrary(s, dtype.F32, batch, p.channels, p.image, p.image)
			return nn.CrossEntropy(m.(nn.Module).Forward(x), arbitrary(s, dtype.I64, batch))
		}
		return p
	}
}

func or(n, other int) int {
	if n == 0 {
		return other
	}
	return n
}

// check returns an error about a flag that does not apply to the model.
func (p *planned) check(c *planCmd) error {
	switch {
	case p.context == 0 && c.Seq > 0:
		return fmt.Errorf("--seq: %s is a model of pictures; --image is their size", c.Model)
	case p.context > 0 && c.Image+c.Classes > 0:
		return fmt.Errorf("--image, --classes: %s is a model of text; --seq is its length", c.Model)
	case p.seq > p.context:
		return fmt.Errorf("--seq %d: %s takes at most %d tokens", p.seq, c.Model, p.context)
	case p.context == 0 && (p.image < 4 || p.image > 1<<14 || p.classes > 1<<24):
		return fmt.Errorf("--image %d, --classes %d: 4 to %d pixels and up to %d classes", p.image, p.classes, 1<<14, 1<<24)
	}
	if len(p.images) > 0 {
		if slices.Contains(p.images, p.image) {
			return nil
		}
		return fmt.Errorf("--image %d: %s takes pictures of %v", p.image, c.Model, p.images)
	}
	if c.Model == "vit-b/16" && p.image%16 != 0 {
		return fmt.Errorf("--image %d: vit-b/16 takes a multiple of 16", p.image)
	}
	return nil
}

func (p *planned) batchText(batch int) string {
	if p.context > 0 {
		return fmt.Sprintf("batches of %d × %d tokens", batch, p.seq)
	}
	return fmt.Sprintf("batches of %d pictures of %d×%d×%d", batch, p.channels, p.image, p.image)
}

// step returns a function that builds the training step that the flags describe.
func (p *planned) step(c *planCmd) func(s *tensor.Scope, batch int) *train.PlannedStep {
	return func(s *tensor.Scope, batch int) *train.PlannedStep {
		m := p.model(nn.In(s))
		if c.Checkpointing && nn.SetCheckpointing(m, true) == 0 {
			p.whole = true
			panic(tensor.NewError("plan", tensor.ErrValue, c.Model+" has no part that can compute its activations again"))
		}
		modes := []tensor.Option{tensor.Autocast(map[string]dtype.Type{"bf16": dtype.BF16, "fp16": dtype.F16}[c.Amp])}
		if c.TF32 {
			modes = append(modes, tensor.AllowTF32())
		}
		step := &train.PlannedStep{Model: m, Loss: func(s *tensor.Scope) (loss *tensor.Tensor) {
			s.Do(func(s *tensor.Scope) {
				loss = p.loss(m, s, batch)
				s.Close(loss)
			}, modes...)
			return loss
		}}
		if c.Optimizer != "none" {
			step.Optimizer = newOptimizer(c.Optimizer, nn.Parameters(m), recipe{lr: 1e-3, decay: 0.01})
		} else {
			nn.Eval(m)
		}
		return step
	}
}
