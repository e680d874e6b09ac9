// Command vae trains a variational autoencoder (D. P. Kingma, M. Welling, arXiv:1312.6114) on
// handwritten digits, and then draws 32 new digits in one image. The file main.py in the same
// folder is this program in PyTorch.
package main

import (
	"flag"
	"fmt"
	"log"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/data/vision"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// VAE is the autoencoder. The encoder maps images to means and log variances of 8 latent numbers.
// The decoder maps 8 numbers to images.
type VAE struct {
	Hidden, Mean, LogVar *nn.Linear
	Decoder              *nn.Sequential
}

func newVAE() *VAE {
	return &VAE{
		nn.NewLinear(64, 128), nn.NewLinear(128, 8), nn.NewLinear(128, 8),
		nn.NewSequential(nn.NewLinear(8, 128), nn.ReLU{}, nn.NewLinear(128, 64)),
	}
}

func (m *VAE) encode(x *tensor.Tensor) (mean, logvar *tensor.Tensor) {
	h := m.Hidden.Forward(x).Relu()
	return m.Mean.Forward(h), m.LogVar.Forward(h)
}

func (m *VAE) loss(x *tensor.Tensor) *tensor.Tensor {
	mean, logvar := m.encode(x)
	z := mean.Add(mean.RandnLike().Mul(logvar.DivScalar(2).Exp()))
	bce := nn.BCEWithLogits(m.Decoder.Forward(z), x, nil, nn.Sum)
	kld := logvar.AddScalar(1).Sub(mean.Square()).Sub(logvar.Exp()).Sum().MulScalar(-0.5)
	return bce.Add(kld).DivScalar(float64(x.Dim(0)))
}

func main() {
	epochs := flag.Int("epochs", 20, "passes over the digits")
	out := flag.String("out", "digits.png", "the picture to write")
	flag.Parse()

	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	tensor.ManualSeed(1)
	set := must(digits.Load())
	loader := must(data.NewLoader(set, data.Config{Batch: 64, Shuffle: true, Device: dev, Pin: true}))
	model := nn.To(newVAE(), dev)
	opt := optim.NewAdam(nn.Parameters(model), optim.AdamConfig{LR: 2e-3})
	for epoch := range *epochs {
		total := 0.0
		for step, err := range loader.Steps() {
			if err != nil {
				log.Fatal(err)
			}
			loss := model.loss(step.X)
			opt.ZeroGrad()
			loss.Backward()
			opt.Step()
			total += loss.Item()
		}
		fmt.Printf("epoch %d: loss %.2f\n", epoch+1, total/float64(loader.Len()))
	}

	pictures := nn.Infer(model.Decoder, tensor.Root().On(dev).Randn(32, 8)).Sigmoid()
	if err := vision.SaveImage(*out, pictures.Reshape(-1, 1, 8, 8)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("32 new digits are in", *out)
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
