package data_test

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"slices"

	"github.com/flambeau-go/flambeau/data"
)

// A loader saves its state within an epoch. Another loader continues from this state with the next
// batch.
func ExampleLoader_StateDict() {
	c := data.Config{Batch: 2, Shuffle: true, Seed: 1, Workers: 2}
	loader, err := data.NewLoader(table{10}, c)
	if err != nil {
		log.Fatal(err)
	}
	var state map[string]any
	for batch, err := range loader.Batches() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(batch.Index)
		if batch.Index[0] == 1 { // the training is interrupted here
			state = loader.StateDict()
			break
		}
	}
	resumed, err := data.NewLoader(table{10}, c)
	if err != nil {
		log.Fatal(err)
	}
	if err := resumed.LoadStateDict(state); err != nil {
		log.Fatal(err)
	}
	for batch := range resumed.Batches() {
		fmt.Println("resumed", batch.Index)
	}
	// Output:
	// [6 3]
	// [1 9]
	// resumed [7 4]
	// resumed [8 2]
	// resumed [0 5]
}

// A loop ends when its context is cancelled.
func ExampleLoader_BatchesContext() {
	loader, err := data.NewLoader(table{10}, data.Config{Batch: 2})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for batch, err := range loader.BatchesContext(ctx) {
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(batch.Index)
		cancel()
	}
	// Output:
	// [0 1]
	// data: epoch 0, batch 1: context canceled
}

// augmented is a dataset whose samples are shifted by random numbers.
type augmented struct{ table }

func (d augmented) GetRand(i int, rng *rand.Rand) (data.Sample, error) {
	s, err := d.Get(i)
	s.X = []float32{float32(i) + float32(rng.IntN(100))/100}
	return s, err
}

// The random numbers of a sample depend only on the seed, the epoch and the index, not on the
// number of workers.
func ExampleRandDataset() {
	for _, workers := range []int{1, 4} {
		loader, err := data.NewLoader(augmented{table{3}}, data.Config{Batch: 3, Seed: 2, Workers: workers})
		if err != nil {
			log.Fatal(err)
		}
		for range 2 {
			for batch := range loader.Batches() {
				fmt.Println(batch.X.Squeeze(1))
			}
		}
	}
	// Output:
	// tensor([0.6600, 1.9800, 2.3600])
	// tensor([0.1900, 1.9900, 2.3300])
	// tensor([0.6600, 1.9800, 2.3600])
	// tensor([0.1900, 1.9900, 2.3300])
}

// Samples that are maps become batches that are maps of tensors and of lists of strings.
func ExampleCollate() {
	batch, err := data.Collate([]data.Sample{
		{X: map[string]any{"ids": []int64{1, 2}, "text": "so"}, Y: 0},
		{X: map[string]any{"ids": []int64{3, 4}, "text": "it goes"}, Y: 1},
	})
	if err != nil {
		log.Fatal(err)
	}
	inputs := batch.Nested.X.(map[string]any)
	fmt.Println(inputs["ids"])
	fmt.Printf("%q\n", inputs["text"])
	fmt.Println(batch.Y)
	// Output:
	// tensor([[1, 2],
	//         [3, 4]])
	// ["so" "it goes"]
	// tensor([0, 1])
}

// CollateValues collates one value of each sample. Collate calls it for the values X and for the
// values Y.
func ExampleCollateValues() {
	v, err := data.CollateValues([]any{[]any{1.5, "a"}, []any{2.5, "b"}})
	fmt.Println(v, err)
	// Output: [tensor([1.5000, 2.5000], dtype=torch.float64) [a b]] <nil>
}

// Skip leaves out samples that fail to load.
func ExampleConfig() {
	loader, err := data.NewLoader(table{20}, data.Config{Batch: 5, Skip: true, OnSkip: func(e *data.SampleError) { fmt.Println("left out:", e) }})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range loader.Batches() {
		fmt.Println(batch.Index, err)
	}
	fmt.Println(loader.Skipped())
	// Output:
	// [0 1 2 3 4] <nil>
	// [5 6 7 8 9] <nil>
	// left out: data: sample 13: unlucky
	// [10 11 12 14] <nil>
	// [15 16 17 18 19] <nil>
	// 1
}

func ExampleDistributedSampler() {
	for rank := range 2 {
		s, err := data.NewDistributedSampler(5, data.DistributedConfig{Rank: rank, World: 2})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(rank, slices.Collect(s.Indices(0)))
	}
	// Output:
	// 0 [0 2 4]
	// 1 [1 3 0]
}

// A weighted sampler draws rare samples more often than they occur in the dataset.
func ExampleWeightedRandomSampler() {
	s, err := data.NewWeightedRandomSampler([]float64{0, 1, 0, 3}, 8, true, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(slices.Collect(s.Indices(0)))
	// Output: [1 3 1 3 3 3 1 1]
}

// Sentences of similar length come in the same batch.
func ExampleLengthSampler() {
	s, err := data.NewLengthSampler([]int{3, 30, 5, 28, 4, 31}, data.LengthConfig{Batch: 3, Bounds: []int{10}})
	if err != nil {
		log.Fatal(err)
	}
	for batch := range s.Batches(0) {
		fmt.Println(batch)
	}
	// Output:
	// [0 2 4]
	// [1 3 5]
}

// A batch sampler chooses the samples of every batch.
func ExampleBatchSampler() {
	s, err := data.NewBatchSampler(data.SubsetRandomSampler{Index: []int{1, 3, 5, 7}, Seed: 1}, 2, false)
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewLoader(table{8}, data.Config{Batches: s})
	if err != nil {
		log.Fatal(err)
	}
	for batch := range loader.Batches() {
		fmt.Println(batch.Index)
	}
	// Output:
	// [3 5]
	// [1 7]
}

// PadCollate pads sequences to the length of the longest in their batch.
func ExamplePadCollate() {
	batch, err := data.PadCollate(0)([]data.Sample{{X: []int64{5, 6, 7}, Y: 3}, {X: []int64{8}, Y: 1}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(batch.X)
	// Output:
	// tensor([[5, 6, 7],
	//         [8, 0, 0]])
}
