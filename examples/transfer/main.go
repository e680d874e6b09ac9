// Command transfer adapts a ResNet-18 with published weights to the classes of a directory of
// images. It trains only a new last layer. The file main.py in the same folder is this program in
// PyTorch.
//
//	go run ./examples/transfer resnet18-f37072fd.pth PICTURES
package main

import (
	"flag"
	"fmt"
	"log"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/models"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

func main() {
	epochs := flag.Int("epochs", 5, "passes over the pictures")
	size := flag.Int("size", 224, "pixels of a picture's side")
	flag.Parse()
	if flag.NArg() != 2 {
		log.Fatal("usage: transfer [flags] WEIGHTS.pth PICTURES")
	}

	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	tensor.ManualSeed(1)
	folder := must(vision.ImageFolder(flag.Arg(1)))
	prepared := vision.Apply(folder, vision.Resize(*size), vision.CenterCrop(*size), vision.ToTensor(),
		vision.Normalize(vision.ImageNetMean, vision.ImageNetStd))
	parts := must(data.RandomSplitFractions(prepared, 1, 0.8, 0.2))
	train := must(data.NewLoader(parts[0], data.Config{Batch: 16, Shuffle: true, Device: dev, Pin: true}))
	test := must(data.NewLoader(parts[1], data.Config{Batch: 16, Device: dev, Pin: true}))

	state := must(torchfile.StateDict(must(torchfile.Load(flag.Arg(0)))))
	model := models.ResNet18(1000, 3)
	if err := nn.LoadStateDict(model, state); err != nil {
		log.Fatal(err)
	}
	nn.Freeze(model)
	model.Fc = nn.NewLinear(512, len(folder.Classes())) // only the new layer is trained
	nn.To(model, dev)
	nn.Eval(model) // batch norms do not change their statistics either
	opt := optim.NewSGD(nn.Parameters(model.Fc), optim.SGDConfig{LR: 1e-2, Momentum: 0.9})
	for epoch := range *epochs {
		total := 0.0
		for step, err := range train.Steps() {
			if err != nil {
				log.Fatal(err)
			}
			loss := nn.CrossEntropy(model.Forward(step.X), step.Y)
			opt.ZeroGrad()
			loss.Backward()
			opt.Step()
			total += loss.Item()
		}

		right := 0.0
		for step, err := range test.Steps(tensor.NoGrad()) {
			if err != nil {
				log.Fatal(err)
			}
			classes := model.Forward(step.X).Argmax(-1)
			right += classes.Eq(step.Y).Sum().Item()
		}
		fmt.Printf("epoch %d: loss %.4f, %.0f of %d right\n", epoch+1, total/float64(train.Len()), right, parts[1].Len())
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
