package train_test

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/train"
)

// devices returns the CPU and an emulated GPU. With -short, which the race detector uses, it
// returns only the CPU, because the emulator has its own tests for the race detector.
func devices(t *testing.T) []device.Device {
	t.Helper()
	cpu, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		return []device.Device{cpu}
	}
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	return []device.Device{cpu, gpus[0]}
}

type metricsCase struct {
	Scores                 [][]float32
	Target                 []int64
	Accuracy, Top3         float64
	Confusion              [][]int64
	Macro, Micro, Weighted []float64
	Classes                [][]float64
	Perplexity             float64
}

func near(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-6*(1+math.Abs(b))
}

// Metrics equal scikit-learn's and torch's, for any division of the samples into batches.
func TestMetricsEqualSklearn(t *testing.T) {
	f, err := os.Open("testdata/metrics.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []metricsCase }
	if err := json.NewDecoder(z).Decode(&file); err != nil || len(file.Cases) < 3 {
		t.Fatal(len(file.Cases), err)
	}
	for i, c := range file.Cases {
		classes := len(c.Scores[0])
		ignored := make([]int64, len(c.Target))
		for k, v := range c.Target {
			if ignored[k] = v; k%5 == 0 {
				ignored[k] = -100
			}
		}
		for _, dev := range devices(t) {
			matrix, perplexity := train.NewConfusion(classes), train.NewPerplexity(-100)
			want := map[train.Metric]float64{train.NewAccuracy(): c.Accuracy, train.NewTopK(3): c.Top3, matrix: c.Accuracy}
			for a, v := range map[train.Average][]float64{train.Macro: c.Macro, train.Micro: c.Micro, train.Weighted: c.Weighted} {
				want[train.NewPrecision(classes, a)] = v[0]
				want[train.NewRecall(classes, a)] = v[1]
				want[train.NewF1(classes, a)] = v[2]
			}
			for range 2 { // the second iteration runs after Reset
				for at, size := 0, 1; at < len(c.Target); at, size = at+size, size*3 {
					end := min(at+size, len(c.Target))
					tensor.Do(func(s *tensor.Scope) {
						scores := s.From(c.Scores[at:end])
						for m := range want {
							m.Update(scores, s.From(c.Target[at:end]))
						}
						perplexity.Update(scores, s.From(ignored[at:end]))
					}, tensor.On(dev))
				}
				for m, v := range want {
					if got := m.Value(); !near(got, v) {
						t.Errorf("case %d, %s: %s is %v, want %v", i, dev.Name(), m.Name(), got, v)
					}
				}
				if got := perplexity.Value(); !near(got, c.Perplexity) {
					t.Errorf("case %d, %s: perplexity %v, want %v", i, dev.Name(), got, c.Perplexity)
				}
				for k, row := range matrix.Matrix() {
					for j, n := range row {
						if n != c.Confusion[k][j] {
							t.Errorf("case %d, %s: cell %d,%d is %d, want %d", i, dev.Name(), k, j, n, c.Confusion[k][j])
						}
					}
				}
				for k, s := range matrix.PerClass() {
					w := c.Classes[k]
					if !near(s.Precision, w[0]) || !near(s.Recall, w[1]) || !near(s.F1, w[2]) || float64(s.Support) != w[3] {
						t.Errorf("case %d, %s: class %d has %+v, want %v", i, dev.Name(), k, s, w)
					}
				}
				for m := range want {
					m.Reset()
					if !math.IsNaN(m.Value()) {
						t.Errorf("%s of nothing is %v", m.Name(), m.Value())
					}
				}
				perplexity.Reset()
			}
		}
	}
}

func TestMeanAndSequences(t *testing.T) {
	for _, dev := range devices(t) {
		mean, accuracy := train.NewMean("loss"), train.NewAccuracy()
		tensor.Do(func(s *tensor.Scope) {
			mean.Add(s.From(float32(2)), 3)
			mean.Add(s.From(float64(4)), 1)
			// two sequences of three tokens, with two classes
			accuracy.Update(s.From([][][]float32{{{1, 0}, {0, 1}, {1, 0}}, {{0, 1}, {0, 1}, {0, 1}}}), s.From([][]int32{{0, 1, 1}, {1, 0, 1}}))
		}, tensor.On(dev))
		if mean.Value() != 2.5 || !near(accuracy.Value(), 4./6) {
			t.Errorf("%s: %v %v", dev.Name(), mean.Value(), accuracy.Value())
		}
		err := tensor.Try(func() { accuracy.Update(tensor.Ones(3, 2), tensor.Ones(3)) })
		if err == nil {
			t.Error("targets that are no integers")
		}
		err = tensor.Try(func() { train.NewConfusion(3).Update(tensor.Ones(3, 2), tensor.From([]int64{0, 1, 1})) })
		if err == nil {
			t.Error("two classes for a matrix of three")
		}
	}
}

// Targets may have small integer types.
func TestPerplexityOfBytes(t *testing.T) {
	p := train.NewPerplexity(-100)
	p.Update(tensor.Zeros(2, 4), tensor.From([]uint8{1, 3}))
	if v := p.Value(); !near(v, 4) {
		t.Error(v)
	}
}

func TestEarlyStopping(t *testing.T) {
	nan := math.NaN()
	for i, c := range []struct {
		e      train.EarlyStopping
		values []float64
		// index of the value at which the training stops; the number of values if it does not
		stopAt int
		best   float64
	}{
		{train.EarlyStopping{Patience: 2}, []float64{3, 2, 2, 2.5}, 3, 2},
		{train.EarlyStopping{Patience: 1}, []float64{3, 2, 2, 2.5}, 2, 2},
		{train.EarlyStopping{Patience: 0}, []float64{3, 2, 1, 1}, 3, 1},
		{train.EarlyStopping{Patience: 2, Maximize: true}, []float64{.5, .4, .6, .6, .7, .7}, 6, .7},
		{train.EarlyStopping{Patience: 2, MinDelta: .5}, []float64{3, 2.6, 2.4, 2, 2.2}, 4, 2.4},
		{train.EarlyStopping{Patience: 2}, []float64{nan, 4, nan, nan}, 3, 4},
		{train.EarlyStopping{Patience: 2}, []float64{nan, nan}, 1, nan},
	} {
		at := len(c.values)
		for k, v := range c.values {
			copied := train.EarlyStopping{Patience: c.e.Patience, MinDelta: c.e.MinDelta, Maximize: c.e.Maximize}
			if err := copied.LoadStateDict(c.e.StateDict()); err != nil {
				t.Fatal(err)
			}
			stop := c.e.Observe(v)
			if stop != copied.Observe(v) {
				t.Errorf("case %d: a restored one decides otherwise", i)
			}
			if stop {
				at = k
				break
			}
		}
		if at != c.stopAt || !near(c.e.Best(), c.best) {
			t.Errorf("case %d: stopped at %d with best %v", i, at, c.e.Best())
		}
	}
	if err := (&train.EarlyStopping{}).LoadStateDict(map[string]any{"best": "x"}); err == nil {
		t.Error("this is no state")
	}
}
