// Command recipes contains Go versions of programs in PyTorch's documentation, one per file. They
// run unchanged on every device.
//
//	go run ./examples/recipes              # all
//	go run ./examples/recipes amp oom      # some
//	FLAMBEAU_CUDA=emulate go run ./examples/recipes
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	_ "github.com/flambeau-go/flambeau/cuda" // links the GPU driver into the program
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// A recipe is one of the programs. It writes its results to w.
type recipe struct {
	name string
	run  func(dev device.Device, w io.Writer) error
}

var recipes = []recipe{
	{"loop", loop},
	{"loader", loader},
	{"guards", guards},
	{"accumulate", accumulate},
	{"amp", mixedPrecision},
	{"checkpointing", checkpointing},
	{"profiler", profiler},
	{"oom", outOfMemory},
	{"transfer", transfer},
}

func main() {
	log.SetFlags(0)
	dev, why := device.Best() // "cuda" if there is a GPU, else "cpu"
	fmt.Println(why)
	if err := run(dev, os.Stdout, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

// run runs the recipes with the given names, or all recipes.
func run(dev device.Device, w io.Writer, names []string) error {
	left := map[string]bool{}
	for _, n := range names {
		left[n] = true
	}
	var known []string
	for _, r := range recipes {
		known = append(known, r.name)
		if len(names) > 0 && !left[r.name] {
			continue
		}
		delete(left, r.name)
		fmt.Fprintf(w, "%s:\n", r.name)
		tensor.ManualSeed(1)
		if err := r.run(dev, w); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
	}
	for n := range left {
		return fmt.Errorf("there is no recipe %q; there are: %s", n, strings.Join(known, ", "))
	}
	return nil
}

// classifier returns a small network on dev for the 64 pixels of a digit.
func classifier(dev device.Device) *nn.Sequential {
	return nn.To(nn.NewSequential(nn.NewLinear(64, 32), nn.ReLU{}, nn.NewLinear(32, 10)), dev)
}
