package train_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/train"
)

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
