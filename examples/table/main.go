// Command table learns the prices in a CSV table and prints its mean error.
package main

import (
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/table"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

var colors = []string{"black", "blue", "red"}

// write writes a table of cars. The price depends on weight, age and color, with some noise.
func write(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	fmt.Fprintln(f, "weight,age,color,price")
	for range 600 {
		weight, age, color := 0.8+1.5*rng.Float64(), rng.Float64()*15, rng.IntN(3)
		price := 12*weight/(1+age/5) + float64(color) + rng.NormFloat64()/5
		fmt.Fprintf(f, "%.2f,%.1f,%s,%.2f\n", weight, age, colors[color], price)
	}
	return f.Close()
}

func main() {
	log.SetFlags(0)
	epochs := flag.Int("epochs", 60, "passes over the table")
	flag.Parse()

	dir := must(os.MkdirTemp("", "table"))
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "cars.csv")
	if err := write(path); err != nil {
		log.Fatal(err)
	}
	cars := must(table.Load(path, table.Config{Target: "price", Number: true, Categories: map[string][]string{"color": colors}}))
	fmt.Println("inputs:", cars.Columns, cars.X.Shape())
	parts := must(data.RandomSplitFractions(must(cars.Dataset()), 1, 0.8, 0.2))

	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	tensor.ManualSeed(1)
	// The first layer is a batch norm, which scales each column to a mean of 0 and a variance of 1.
	in := cars.X.Dim(1)
	model := nn.To(nn.NewSequential(nn.NewBatchNorm1d(in), nn.NewLinear(in, 64), nn.ReLU{}, nn.NewLinear(64, 1)), dev)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 5e-3})
	loader := must(data.NewLoader(parts[0], data.Config{Batch: 32, Shuffle: true, Device: dev}))
	for epoch := range *epochs {
		total := 0.0
		for step, err := range loader.Steps() {
			if err != nil {
				log.Fatal(err)
			}
			loss := nn.MSE(model.Forward(step.X).Squeeze(1), step.Y)
			loss.Backward()
			opt.Step()
			opt.ZeroGrad()
			total += loss.Item()
		}
		if epoch%20 == 19 || epoch == *epochs-1 {
			fmt.Printf("epoch %d: loss %.3f\n", epoch+1, total/float64(loader.Len()))
		}
	}

	nn.Eval(model)
	off, n := 0.0, 0
	held := must(data.NewLoader(parts[1], data.Config{Batch: 256, Device: dev}))
	for step, err := range held.Steps(tensor.NoGrad()) {
		if err != nil {
			log.Fatal(err)
		}
		off += model.Forward(step.X).Squeeze(1).Sub(step.Y).Abs().Sum().Item()
		n += step.Y.Dim(0)
	}
	fmt.Printf("of %d cars held out, a price is off by %.2f on average\n", n, off/float64(n))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
