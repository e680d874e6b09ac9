package optest_test

import (
	"testing"

	"github.com/flambeau-go/flambeau/cuda"
	"github.com/flambeau-go/flambeau/tensor/optest"
)

// emulated returns a GPU of the emulated driver.
func emulated(t *testing.T) *cuda.Device {
	t.Helper()
	devices, err := cuda.Emulate("emulate,mem=64MiB")
	if err != nil {
		t.Fatal(err)
	}
	return devices[0]
}

func TestCUDA(t *testing.T) { optest.Run(t, emulated(t), optest.Options{FirstOrder: true}) }
