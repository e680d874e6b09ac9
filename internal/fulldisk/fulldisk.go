//go:build linux || darwin

package fulldisk

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// T is what a *testing.T has of what is asked of it here.
type T interface {
	Helper()
	Name() string
	TempDir() string
	Error(args ...any)
	Fatalf(format string, args ...any)
}

const variable = "FLAMBEAU_TEST_FULL"

// Dir runs t once more in a process of its own, as the limit is the process's: there it returns an
// empty directory and the test goes on. In the first process, where that run has passed, it returns
// "", and the test returns.
func Dir(t T) string {
	t.Helper()
	if dir := os.Getenv(variable); dir != "" {
		signal.Ignore(syscall.SIGXFSZ)
		return dir
	}
	c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), variable+"="+t.TempDir())
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return ""
}

// Fill lets no file become longer than so many bytes: writing beyond them is the error EFBIG. The
// function that it returns makes room again.
func Fill(t T, bytes uint64) (empty func()) {
	t.Helper()
	var old syscall.Rlimit
	set := func(r *syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, r); err != nil {
			t.Error(err)
		}
	}
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Error(err)
	}
	set(&syscall.Rlimit{Cur: bytes, Max: old.Max})
	return func() { set(&old) }
}
