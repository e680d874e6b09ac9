package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/tensor"
	"github.com/flambeau-go/flambeau/torchfile"
)

// A weights file with a flipped bit is neither converted nor used. The test uses .npz and .pt
// files, whose archives have checksums, and files that "flambeau train" wrote with --out.
func TestFlippedBitsAreTold(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	values := []float32{1.5, 2.5, 3.5, 4.5, 5.5}
	if err := torchfile.Save(in("m.pt"), map[string]any{"weight": tensor.From(values)}); err != nil {
		t.Fatal(err)
	}
	must(t, "convert", in("m.pt"), in("m.npz"))
	must(t, "convert", in("m.pt"), in("m.safetensors"))
	must(t, "train", "--device", "cpu", "--steps", "2", "--out", in("out.safetensors"))
	damage := func(name string, mark []byte) string {
		b, err := os.ReadFile(in(name))
		if err != nil {
			t.Fatal(err)
		}
		at := len(b) - 3 // a byte in the last tensor
		if mark != nil {
			if at = bytes.Index(b, mark); at < 0 {
				t.Fatalf("%s: the values are not there", name)
			}
		}
		b[at] ^= 1
		bad := "bad-" + name
		if err := os.WriteFile(in(bad), b, 0o600); err != nil {
			t.Fatal(err)
		}
		return in(bad)
	}
	mark := []byte("\x00\x00\xc0\x3f\x00\x00\x20\x40") // the numbers 1.5 and 2.5
	for name, says := range map[string]string{"m.pt": "m/data/0: ", "m.npz": "weight.npy: ", "m.safetensors": `tensor "weight": `} {
		must(t, "inspect", "--check", in(name))
		bad := damage(name, mark)
		for _, args := range [][]string{{"convert", bad, in("never.safetensors")}, {"inspect", "--check", bad}} {
			status, _, errOut := command(t, args...)
			if status != 1 || !strings.Contains(errOut, filepath.Base(bad)) || !strings.Contains(errOut, says) || !strings.Contains(errOut, "check sum") {
				t.Errorf("%s: status %d, %s", args, status, errOut)
			}
		}
		if exists(in("never.safetensors")) {
			t.Errorf("%s was converted", name)
		}
	}
	must(t, "eval", in("out.safetensors"), "--device", "cpu")
	bad := damage("out.safetensors", nil)
	for _, args := range [][]string{{"eval", bad, "--device", "cpu"}, {"train", "--device", "cpu", "--steps", "1", "--init", bad}} {
		if status, _, errOut := command(t, args...); status != 1 || !strings.Contains(errOut, "bad-out.safetensors") || !strings.Contains(errOut, "check sum") {
			t.Errorf("%s: status %d, %s", args, status, errOut)
		}
	}
	// After a flipped bit in the header, the error names the file once, and does not mention the
	// reader of the other format.
	bad = damage("out.safetensors", []byte("__metadata__"))
	if status, _, errOut := command(t, "eval", bad, "--device", "cpu"); status != 1 || strings.Count(errOut, "bad-out") != 1 || strings.Contains(errOut, "torchfile") {
		t.Errorf("status %d, %s", status, errOut)
	}
	must(t, "convert", in("m.npz"), in("m.npy"))
	if status, _, errOut := command(t, "inspect", "--check", in("m.npy")); status != 1 || !strings.Contains(errOut, "no check sums") {
		t.Errorf("status %d, %s", status, errOut)
	}
}
