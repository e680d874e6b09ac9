package train

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/optim"
	"github.com/flambeau-go/flambeau/tensor"
)

// fewSteps returns the configuration of a training with the given number of steps.
func fewSteps(t *testing.T, steps int) Config {
	t.Helper()
	set, err := data.NewTensorDataset(tensor.Ones(steps*2, 3), tensor.From(make([]int64, steps*2)))
	if err != nil {
		t.Fatal(err)
	}
	loader, err := data.NewLoader(set, data.Config{Batch: 2})
	if err != nil {
		t.Fatal(err)
	}
	m := nn.NewLinear(3, 2)
	return Config{Model: m, Optimizer: optim.NewSGD(nn.Parameters(m), optim.SGDConfig{LR: 0.1}), Train: loader, Epochs: 1}
}

// The progress line shows a loss even if the training has fewer steps than ReadEvery.
func TestLossOnTheLineOfShortRuns(t *testing.T) {
	tr, err := newTrainer(fewSteps(t, 3))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.close()
	var b bytes.Buffer
	tr.bar = &Progress{w: &b, terminal: true}
	if _, err := tr.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(b.String(), "\r"); len(lines) < 3 || !regexp.MustCompile(`1/3 +loss \d+\.\d{4}`).MatchString(lines[1]) ||
		!regexp.MustCompile(`3/3 +loss \d+\.\d{4}`).MatchString(lines[2]) {
		t.Errorf("%q", b.String())
	}
}

// An evaluation shows its progress: a bar on a terminal, and elsewhere a line from time to time.
func TestEvaluationShowsProgress(t *testing.T) {
	was := lineEvery
	defer func() { lineEvery = was }()
	lineEvery = 0
	c := fewSteps(t, 3)
	var b bytes.Buffer
	c.Log = &b
	if _, err := Evaluate(t.Context(), c, c.Train); err != nil || !strings.Contains(b.String(), "evaluation: batch 2 of 3, 0s left\n") {
		t.Errorf("%v, %q", err, b.String())
	}
	lineEvery = time.Hour
	b.Reset()
	if _, err := Evaluate(t.Context(), c, c.Train); err != nil || b.Len() > 0 {
		t.Errorf("%v, %q", err, b.String())
	}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.evaluate(t.Context(), c.Train, &Progress{w: &b, terminal: true}); err != nil || !strings.Contains(b.String(), "3/3  evaluation") {
		t.Errorf("%v, %q", err, b.String())
	}
}
