package train_test

import (
	"context"
	"math"
	"testing"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/train"
)

// If a batch does not fit, it is evaluated in parts. The loss and the metrics equal those of the
// whole batch.
func TestEvaluationInParts(t *testing.T) {
	set := pictures(t, 60)
	var got [2]map[string]float64
	for i, spec := range []string{"mem=64MiB,segment=64KiB", "mem=1MiB,segment=16KiB"} {
		m, err := convNet(emulate(t, spec)), error(nil)
		c := train.Config{Model: m, Metrics: []train.Metric{train.NewAccuracy()}}
		if got[i], err = train.Evaluate(context.Background(), c, loader(t, set, data.Config{Batch: 50})); err != nil {
			t.Fatal(err)
		}
	}
	if d := math.Abs(got[0]["loss"] - got[1]["loss"]); d > 1e-6 || got[0]["accuracy"] != got[1]["accuracy"] {
		t.Errorf("%v in parts, %v whole", got[1], got[0])
	}
}
