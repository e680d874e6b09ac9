package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/tensor"
)

// The peak memory of a training is at most 1.05 times PyTorch's peak. The planned peak is within
// 5 % of the training's peak. This test checks both at full size on a device without memory, as
// gpu-run.sh does on hardware. PyTorch's numbers come from torch_compare.py (_golden/cudapeak.py).
func TestPeaksKept(t *testing.T) {
	b, err := os.ReadFile("../../models/testdata/cudapeak.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct{ Cases map[string]struct{ Peak int } }
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	gpus, err := cuda.Emulate("emulate,mode=meta,mem=140GiB")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, c := range cases {
		// Graphs are skipped, because replays allocate nothing.
		if c.unit != "samples/s" || strings.HasSuffix(c.name, "_graph") {
			continue
		}
		r := run{dev: gpus[0], row: &row{}}
		r.base = r.dev.Stats().Allocated
		if err := tensor.Try(func() { c.run(&r) }); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := golden.Cases[c.name].Peak
		t.Logf("%-28s %10d bytes, planned %10d, of PyTorch's %10d: %.3f", c.name, r.Peak, r.Planned, want, float64(r.Peak)/float64(want))
		if want == 0 || float64(r.Peak) > 1.05*float64(want) {
			t.Errorf("%s: %d bytes at the peak, more than 1.05 of PyTorch's %d", c.name, r.Peak, want)
		}
		if q := float64(r.Planned) / float64(r.Peak); r.Planned > 0 && (q < 0.95 || q > 1.05) {
			t.Errorf("%s: planned %d bytes, at the peak %d", c.name, r.Planned, r.Peak)
		}
		compared++
	}
	if compared < 5 {
		t.Errorf("compared %d cases only", compared)
	}
}
