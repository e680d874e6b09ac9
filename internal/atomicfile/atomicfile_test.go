package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestMain runs the child process of a test: it creates a File, says so, and waits until it is
// killed.
func TestMain(m *testing.M) {
	if path := os.Getenv("FLAMBEAU_TEST_BEGIN"); path != "" {
		f, err := Create(path)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Fprintln(f, "half")
		fmt.Println("begun")
		_, _ = io.ReadAll(os.Stdin) // wait until the test kills this process
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func write(t *testing.T, path, text string) {
	t.Helper()
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	if _, err := io.WriteString(f, text); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var s []string
	for _, e := range list {
		s = append(s, e.Name())
	}
	return strings.Join(s, " ")
}

func TestCommitReplacesAndAbortDoesNot(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	write(t, path, "one")
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if f.Path() != path || !leftover.MatchString(filepath.Base(f.Name())) || filepath.Dir(f.Name()) != dir {
		t.Errorf("%s for %s", f.Name(), f.Path())
	}
	if _, err := f.WriteString("two"); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "one" {
		t.Errorf("before Commit: %q", got)
	}
	f.Close()
	if err := f.Commit(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Commit after Close: %v", err)
	}
	if got := names(t, dir); got != "a" {
		t.Errorf("after Abort: %s", got)
	}
	write(t, path, "three")
	if got, _ := os.ReadFile(path); string(got) != "three" || names(t, dir) != "a" {
		t.Errorf("%q, %s", got, names(t, dir))
	}
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: want the permissions of the replaced file", info.Mode(), err)
	}
}

func TestWhatCannotBeReplaced(t *testing.T) {
	dir := t.TempDir()
	if _, err := Create(dir); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := Create(filepath.Join(dir, "no", "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	f, err := Create(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	// Commit must fail, because path is now a directory
	if err := os.Mkdir(f.Path(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err == nil {
		t.Error("a directory was replaced")
	}
	if got := names(t, dir); got != "a" {
		t.Errorf("left: %s", got)
	}
}

// TestClean calls Clean after a writer was killed. It must remove that writer's file, but no file
// that this or another process is still writing.
func TestClean(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model")
	begin := func() (c *exec.Cmd, stdin io.Closer) {
		c = exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "FLAMBEAU_TEST_BEGIN="+path)
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 6)
		if _, err := io.ReadFull(out, line); err != nil || string(line) != "begun\n" {
			t.Fatalf("%q, %v", line, err)
		}
		return c, in
	}
	c, _ := begin()
	own, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Abort()
	// these names do not belong to temporary files of this package
	for _, name := range []string{".model.tmp", ".model.tmp-1", "model.tmp-0123456789abcdef"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if removed, err := Clean(dir); err != nil || len(removed) != 0 {
		t.Fatalf("while both write: %v, %v", removed, err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if got := strings.Count(names(t, dir), ".tmp-"); got != 4 {
		t.Fatalf("%d files: %s", got, names(t, dir))
	}
	if removed, err := Clean(dir); err != nil || len(removed) != 1 || removed[0] == own.Name() {
		t.Fatalf("after the other was killed: %v, %v", removed, err)
	}
	if _, err := own.WriteString("whole"); err != nil {
		t.Fatal(err)
	}
	if err := own.Commit(); err != nil {
		t.Fatal(err)
	}
	if removed, err := Clean(dir); err != nil || len(removed) != 0 {
		t.Errorf("%v, %v", removed, err)
	}
	if _, err := Clean(filepath.Join(dir, "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such directory: %v", err)
	}
}

// TestLongNames creates files whose names have the maximum length of the file system. The name of
// the temporary file must not be longer.
func TestLongNames(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("é", 125)+".json") // a name of 255 bytes
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if !leftover.MatchString(filepath.Base(f.Name())) {
		t.Errorf("Clean would not know %s", f.Name())
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
