//go:build linux || darwin

package checkpoint

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/flambeau-go/flambeau/internal/fulldisk"
	"github.com/flambeau-go/flambeau/tensor"
)

// On a full disk a write fails before its end. Here the system does not let files of this process
// grow beyond 1 MiB. The older checkpoint stays, and no other file remains. Later saves work when
// there is space again.
func TestFullDisk(t *testing.T) {
	dir := fulldisk.Dir(t)
	if dir == "" {
		return
	}
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	save := func(step int) error {
		tree := at0(step)
		tree["big"] = tensor.Ones(1 << 20)
		if err := s.Save(tree, Info{Step: step}); err != nil {
			t.Fatal(err)
		}
		return s.Wait()
	}
	if err := save(1); err != nil {
		t.Fatal(err)
	}
	empty := fulldisk.Fill(t, 1<<20)
	var e *Error
	if err := save(2); !errors.As(err, &e) || e.Path != PathOf(dir, 2) || !errors.Is(err, syscall.EFBIG) {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*.tmp-*")); len(left) != 0 || steps(t, dir) != "1" {
		t.Errorf("%v are left beside %s", left, steps(t, dir))
	}
	if l, err := s.Load(); err != nil || l.Info.Step != 1 {
		t.Error(err)
	}
	empty()
	if err := save(3); err != nil || steps(t, dir) != "1 3" {
		t.Errorf("%v, %s", err, steps(t, dir))
	}
}
