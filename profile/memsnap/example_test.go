package memsnap_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/profile/memsnap"
	"github.com/flambeau-go/flambeau/tensor"
)

// The example records some training steps and labels the parameters. It writes the snapshot for a
// browser and for PyTorch's viewer. On a machine with a GPU, use cuda.Open(0) in place of Emulate.
func Example() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	gpu := gpus[0]
	gpu.RecordMemoryHistory(device.MaxHistoryEntries(50_000))
	model := nn.To(nn.NewSequential(nn.NewLinear(8, 32), nn.Tanh{}, nn.NewLinear(32, 2)), gpu)
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 0.1})
	for range 3 {
		tensor.Do(func(s *tensor.Scope) {
			model.Forward(s.On(gpu).Randn(16, 8)).Square().Mean().Backward()
			opt.Step()
			opt.ZeroGrad()
		}, tensor.Named("step"))
	}
	snap := gpu.MemorySnapshot()
	for _, p := range nn.Parameters(model) {
		snap.Label(device.CategoryParameter, p.DataPtr())
	}

	dir, err := os.MkdirTemp("", "memory")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"memory.html", "memory.pickle"} {
		if err := memsnap.Write(filepath.Join(dir, name), snap); err != nil {
			log.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range files {
		fmt.Println(filepath.Base(f))
	}
	// Output:
	// memory.html
	// memory.pickle
}

// A server can write the page to a connection. If the extension of a file is unknown, the error
// names the file.
func ExampleWriteHTML() {
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	gpus[0].RecordMemoryHistory()
	tensor.Ones(1024).To(gpus[0])
	snap := gpus[0].MemorySnapshot()
	var page, pickle bytes.Buffer
	fmt.Println(memsnap.WriteHTML(&page, snap), strings.HasPrefix(page.String(), "<!DOCTYPE html>"))
	fmt.Println(memsnap.WritePickle(&pickle, snap), pickle.Len() > 0)
	err = memsnap.Write("memory.png", snap)
	var e *memsnap.Error
	fmt.Println(errors.As(err, &e), err)
	// Output:
	// <nil> true
	// <nil> true
	// true memsnap: memory.png: the extension ".png" says no format; use .html for a page or .pickle for PyTorch's viewer
}
