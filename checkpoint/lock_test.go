package checkpoint

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flambeau-go/flambeau/internal/filelock"
)

// refused fails the test unless Open fails for a directory with an error that names the process.
func refused(t *testing.T, dir string, pid int) {
	t.Helper()
	s, err := Open(Config{Dir: dir})
	var e *Error
	var use *InUseError
	switch {
	case err == nil:
		s.Close()
		t.Fatal("it is open already")
	case !errors.As(err, &e) || e.Path != dir || !errors.As(err, &use):
		t.Fatal(err)
	case use.PID != pid || use.Host == "" || time.Since(use.Since).Abs() > time.Hour || !strings.Contains(err.Error(), "process"):
		t.Errorf("%+v\n%v", use, err)
	}
}

// Only one store at a time can use a directory. Reading does not need a store.
func TestOneStoreADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "c")
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	save(t, s, 1)
	refused(t, dir, os.Getpid())
	if l, err := Load(dir); err != nil || l.Info.Step != 1 {
		t.Error(err)
	}
	if list, err := List(dir); err != nil || len(list) != 1 {
		t.Error(list, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	there(t, filepath.Join(dir, lockName), false)
	if s, err = Open(Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	// A directory that a store uses may be removed, and another store may create it again. The new
	// directory then belongs to the other store.
	if err := os.RemoveAll(dir); err != nil && os.PathSeparator == '\\' {
		s.Close()
		return // Windows does not remove an open lock file
	} else if err != nil {
		t.Fatal(err)
	}
	other, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Save(at0(2), Info{Step: 2}); err != nil {
		t.Fatal(err)
	}
	var use *InUseError
	if err := s.Wait(); !errors.As(err, &use) || steps(t, dir) != "" {
		t.Errorf("%v, %s", err, steps(t, dir))
	}
	third, err := Open(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(third.c.Dir); err != nil {
		t.Fatal(err)
	}
	// The path of the third store is now a link to the directory of the store other. Closing the
	// third store must not release the lock of the store other.
	if err := os.Symlink(dir, third.c.Dir); err == nil {
		if err := third.Close(); err != nil {
			t.Fatal(err)
		}
		if err := lockOf(dir).acquire(0); !errors.As(err, new(*InUseError)) {
			t.Fatalf("it is open already: %v", err)
		}
	} else {
		third.Close()
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	save(t, s, 3) // works, because the directory is free
	refused(t, dir, os.Getpid())
	if err := s.Close(); err != nil || steps(t, dir) != "3" {
		t.Error(err, steps(t, dir))
	}
}

// The lock on a directory ends at the latest with the process that holds it, also if the process is
// killed.
func TestKilledStoreGivesItsDirectoryFree(t *testing.T) {
	const name = "FLAMBEAU_TEST_HOLD"
	if dir := os.Getenv(name); dir != "" {
		if _, err := Open(Config{Dir: dir}); err != nil {
			panic(err)
		}
		os.Stdout.WriteString("open\n")
		time.Sleep(time.Minute)
		return
	}
	dir := t.TempDir()
	c := exec.Command(os.Args[0], "-test.run", "^TestKilledStoreGivesItsDirectoryFree$")
	c.Env = append(os.Environ(), name+"="+dir)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatal(line, err)
	}
	refused(t, dir, c.Process.Pid)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{Dir: dir}) // waits for the killed process to end
	_ = c.Wait()
	if err != nil {
		t.Fatal(err)
	}
	save(t, s, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Error(list, err)
	}
}

// Invalid contents of a lock file have no effect, because only error messages use them.
func TestLockFileOfNonsense(t *testing.T) {
	for _, text := range []string{"", "{", `{"pid":-3}`, strings.Repeat("x", 1<<16)} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, lockName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(Config{Dir: dir}) // the file exists, but is not locked
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, lockName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var use *InUseError
		if err := lockOf(dir).acquire(0); !errors.As(err, &use) || use.PID != 0 || !strings.Contains(err.Error(), "another training keeps its checkpoints here") {
			t.Errorf("%.20q: %v", text, err)
		}
		s.Close()
	}
	dir := t.TempDir() // for the case that ".lock" is a directory
	if err := os.Mkdir(filepath.Join(dir, lockName), 0o700); err != nil {
		t.Fatal(err)
	}
	var e *Error
	var path *fs.PathError
	if _, err := Open(Config{Dir: dir}); !errors.As(err, &e) || !errors.As(err, &path) {
		t.Errorf("a folder in the lock's place: %v", err)
	}
}

// Done can call the methods of Saved even if no goroutine waits for the save.
func TestDoneAsksTheStore(t *testing.T) {
	var told error
	var best Entry
	var loaded *Loaded
	var ok bool
	s, err := Open(Config{Dir: t.TempDir(), Best: Least, Done: func(d Saved) {
		told = d.Errors()
		best, ok = d.Best()
		if d.Err == nil {
			loaded, _ = d.Load()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		if err := s.Save(at0(1), Info{Step: 1, Metric: 2}); err != nil {
			t.Error(err)
		}
		done <- s.Wait()
	}()
	select {
	case err = <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("it waits for itself")
	}
	if err != nil || told != nil || !ok || best.Info.Step != 1 || loaded == nil || loaded.Info.Step != 1 {
		t.Errorf("%v; in Done: %v, %v, %v", err, told, best, loaded)
	}
	// Done reads these errors, so Wait and Close do not return them.
	s.write = func(*snapshot, string) error { return errors.New("no room") }
	if err := s.Save(at0(2), Info{Step: 2}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil || told == nil || !strings.Contains(told.Error(), "no room") {
		t.Errorf("%v; in Done: %v", err, told)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// While a training saves as fast as it can and keeps one file, a reader always finds a checkpoint.
func TestLoadBesideSaves(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	save(t, s, 1)
	end, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for step := 2; ; step++ {
			select {
			case <-end:
				return
			default:
				if err := s.Save(at0(step), Info{Step: step}); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	last := 0
	for began := time.Now(); last < 25 && time.Since(began) < 20*time.Second; {
		l, err := Load(dir)
		if err != nil || len(l.Damaged) > 0 || l.Info.Step < last {
			t.Errorf("%+v, %v", l, err)
			break
		}
		last = l.Info.Step
		Free(l.Tree)
	}
	close(end)
	<-done
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if last < 2 {
		t.Error("nothing was saved meanwhile")
	}
}

// On a system without locks, a store works and reports that it has no lock.
func TestWithoutLocks(t *testing.T) {
	filelock.None.Store(true)
	defer filelock.None.Store(false)
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	there(t, filepath.Join(dir, lockName), false)
	if why := s.Unlocked(); !errors.Is(why, errors.ErrUnsupported) {
		t.Errorf("%v", why)
	}
	save(t, s, 1)
	other, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	save(t, other, 2)
	for _, s := range []*Store{s, other} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := steps(t, dir); got != "1 2" {
		t.Error(got)
	}
	filelock.None.Store(false)
	if s, err = Open(Config{Dir: dir}); err != nil || s.Unlocked() != nil {
		t.Error(err, s.Unlocked())
	}
	s.Close()
}

// A symbolic link in place of .lock is an immediate error, even if it dangles.
func TestLockIsALink(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, lockName)
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), path); err != nil {
		t.Skip(err) // Windows needs permission to make links
	}
	for range 2 {
		start := time.Now()
		_, err := Open(Config{Dir: dir})
		var e *Error
		var p *fs.PathError
		if !errors.As(err, &e) || !errors.As(err, &p) || p.Path != path || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%v", err)
		}
		if d := time.Since(start); d > 10*patience {
			t.Errorf("it took %v", d)
		}
		if err := os.WriteFile(filepath.Join(dir, "elsewhere"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
