package npy_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/flambeau-go/flambeau/npy"
	"github.com/flambeau-go/flambeau/tensor"
)

// Load reads an array that NumPy saved in Fortran order. The elements of the tensor have the same
// order in memory, so the tensor is not contiguous.
func ExampleLoad() {
	x, err := npy.Load("testdata/version1.npy")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(x.Shape(), x.Strides(), x.Type(), x.Select(0, 1).Select(0, 2))
	// Output: [2, 3, 4] [1, 2, 6] float64 tensor([20., 21., 22., 23.], dtype=torch.float64)
}

// SaveArchive writes named arrays for np.load, and LoadArchive reads them.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "set.npz")
	if err := npy.SaveArchive(path, map[string]*tensor.Tensor{"x": tensor.Ones(3, 2), "y": tensor.From([]int64{1, 0, 1})}); err != nil {
		log.Fatal(err)
	}
	arrays, err := npy.LoadArchive(path, npy.Mapped())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(arrays["x"].Shape(), arrays["y"])
	// Output: [3, 2] tensor([1, 0, 1])
}
