//go:build linux || darwin

package train_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/flambeau-go/flambeau/checkpoint"
	"github.com/flambeau-go/flambeau/train"
)

// A disk that is full from a step on: the training goes on to its end, says at once and once what could not be written, returns it, and can be gone on from where
// there was room.
func TestFullDisk(t *testing.T) {
	dir := os.Getenv("FLAMBEAU_TEST_FULL")
	if dir == "" { // in a process of its own: the limit is the process's
		c := exec.Command(os.Args[0], "-test.run", "^TestFullDisk$", "-test.v")
		c.Env = append(os.Environ(), "FLAMBEAU_TEST_FULL="+t.TempDir())
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	cpu := devices(t)[0]
	whole := setup(t, cpu)
	fit(t, whole)
	c, log := setup(t, cpu), &strings.Builder{}
	c.Checkpoints, c.Every, c.TensorBoard, c.Log = dir+"/c", 4, dir+"/e", log
	c.OnStep = func(s *train.State) error {
		if s.Step == 10 {
			return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 9, Max: old.Max})
		}
		return nil
	}
	r, err := train.Fit(t.Context(), c)
	if e := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); e != nil {
		t.Fatal(e)
	}
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
