// Package start_test runs the programs in the pages of this folder as tests.
package start_test

import (
	"fmt"
	"log"
	"strings"

	_ "github.com/flambeau-go/flambeau/cuda" // lets the program use GPUs
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/digits"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/nn/initial"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Net is a model: a struct whose exported fields are layers.
type Net struct {
	nn.Base
	Hidden *nn.Linear
	Drop   *nn.Dropout
	Out    *nn.Linear
}

func NewNet() *Net {
	return &Net{Hidden: nn.NewLinear(64, 128), Drop: nn.NewDropout(0.1), Out: nn.NewLinear(128, 10)}
}

func (m *Net) Forward(x *tensor.Tensor) *tensor.Tensor {
	return m.Out.Forward(m.Drop.Forward(m.Hidden.Forward(x).Relu()))
}

type Mixer struct {
	nn.Base
	Blocks []*nn.Sequential // torch's ModuleList
	Scale  *tensor.Tensor   `nn:"scale"`
	Mean   *tensor.Tensor   `nn:"mean,buffer"`
}

func NewMixer(depth int) *Mixer {
	m := &Mixer{Scale: nn.Parameter(tensor.Ones(8)), Mean: tensor.Zeros(8)}
	for range depth {
		m.Blocks = append(m.Blocks, nn.NewSequential(nn.NewLinear(8, 8), nn.SiLU{}))
	}
	return m
}

func Example_mixer() {
	m := nn.Apply(NewMixer(2), func(layer any) {
		if l, ok := layer.(*nn.Linear); ok {
			initial.TruncNormal(l.Weight, 0, 0.02, -2, 2) // mean, standard deviation, limits
			initial.Zeros(l.Bias)
		}
	})
	fmt.Println(nn.Describe(m))
	for _, p := range nn.NamedParameters(m)[:2] {
		fmt.Println(p.Name, p.Tensor.Shape())
	}
	// Output:
	// Mixer(scale [8]
	//   (blocks.0-1): 2 × Sequential(
	//     (0): Linear(weight [8, 8], bias [8])
	//     (1): SiLU()
	//   )
	// )
	// blocks.0.0.weight [8, 8]
	// blocks.0.0.bias [8]
}

func NewCNN() *nn.Sequential {
	return nn.NewSequential(
		nn.NewConv2d(1, 8, 3, nn.Padding(1), nn.NoBias()), nn.NewBatchNorm2d(8), nn.ReLU{},
		nn.NewConv2d(8, 16, 3, nn.Stride(2), nn.Padding(1)), nn.ReLU{}, nn.NewMaxPool2d(2),
		nn.NewUpsample(tensor.InterpolateOptions{Scale: []float64{2}, Mode: tensor.InterpolateLinear}),
		nn.Flatten{}, nn.NewDropout(0.2), nn.NewLinear(16*4*4, 10),
	)
}

func Example_cnn() {
	fmt.Println(NewCNN().Forward(tensor.Zeros(5, 1, 8, 8)).Shape())
	// Output: [5, 10]
}

func train(model *Net, set data.Dataset, dev device.Device) error {
	loader, err := data.NewLoader(set, data.Config{Batch: 32, Shuffle: true, Device: dev})
	if err != nil {
		return err
	}
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-3})
	for range 5 {
		for step, err := range loader.Steps() {
			if err != nil {
				return err
			}
			loss := nn.CrossEntropy(model.Forward(step.X), step.Y)
			loss.Backward()
			opt.Step()
			opt.ZeroGrad()
		}
	}
	return nil
}

func accuracy(model *Net, set data.Dataset, dev device.Device) (float64, error) {
	loader, err := data.NewLoader(set, data.Config{Batch: 256, Device: dev})
	if err != nil {
		return 0, err
	}
	nn.Eval(model) // evaluation mode: no dropout
	defer nn.Train(model)
	right := 0.0
	for step, err := range loader.Steps(tensor.NoGrad()) {
		if err != nil {
			return 0, err
		}
		right += model.Forward(step.X).Argmax(-1).Eq(step.Y).Sum().Item()
	}
	return right / float64(set.Len()), nil
}

func Example_training() {
	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	log.Print(why)
	set, err := digits.Load() // 1,797 images of 8×8 pixels, which are part of the library
	if err != nil {
		log.Fatal(err)
	}
	known, held := set.Split()
	model := nn.To(NewNet(), dev)
	if err := train(model, known, dev); err != nil {
		log.Fatal(err)
	}
	share, err := accuracy(model, held, dev)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d parameters; above 90 %% of what was held out: %v\n", nn.Count(model), share > 0.9)
	// Output: 9610 parameters; above 90 % of what was held out: true
}

func Example_mistake() {
	model := nn.Eval(NewNet())
	err := tensor.Try(func() { model.Forward(tensor.Ones(2, 63)) })
	first, _, _ := strings.Cut(err.Error(), "\n")
	fmt.Println(first)
	// Output: tensor: linear: the input has 63 features in its last dimension, the layer was made for 64 (make the layer for 63, or check the one before it)
}
