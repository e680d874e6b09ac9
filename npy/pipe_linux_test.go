package npy

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Load and LoadArchive refuse a pipe immediately, because opening a pipe would block.
func TestPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npz")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, load := range []func() error{
		func() error { _, err := Load(path); return err }, func() error { _, err := LoadArchive(path, Mapped()); return err },
	} {
		if err := load(); err == nil || !strings.HasSuffix(err.Error(), "this is not a file") {
			t.Errorf("%v", err)
		}
	}
}
