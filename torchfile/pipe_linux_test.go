package torchfile

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Load refuses a pipe immediately, because opening a pipe would block.
func TestPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pt")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, load := range []func() error{
		func() error { _, err := Load(path); return err },
	} {
		if err := load(); err == nil || !strings.HasSuffix(err.Error(), "this is not a file") {
			t.Errorf("%v", err)
		}
	}
}
