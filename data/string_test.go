package data_test

import (
	"fmt"
	"testing"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// A printed dataset or loader shows its size, not its contents.
func TestString(t *testing.T) {
	ds, err := data.NewTensorDataset(tensor.Zeros(5, 3), tensor.Zeros(5))
	if err != nil {
		t.Fatal(err)
	}
	named, err := data.NewNamedDataset(map[string]*tensor.Tensor{"b": tensor.Zeros(5), "a": tensor.Zeros(5, 2)}, tensor.Zeros(5))
	if err != nil {
		t.Fatal(err)
	}
	print := func(l *data.Loader, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(l)
	}
	for got, want := range map[string]string{
		fmt.Sprint(ds):    "TensorDataset(x [5, 3] float32, y [5] float32)",
		fmt.Sprint(named): "NamedDataset(a [5, 2] float32, b [5] float32, y [5] float32)",
		print(data.NewLoader(ds, data.Config{Batch: 2, Shuffle: true})): "Loader(5 samples in 3 batches of 2, shuffled)",
		print(data.NewLoader(ds, data.Config{Batches: mustBatches(t)})): "Loader(5 samples in 2 batches)",
		print(data.NewStreamLoader(files{3}, data.Config{Batch: 4})):    "Loader(a stream in batches of 4)",
	} {
		if got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
