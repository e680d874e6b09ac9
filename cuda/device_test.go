package cuda

import (
	"fmt"
	"os"
	"testing"

	"github.com/flambeau-go/flambeau/device/devicetest"
)

func TestConformance(t *testing.T) { devicetest.Run(t, emulated(t, "emulate,mem=64MiB")) }

// The oldest capability, with streams that lag behind each other.
func TestConformanceUnderAdversarialOrder(t *testing.T) {
	devicetest.Run(t, emulated(t, "emulate,mem=64MiB,sm=80,seed=1"))
}

// The same on hardware. FLAMBEAU_TEST_GPU=1 says that there is some, so that its absence is a failure.
func TestConformanceOnHardware(t *testing.T) {
	d, err := Open(0)
	if err != nil || d.Info().Emulated {
		if os.Getenv("FLAMBEAU_TEST_GPU") == "1" {
			t.Fatalf("FLAMBEAU_TEST_GPU=1, but there is no GPU: %v", err)
		}
		t.Skip("needs a GPU: ", fmt.Sprint(err))
	}
	devicetest.Run(t, d)
}
