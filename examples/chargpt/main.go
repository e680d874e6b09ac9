// Command chargpt trains a small GPT on the characters of a text file, on the best device found.
// Then it generates text:
//
//	go run ./examples/chargpt book.txt
package main

import (
	"flag"
	"fmt"
	"log"
	"os"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/optim/sched"
	"github.com/flambeau-go/flambeau/tensor"
)

func main() {
	log.SetFlags(0)
	r := models.CharGPTDefaults()
	flag.IntVar(&r.Steps, "steps", r.Steps, "steps of training")
	count := flag.Int("write", 500, "characters to write at the end")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("usage: chargpt [flags] FILE")
	}
	if err := run(flag.Arg(0), r, *count); err != nil {
		log.Fatal(err)
	}
}

func run(path string, r models.CharGPTRecipe, count int) error {
	corpus, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	model, chars, err := models.NewCharGPT(string(corpus), r.Config)
	if err != nil {
		return err
	}
	dev, why := device.Best()
	fmt.Println(why)
	nn.To(model, dev)
	ids, err := chars.Encode(string(corpus))
	if err != nil {
		return err
	}
	// With stride 1, a block begins at every character.
	blocks, err := text.NewBlocks(ids, r.Config.Context, 1)
	if err != nil {
		return err
	}
	loader, err := data.NewLoader(blocks, data.Config{Batch: r.Batch, Shuffle: true, DropLast: true})
	if err != nil {
		return err
	}
	if loader.Len() == 0 {
		return fmt.Errorf("%s is too short: a step takes %d blocks, there are %d", path, r.Batch, blocks.Len())
	}
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: r.LR, Beta1: r.Beta1, Beta2: r.Beta2, WeightDecay: r.WeightDecay})
	rate := sched.NewWarmUp(opt, sched.WarmUpConfig{Steps: r.Warmup}, sched.NewCosineAnnealing(opt, max(r.Steps-r.Warmup, 1), r.MinLR))
	for opt.Steps() < r.Steps {
		for batch, err := range loader.Batches() {
			if err != nil {
				return err
			}
			tensor.Do(func(s *tensor.Scope) { // From gives the batch to s; In would only lend it
				loss := model.Loss(s.From(batch.X), s.From(batch.Y))
				loss.Backward()
				optim.ClipGradNorm(opt.Params(), r.Clip)
				opt.Step()
				opt.ZeroGrad()
				rate.Step()
				if opt.Steps()%50 == 0 || opt.Steps() == r.Steps {
					fmt.Printf("step %d of %d: loss %.3f\n", opt.Steps(), r.Steps, loss.Item())
				}
			}, tensor.On(dev))
			if opt.Steps() == r.Steps {
				break
			}
		}
	}
	o := models.GenerateOptions{MaxTokens: count, Temperature: 0.8, TopK: 20, Seed: 1, Slide: true}
	for id, err := range model.Stream(ids[:1], o) {
		if err != nil {
			return err
		}
		c, err := chars.Decode([]int{id})
		if err != nil {
			return err
		}
		fmt.Print(c)
	}
	fmt.Println()
	return nil
}
