package train

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// A Metric is a number about a model's outputs that is added up batch by batch. Update queues its
// work on the output's device and reads nothing; Value reads once. A metric is used by one
// goroutine.
type Metric interface {
	Name() string
	// Update adds a batch: what the model gave and what was wanted. When it runs out of memory it
	// is called again with the same batch, and must have changed nothing.
	Update(output, target *tensor.Tensor)
	// Value is the metric of all batches since Reset; NaN if there were none.
	Value() float64
	Reset()
}

// A counter is a few numbers on a device, made on the device of the first batch.
type counter struct {
	t   dtype.Type
	n   int
	sum *tensor.Tensor
}

// on returns the numbers in scope s; they live on x's device.
func (c *counter) on(s *tensor.Scope, x *tensor.Tensor) *tensor.Tensor {
	if c.sum == nil {
		c.sum = tensor.Root().On(x.Device()).Typed(c.t).Zeros(c.n)
	} else if c.sum.Device() != x.Device() {
		c.sum.MoveTo(x.Device())
	}
	return c.sum.In(s)
}

// read returns the numbers, zeros before the first batch.
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

// update runs f without a graph in a scope under that of x.
func update(x *tensor.Tensor, f func(s *tensor.Scope)) { x.Scope().Do(f, tensor.NoGrad()) }

// rows returns class scores [..., C] as [N, C] and classes [...] as [N], both in s.
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

// A MeanMetric is a weighted mean of numbers that are on a device, as losses are.
type MeanMetric struct {
	name   string
	sum    counter
	weight float64
}

// NewMean returns an empty mean.
func NewMean(name string) *MeanMetric {
	return &MeanMetric{name: name, sum: counter{t: dtype.F64, n: 1}}
}

// Name returns the name.
func (m *MeanMetric) Name() string { return m.name }

// Add adds v, a tensor of one element, with a weight: the number of samples that it is the mean of.
func (m *MeanMetric) Add(v *tensor.Tensor, weight float64) {
	update(v, func(s *tensor.Scope) {
		m.sum.on(s, v).AddInPlace(v.In(s).Detach().Reshape(1).Double().MulScalar(weight))
	})
	m.weight += weight
}

// Value is the mean; NaN before the first Add.
func (m *MeanMetric) Value() float64 { return m.sum.read()[0] / m.weight }

// Reset forgets what was added.
func (m *MeanMetric) Reset() { m.sum.reset(); m.weight = 0 }

// AccuracyMetric is the part of samples whose class is among the k with the greatest scores.
type AccuracyMetric struct {
	name  string
	k     int
	right counter
	seen  int
}

// NewAccuracy returns the part of samples whose class has the greatest score (of equal scores the
// first counts). Scores are [..., classes], targets [...] of an integer type.
func NewAccuracy() *AccuracyMetric {
	return &AccuracyMetric{name: "accuracy", k: 1, right: counter{t: dtype.I64, n: 1}}
}

// NewTopK is [NewAccuracy] with the k greatest scores. k must be at least 1; where there are fewer
// classes all count.
func NewTopK(k int) *AccuracyMetric {
	if k < 1 {
		panic(&Error{"TopK", fmt.Sprintf("the %d greatest scores are asked for; at least 1 is needed", k)})
	}
	return &AccuracyMetric{name: fmt.Sprintf("top%d", k), k: k, right: counter{t: dtype.I64, n: 1}}
}

// Name is "accuracy", or for example "top5".
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
		m.right.on(s, output).AddInPlace(hit.Sum().Reshape(1))
	})
	m.seen += target.Size()
}

// Value is the part of samples that were right.
func (m *AccuracyMetric) Value() float64 { return m.right.read()[0] / float64(m.seen) }

// Reset forgets the batches.
func (m *AccuracyMetric) Reset() { m.right.reset(); m.seen = 0 }

// PerplexityMetric is e to the mean cross entropy, in nats, of all targets.
type PerplexityMetric struct {
	sum  counter // the entropies, and their number
	skip int64
}

// NewPerplexity returns the perplexity of scores [..., classes] for classes [...]. Targets equal to
// ignore do not count; PyTorch's losses ignore -100.
func NewPerplexity(ignore int64) *PerplexityMetric {
	return &PerplexityMetric{sum: counter{t: dtype.F64, n: 2}, skip: ignore}
}

// Name is "perplexity".
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
		m.sum.on(s, output).AddInPlace(tensor.Stack(0, nats, real.Sum().Double()))
	})
}

// Value is the perplexity.
func (m *PerplexityMetric) Value() float64 {
	v := m.sum.read()
	return math.Exp(v[0] / v[1])
}

// Reset forgets the batches.
func (m *PerplexityMetric) Reset() { m.sum.reset() }
