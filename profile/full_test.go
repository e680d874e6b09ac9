//go:build linux || darwin

package profile_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/flambeau-go/flambeau/internal/fulldisk"
	"github.com/flambeau-go/flambeau/profile"
)

// TestFullDisk writes a profile while the system does not let files grow beyond 1 KiB, so a write
// fails before its end. The old file must stay, no other file may remain, and a typed error must
// give the reason.
func TestFullDisk(t *testing.T) {
	dir := fulldisk.Dir(t)
	if dir == "" {
		return
	}
	tr := newTrainer(open(t))
	p := recorded(t, allOptions, func(*profile.Profile) {
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
	empty := fulldisk.Fill(t, 1<<10)
	var failed []error
	for _, name := range names {
		failed = append(failed, p.WriteFile(filepath.Join(dir, name)))
	}
	empty()
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
