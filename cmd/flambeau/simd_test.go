package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The width of the processor's vectors affects only the rounding of products, as package cpu
// promises. With each width, a repeated training gives the same bits. The losses of all widths are
// equal, apart from rounding.
func TestVectorsChangeRoundingOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	run := func(godebug string) (losses []float64, weights []byte) {
		c := process(t, "off", "train", "--steps", "10", "--losses", "--json", "--hidden", "16", "--out", path)
		c.Env = append(c.Env, "GODEBUG="+godebug)
		out, err := c.Output()
		if err != nil {
			t.Fatal(godebug, err)
		}
		if weights, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		return lastLine(t, string(out)).Losses, weights
	}
	want, _ := run("")
	for _, godebug := range []string{"", "cpu.avx512f=off", "cpu.avx2=off"} {
		losses, weights := run(godebug)
		if _, again := run(godebug); !bytes.Equal(weights, again) {
			t.Errorf("GODEBUG=%s: two runs differ", godebug)
		}
		if len(losses) != 10 {
			t.Fatalf("%d losses", len(losses))
		}
		for i := range losses {
			if d := losses[i] - want[i]; d > 1e-4 || d < -1e-4 {
				t.Errorf("GODEBUG=%s: step %d: %v, not %v", godebug, i+1, losses[i], want[i])
			}
		}
	}
}
