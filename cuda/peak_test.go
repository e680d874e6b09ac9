package cuda

import (
	"math"
	"testing"
)

// TestUnitsOf compares the computed peaks in TFLOPS with the numbers that NVIDIA publishes. The
// columns are the GPU, its compute capability, its multiprocessors and clock rate in MHz, its
// float32 peak, and its peak for dense 16-bit products.
func TestUnitsOf(t *testing.T) {
	for _, g := range []struct {
		name        string
		sm, cores   int
		mhz         float64
		full, dense float64
	}{
		{"A100 SXM", 80, 108, 1410, 19.5, 312},
		{"A40", 86, 84, 1740, 37.4, 149.7},
		// the technical brief says 170 sparse INT8 TOPS
		{"Jetson AGX Orin 64GB", 87, 16, 1300, 5.3, 170. / 4},
		{"NVIDIA GeForce RTX 3090", 86, 82, 1695, 35.6, 71},
		{"NVIDIA GeForce RTX 4090", 89, 128, 2520, 82.6, 165.2},
		{"L4", 89, 58, 2040, 30.3, 121},
		{"L40S", 89, 142, 2520, 91.6, 362},
		{"RTX 6000 Ada", 89, 142, 2505, 91.1, 364.2},
		{"H100 SXM, whose tensor cores have a clock of their own", 90, 132, 1830, 0, 989.4},
		{"H100 PCIe, whose tensor cores have a clock of their own", 90, 114, 1620, 0, 756},
	} {
		lanes, tensor := unitsOf(g.sm, g.name)
		for _, x := range []struct {
			of   string
			n    int
			want float64
		}{{"float32", lanes, g.full}, {"16 bits", tensor, g.dense}} {
			if x.want == 0 {
				continue
			}
			if got := 2 * float64(x.n) * float64(g.cores) * g.mhz / 1e6; math.Abs(got/x.want-1) > 0.02 {
				t.Errorf("%s, %s: %.1f TFLOPS, want %.1f", g.name, x.of, got, x.want)
			}
		}
	}
}
