package safetensors_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
)

// The example saves a model's parameters by name and loads them into another model.
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

// Load returns an error for a damaged file and for a file in another format. It does not allocate
// memory of the size that a header claims.
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

// Open maps a file into memory. Tensors that are not accessed are not read.
func ExampleOpen() {
	f, err := safetensors.Open("testdata/python.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for _, i := range f.Infos()[:2] {
		fmt.Println(i.Name, i.DType, i.Shape, i.Bytes)
	}
	x, err := f.Tensor("int16")
	if err != nil {
		log.Fatal(err)
	}
	x.Fill(1) // changes memory, not the file
	fmt.Println(x.Sum().Item())
	// Output:
	// int64 I64 [2 3] 48
	// float64 F64 [2 3] 48
	// 6
}

// For Hugging Face's libraries, a large model is saved in several files at half precision. Here a
// file has at most 300 bytes. In practice the limit is gigabytes.
func ExampleMaxShard() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "model.safetensors")
	weights := map[string]*tensor.Tensor{"a": tensor.Ones(100), "b": tensor.Ones(100)}
	if err := safetensors.Save(path, weights, nil, safetensors.Cast(dtype.BF16), safetensors.MaxShard(300)); err != nil {
		log.Fatal(err)
	}
	f, err := safetensors.Open(path + ".index.json")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for _, i := range f.Infos() {
		fmt.Println(i.Name, i.DType, filepath.Base(i.Path))
	}
	// Output:
	// a BF16 model-00001-of-00002.safetensors
	// b BF16 model-00002-of-00002.safetensors
}
