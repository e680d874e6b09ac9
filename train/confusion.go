package train

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// An Average selects how the scores of single classes are combined. It is scikit-learn's argument
// average.
type Average uint8

// These are the averages. Macro and Weighted leave out a class that is neither a target nor a guess
// of any sample.
const (
	Macro Average = iota // the plain mean over classes
	// Micro is the score of all samples together. With one label for each sample it is the
	// accuracy.
	Micro
	Weighted // the mean weighted by the number of targets of each class
)

func (a Average) String() string {
	switch a {
	case Macro:
		return "macro"
	case Micro:
		return "micro"
	case Weighted:
		return "weighted"
	}
	return fmt.Sprintf("Average(%d)", uint8(a))
}

// A Confusion is a confusion matrix: it counts how many samples of each class the model assigned to
// each class. Precision, recall and F1 follow from these counts.
type Confusion struct {
	classes int
	cells   counter
}

// NewConfusion returns an empty matrix for this number of classes.
func NewConfusion(classes int) *Confusion {
	if classes < 1 || classes > 1<<15 {
		panic(&Error{"Confusion", fmt.Sprintf("%d classes; 1 to %d are possible", classes, 1<<15)})
	}
	return &Confusion{classes: classes, cells: counter{t: dtype.I64, n: classes * classes}}
}

// Update adds a batch. output holds scores [..., classes], whose maximum is the guess. target holds
// classes [...]. A target that is not a class causes an index error. A GPU reports the error at the
// next wait.
func (c *Confusion) Update(output, target *tensor.Tensor) {
	update(output, func(s *tensor.Scope) {
		scores, classes := rows("confusion", s, output, target)
		if scores.Dim(1) != c.classes {
			panic(tensor.NewError("confusion", tensor.ErrShape, fmt.Sprintf("scores of %d classes for a matrix of %d", scores.Dim(1), c.classes), output))
		}
		cells := c.cells.in(s, output)
		// hits has a row for each sample, with a 1 for the guess. The row is added to the cells of
		// the target's class. So a target that is not a class cannot count as another class.
		hits := s.On(output.Device()).Typed(dtype.I64).Zeros(scores.Dim(0), c.classes).
			ScatterScalar(1, scores.Argmax(-1).Unsqueeze(1), 1)
		cells.View(c.classes, c.classes).IndexAddInPlace(0, classes.Long(), hits, 1)
	})
}

// Reset discards the counts.
func (c *Confusion) Reset() { c.cells.reset() }

// Matrix returns the counts. Matrix()[i][j] is the number of samples of class i for which the model
// guessed class j.
func (c *Confusion) Matrix() [][]int64 {
	flat := c.cells.read()
	m := make([][]int64, c.classes)
	for i := range m {
		m[i] = make([]int64, c.classes)
		for j := range m[i] {
			m[i][j] = int64(flat[i*c.classes+j])
		}
	}
	return m
}

// Scores holds the scores of one class, or averages over classes.
type Scores struct {
	Precision float64 // right guesses / guesses of the class; 0 without guesses
	Recall    float64 // right guesses / samples of the class; 0 without samples
	F1        float64 // 2·right guesses / (guesses + samples)
	Support   int64   // number of samples of the class
}

func scores(tp, guessed, actual int64) Scores {
	part := func(a, b int64) float64 {
		if b == 0 {
			return 0
		}
		return float64(a) / float64(b)
	}
	return Scores{part(tp, guessed), part(tp, actual), part(2*tp, guessed+actual), actual}
}

// PerClass returns the scores of every class, as scikit-learn's precision_recall_fscore_support
// with zero_division=0.
func (c *Confusion) PerClass() []Scores { return perClass(c.Matrix()) }

func perClass(m [][]int64) []Scores {
	out := make([]Scores, len(m))
	for i := range m {
		var guessed, is int64
		for j := range m {
			is += m[i][j]
			guessed += m[j][i]
		}
		out[i] = scores(m[i][i], guessed, is)
	}
	return out
}

// Average returns the scores averaged over the classes. Its Support is the number of samples.
// Without samples the scores are NaN.
func (c *Confusion) Average(a Average) Scores {
	m := c.Matrix()
	var total, right int64
	guessed := make([]int64, len(m))
	for i := range m {
		right += m[i][i]
		for j, n := range m[i] {
			total += n
			guessed[j] += n
		}
	}
	if total == 0 {
		return Scores{math.NaN(), math.NaN(), math.NaN(), 0}
	}
	if a == Micro {
		return scores(right, total, total)
	}
	var sum Scores
	weights := 0.0
	for i, s := range perClass(m) {
		if s.Support == 0 && guessed[i] == 0 {
			continue
		}
		w := 1.0
		if a == Weighted {
			w = float64(s.Support)
		}
		weights += w
		sum.Precision += w * s.Precision
		sum.Recall += w * s.Recall
		sum.F1 += w * s.F1
	}
	return Scores{sum.Precision / weights, sum.Recall / weights, sum.F1 / weights, total}
}

// Name returns "confusion".
func (c *Confusion) Name() string { return "confusion" }

// Value returns the accuracy, the fraction of samples on the diagonal. It makes a Confusion a
// [Metric].
func (c *Confusion) Value() float64 { return c.Average(Micro).Recall }

// A ClassMetric is an averaged precision, recall or F1 score.
type ClassMetric struct {
	*Confusion
	name  string
	score func(Scores) float64
	a     Average
}

// NewPrecision returns the averaged precision over this number of classes. Its name is
// "precision_macro", "precision_micro" or "precision_weighted".
func NewPrecision(classes int, a Average) *ClassMetric {
	return &ClassMetric{NewConfusion(classes), "precision_" + a.String(), func(s Scores) float64 { return s.Precision }, a}
}

// NewRecall returns the averaged recall over this number of classes.
func NewRecall(classes int, a Average) *ClassMetric {
	return &ClassMetric{NewConfusion(classes), "recall_" + a.String(), func(s Scores) float64 { return s.Recall }, a}
}

// NewF1 returns the averaged F1 score over this number of classes.
func NewF1(classes int, a Average) *ClassMetric {
	return &ClassMetric{NewConfusion(classes), "f1_" + a.String(), func(s Scores) float64 { return s.F1 }, a}
}

// Name returns the name of the score and of the average, such as "f1_macro".
func (m *ClassMetric) Name() string { return m.name }

// Value returns the averaged score.
func (m *ClassMetric) Value() float64 { return m.score(m.Average(m.a)) }
