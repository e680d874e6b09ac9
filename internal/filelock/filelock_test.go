package filelock

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestLock checks that a lock belongs to one open file and ends with it. A lock must not prevent
// reading or writing.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a, b := open(t, path), open(t, path)
	if err := Try(a); err != nil {
		t.Fatal(err)
	}
	if err := Try(b); err != ErrHeld {
		t.Errorf("a second opening: %v", err)
	}
	if _, err := a.WriteString("mine"); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
	a.Close()
	if err := Try(b); err != nil || !InPlace(b, path) {
		t.Errorf("after the first has ended: %v", err)
	}
	Remove(b, path)
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is left")
	}
	c := open(t, path)
	if err := Try(c); err != nil {
		t.Error(err)
	}
	if err := os.Rename(path, path+"2"); err != nil && os.PathSeparator == '/' {
		t.Fatal(err)
	} else if err == nil && InPlace(c, path) {
		t.Error("it is not there any more")
	} else if err == nil {
		d := open(t, path) // opens the file again, as another process would
		Remove(c, path)
		if !InPlace(d, path) {
			t.Error("removed although it was another's")
		}
	}
}

// TestKilled kills a process that holds a lock. The lock must then be free.
func TestKilled(t *testing.T) {
	const name = "FLAMBEAU_TEST_LOCK"
	if path := os.Getenv(name); path != "" {
		f := open(t, path)
		fmt.Println(Try(f))
		time.Sleep(time.Minute)
		return
	}
	path := filepath.Join(t.TempDir(), "lock")
	c := exec.Command(os.Args[0], "-test.run", "^TestKilled$")
	c.Env = append(os.Environ(), name+"="+path)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "<nil>\n" {
		t.Errorf("%q, %v", line, err)
	}
	f := open(t, path)
	if err := Try(f); !errors.Is(err, ErrHeld) {
		t.Errorf("while it lives: %v", err)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	// Windows takes some time to release the lock
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = Try(f); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		t.Errorf("after its end: %v", err)
	}
}

// TestOpenRefusesLinks opens paths that are not regular files. Open must refuse them at once; with
// a link, it would lock another file.
func TestOpenRefusesLinks(t *testing.T) {
	dir := t.TempDir()
	path, target := filepath.Join(dir, "lock"), filepath.Join(dir, "target")
	for _, there := range []bool{false, true} {
		if there {
			open(t, target)
		} else if err := os.Symlink(target, path); err != nil {
			t.Skip(err) // Windows does not permit every user to make links
		}
		f, err := Open(path, 0o600)
		var p *fs.PathError
		if f != nil || !errors.As(err, &p) || p.Path != path || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("%v, %v", f, err)
		}
	}
	if _, err := Open(dir, 0o600); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("a directory: %v", err)
	}
	f, err := Open(filepath.Join(dir, "new"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
}
