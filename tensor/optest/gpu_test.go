package optest

import (
	"os"
	"testing"

	"github.com/flambeau-go/flambeau/device"
)

// The same walk on hardware. FLAMBEAU_TEST_GPU=1 says that there is some, so that its absence is a failure.
func TestGPU(t *testing.T) {
	if os.Getenv("FLAMBEAU_TEST_GPU") != "1" {
		t.Log("FLAMBEAU_TEST_GPU is not 1: this machine has no GPU to walk")
		return
	}
	d, err := device.Open("cuda:0")
	if err != nil {
		t.Fatalf("FLAMBEAU_TEST_GPU=1, but there is no GPU: %v", err)
	}
	if d.Info().Emulated {
		t.Fatalf("FLAMBEAU_TEST_GPU=1, but %v is emulated", d)
	}
	isWalked(t, Run(t, d, Options{}))
	if err := d.Synchronize(); err != nil {
		t.Error(err)
	}
	if s := d.Stats(); s.Allocated != 0 {
		t.Errorf("%d bytes are left in use", s.Allocated)
	}
}
