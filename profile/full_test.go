//go:build linux || darwin

package profile_test

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/flambeau-go/flambeau/profile"
)

// A disk that takes no more: the system refuses to make files of this process longer than 1 KiB, in the middle of writing one. What was there
// before stays, nothing else is left, and there is an error of the kind that says why.
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
	tr := newTrainer(open(t))
	p := recorded(t, everything, func(*profile.Profile) {
		for range 5 {
			tr.step()
		}
	})
	names := []string{"a.json", "a.json.gz", "a.pb.gz", "a.stacks", "a.txt"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("before"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 10, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	var failed []error
	for _, name := range names {
		failed = append(failed, p.WriteFile(filepath.Join(dir, name)))
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		var e *profile.Error
		if !errors.As(failed[i], &e) || !errors.Is(failed[i], syscall.EFBIG) {
			t.Errorf("%s: %v", name, failed[i])
		}
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != "before" {
			t.Errorf("%s: %.20q, %v", name, b, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != len(names) {
		t.Errorf("%v is left, %v", left, err)
	}
	for _, name := range names {
		if err := p.WriteFile(filepath.Join(dir, name)); err != nil {
			t.Errorf("with room again: %v", err)
		}
	}
}
