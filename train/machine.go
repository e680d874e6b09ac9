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

// A Machine is a device with known rates, for estimates of a step's time. The estimate follows the
// roofline model (S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009). The time
// of a kernel is the longest of three times: the time of its arithmetic at the peak rate, the time
// of its memory traffic at the full bandwidth, and the time of a launch. The estimate is the sum
// over the kernels.
//
// On a GPU the estimate is a lower bound, because real kernels do not reach the published peak
// rates. Only launches may take less time than estimated, because their time was measured on
// another GPU. Launches also take less time when a graph is replayed (tensor.Capture), which
// matters for steps with many tiny kernels. A machine from [MeasureCPU] has measured rates, so its
// estimate is no lower bound but an expected time.
type Machine struct {
	Name, Kind string // short name such as "h100", and kind such as "cuda"
	Product    string // the name under which the machine is sold
	Capability [2]int
	// Memory is the number of bytes that programs can use. For a CPU it is nine tenths of the
	// memory, which is the limit of the library's pool.
	Memory  int
	Float32 float64 // operations a second in float32, with IEEE matrix products
	Float64 float64 // operations a second in float64
	// Half is the rate of dense matrix products in bfloat16 or float16 with sums in float32, in
	// operations a second.
	Half      float64
	Bandwidth float64 // bandwidth of the memory, in bytes a second
	Link      float64 // bandwidth to the host, in bytes a second
	Source    string  // publication from which the rates come

	cpu *cpuRates
}

const tera, giga = 1e12, 1e9

// mib returns n MiB in bytes. The result is limited to the largest int, because a 32-bit int cannot
// hold the size of a GPU's memory.
func mib(n int64) int { return int(min(n<<20, math.MaxInt)) }

// launchSeconds is the minimum time of a kernel when launches follow each other, 3.8 µs. NVIDIA
// measured it on a V100: "Getting Started with CUDA Graphs" (A. Gray,
// developer.nvidia.com/blog/cuda-graphs, 2019).
const launchSeconds = 3.8e-6

// pcie4 and pcie5 are the bandwidths of PCI Express 4.0 and 5.0 with 16 lanes, in one direction
// (PCI-SIG).
const pcie4, pcie5 = 31.5 * giga, 63 * giga

// gpus lists the GPUs whose rates are known, sorted by name. The rates of matrix products are those
// of dense matrices. They are half of the rates with sparsity that NVIDIA's datasheets of H100,
// H200, L4 and L40S give. Half is the rate of products with sums in float32, as in the library's
// kernels. On GeForce this is half of the rate with sums in float16. If a document does not state
// the rate in float64, Float64 is a 64th of Float32. The whitepapers on GA102 and Ada state this
// ratio for all their GPUs.
//
// Memory is cuDeviceTotalMem on Linux, as users of PyTorch have published it
// (get_device_properties(0).total_memory, and out-of-memory messages). The table has the smallest
// published value. The values vary with the driver by 0.2 %, and are 0.4 to 2 % below those that
// nvidia-smi shows.
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

// GPUs returns the GPUs whose rates are known, sorted by name.
func GPUs() []Machine {
	list := slices.Clone(gpus)
	for i := range list {
		list[i].Kind = "cuda"
	}
	return list
}

// spellings has, for each GPU of the table, the words that shops, clouds and nvidia-smi append to
// its name. With these words a name still means this GPU. Other variants, such as an A100 with 40
// GB or on PCI Express, have other rates.
var spellings = map[string][]string{
	"3090": {"24gb"}, "4090": {"24gb"}, "a100": {"sxm4", "sxm", "80gb", "80g"}, "h100": {"sxm5", "sxm", "80gb", "80g", "hbm3"},
	"h200": {"sxm5", "sxm", "141gb", "141g", "hbm3e"}, "l4": {"24gb", "24g"}, "l40s": {"48gb", "48g"},
}

// plainName removes vendor words, brand words and punctuation from a name. For example, "NVIDIA
// GeForce RTX 4090" becomes "4090", and "A100-SXM4-80GB" becomes "a100sxm480gb".
func plainName(name string) string {
	s := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
	// A name may begin with these words, in the order of the list.
	for _, maker := range []string{"nvidia", "geforce", "tesla", "rtx"} {
		s = strings.TrimPrefix(s, maker)
	}
	return s
}

// FindGPU returns the GPU with the given name, in any common spelling: "4090", "rtx4090", "GeForce
// RTX 4090", or "A100-SXM4-80GB" as nvidia-smi prints it. For an unknown name it returns an
// *[Error] that lists all names and suggests the closest name.
func FindGPU(name string) (Machine, error) {
	plain := plainName(name)
	var names []string
	var meant *Machine
	least := min(3, (len(plain)+1)/2) // at a larger distance, name is not a misspelling of m.Name
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
		// A name that begins with the name of a known GPU means another variant of this GPU.
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

// seconds returns the estimated time of a primitive that launches the given number of kernels.
func (m *Machine) seconds(k *device.KernelEvent, kernels int) float64 {
	if m.cpu != nil {
		return m.cpu.seconds(k)
	}
	if m.Float32 == 0 {
		return 0
	}
	return max(m.roofline(k), float64(kernels)*launchSeconds)
}

// roofline returns the minimum time of a primitive on a GPU, in seconds.
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

func isDouble(k *device.KernelEvent) bool { return k.Type == dtype.F64 }

// LaunchSeconds returns the minimum time of the given number of launches, one after another and
// outside of a graph: 3.8 µs for each launch, as published.
func LaunchSeconds(launches int) float64 { return float64(launches) * launchSeconds }

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

// withinSeconds returns the minimum time of a copy within the device, which reads and writes its
// memory.
func (m *Machine) withinSeconds(c *device.CopyEvent) float64 {
	return 2 * float64(c.Bytes) / m.Bandwidth
}

// Duration returns Seconds, the estimate of a step's time, as a duration.
func (r *Report) Duration() time.Duration { return time.Duration(r.Seconds * float64(time.Second)) }
