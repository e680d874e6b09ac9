//go:build linux || darwin

package fulldisk

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// T is the part of *testing.T that this package needs.
type T interface {
	Helper()
	Name() string
	TempDir() string
	Error(args ...any)
	Fatalf(format string, args ...any)
}

const variable = "FLAMBEAU_TEST_FULL"

// Dir runs the test t again in a new process, because the limit applies to a whole process. In the
// new process it returns an empty directory, and the test continues. In the first process it waits
// for the new one. If the test passes in the new process, Dir returns "" in the first, and the
// caller must return.
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

// Fill keeps all files from growing beyond the given number of bytes: a longer write fails with
// EFBIG. The function that Fill returns removes the limit.
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
