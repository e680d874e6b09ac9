package kernels

import "strings"

// GPU is what plans of products know of a device. The rates decide between forms only, never what
// is computed: the same device gives the same plan.
type GPU struct {
	SM    int // compute capability times ten
	Cores int // multiprocessors
	// multiply-adds of 16-bit floats in a clock of a multiprocessor, by mma.sync with float32 sums
	Tensor    float64
	Shared    int     // bytes of shared memory of a multiprocessor
	Clock     float64 // Hz
	Bandwidth float64 // bytes of memory a second
	Cache     int     // bytes of second-level cache
	CacheRate float64 // bytes of it in a clock, for all multiprocessors
	chosen    *chosenForms
}

// The devices that stand for their generation: NVIDIA's architecture papers and data sheets of
// A100 SXM 80 GB (its cache's rate too), GA102, AD102, H100 SXM, B200 and GB202. A H100 multiplies
// by mma.sync at 62 % of its peak and reads 3942 bytes a clock of its cache, a RTX 4090 1622 (Luo
// and others, 2024, arXiv:2402.13499). A GB202 reads 19.4 of its cache for each multiprocessor
// (github.com/waynehacking8/blackwell-tensorcore-kernels, results/ncu_sm120_*: bytes of the tiles
// over the share of the peak). For the others the rates of their neighbours are taken.
// GeForce adds in float32 at half the rate of its tensor cores (appendix A of the papers on GA102
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

// GPUOf describes a device by its compute capability, its product's name and the number of its
// multiprocessors; 0 is that of the product that stands for the generation. Capabilities between
// two known ones are taken for the lower.
func GPUOf(sm int, name string, cores int) *GPU {
	g := nominalGPUs[0]
	for _, n := range nominalGPUs {
		if n.SM <= sm {
			g = n
		}
	}
	// What is not GeForce adds at the full rate.
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
