package train

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Metric is a number that is computed from a model's outputs and accumulated batch by batch.
// Update queues its work on the output's device and reads nothing back. Value reads the device
// once. Use a metric from one goroutine only.
type Metric interface {
	Name() string
	// Update adds a batch: the model's output, and the target. A call that runs out of memory must
	// not change the metric, because Fit repeats it with the same batch.
	Update(output, target *tensor.Tensor)
	// Value returns the metric over all batches since Reset, or NaN if there are none.
	Value() float64
	Reset()
}

// A counter holds a few accumulated numbers on a device. The first batch allocates them there.
type counter struct {
	t   dtype.Type
	n   int
	sum *tensor.Tensor
}

// in returns the accumulated numbers as a tensor in scope s, on x's device.
func (c *counter) in(s *tensor.Scope, x *tensor.Tensor) *tensor.Tensor {
	if c.sum == nil {
		c.sum = tensor.Root().On(x.Device()).Typed(c.t).Zeros(c.n)
	} else if c.sum.Device() != x.Device() {
		c.sum.MoveTo(x.Device())
	}
	return c.sum.In(s)
}

// read returns the accumulated numbers. Before the first batch they are zeros.
func (c *counter) read() []float64 {
	if c.sum == nil {
		return make([]float64, c.n)
	}
	return c.sum.Floats()
}

func (c *counter) reset() {
	if c.sum != nil {
		c.sum.Free()
		c.sum = nil
	}
}

// update runs f without a graph, in a child of x's scope.
func update(x *tensor.Tensor, f func(s *tensor.Scope)) { x.Scope().Do(f, tensor.NoGrad()) }

// rows reshapes class scores [..., C] to [N, C] and classes [...] to [N]. Both results are in scope
// s.
func rows(op string, s *tensor.Scope, output, target *tensor.Tensor) (scores, classes *tensor.Tensor) {
	r := output.Rank()
	ok := r >= 1 && target.Rank() == r-1 && !target.Type().IsFloat()
	for i := 0; ok && i < r-1; i++ {
		ok = output.Dim(i) == target.Dim(i)
	}
	if !ok {
		panic(tensor.NewError(op, tensor.ErrShape, "scores of shape [..., classes] need integer classes of shape [...]", output, target))
	}
	return output.In(s).Detach().Reshape(-1, output.Dim(-1)), target.In(s).Reshape(-1)
}

// A MeanMetric is a weighted mean of numbers on a device, such as losses.
type MeanMetric struct {
	name   string
	sum    counter
	weight float64
}

// NewMean returns an empty mean with the given name.
func NewMean(name string) *MeanMetric {
	return &MeanMetric{name: name, sum: counter{t: dtype.F64, n: 1}}
}

// Name returns the name given to NewMean.
func (m *MeanMetric) Name() string { return m.name }

// Add adds the value of v, a tensor with one element, which is a mean over weight samples.
func (m *MeanMetric) Add(v *tensor.Tensor, weight float64) {
	update(v, func(s *tensor.Scope) {
		m.sum.in(s, v).AddInPlace(v.In(s).Detach().Reshape(1).Double().MulScalar(weight))
	})
	m.weight += weight
}

// Value returns the mean, or NaN before the first Add.
func (m *MeanMetric) Value() float64 { return m.sum.read()[0] / m.weight }

// Reset discards the values.
func (m *MeanMetric) Reset() { m.sum.reset(); m.weight = 0 }

// AccuracyMetric is the fraction of samples whose class is among the k classes with the greatest
// scores.
type AccuracyMetric struct {
	name  string
	k     int
	right counter
	seen  int
}

// NewAccuracy returns a metric: the fraction of samples whose class has the greatest score. Among
// equal scores the first score counts. Scores are [..., classes], and targets are [...] of an
// integer type.
func NewAccuracy() *AccuracyMetric {
	return &AccuracyMetric{name: "accuracy", k: 1, right: counter{t: dtype.I64, n: 1}}
}

// NewTopK returns a metric: the fraction of samples whose class has one of the k greatest scores. k
// must be at least 1. With fewer than k classes, every class counts.
func NewTopK(k int) *AccuracyMetric {
	if k < 1 {
		panic(&Error{"TopK", fmt.Sprintf("the %d greatest scores are asked for; at least 1 is needed", k)})
	}
	return &AccuracyMetric{name: fmt.Sprintf("top%d", k), k: k, right: counter{t: dtype.I64, n: 1}}
}

// Name returns "accuracy" or, for example, "top5".
func (m *AccuracyMetric) Name() string { return m.name }

// Update adds a batch of scores and classes.
func (m *AccuracyMetric) Update(output, target *tensor.Tensor) {
	update(output, func(s *tensor.Scope) {
		scores, classes := rows("accuracy", s, output, target)
		var hit *tensor.Tensor
		if m.k == 1 {
			hit = scores.Argmax(-1).Eq(classes)
		} else {
			_, best := scores.TopK(min(m.k, scores.Dim(1)), -1, true, true)
			hit = best.Eq(classes.Unsqueeze(1))
		}
		m.right.in(s, output).AddInPlace(hit.Sum().Reshape(1))
	})
	m.seen += target.Size()
}

// Value returns the fraction of samples that were classified correctly.
func (m *AccuracyMetric) Value() float64 { return m.right.read()[0] / float64(m.seen) }

// Reset discards the counts.
func (m *AccuracyMetric) Reset() { m.right.reset(); m.seen = 0 }

// PerplexityMetric is e to the power of the mean cross entropy over all targets.
type PerplexityMetric struct {
	sum  counter // sum of the cross entropies, and number of targets
	skip int64
}

// NewPerplexity returns the perplexity of scores [..., classes] for target classes [...]. A target
// equal to ignore does not count. PyTorch's losses ignore -100 by default.
func NewPerplexity(ignore int64) *PerplexityMetric {
	return &PerplexityMetric{sum: counter{t: dtype.F64, n: 2}, skip: ignore}
}

// Name returns "perplexity".
func (m *PerplexityMetric) Name() string { return "perplexity" }

// Update adds a batch of scores and classes.
func (m *PerplexityMetric) Update(output, target *tensor.Tensor) {
	update(output, func(s *tensor.Scope) {
		scores, classes := rows("perplexity", s, output, target)
		real := classes.NeScalar(float64(m.skip))
		safe := classes.Long().MaskedFill(real.LogicalNot(), 0)
		if !scores.Type().IsFloat() || scores.Type().Size() < 4 {
			scores = scores.Float()
		}
		nats := scores.LogSoftmax(-1).Gather(1, safe.Unsqueeze(1)).Squeeze(1).Double().MaskedFill(real.LogicalNot(), 0).Sum().Neg()
		m.sum.in(s, output).AddInPlace(tensor.Stack(0, nats, real.Sum().Double()))
	})
}

// Value returns the perplexity.
func (m *PerplexityMetric) Value() float64 {
	v := m.sum.read()
	return math.Exp(v[0] / v[1])
}

// Reset discards the batches.
func (m *PerplexityMetric) Reset() { m.sum.reset() }
