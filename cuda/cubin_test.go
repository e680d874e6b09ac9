package cuda

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestCubinCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "flambeau", "cubin")
	c := &cubinCache{dir}
	compiled := 0
	get := func(ptx string, sm int) []byte {
		t.Helper()
		b, err := c.load(ptx, sm, 12040, func() ([]byte, error) { compiled++; return []byte("code of " + ptx), nil })
		if err != nil || string(b) != "code of "+ptx {
			t.Fatalf("%q, %v", b, err)
		}
		return b
	}
	want := func(n int, what string) {
		t.Helper()
		if compiled != n {
			t.Errorf("%s: compiled %d times, want %d", what, compiled, n)
		}
	}
	get("a", 80)
	get("a", 80)
	want(1, "the same again")
	get("b", 80)
	get("a", 90)
	want(3, "another text, another device")
	if c.path("a", 80, 12040) == c.path("a", 80, 12050) {
		t.Error("another driver's code is taken")
	}
	path := c.path("a", 80, 12040)
	if runtime.GOOS != "windows" {
		if s, err := os.Stat(dir); err != nil || s.Mode().Perm() != 0o700 {
			t.Errorf("the directory: %v, %v", s.Mode(), err)
		}
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	altered := bytes.Clone(good)
	altered[len(altered)-1] ^= 1
	for i, bad := range [][]byte{altered, good[:len(good)-1], good[:5], nil} {
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		get("a", 80)
		want(4+i, "a file that is not what was written")
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, good) {
			t.Errorf("the file was not mended: %v", err)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, ".new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	refused := errors.New("refused")
	if _, err := c.load("c", 80, 12040, func() ([]byte, error) { return nil, refused }); err != refused {
		t.Errorf("a failed compilation: %v", err)
	}
	if _, err := os.Stat(c.path("c", 80, 12040)); err == nil {
		t.Error("a failed compilation was kept")
	}
	// A cache directory that cannot be written is the same as no cache.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.dir, compiled = filepath.Join(file, "cubin"), 0
	get("a", 80)
	get("a", 80)
	want(2, "no directory")
}

// TestCubinCacheOnDevice checks the cache with a device. The emulated driver produces its own kind
// of machine code, which the cache stores.
func TestCubinCacheOnDevice(t *testing.T) {
	dir := t.TempDir()
	files := func() int {
		list, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	for run := range 3 {
		d := emulated(t, "emulate,mem=16MiB")
		d.p.cubins = &cubinCache{dir}
		if run == 2 { // the file now has a valid checksum, but machine code that the driver refuses
			list, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(list) == 0 {
				t.Fatal(list, err)
			}
			for _, f := range list {
				(&cubinCache{dir}).write(f, []byte("\x7fELF of another device"))
			}
		}
		x := floats(t, d, d.main, 1, 2, 3)
		y := empty(t, d, d.main, 3)
		must(t, apply(d, nil, double, views(y), views(x)))
		check(t, d, d.main, y, 2, 4, 6)
		if n := files(); n != 1 {
			t.Errorf("run %d: %d files in the cache, want 1", run, n)
		}
	}
}
