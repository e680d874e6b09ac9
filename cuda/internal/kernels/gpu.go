package kernels

import "strings"

// GPU describes a device to the planners of matrix products. Its rates decide only which kernel and
// tile are used. The same device always gets the same plan.
type GPU struct {
	SM    int // compute capability times ten
	Cores int // number of multiprocessors
	// number of multiply-adds that a multiprocessor does in a clock cycle, by mma.sync with 16-bit
	// factors and float32 sums
	Tensor    float64
	Shared    int     // bytes of shared memory of a multiprocessor
	Clock     float64 // clock rate of the multiprocessors in Hz
	Bandwidth float64 // bytes of memory traffic a second
	Cache     int     // bytes of the second-level cache
	// CacheRate is the number of bytes that the second-level cache delivers to all multiprocessors
	// in a clock cycle.
	CacheRate float64
	chosen    *chosenForms
}

// nominalGPUs has one device for each generation. The numbers are those of A100 SXM 80 GB
// (including the rate of its cache), GA102, AD102, H100 SXM, B200 and GB202, in NVIDIA's
// architecture papers and data sheets.
//
// Luo and others measured some rates (2024, arXiv:2402.13499). An H100 reaches 62 % of its peak
// with mma.sync, and reads 3942 bytes a clock from its cache. An RTX 4090 reads 1622. Each
// multiprocessor of a GB202 reads 19.4 bytes a clock from the cache
// (github.com/waynehacking8/blackwell-tensorcore-kernels, results/ncu_sm120_*: bytes of the tiles
// divided by the share of the peak). For devices without a measurement, the rates of their
// neighbours in the list are used.
//
// A GeForce adds in float32 at half the rate of its tensor cores (appendix A of the papers on GA102
// and Ada).
var nominalGPUs = []GPU{
	{80, 108, 1024, 164 << 10, 1.41e9, 2.039e12, 40 << 20, 5120, nil},
	{86, 82, 256, 100 << 10, 1.695e9, 0.936e12, 6 << 20, 1622, nil},
	{87, 16, 1024, 164 << 10, 1.3e9, 0.204e12, 4 << 20, 512, nil},
	{89, 128, 256, 100 << 10, 2.52e9, 1.008e12, 72 << 20, 1622, nil},
	{90, 132, 0.62 * 2048, 228 << 10, 1.83e9, 3.35e12, 50 << 20, 3942, nil},
	{100, 148, 0.62 * 2048, 228 << 10, 1.85e9, 8e12, 126 << 20, 5120, nil},
	{120, 170, 256, 100 << 10, 2.407e9, 1.792e12, 96 << 20, 3300, nil},
}

// GPUOf describes a device by its compute capability (times ten), its product name and its number
// of multiprocessors. If cores is 0, the number comes from nominalGPUs. A capability between two
// listed ones counts as the lower one.
func GPUOf(sm int, name string, cores int) *GPU {
	g := nominalGPUs[0]
	for _, n := range nominalGPUs {
		if n.SM <= sm {
			g = n
		}
	}
	// GPUs other than GeForce add in float32 at the full rate.
	if g.Tensor == 256 && name != "" && !strings.Contains(name, "GeForce") {
		g.Tensor = 512
	}
	g.SM = sm
	if cores > 0 {
		g.Bandwidth *= float64(cores) / float64(g.Cores)
		g.CacheRate *= float64(cores) / float64(g.Cores)
		g.Cores = cores
	}
	g.chosen = &chosenForms{forms: map[product]chosenForm{}}
	return &g
}
