package safetensors_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
)

// Saving a model's parameters by name, and loading them into another model.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.safetensors")

	trained := nn.NewSequential(nn.NewLinear(4, 3), nn.ReLU{}, nn.NewLinear(3, 2))
	if err := safetensors.Save(path, nn.StateDict(trained), map[string]string{"epoch": "7"}); err != nil {
		log.Fatal(err)
	}

	loaded, about, err := safetensors.Load(path)
	if err != nil {
		log.Fatal(err)
	}
	fresh := nn.NewSequential(nn.NewLinear(4, 3), nn.ReLU{}, nn.NewLinear(3, 2))
	if err := nn.LoadStateDict(fresh, loaded); err != nil {
		log.Fatal(err)
	}
	x := tensor.Ones(1, 4)
	fmt.Println(fresh.Forward(x).Eq(trained.Forward(x)).Detach(), about["epoch"])
	// Output: tensor([[True, True]]) 7
}

// A file that is damaged or no safetensors file says so; nothing is allocated for what its header only claims.
func ExampleLoad() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.safetensors")
	if err := os.WriteFile(path, []byte("\xff\xff\xff\xff\x00\x00\x00\x00{}"), 0o600); err != nil {
		log.Fatal(err)
	}
	_, _, err = safetensors.Load(path)
	var e *safetensors.Error
	fmt.Println(errors.As(err, &e))
	fmt.Println(e.Msg)
	// Output:
	// true
	// the header claims 4294967295 bytes, the file has 10
}
