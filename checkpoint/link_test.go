package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A checkpoint or its directory may be a symbolic link. Load follows the link, and a store does not
// remove its target. Load reports a dangling link, and the link stays.
func TestLinkedCheckpoints(t *testing.T) {
	dir, far := t.TempDir(), t.TempDir()
	target := filepath.Join(far, "kept.safetensors")
	if err := Write(target, at0(5), Info{Step: 5}); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, PathOf(dir, 5)); err != nil {
		t.Skip(err) // Windows needs permission to make links
	}
	linked := filepath.Join(far, "checkpoints")
	lost := PathOf(dir, 7)
	if err := errors.Join(os.Symlink(filepath.Join(far, "gone"), lost), os.Symlink(dir, linked)); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, linked} {
		if list, err := List(d); err != nil || len(list) != 1 || list[0].Info.Step != 5 {
			t.Errorf("%v, %v", list, err)
		}
		l, err := Load(d)
		if err != nil || l.Info.Step != 5 || l.Path != PathOf(d, 5) {
			t.Fatalf("%+v, %v", l, err)
		}
		if len(l.Damaged) != 1 || !strings.Contains(l.Damaged[0].Error(), lost[len(dir):]) || !strings.Contains(l.Damaged[0].Error(), "symbolic link to ") {
			t.Errorf("%v", l.Damaged)
		}
	}
	s, err := Open(Config{Dir: linked, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(); err != nil {
		t.Error(err)
	}
	save(t, s, 8)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(PathOf(dir, 5)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link is no longer among those to keep: %v", err)
	}
	_, lerr := os.Lstat(lost)
	_, _, rerr := Read(target)
	if lerr != nil || rerr != nil {
		t.Errorf("%v, %v", lerr, rerr)
	}
	if err := os.Remove(PathOf(dir, 8)); err != nil {
		t.Fatal(err)
	}
	var e *Error
	if _, err := Load(dir); !errors.As(err, &e) || !strings.Contains(err.Error(), "none of the checkpoints can be used") ||
		!strings.Contains(err.Error(), lost) {
		t.Errorf("%v", err)
	}
}
