package train_test

import (
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// RMSE, MAE and R² over two batches equal scikit-learn's over all samples. The samples are the
// example in r2_score's documentation: targets 3, -0.5, 2, 7 and outputs 2.5, 0, 2, 8, whose R² is
// 0.948608….
func TestRegressionMetric(t *testing.T) {
	m := train.NewRegression()
	if !math.IsNaN(m.Value()) || !math.IsNaN(m.R2()) {
		t.Error(m.Value(), m.R2())
	}
	tensor.Do(func(s *tensor.Scope) {
		m.Update(s.From([]float32{2.5, 0, 2}), s.From([]float32{3, -0.5, 2}))
		m.Update(s.From([]float32{8}, 1, 1), s.From([]float32{7}))
	})
	if d := math.Abs(m.R2() - 0.9486081370449679); d > 1e-12 || m.MAE() != 0.5 || math.Abs(m.Value()-math.Sqrt(0.375)) > 1e-12 || m.Name() != "rmse" {
		t.Error(m.R2(), m.MAE(), m.Value())
	}
	if err := tensor.Try(func() {
		tensor.Do(func(s *tensor.Scope) { m.Update(s.From([]float32{1, 2}), s.From([]float32{1})) })
	}); err == nil {
		t.Error("outputs of another shape are taken")
	}
	m.Reset()
	tensor.Do(func(s *tensor.Scope) { m.Update(s.From([]float32{1, 2}), s.From([]float32{0.1, 0.1})) })
	if !math.IsNaN(m.R2()) {
		t.Error(m.R2())
	}
}
