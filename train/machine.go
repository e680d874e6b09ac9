package train

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/didyoumean"
)

// A Machine is a device whose rates are known, for the estimate of a step's time. The estimate is
// the roofline: Σ over the kernels of the longest of arithmetic at the peak rate, memory traffic at
// the full bandwidth, and a launch (S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4),
// 2009). On a GPU that is a bound: published peaks are what no kernel goes beyond, and a step takes
// longer by what kernels miss of them. Only launches may be shorter than on the GPU that they were
// measured on, and are where a graph is replayed (tensor.Capture), which shows in steps of many
// tiny kernels. A machine of [MeasureCPU] has measured rates instead, and the estimate is of the
// time itself.
type Machine struct {
	Name, Kind string // "h100", "cuda"
	Product    string // as it is sold
	Capability [2]int
	// bytes that its driver has for programs; of a CPU the nine tenths that the library takes at
	// most
	Memory  int
	Float32 float64 // operations a second in float32, matrix products (IEEE) included
	Float64 float64 // in float64
	// of matrix products of bfloat16 or float16 that add in float32, of dense matrices
	Half      float64
	Bandwidth float64 // of the memory, bytes a second
	Link      float64 // to the host, bytes a second
	Source    string  // of the numbers

	cpu *cpuRates
}

const tera, giga = 1e12, 1e9

// mib is n MiB in bytes, or the most that an int holds: of 32 bits it has no number for a GPU.
func mib(n int64) int { return int(min(n<<20, math.MaxInt)) }

// launchSeconds is what a kernel takes at least when launches follow each other: measured by NVIDIA
// on a V100, "Getting Started with CUDA Graphs" (A. Gray, developer.nvidia.com/blog/cuda-graphs,
// 2019), 3.8 µs.
const launchSeconds = 3.8e-6

// Bandwidths of PCI Express with 16 lanes, one direction: 4.0 and 5.0 (PCI-SIG).
const pcie4, pcie5 = 31.5 * giga, 63 * giga

// gpus is sorted by name. Rates are of dense matrices: those with sparsity, which NVIDIA's
// datasheets of H100, H200, L4 and L40S print, are halved. Half is of products that add in float32,
// as the library's do; on GeForce that is half of what the papers give for sums in float16. Where
// Float64 is not in the document it is a 64th of Float32, as the whitepapers on GA102 and Ada say
// of all their GPUs. Memory is cuDeviceTotalMem on Linux, as users of PyTorch publish it
// (get_device_properties(0).total_memory, and messages about out of memory). It is the least that
// was found: it changes with the driver by 0.2 %, and is 0.4 to 2 % below what nvidia-smi shows.
var gpus = []Machine{
	// Whitepaper, appendix A, table "GeForce RTX 3090": peak FP32 35.6, peak FP16 and BF16 tensor
	// with FP32 accumulate 71, 936 GB/s.
	{Name: "3090", Product: "GeForce RTX 3090", Capability: [2]int{8, 6}, Memory: mib(24248), Float32: 35.6 * tera, Float64: 35.6 * tera / 64, Half: 71 * tera,
		Bandwidth: 936 * giga, Link: pcie4, Source: "NVIDIA Ampere GA102 GPU Architecture, whitepaper v2, 2021, appendix A"},
	// Whitepaper, appendix A, table "GeForce RTX 4090": peak FP32 82.6, peak FP16 and BF16 tensor
	// with FP32 accumulate 165.2, 1008 GB/s.
	{Name: "4090", Product: "GeForce RTX 4090", Capability: [2]int{8, 9}, Memory: mib(24207), Float32: 82.6 * tera, Float64: 82.6 * tera / 64, Half: 165.2 * tera,
		Bandwidth: 1008 * giga, Link: pcie4, Source: "NVIDIA Ada GPU Architecture, whitepaper v2, 2022, appendix A"},
	// Datasheet, column "A100 80GB SXM": FP64 9.7, FP32 19.5, BFLOAT16 and FP16 tensor core 312,
	// 2039 GB/s.
	{Name: "a100", Product: "A100 SXM 80GB", Capability: [2]int{8, 0}, Memory: mib(81049), Float32: 19.5 * tera, Float64: 9.7 * tera, Half: 312 * tera,
		Bandwidth: 2039 * giga, Link: pcie4, Source: "NVIDIA A100 Tensor Core GPU, datasheet, 2021"},
	// Datasheet, column "H100 SXM": FP64 34, FP32 67, BFLOAT16 and FP16 tensor core 1979 with
	// sparsity, 3.35 TB/s.
	{Name: "h100", Product: "H100 SXM", Capability: [2]int{9, 0}, Memory: mib(81082), Float32: 67 * tera, Float64: 34 * tera, Half: 989.5 * tera,
		Bandwidth: 3350 * giga, Link: pcie5, Source: "NVIDIA H100 Tensor Core GPU, datasheet, 2023"},
	// Datasheet, column "H200 SXM": FP64 34, FP32 67, BFLOAT16 and FP16 tensor core 1979 with
	// sparsity, 4.8 TB/s.
	{Name: "h200", Product: "H200 SXM", Capability: [2]int{9, 0}, Memory: mib(143073), Float32: 67 * tera, Float64: 34 * tera, Half: 989.5 * tera,
		Bandwidth: 4800 * giga, Link: pcie5, Source: "NVIDIA H200 Tensor Core GPU, datasheet, 2024"},
	// Datasheet: FP32 30.3, BFLOAT16 and FP16 tensor core 242 with sparsity, 300 GB/s.
	{Name: "l4", Product: "L4", Capability: [2]int{8, 9}, Memory: mib(22579), Float32: 30.3 * tera, Float64: 30.3 * tera / 64, Half: 121 * tera,
		Bandwidth: 300 * giga, Link: pcie4, Source: "NVIDIA L4 Tensor Core GPU, datasheet, 2023"},
	// Datasheet: FP32 91.6, BFLOAT16 and FP16 tensor core 362.05, 864 GB/s.
	{Name: "l40s", Product: "L40S", Capability: [2]int{8, 9}, Memory: mib(45455), Float32: 91.6 * tera, Float64: 91.6 * tera / 64, Half: 362.05 * tera,
		Bandwidth: 864 * giga, Link: pcie4, Source: "NVIDIA L40S GPU, datasheet, 2023"},
}

// GPUs returns the GPUs whose rates are known, by name.
func GPUs() []Machine {
	list := slices.Clone(gpus)
	for i := range list {
		list[i].Kind = "cuda"
	}
	return list
}

// spellings are the words that shops, clouds and nvidia-smi put behind a GPU's name, and that mean
// the very GPU of the table. Another variant, such as an A100 of 40 GB or on PCI Express, has other
// rates.
var spellings = map[string][]string{
	"3090": {"24gb"}, "4090": {"24gb"}, "a100": {"sxm4", "sxm", "80gb", "80g"}, "h100": {"sxm5", "sxm", "80gb", "80g", "hbm3"},
	"h200": {"sxm5", "sxm", "141gb", "141g", "hbm3e"}, "l4": {"24gb", "24g"}, "l40s": {"48gb", "48g"},
}

// plainName is a name without what people and tools write about it: "NVIDIA GeForce RTX 4090" is
// "4090", "A100-SXM4-80GB" is "a100sxm480gb".
func plainName(name string) string {
	s := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
	// in the order in which they are written
	for _, maker := range []string{"nvidia", "geforce", "tesla", "rtx"} {
		s = strings.TrimPrefix(s, maker)
	}
	return s
}

// FindGPU returns the GPU of that name, in every spelling that is common: "4090", "rtx4090",
// "GeForce RTX 4090", "A100-SXM4-80GB" as nvidia-smi says it. Another name is an *[Error] that
// lists the names, with the one that may have been meant.
func FindGPU(name string) (Machine, error) {
	plain := plainName(name)
	var names []string
	var meant *Machine
	least := min(3, (len(plain)+1)/2) // a slip of the fingers makes fewer edits
	for _, m := range GPUs() {
		rest, begins := strings.CutPrefix(plain, m.Name)
		for again := begins; again; {
			again = false
			for _, word := range spellings[m.Name] {
				if r, ok := strings.CutPrefix(rest, word); ok {
					rest, again = r, true
				}
			}
		}
		if begins && rest == "" {
			return m, nil
		}
		names = append(names, m.Name)
		// A variant of a GPU that is known is nearer than anything else.
		if n := didyoumean.Distance(plain, m.Name); n < least {
			meant, least = &m, n
		} else if begins && least > 0 && (meant == nil || len(m.Name) > len(meant.Name)) {
			meant, least = &m, 0
		}
	}
	hint := ""
	if meant != nil {
		hint = "did you mean " + meant.Name + ", the " + meant.Product + "? "
	}
	return Machine{}, &Error{"Machine", "the rates of " + quoted(name) + " are not known; " + hint + "known are " + strings.Join(names, ", ")}
}

func quoted(s string) string { return `"` + s + `"` }

// seconds is how long a primitive of so many kernels takes.
func (m *Machine) seconds(k *device.KernelEvent, kernels int) float64 {
	if m.cpu != nil {
		return m.cpu.seconds(k)
	}
	if m.Float32 == 0 {
		return 0
	}
	return max(m.roofline(k), float64(kernels)*launchSeconds)
}

// roofline is the least time of a primitive on a GPU, by the units that its kernels use.
func (m *Machine) roofline(k *device.KernelEvent) float64 {
	rate := m.Float32
	switch {
	case issued(k) > 0 && takesTF32(k):
		rate = m.Half / 2
	case issued(k) > 0:
		rate = m.Half
	case isDouble(k):
		rate = m.Float64
	}
	return max(float64(k.Work.FLOPs)/rate, float64(k.Work.Bytes)/m.Bandwidth)
}

// isDouble reports whether a primitive computes in float64.
func isDouble(k *device.KernelEvent) bool { return k.Type == dtype.F64 }

// LaunchSeconds is what so many kernels take at least for their launches alone, one after the
// other and not in a graph, by a published measurement: 3.8 µs each.
func LaunchSeconds(launches int) float64 { return float64(launches) * launchSeconds }

// copySeconds is how long a copy takes.
func (m *Machine) copySeconds(c *device.CopyEvent) float64 {
	switch {
	case m.cpu != nil:
		return m.cpu.copySeconds(c)
	case m.Float32 == 0:
		return 0
	case c.Kind == device.DeviceToDevice:
		return max(m.withinSeconds(c), launchSeconds)
	}
	return max(float64(c.Bytes)/m.Link, launchSeconds)
}

// withinSeconds is the least time of a copy within the device, which is read and written.
func (m *Machine) withinSeconds(c *device.CopyEvent) float64 {
	return 2 * float64(c.Bytes) / m.Bandwidth
}

// Duration returns the estimate of a step's time as a duration.
func (r *Report) Duration() time.Duration { return time.Duration(r.Seconds * float64(time.Second)) }
