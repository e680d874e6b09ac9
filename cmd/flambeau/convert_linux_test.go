package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/flambeau-go/flambeau/safetensors"
	"github.com/flambeau-go/flambeau/tensor"
)

// A conversion between any two formats needs much less memory than the size of the file. With
// FLAMBEAU_SOAK the file has 1 GiB.
func TestConvertTakesLittleMemory(t *testing.T) {
	total := 64 << 20
	if os.Getenv("FLAMBEAU_SOAK") != "" {
		total = 1 << 30
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a.safetensors")
	block := tensor.Root().Rand(total / 64)
	all := map[string]*tensor.Tensor{}
	for i := range 16 {
		all[fmt.Sprint("t", i)] = block
	}
	if err := safetensors.Save(path, all, nil, safetensors.Consume()); err != nil {
		t.Fatal(err)
	}
	peak := func(args ...string) int64 {
		t.Helper()
		c := process(t, "off", args...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		return c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
	idle := peak("version")
	for _, c := range [][]string{{"a.safetensors", "b.pt"}, {"b.pt", "c.npz"}, {"c.npz", "d.safetensors"}, {"b.pt", "e.safetensors", "--dtype", "bf16"}} {
		in, out := filepath.Join(dir, c[0]), filepath.Join(dir, c[1])
		n := peak(append([]string{"convert", in, out}, c[2:]...)...) - idle
		t.Logf("%v of %d MiB: %d MiB beside the %d of an idle process", c, total>>20, n>>20, idle>>20)
		if n > int64(total)/16+32<<20 { // one tensor, and 32 MiB for buffers
			t.Errorf("%v of %d MiB took %d MiB", c, total>>20, n>>20)
		}
		if out != filepath.Join(dir, "b.pt") && in != filepath.Join(dir, "b.pt") {
			os.Remove(in)
		}
	}
}
