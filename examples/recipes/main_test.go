package main

import (
	"strings"
	"testing"

	"github.com/flambeau-go/flambeau/cpu"
	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/device"
)

// Every recipe runs unchanged on the CPU and on an emulated GPU, and prints the output that the
// recipe promises.
func TestRecipes(t *testing.T) {
	shows := map[string][]string{
		"loop":          {"epoch 2: 9"}, // the accuracy is 90 to 99 %
		"loader":        {"15 batches, ink 35107.4"},
		"guards":        {"inside: true", "differ: true", "moved: 8", "outside: true true"},
		"accumulate":    {"[32, 64] true", "[10, 32] true", "[10] true"},
		"amp":           {"logits float16 loss float32", "the loss fell: true scale: 65536"},
		"checkpointing": {"less memory: true same gradients: true"},
		"profiler":      {"training step", "linear", "cross_entropy", "Self CPU time total"},
		"oom":           {"a smaller batch fits: true"},
		"transfer":      {"tensor([1., 4., 9.]) cpu"},
	}
	gpus, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	for _, dev := range []device.Device{cpu.Get(), gpus[0]} {
		for _, r := range recipes {
			t.Run(dev.Name()+"/"+r.name, func(t *testing.T) {
				var out strings.Builder
				if err := run(dev, &out, []string{r.name}); err != nil {
					t.Fatal(err)
				}
				if len(shows[r.name]) == 0 {
					t.Fatal("the test does not say what it shows")
				}
				for _, want := range shows[r.name] {
					if !strings.Contains(out.String(), want) {
						t.Errorf("no %q in\n%s", want, out.String())
					}
				}
				if r.name == "profiler" && strings.Contains(out.String(), "CUDA total") != (dev == gpus[0]) {
					t.Errorf("columns of the GPU on %s:\n%s", dev.Name(), out.String())
				}
			})
		}
	}
}

func TestUnknownRecipe(t *testing.T) {
	err := run(cpu.Get(), &strings.Builder{}, []string{"pizza"})
	if err == nil || !strings.Contains(err.Error(), `"pizza"; there are: loop, loader`) {
		t.Error(err)
	}
}
