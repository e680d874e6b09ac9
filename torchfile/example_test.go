package torchfile_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

// The example loads a checkpoint that PyTorch wrote. It reads the model's weights and other values.
func Example() {
	tree, err := torchfile.Load("testdata/training.pt", torchfile.Mapped())
	if err != nil {
		log.Fatal(err)
	}
	weights, err := torchfile.StateDict(tree)
	if err != nil {
		log.Fatal(err)
	}
	checkpoint := tree.(map[string]any)
	groups := checkpoint["optimizer"].(map[string]any)["param_groups"].([]any)
	fmt.Println(checkpoint["epoch"], weights["0.weight"].Shape(), groups[0].(map[string]any)["weight_decay"])
	// Output: 3 [4, 3] 0.01
}

// Save writes a model for torch.load(path, weights_only=True).
func ExampleSave() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.pt")

	state := map[string]*tensor.Tensor{}
	for _, p := range nn.Named(nn.NewSequential(nn.NewLinear(4, 3), nn.ReLU{}, nn.NewLinear(3, 2))) {
		state[p.Name] = p.Tensor
	}
	if err := torchfile.Save(path, map[string]any{"epoch": int64(7), "state_dict": state}); err != nil {
		log.Fatal(err)
	}
	tree, err := torchfile.Load(path)
	if err != nil {
		log.Fatal(err)
	}
	weights, err := torchfile.StateDict(tree)
	fmt.Println(len(weights), weights["2.bias"].Shape(), err)
	// Output: 4 [2] <nil>
}

// Loading a file that would run code fails. The error says what the file would run.
func ExampleError() {
	_, err := torchfile.Load("testdata/refused/module.pt")
	var e *torchfile.Error
	fmt.Println(errors.As(err, &e))
	fmt.Println(e.Entry, e.Offset, e.Msg)
	// Output:
	// true
	// module/data.pkl 2 torch.nn.modules.activation.ReLU is a module: save model.state_dict() instead of the model
}

// A Dict keeps its order and has keys of several types.
func ExampleDict() {
	var d torchfile.Dict
	for i, k := range []any{"z", 3, "a"} {
		if err := d.Set(k, i); err != nil {
			log.Fatal(err)
		}
	}
	for k, v := range d.All() {
		fmt.Print(k, "=", v, " ")
	}
	v, ok := d.Get(int64(3))
	fmt.Println(v, ok)
	// Output: z=0 3=1 a=2 1 true
}
