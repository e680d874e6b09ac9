package safetensors

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Load and Open refuse a pipe immediately, because opening a pipe would block.
func TestPipes(t *testing.T) {
	for _, name := range []string{"x.safetensors", "x.safetensors.index.json"} {
		path := filepath.Join(t.TempDir(), name)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.HasSuffix(err.Error(), "this is not a file") {
			t.Errorf("%v", err)
		}
	}
}
