package cuda

import (
	"testing"

	"github.com/flambeau-go/flambeau/device/devicetest"
)

func TestConformance(t *testing.T) { devicetest.Run(t, emulated(t, "emulate,mem=64MiB")) }

// The conformance suite passes on the oldest compute capability, with streams that run late and
// memory that grows by pages.
func TestConformanceUnderAdversarialOrder(t *testing.T) {
	devicetest.Run(t, emulated(t, "emulate,mem=64MiB,sm=80,seed=1,expandable=on"))
}

// Runs the conformance suite on hardware.
func TestConformanceOnHardware(t *testing.T) {
	d := hardware(t)
	if d == nil {
		t.Skip("needs a GPU: ", Unavailable())
	}
	devicetest.Run(t, d)
}
