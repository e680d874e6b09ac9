package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/safetensors"
)

func save(t *testing.T, s *Store, step int) {
	t.Helper()
	if err := s.Save(map[string]any{"n": int64(step)}, Info{Step: step}); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
}

func there(t *testing.T, path string, want bool) {
	t.Helper()
	if _, err := os.Lstat(path); (err == nil) != want {
		t.Errorf("%s: %v, want there: %v", filepath.Base(path), err, want)
	}
}

// Load skips a file that it cannot read for an external reason, such as missing permission. Later
// saves remove damaged files, but not this file.
func TestWhatIsNotDamagedIsNotRemoved(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, Keep: 4})
	if err != nil {
		t.Fatal(err)
	}
	save(t, s, 1)
	newer, damaged := PathOf(dir, 2), PathOf(dir, 3)
	if err := safetensors.Save(newer, nil, map[string]string{keyVersion: fmt.Sprint(version + 1)}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(damaged, []byte("no checkpoint"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := s.Load()
	if err != nil || l.Info.Step != 1 || len(l.Damaged) != 2 {
		t.Fatalf("%+v, %v", l, err)
	}
	if text := errors.Join(l.Damaged...).Error(); !strings.Contains(text, "it is of version 2, this program knows up to 1: a newer flambeau wrote it") {
		t.Error(text)
	}
	save(t, s, 5)
	there(t, newer, true)
	there(t, damaged, false)

	for err, want := range map[error]bool{
		&Error{Path: newer, Err: &safetensors.Error{Path: newer, Err: &fs.PathError{Op: "open", Path: newer, Err: fs.ErrPermission}}}: false,
		&Error{Path: newer, Err: &safetensors.Error{Path: newer, Msg: "the header is not valid JSON"}}:                                true,
	} {
		if isDamage(err) != want {
			t.Errorf("%v: damaged: %v", err, !want)
		}
	}
}

// A new training saves to a directory with checkpoints of a longer training. The file just written
// is kept, although its step is earlier.
func TestAnEarlierStepStays(t *testing.T) {
	dir := t.TempDir()
	for _, steps := range [][]int{{100, 200, 300}, {10, 20}} {
		s, err := Open(Config{Dir: dir, Keep: 2})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range steps {
			save(t, s, n)
			there(t, PathOf(dir, n), true)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for n, want := range map[int]bool{10: false, 20: true, 100: false, 200: true, 300: true} {
		there(t, PathOf(dir, n), want)
	}
}

// A string that is not UTF-8 is an error, because JSON would replace its bytes by other characters.
func TestTextThatIsNotUTF8(t *testing.T) {
	for want, tree := range map[string]map[string]any{
		`a/0: the string "\xff" is not UTF-8`: {"a": []any{"\xff"}},
		`a: the key "\xff" is not UTF-8`:      {"a": map[string]any{"\xff": nil}},
		`: the key "\xfe" is not UTF-8`:       {"\xfe": int64(1), "\xff": int64(2)},
	} {
		if err := Write(filepath.Join(t.TempDir(), "x"), tree, Info{}); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v: %v", tree, err)
		}
	}
}
