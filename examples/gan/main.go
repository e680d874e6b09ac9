// Command gan trains a convolutional generative adversarial network (A. Radford et al.,
// arXiv:1511.06434) on handwritten digits, and then draws two new digits. The file main.py in the
// same folder is this program in PyTorch.
package main

import (
	"flag"
	"fmt"
	"log"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

const noise = 16

func newGenerator() *nn.Sequential {
	return nn.NewSequential(
		nn.NewConvTranspose2d(noise, 32, 2, nn.NoBias()),
		nn.NewBatchNorm2d(32),
		nn.ReLU{},
		nn.NewConvTranspose2d(32, 16, 4, nn.Stride(2), nn.Padding(1), nn.NoBias()),
		nn.NewBatchNorm2d(16),
		nn.ReLU{},
		nn.NewConvTranspose2d(16, 1, 4, nn.Stride(2), nn.Padding(1)),
		nn.Sigmoid{},
	)
}

func newDiscriminator() *nn.Sequential {
	return nn.NewSequential(
		nn.NewConv2d(1, 16, 4, nn.Stride(2), nn.Padding(1)),
		nn.NewLeakyReLU(0.2),
		nn.NewConv2d(16, 32, 4, nn.Stride(2), nn.Padding(1), nn.NoBias()),
		nn.NewBatchNorm2d(32),
		nn.NewLeakyReLU(0.2),
		nn.Flatten{},
		nn.NewLinear(128, 1),
	)
}

func loss(logits *tensor.Tensor, target float64) *tensor.Tensor {
	return nn.BCEWithLogits(logits, logits.FullLike(target), nil)
}

func main() {
	epochs := flag.Int("epochs", 20, "passes over the digits")
	flag.Parse()

	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	tensor.ManualSeed(1)
	set := must(digits.Load())
	loader := must(data.NewLoader(set, data.Config{Batch: 64, Shuffle: true, DropLast: true, Device: dev, Pin: true}))
	generator, discriminator := nn.To(newGenerator(), dev), nn.To(newDiscriminator(), dev)
	optG := optim.NewAdam(nn.Parameters(generator), optim.AdamConfig{LR: 2e-3, Beta1: 0.5, Beta2: 0.999})
	optD := optim.NewAdam(nn.Parameters(discriminator), optim.AdamConfig{LR: 5e-4, Beta1: 0.5, Beta2: 0.999})
	for epoch := range *epochs {
		sumD, sumG := 0.0, 0.0
		for step, err := range loader.Steps() {
			if err != nil {
				log.Fatal(err)
			}
			real := step.X.Reshape(-1, 1, 8, 8)
			fake := generator.Forward(step.Scope.Randn(real.Dim(0), noise, 1, 1))

			optD.ZeroGrad()
			lossD := loss(discriminator.Forward(real), 0.9).Add(loss(discriminator.Forward(fake.Detach()), 0))
			lossD.Backward()
			optD.Step()

			optG.ZeroGrad()
			lossG := loss(discriminator.Forward(fake), 1)
			lossG.Backward()
			optG.Step()

			sumD += lossD.Item()
			sumG += lossG.Item()
		}
		n := float64(loader.Len())
		fmt.Printf("epoch %d: discriminator %.3f, generator %.3f\n", epoch+1, sumD/n, sumG/n)
	}

	pictures := nn.Infer(generator, tensor.Root().On(dev).Randn(2, noise, 1, 1))
	for i, v := range pictures.Floats() {
		fmt.Printf("%c", " .:-=+*#%@"[int(v*9.99)])
		if i%8 == 7 {
			fmt.Println()
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
