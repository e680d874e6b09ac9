package start_test

import (
	"fmt"
	"iter"
	"log"
	"math/rand/v2"
	"strings"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/data/table"
	"github.com/flambeau-go/flambeau/data/text"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

func Example_tensors() {
	x := tensor.From([][]float32{{0, 1}, {2, 3}, {4, 5}})
	y := tensor.From([]int64{0, 1, 0})
	set, err := data.NewTensorDataset(x, y)
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewLoader(set, data.Config{Batch: 2})
	if err != nil {
		log.Fatal(err)
	}
	for step, err := range loader.Steps() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(step.X.Shape(), step.Y)
	}
	// Output:
	// [2, 2] tensor([0, 1])
	// [1, 2] tensor([0])
}

func Example_inputs() {
	x := map[string]*tensor.Tensor{"user": tensor.From([]int64{0, 0, 1, 2}), "item": tensor.From([]int64{5, 7, 5, 6})}
	set, err := data.NewNamedDataset(x, tensor.From([]float32{4, 1, 3, 5}))
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewLoader(set, data.Config{Batch: 2})
	if err != nil {
		log.Fatal(err)
	}
	users, items := nn.NewEmbedding(3, 4), nn.NewEmbedding(8, 4)
	for step, err := range loader.Steps() {
		if err != nil {
			log.Fatal(err)
		}
		rating := users.Forward(step.Tensor("user")).Mul(items.Forward(step.Tensor("item"))).Sum(-1)
		fmt.Println(rating.Shape(), step.Y)
	}
	// Output:
	// [2] tensor([4., 1.])
	// [2] tensor([3., 5.])
}

// Squares is a dataset of the numbers 0, 1, 2, … and their squares.
type Squares struct{ N int }

func (d Squares) Len() int { return d.N }

func (d Squares) Get(i int) (data.Sample, error) {
	return data.Sample{X: []float32{float32(i)}, Y: []float32{float32(i * i)}}, nil
}

func Example_dataset() {
	known, held, err := split(Squares{10})
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewLoader(known, data.Config{Batch: 4, Shuffle: true, Workers: 2})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range loader.Batches() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(batch.X.Shape(), batch.Y.Shape())
	}
	fmt.Println(held.Len(), "are held out")
	// Output:
	// [4, 1] [4, 1]
	// [4, 1] [4, 1]
	// 2 are held out
}

func split(set data.Dataset) (known, held data.Dataset, err error) {
	parts, err := data.RandomSplitFractions(set, 1, 0.8, 0.2) // the seed is 1
	if err != nil {
		return nil, nil, err
	}
	return parts[0], parts[1], nil
}

func Example_subset() {
	few := data.Subset{Of: Squares{100}, Index: []int{3, 1, 4}}
	sample, err := few.Get(2)
	fmt.Println(few.Len(), sample.Y, err)
	// Output: 3 [16] <nil>
}

type Words [][]int64

func (w Words) Len() int                       { return len(w) }
func (w Words) Get(i int) (data.Sample, error) { return data.Sample{X: w[i], Y: i % 2}, nil }

func Example_padded() {
	words := Words{{5, 6, 7}, {8}, {9, 9}}
	loader := data.Must(data.NewLoader(words, data.Config{Batch: 2, Collate: data.PadCollate(0)}))
	for step, err := range loader.Steps() {
		if err != nil {
			log.Fatal(err)
		}
		lengths := step.X.NeScalar(0).Sum(1)
		fmt.Println(step.X, lengths)
	}
	// Output:
	// tensor([[5, 6, 7],
	//         [8, 0, 0]]) tensor([3, 1])
	// tensor([[9, 9]]) tensor([2])
}

func Example_noise() {
	noisy := data.Map(Squares{3}, func(s data.Sample, rng *rand.Rand) (data.Sample, error) {
		s.X = []float32{s.X.([]float32)[0] + rng.Float32()/100}
		return s, nil
	})
	loader, err := data.NewLoader(noisy, data.Config{Batch: 3, Seed: 1, Workers: 4})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range loader.Batches() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(batch.X.Round()) // the same values for any number of workers
	}
	// Output:
	// tensor([[0.],
	//         [1.],
	//         [2.]])
}

func Example_table() {
	const cars = "weight,color,price\n1.2,red,9000\n1.9,blue,15000\n,red,11000\n"
	t, err := table.Read(strings.NewReader(cars), table.Config{Target: "price", Number: true, Categories: map[string][]string{"color": {"red", "blue"}}, Missing: table.Mean})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Columns, t.X.Shape(), t.Y.Shape())
	// Output: [weight color] [3, 3] [3]
}

func Example_text() {
	chars, err := text.NewChars("to be or not to be")
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := chars.Encode("to be or not to be")
	if err != nil {
		log.Fatal(err)
	}
	// blocks of 8 characters; the target of each character is the next character
	blocks, err := text.NewBlocks(tokens, 8, 8)
	if err != nil {
		log.Fatal(err)
	}
	s, err := blocks.Get(0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(blocks.Len(), s.X, s.Y)
	// Output: 2 [6 4 0 1 2 0 4 5] [4 0 1 2 0 4 5 0]
}

func Example_stream() {
	lines := data.StreamFunc(func(int) iter.Seq2[data.Sample, error] {
		return func(yield func(data.Sample, error) bool) {
			for i, line := range []string{"one", "two", "three"} {
				if !yield(data.Sample{X: line, Y: i}, nil) {
					return
				}
			}
		}
	})
	loader, err := data.NewStreamLoader(lines, data.Config{Batch: 2})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range loader.Batches() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(batch.Nested.X, batch.Y)
	}
	// Output:
	// [one two] tensor([0, 1])
	// [three] tensor([2])
}
