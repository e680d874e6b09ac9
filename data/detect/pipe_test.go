//go:build linux || darwin

package detect_test

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flambeau-go/flambeau/data/detect"
)

// Path refuses a pipe immediately, because opening a pipe would block.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data.csv")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	var e *detect.Error
	if _, err := detect.Path(path); !errors.As(err, &e) || e.Path != path || !strings.Contains(err.Error(), "a pipe") {
		t.Errorf("%v", err)
	}
}
