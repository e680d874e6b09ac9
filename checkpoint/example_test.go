package checkpoint_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// The example saves checkpoints while a training continues, and resumes from the newest checkpoint.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	model := nn.NewLinear(2, 1)
	parts := checkpoint.Parts{"model": model, "rng": tensor.Root().Generator()}

	store, err := checkpoint.Open(checkpoint.Config{Dir: dir, Keep: 2, Best: checkpoint.Least})
	if err != nil {
		log.Fatal(err)
	}
	for step := 1; step <= 5; step++ {
		// This stands for a training step.
		tensor.Do(func(s *tensor.Scope) { model.Weight.In(s).Fill(float64(step)) }, tensor.NoGrad())
		tree, err := checkpoint.Capture(parts)
		if err != nil {
			log.Fatal(err)
		}
		if err := store.Save(tree, checkpoint.Info{Step: step, Metric: float64((step - 2) * (step - 2))}); err != nil {
			log.Fatal(err)
		}
	}
	if err := store.Close(); err != nil { // waits until the last file is written
		log.Fatal(err)
	}

	entries, err := checkpoint.List(dir)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Println(filepath.Base(e.Path), e.Info.Metric)
	}
	last, err := checkpoint.Load(dir)
	if err != nil {
		log.Fatal(err)
	}
	fresh := nn.NewLinear(2, 1)
	if err := checkpoint.Restore(checkpoint.Parts{"model": fresh}, last.Tree); err != nil {
		log.Fatal(err)
	}
	fmt.Println("step", last.Info.Step, fresh.Weight.Detach())
	// Output:
	// step-000000002.safetensors 0
	// step-000000004.safetensors 4
	// step-000000005.safetensors 9
	// step 5 tensor([[5., 5.]])
}

// If the state of another model is restored, the error lists the names that differ.
func ExampleRestore() {
	tree, err := checkpoint.Capture(checkpoint.Parts{"model": nn.NewLinear(2, 1)})
	if err != nil {
		log.Fatal(err)
	}
	err = checkpoint.Restore(checkpoint.Parts{"model": nn.NewSequential(nn.NewLinear(2, 1))}, tree)
	var wrong *nn.StateError
	fmt.Println(errors.As(err, &wrong), wrong.Missing, wrong.Unexpected)
	// Output: true [0.weight 0.bias] [bias weight]
}

// Any tree of plain values can be saved.
func ExampleWrite() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "state.safetensors")
	if err := checkpoint.Write(path, map[string]any{"epoch": int64(3), "lrs": []any{0.1, 0.01}, "w": tensor.Ones(2)}, checkpoint.Info{Step: 7}); err != nil {
		log.Fatal(err)
	}
	tree, info, err := checkpoint.Read(path)
	fmt.Println(info.Step, tree, err)
	// Output: 7 map[epoch:3 lrs:[0.1 0.01] w:tensor([1., 1.])] <nil>
}
