package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/internal/atomicfile"
	"github.com/flambeau-go/flambeau/safetensors"
)

// The command train runs many times. In each run, a different system call fails while the file of
// --out is written. The error must name the file, an older file must stay complete, and no other
// file may remain in the directory.
func TestEachCallOfOutFails(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(t.TempDir()) // after a failure the weights are written to the working directory
	path := filepath.Join(dir, "w.safetensors")
	args := []string{"train", "--device", "cpu", "--steps", "1", "--hidden", "8", "--out", path}
	if status, _, errOut := command(t, args...); status != 0 {
		t.Fatal(errOut)
	}
	for n := 1; ; n++ {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		calls, failed := 0, ""
		restore := atomicfile.Intercept(func(op, on string) error {
			if calls++; calls != n {
				return nil
			}
			failed = op + " of " + on
			return errors.New("the system fails here")
		})
		// Another seed gives other weights, so that a change of the older file is noticed.
		status, _, errOut := command(t, append(args, "--seed", strconv.Itoa(n+1))...)
		restore()
		if failed == "" {
			if status != 0 || n < 8 {
				t.Errorf("status %d after %d calls: %s", status, n-1, errOut)
			}
			return
		}
		if status != 1 || !strings.Contains(errOut, "the system fails here") || !strings.Contains(errOut, path) {
			t.Errorf("%s: status %d: %s", failed, status, errOut)
		}
		after, err := os.ReadFile(path)
		if err != nil || string(after) != string(before) && !strings.HasSuffix(failed, " of "+dir) {
			t.Errorf("%s: the older file was changed: %v", failed, err)
		}
		if _, _, err := safetensors.Load(path); err != nil {
			t.Errorf("%s: %v", failed, err)
		}
		if list, _ := os.ReadDir(dir); len(list) != 1 {
			t.Errorf("%s leaves %v", failed, list)
		}
	}
}
