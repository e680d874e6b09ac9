package start_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

func save(model any, path string) error {
	return safetensors.Save(path, nn.StateDict(model), nil)
}

func load(model any, path string) error {
	weights, _, err := safetensors.Load(path)
	if err != nil {
		return err
	}
	return nn.LoadStateDict(model, weights)
}

func Example_weights() {
	dir, err := os.MkdirTemp("", "start")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.safetensors")
	trained, fresh := NewNet(), NewNet()
	if err := save(trained, path); err != nil {
		log.Fatal(err)
	}
	if err := load(fresh, path); err != nil {
		log.Fatal(err)
	}
	x := tensor.Ones(1, 64)
	fmt.Println(nn.Infer(fresh, x).Eq(nn.Infer(trained, x)).All())
	// Output: tensor(True)
}

func loadPyTorch(model any, path string) error {
	tree, err := torchfile.Load(path) // reads torch.save's file without running code in it
	if err != nil {
		return err
	}
	weights, err := torchfile.StateDict(tree)
	if err != nil {
		return err
	}
	return nn.LoadStateDict(model, weights)
}

func Example_pytorch() {
	dir, err := os.MkdirTemp("", "start")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.pt")
	if err := torchfile.Save(path, nn.StateDict(NewNet())); err != nil { // torch.load can read it
		log.Fatal(err)
	}
	fmt.Println(loadPyTorch(NewNet(), path))
	// Output: <nil>
}

func Example_checkpoint() {
	dir, err := os.MkdirTemp("", "start")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	model := NewNet()
	opt := optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 1e-3})
	parts := checkpoint.Parts{"model": model, "optimizer": opt, "rng": tensor.Root().Generator()}

	store, err := checkpoint.Open(checkpoint.Config{Dir: dir, Keep: 3})
	if err != nil {
		log.Fatal(err)
	}
	state, err := checkpoint.Capture(parts)
	if err != nil {
		log.Fatal(err)
	}
	// a goroutine writes the file while the training continues
	if err := store.Save(state, checkpoint.Info{Step: 100}); err != nil {
		log.Fatal(err)
	}
	if err := store.Close(); err != nil { // waits until the file is written
		log.Fatal(err)
	}

	last, err := checkpoint.Load(dir) // loads the newest undamaged checkpoint
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("step", last.Info.Step, checkpoint.Restore(parts, last.Tree))
	// Output: step 100 <nil>
}
