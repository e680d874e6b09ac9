package train_test

import (
	"fmt"

	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// A metric adds up on the device, batch by batch, and is read once at the end.
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

// Which class was taken for which, and the averages that follow.
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

// Losses that are means over batches of different sizes.
func ExampleMeanMetric() {
	loss := train.NewMean("loss")
	loss.Add(tensor.From(float32(1)), 32)
	loss.Add(tensor.From(float32(4)), 16)
	fmt.Println(loss.Value())
	// Output: 2
}

// The perplexity of guessing among four words without knowing anything is four.
func ExampleNewPerplexity() {
	p := train.NewPerplexity(-100)
	p.Update(tensor.Zeros(1, 3, 4), tensor.From([][]int64{{0, 3, -100}}))
	fmt.Printf("%.4f\n", p.Value())
	// Output: 4.0000
}

// A loss that has not fallen for two evaluations ends the training at the third.
func ExampleEarlyStopping() {
	e := train.EarlyStopping{Patience: 2}
	for _, loss := range []float64{0.9, 0.5, 0.6, 0.5, 0.7} {
		fmt.Println(loss, e.Observe(loss))
	}
	fmt.Println("best:", e.Best())
	// Output:
	// 0.9 false
	// 0.5 false
	// 0.6 false
	// 0.5 false
	// 0.7 true
	// best: 0.5
}
