//go:build linux || darwin

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/internal/fulldisk"
)

// If the disk is full, train still prints its results. A single error names all files that could
// not be written, and says what remains.
func TestTrainOnAFullDisk(t *testing.T) {
	dir := fulldisk.Dir(t)
	if dir == "" {
		return
	}
	empty := fulldisk.Fill(t, 1<<9)
	status, out, errOut := command(t, "train", "--device", "cpu", "--steps", "4", "--out", filepath.Join(dir, "w.safetensors"), "--profile", filepath.Join(dir, "p.json"))
	empty()
	_, last, _ := strings.Cut(errOut, "flambeau: ")
	if status != 1 || !strings.Contains(out+errOut, "4 steps in") || strings.Count(last, "--out: ") != 1 || strings.Count(last, "--profile: ") != 1 ||
		!strings.Contains(last, "the weights are lost, for want of --checkpoint") {
		t.Errorf("status %d\n%s%s", status, out, errOut)
	}
}
