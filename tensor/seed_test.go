package tensor_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/flambeau-go/flambeau/tensor"
)

// TestUnseededRun checks that a program that does not set a seed starts with seed 0 in every run.
func TestUnseededRun(t *testing.T) {
	if os.Getenv("FLAMBEAU_UNSEEDED") != "" {
		first := tensor.Root().Rand(4)
		tensor.ManualSeed(0)
		if again := tensor.Root().Rand(4); !first.AllClose(again, 0, 0) {
			t.Errorf("without a seed the numbers are %v, with 0 %v", first, again)
		}
		tensor.ManualSeed(1)
		if other := tensor.Root().Rand(4); first.AllClose(other, 0, 0) {
			t.Errorf("with 1 they are %v too", other)
		}
		return
	}
	run := exec.Command(os.Args[0], "-test.run", "^TestUnseededRun$")
	run.Env = append(os.Environ(), "FLAMBEAU_UNSEEDED=1")
	if out, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
