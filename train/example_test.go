package train_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// A metric accumulates on the device, batch by batch. Its value is read once, at the end.
func ExampleNewAccuracy() {
	accuracy := train.NewAccuracy()
	for range 3 {
		tensor.Do(func(s *tensor.Scope) {
			scores := s.From([][]float32{{2, 1, 0}, {0, 3, 1}, {1, 0, 0}})
			accuracy.Update(scores, s.From([]int64{0, 1, 2}))
		})
	}
	fmt.Printf("%s %.4f\n", accuracy.Name(), accuracy.Value())
	// Output: accuracy 0.6667
}

// A confusion matrix counts a batch and returns averages of its scores.
func ExampleNewConfusion() {
	c := train.NewConfusion(2)
	c.Update(tensor.From([][]float32{{1, 0}, {1, 0}, {0, 1}, {0, 1}}), tensor.From([]int64{0, 1, 1, 1}))
	fmt.Println(c.Matrix())
	s := c.PerClass()[1]
	fmt.Printf("precision %.2f, recall %.2f, F1 %.2f of %d\n", s.Precision, s.Recall, s.F1, s.Support)
	fmt.Printf("macro F1 %.3f\n", c.Average(train.Macro).F1)
	// Output:
	// [[1 0] [1 2]]
	// precision 1.00, recall 0.67, F1 0.80 of 3
	// macro F1 0.733
}

// NewMean averages the losses of batches of different sizes. Each loss is a mean over its batch.
func ExampleMeanMetric() {
	loss := train.NewMean("loss")
	loss.Add(tensor.From(float32(1)), 32)
	loss.Add(tensor.From(float32(4)), 16)
	fmt.Println(loss.Value())
	// Output: 2
}

// A uniform distribution over four words has a perplexity of four.
func ExampleNewPerplexity() {
	p := train.NewPerplexity(-100)
	p.Update(tensor.Zeros(1, 3, 4), tensor.From([][]int64{{0, 3, -100}}))
	fmt.Printf("%.4f\n", p.Value())
	// Output: 4.0000
}

// Two evaluations in a row without a smaller loss end the training.
func ExampleEarlyStopping() {
	e := train.EarlyStopping{Patience: 2}
	for _, loss := range []float64{0.9, 0.6, 0.7, 0.5, 0.6, 0.5, 0.4} {
		if e.Observe(loss) {
			fmt.Println("stopped at", loss)
			break
		}
	}
	fmt.Println("best:", e.Best())
	// Output:
	// stopped at 0.5
	// best: 0.5
}

// The example is a whole training: six epochs over a table. It evaluates after each epoch, and
// saves checkpoints from which a later run can continue.
func Example() {
	tensor.ManualSeed(1)
	x := tensor.Root().Randn(200, 2)
	y := x.Select(1, 0).Gt(x.Select(1, 1)).Long() // 1 if the first number is greater, else 0
	set, err := data.NewTensorDataset(x, y)
	if err != nil {
		log.Fatal(err)
	}
	loader, err := data.NewLoader(set, data.Config{Batch: 20, Shuffle: true, Seed: 1})
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	model := nn.NewLinear(2, 2)
	result, err := train.Fit(context.Background(), train.Config{
		Model: model, Optimizer: optim.NewAdamW(nn.Parameters(model), optim.AdamConfig{LR: 0.1}), Train: loader, Epochs: 6,
		Valid: loader, Metrics: []train.Metric{train.NewAccuracy()}, Watch: "accuracy", Maximize: true,
		// Resume starts a new training if there is no checkpoint.
		Checkpoints: dir, KeepBest: true, Resume: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Step, "steps,", result.Epoch, "epochs, accuracy over 0.95:", result.Metrics["accuracy"] > 0.95)
	fmt.Println(result.LoadBest(model)) // replaces the last weights by the best
	// Output:
	// 60 steps, 6 epochs, accuracy over 0.95: true
	// <nil>
}
