package train

import (
	"fmt"
	"math"

	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/tensor"
)

// RegressionMetric measures how far a model's outputs are from the targets, in the unit of the
// targets. Its Value is the RMSE.
type RegressionMetric struct {
	sums counter // sums of targets, of squared targets, of absolute errors and of squared errors
	seen int
}

// NewRegression returns a metric for outputs and targets of the same shape. An output may have an
// additional last dimension of size 1.
func NewRegression() *RegressionMetric {
	return &RegressionMetric{sums: counter{t: dtype.F64, n: 4}}
}

// Name returns "rmse".
func (m *RegressionMetric) Name() string { return "rmse" }

// Update adds a batch: outputs and targets of the same shape, or outputs [..., 1] and targets
// [...].
func (m *RegressionMetric) Update(output, target *tensor.Tensor) {
	update(output, func(s *tensor.Scope) {
		if r := target.Rank(); output.Rank() == r+1 && output.Dim(r) == 1 {
			output = output.In(s).Squeeze(r)
		}
		if fmt.Sprint(output.Shape()) != fmt.Sprint(target.Shape()) {
			panic(tensor.NewError("rmse", tensor.ErrShape, "outputs and targets are not of one shape", output, target))
		}
		y := target.In(s).Double()
		e := output.In(s).Detach().Double().Sub(y)
		m.sums.in(s, output).AddInPlace(tensor.Stack(0, y.Sum(), y.Mul(y).Sum(), e.Abs().Sum(), e.Mul(e).Sum()))
	})
	m.seen += target.Size()
}

// Value returns the root of the mean squared error, or NaN before the first batch.
func (m *RegressionMetric) Value() float64 { return math.Sqrt(m.sums.read()[3] / float64(m.seen)) }

// MAE returns the mean absolute error, or NaN before the first batch.
func (m *RegressionMetric) MAE() float64 { return m.sums.read()[2] / float64(m.seen) }

// R2 returns the coefficient of determination, 1 − Σ(ŷ−y)² / Σ(y−ȳ)². Here ŷ is an output, y its
// target and ȳ the mean of the targets. R2 is 1 if every output is right, and 0 for a model that
// always returns the mean of the targets. It is NaN if all targets are equal.
func (m *RegressionMetric) R2() float64 {
	v, n := m.sums.read(), float64(m.seen)
	spread := v[1] - float64(v[0]*v[0])/n
	if !(spread > 1e-14*v[1]) {
		return math.NaN()
	}
	return 1 - v[3]/spread
}

// Reset discards the batches.
func (m *RegressionMetric) Reset() { m.sums.reset(); m.seen = 0 }
