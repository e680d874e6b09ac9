package train_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/train"
)

// The mean loss that is told of an epoch is of that epoch alone, after a resume too.
func TestEpochLossAfterResume(t *testing.T) {
	cpu := devices(t)[0]
	last := func(dir string, epochs int) string {
		c, log := setup(t, cpu), &strings.Builder{}
		c.Epochs, c.Checkpoints, c.Resume, c.Log, c.Valid = epochs, dir, true, log, nil
		fit(t, c)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		return lines[len(lines)-1]
	}
	whole, dir := last(t.TempDir(), 2), t.TempDir()
	last(dir, 1)
	if text := last(dir, 2); text != whole || !strings.HasPrefix(text, "epoch 2: loss ") {
		t.Errorf("%q, without a resume %q", text, whole)
	}
}

// A training that had a schedule does not quietly go on without one, and one that is over says so.
func TestResumeWithoutTheSchedule(t *testing.T) {
	cpu, dir := devices(t)[0], t.TempDir()
	begin := func() (train.Config, *strings.Builder) {
		c, log := setup(t, cpu), &strings.Builder{}
		c.Epochs, c.Checkpoints, c.Resume, c.Log = 1, dir, true, log
		return c, log
	}
	c, _ := begin()
	fit(t, c)
	c, _ = begin()
	c.Schedule = nil
	var e *checkpoint.Error
	if _, err := train.Fit(t.Context(), c); !errors.As(err, &e) || e.Part != "schedule" || e.Path == "" {
		t.Errorf("%v", err)
	}
	c, log := begin()
	if r := fit(t, c); r.Fresh != 0 || !strings.Contains(log.String(), "no steps are left") {
		t.Errorf("%+v\n%s", r, log)
	}
}
