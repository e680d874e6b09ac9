//go:build linux || darwin

package train_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/internal/fulldisk"
	"github.com/flambeau-go/flambeau/train"
)

// The disk becomes full at some step, and the training goes on to its end. The log says
// immediately, and only once, what could not be written, and Fit returns that error. A resumed
// training continues from the last checkpoint that was written.
func TestFullDisk(t *testing.T) {
	dir := fulldisk.Dir(t)
	if dir == "" {
		return
	}
	cpu := devices(t)[0]
	whole := setup(t, cpu)
	fit(t, whole)
	c, log := setup(t, cpu), &strings.Builder{}
	c.Checkpoints, c.Every, c.TensorBoard, c.Log = dir+"/c", 4, dir+"/e", log
	var empty func()
	c.OnStep = func(s *train.State) error {
		if s.Step == 10 {
			empty = fulldisk.Fill(t, 1<<9)
		}
		return nil
	}
	r, err := train.Fit(t.Context(), c)
	empty()
	var e *checkpoint.Error
	if r == nil || r.Reason != train.Finished || r.Step != 36 || !errors.As(err, &e) || !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), "tensorboard: ") {
		t.Errorf("%+v, %v", r, err)
	}
	if strings.Count(log.String(), "the events for TensorBoard could not be written") != 1 || !strings.Contains(log.String(), "the checkpoint of step 12 could not be written") {
		t.Error(log.String())
	}
	if weights(t, c) != weights(t, whole) {
		t.Error("other bits than with room")
	}
	c = setup(t, cpu)
	c.Checkpoints, c.Resume, c.TensorBoard = dir+"/c", true, dir+"/e"
	if r := fit(t, c); r.Resumed == "" || r.Fresh > 8*(36-4) || weights(t, c) != weights(t, whole) {
		t.Errorf("%+v", r)
	}
}
