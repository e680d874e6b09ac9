package models_test

import (
	"fmt"
	"log"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A character model memorises a line of text and continues it.
func ExampleNewCharGPT() {
	const line = "a lamp, a ship, "
	tensor.Do(func(s *tensor.Scope) {
		m, chars, err := models.NewCharGPT(line, models.GPTConfig{Context: 16, Layers: 1, Heads: 2, Width: 16}, nn.In(s))
		if err != nil {
			log.Fatal(err)
		}
		ids, err := chars.Encode(line + line)
		if err != nil {
			log.Fatal(err)
		}
		blocks, err := text.NewBlocks(ids, 16, 1)
		if err != nil {
			log.Fatal(err)
		}
		loader, err := data.NewLoader(blocks, data.Config{Batch: 16})
		if err != nil {
			log.Fatal(err)
		}
		opt := optim.NewAdamW(nn.Parameters(m), optim.AdamConfig{LR: 0.01})
		for range 60 {
			for batch, err := range loader.Batches() {
				if err != nil {
					log.Fatal(err)
				}
				s.Do(func(c *tensor.Scope) {
					m.Loss(c.From(batch.X), c.From(batch.Y)).Backward()
					opt.Step()
					opt.ZeroGrad()
				})
			}
		}
		for id, err := range m.Stream(ids[:4], models.GenerateOptions{MaxTokens: 12}) {
			if err != nil {
				log.Fatal(err)
			}
			c, _ := chars.Decode([]int{id})
			fmt.Print(c)
		}
		fmt.Println("|")
	}, tensor.Seed(1))
	// Output: mp, a ship, |
}

// A small GPT has the same names of weights as Hugging Face's GPT-2.
func ExampleNewGPT() {
	m := models.NewGPT(models.GPTConfig{Vocab: 100, Context: 8, Layers: 1, Heads: 2, Width: 4})
	for _, p := range nn.Named(m)[:4] {
		fmt.Println(p.Name, p.Tensor.Shape())
	}
	fmt.Println(m.Forward(tensor.From([]int64{1, 2, 3}, 1, 3)).Shape())
	fmt.Println(models.GPT2().Layers, models.GPT2Medium().Layers, models.GPT2Large().Layers, models.GPT2XL().Layers)
	// Output:
	// wte.weight [100, 4]
	// wpe.weight [8, 4]
	// h.0.ln_1.weight [4]
	// h.0.ln_1.bias [4]
	// [1, 3, 100]
	// 12 24 36 48
}

// With the same seed, Generate draws the same tokens.
func ExampleGPT_Generate() {
	tensor.Do(func(s *tensor.Scope) {
		m := models.NewGPT(models.GPTConfig{Vocab: 100, Context: 8, Layers: 1, Heads: 2, Width: 4}, nn.In(s))
		o := models.GenerateOptions{MaxTokens: 4, Temperature: 0.8, TopK: 40, TopP: 0.95, Seed: 7}
		a, err := m.Generate([][]int{{1, 2}, {3, 4}}, o)
		b, _ := m.Generate([][]int{{1, 2}, {3, 4}}, o)
		fmt.Println(len(a), len(a[0]), fmt.Sprint(a) == fmt.Sprint(b), err)
	})
	// Output: 2 4 true <nil>
}

// A prompt and the tokens generated after it must fit into the model's context.
func ExampleContextError() {
	m := models.NewGPT(models.GPTConfig{Vocab: 100, Context: 8, Layers: 1, Heads: 2, Width: 4})
	_, err := m.Generate([][]int{{1, 2}}, models.GenerateOptions{MaxTokens: 20})
	fmt.Println(err)
	_, err = m.Generate([][]int{{1, 2}}, models.GenerateOptions{MaxTokens: 20, Slide: true})
	fmt.Println(err)
	// Output:
	// models: gpt: 2 tokens and 20 new ones do not fit the context of 8; ask for fewer, shorten the prompt or set Slide
	// <nil>
}

// With a cache, each token takes the work of one position only.
func ExampleCache() {
	tensor.Do(func(s *tensor.Scope) {
		m := models.NewGPT(models.GPTConfig{Vocab: 100, Context: 8, Layers: 1, Heads: 2, Width: 4}, nn.In(s))
		c := m.NewCache(s, 1)
		m.Decode(s.From([]int64{5, 6, 7}, 1, 3), c)
		logits := m.Decode(s.From([]int64{8}, 1, 1), c)
		fmt.Println(logits.Shape(), c.Len())
	})
	// Output: [1, 100] 4
}

// The recipe has the settings of a training loop for a small text and a CPU.
func ExampleCharGPTDefaults() {
	r := models.CharGPTDefaults()
	fmt.Println(r.Config.Layers, r.Config.Width, r.Config.Context, r.Batch, r.Steps)
	// Output: 4 128 64 32 500
}
