package optest

import (
	"fmt"
	"hash/fnv"
	"os"
	"testing"

	"github.com/flambeau-go/flambeau/device"
)

// part reads FLAMBEAU_TEST_PART. For example, "3/12" selects the fourth of twelve parts of the ops.
// All ops together have about ten thousand kernels. Several processes, each with one part, compile
// them in parallel.
func part(t *testing.T) func(op string) bool {
	v := os.Getenv("FLAMBEAU_TEST_PART")
	if v == "" {
		return nil
	}
	var k, n uint32
	if _, err := fmt.Sscanf(v, "%d/%d", &k, &n); err != nil || k >= n {
		t.Fatalf("FLAMBEAU_TEST_PART is %q, want such as 0/12", v)
	}
	return func(op string) bool {
		h := fnv.New32a()
		h.Write([]byte(op))
		return h.Sum32()%n == k
	}
}

// TestGPU runs the tests of all ops on a real GPU. With FLAMBEAU_TEST_GPU=1 the test fails if there
// is no GPU.
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
	o := Options{Only: part(t)}
	if w := Run(t, d, o); o.Only == nil {
		isWalked(t, w)
	}
	if err := d.Synchronize(); err != nil {
		t.Error(err)
	}
	if s := d.Stats(); s.Allocated != 0 {
		t.Errorf("%d bytes are left in use", s.Allocated)
	}
}
