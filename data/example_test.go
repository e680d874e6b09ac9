package data_test

import (
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/tensor"
)

// table is a dataset of squares. It has a length and returns samples by index.
type table struct{ n int }

func (s table) Len() int { return s.n }

func (s table) Get(i int) (data.Sample, error) {
	if i == 13 {
		return data.Sample{}, errors.New("unlucky")
	}
	return data.Sample{X: []float32{float32(i)}, Y: float32(i * i)}, nil
}

// A loader makes batches of a dataset's samples. Its goroutines prepare the batches ahead.
func Example() {
	loader, err := data.NewLoader(table{5}, data.Config{Batch: 2})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range loader.Batches() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(batch.X.Shape(), batch.Y)
	}
	// Output:
	// [2, 1] tensor([0., 1.])
	// [2, 1] tensor([4., 9.])
	// [1, 1] tensor([16.])
}

// The order depends only on the seed and the epoch, not on the number of workers.
func ExampleLoader_Order() {
	one, err := data.NewLoader(table{10}, data.Config{Batch: 2, Shuffle: true, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	four, err := data.NewLoader(table{10}, data.Config{Batch: 2, Shuffle: true, Seed: 1, Workers: 4})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(one.Order(0))
	fmt.Println(one.Order(1))
	fmt.Println(four.Order(1))
	// Output:
	// [6 3 1 9 7 4 8 2 0 5]
	// [3 5 8 2 7 1 6 4 0 9]
	// [3 5 8 2 7 1 6 4 0 9]
}

// If the dataset returns an error, the loop ends, and the error names the sample.
func ExampleSampleError() {
	loader, err := data.NewLoader(table{20}, data.Config{Batch: 4, Workers: 2})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range loader.Batches() {
		var bad *data.SampleError
		if errors.As(err, &bad) {
			fmt.Println("sample", bad.Index, "failed:", bad.Unwrap())
			break
		}
		fmt.Println(batch.Index)
	}
	// Output:
	// [0 1 2 3]
	// [4 5 6 7]
	// [8 9 10 11]
	// sample 13 failed: unlucky
}

// A batch belongs to the code that receives it. Into and From give its tensors to the scope of a
// step, which frees them.
func ExampleBatch() {
	loader, err := data.NewLoader(table{4}, data.Config{Batch: 4})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range loader.Batches() {
		if err != nil {
			log.Fatal(err)
		}
		tensor.Do(func(s *tensor.Scope) {
			x, y := s.From(batch.X), s.From(batch.Y)
			fmt.Println(x.Squeeze(1).Square().Eq(y))
		})
	}
	// Output:
	// tensor([True, True, True, True])
}

// Two tensors in memory make a dataset.
func ExampleNewTensorDataset() {
	x, y := tensor.Zeros(6, 3), tensor.Root().Arange(6)
	ds, err := data.NewTensorDataset(x, y)
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewLoader(ds, data.Config{Batch: 4, DropLast: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ds.Len(), "samples,", loader.Len(), "batch")
	for batch, err := range loader.Batches() {
		fmt.Println(batch.X.Shape(), batch.Y, err)
	}
	// Output:
	// 6 samples, 1 batch
	// [4, 3] tensor([0, 1, 2, 3]) <nil>
}

// A batch with several inputs returns each input by its name.
func ExampleNewNamedDataset() {
	user, item := tensor.From([]int64{0, 0, 1}), tensor.From([]int64{5, 7, 5})
	ds, err := data.NewNamedDataset(map[string]*tensor.Tensor{"user": user, "item": item}, tensor.From([]float32{4, 1, 3}))
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewLoader(ds, data.Config{Batch: 2})
	if err != nil {
		log.Fatal(err)
	}
	for step, err := range loader.Steps() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(step.Tensor("user"), step.Tensor("item"), step.Y)
	}
	// Output:
	// tensor([0, 0]) tensor([5, 7]) tensor([4., 1.])
	// tensor([1]) tensor([5]) tensor([3.])
}

// If a batch lacks a name, the error lists the names that the batch has.
func ExampleBatch_Tensor() {
	batch, err := data.Collate([]data.Sample{{X: map[string]any{"user": 3, "item": 7}, Y: 4.5}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(batch.Tensor("user"))
	err = tensor.Try(func() { batch.Tensor("usr") })
	said, _, _ := strings.Cut(err.Error(), "\n")
	fmt.Println(said)
	// Output:
	// tensor([3])
	// tensor: batch: it has no tensor "usr"; it has item, user (did you mean "user"?)
}

// In a short program Must ends the program at the first error.
func ExampleMust() {
	x := tensor.Arange(3)
	loader := data.Must(data.NewLoader(data.Must(data.NewTensorDataset(x, x)), data.Config{Batch: 2}))
	fmt.Println(loader)
	defer func() { fmt.Println(recover()) }()
	data.Must(data.NewLoader(table{5}, data.Config{}))
	// Output:
	// Loader(3 samples in 2 batches of 2)
	// data: Batch: 0 samples a batch, at least 1 is needed
}

// A subset holds some of the samples, in any order.
func ExampleSubset() {
	s := data.Subset{Of: table{10}, Index: []int{9, 3}}
	sample, err := s.Get(1)
	fmt.Println(s.Len(), sample.X, sample.Y, err)
	// Output: 2 [3] 9 <nil>
}

// Invalid settings are an error of NewLoader.
func ExampleConfigError() {
	_, err := data.NewLoader(table{5}, data.Config{})
	var c *data.ConfigError
	fmt.Println(errors.As(err, &c), c.Field)
	fmt.Println(err)
	// Output:
	// true Batch
	// data: Batch: 0 samples a batch, at least 1 is needed
}

// A dataset that can make a whole batch implements Batcher, as TensorDataset does. The loader then
// calls GetBatch instead of Get.
func ExampleBatcher() {
	ds, err := data.NewTensorDataset(tensor.From([]float32{0, 10, 20, 30}), tensor.From([]int64{0, 1, 2, 3}))
	if err != nil {
		log.Fatal(err)
	}
	var b data.Batcher = ds
	x, y, err := b.GetBatch([]int{3, 1})
	fmt.Println(x, y, err)
	// Output:
	// tensor([30., 10.]) tensor([3, 1]) <nil>
}

// SetEpoch sets the epoch of the next loop, for training that continues. The order of the samples
// depends on the epoch.
func ExampleLoader_SetEpoch() {
	loader, err := data.NewLoader(table{6}, data.Config{Batch: 6, Shuffle: true, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	loader.SetEpoch(3)
	for batch, err := range loader.Batches() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(slices.Equal(batch.Index, loader.Order(3)))
	}
	// Output: true
}
