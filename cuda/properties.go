package cuda

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
	"github.com/flambeau-go/flambeau/device"
)

// gpu returns dev as a *Device. If dev is not a GPU, it returns a *[device.OperandError] that says
// what dev is.
func gpu(op string, dev device.Device) (*Device, error) {
	d, ok := dev.(*Device)
	var name string
	switch {
	case ok && d != nil:
		return d, nil
	case dev == nil || ok:
		name = "nil"
	default:
		name = dev.Name()
	}
	return nil, &device.OperandError{Device: "cuda", Op: op, Arg: "device",
		Reason: name + " is not a GPU; cuda.Open and device.Open(\"cuda:0\") return one"}
}

// mustGPU does the same as gpu, but panics with the *[device.OperandError] instead of returning it.
func mustGPU(op string, dev device.Device) *Device {
	d, err := gpu(op, dev)
	if err != nil {
		panic(err)
	}
	return d
}

// Get returns GPU i as [Open] does, but panics with the *[device.UnavailableError] if it cannot be
// opened; tensor.Try returns that error. Get is for calls with a device as an argument, such as
//
//	tensor.Do(func(s *tensor.Scope) { … }, tensor.On(cuda.Get(1)))
//
// which corresponds to "with torch.cuda.device(1)" in PyTorch. There is no global current device.
// Each scope has its own device, which [tensor.Scope.Device] returns (torch.cuda.current_device).
//
// [tensor.Scope.Device]: https://pkg.go.dev/github.com/flambeau-go/flambeau/tensor#Scope.Device
func Get(i int) *Device {
	d, err := Open(i)
	if err != nil {
		panic(err)
	}
	return d
}

// Index returns the GPU's number in the driver's order: 1 for "cuda:1".
func (d *Device) Index() int { return int(d.h) }

// DeviceName returns the name of the product, such as "NVIDIA H200". The name of an emulated GPU
// says that it is emulated. DeviceName panics with a *[device.OperandError] if dev is not a GPU.
func DeviceName(dev device.Device) string { return mustGPU("device name", dev).info.Name }

// DeviceCapability returns the compute capability: 9 and 0 for an H200. It panics with a
// *[device.OperandError] if dev is not a GPU.
func DeviceCapability(dev device.Device) (major, minor int) {
	c := mustGPU("device capability", dev).info.Capability
	return c[0], c[1]
}

// Properties holds what the driver reports about a GPU (torch.cuda.get_device_properties). Sizes
// are in bytes.
type Properties struct {
	Name         string // name of the product
	Emulated     bool   // whether the GPU is emulated; the properties are then those of the emulator
	Major, Minor int    // compute capability
	// size of the memory as the driver counts it, which is a little less than the chips have
	TotalMemory int
	UUID        string // "GPU-" and 32 hexadecimal digits in groups; the same in every process
	PCIBusID    string // domain, bus, device and function, such as "0000:01:00.0"

	Multiprocessors         int
	WarpSize                int // number of threads of a warp
	MaxThreadsPerBlock      int
	MaxThreadsPerSM         int
	MaxBlocksPerSM          int
	MaxBlockDim, MaxGridDim [3]int
	RegistersPerBlock       int // number of 32-bit registers that a block can use
	RegistersPerSM          int
	SharedMemoryPerBlock    int // largest shared memory of a block by default
	// largest shared memory of a block if the kernel asks for it (torch:
	// shared_memory_per_block_optin)
	SharedMemoryPerBlockMax int
	SharedMemoryPerSM       int
	ConstantMemory          int
	L2Cache                 int
	ClockRate               int // highest clock rate of the multiprocessors in kHz
	MemoryClockRate         int // highest clock rate of the memory in kHz
	MemoryBusWidth          int // width of the memory bus in bits
	CopyEngines             int // number of copies that can run at the same time as kernels

	Integrated        bool // whether the GPU uses the host's memory
	ECC               bool // whether memory errors are corrected
	ConcurrentKernels bool
	UnifiedAddressing bool
	ManagedMemory     bool
	CooperativeLaunch bool
	VirtualMemory     bool // whether memory can be managed by pages, which expandable segments need
	// whether kernels that run for seconds are aborted, because the GPU drives a display
	KernelTimeout       bool
	ComputeMode         ComputeMode
	StreamPriorityLevel int // number of priorities that streams can have

	// number of the library's kernels that are known to spill registers (see [Device.Spills]); it
	// should be 0
	SpillingKernels int
}

// MemoryBandwidth returns the peak rate of the memory in bytes a second: twice the clock (both
// edges carry data) times the bus's width.
func (p Properties) MemoryBandwidth() float64 {
	return 2 * 1e3 * float64(p.MemoryClockRate) * float64(p.MemoryBusWidth) / 8
}

// String returns one line in the format of torch's _CudaDeviceProperties.
func (p Properties) String() string {
	return fmt.Sprintf("cuda.Properties(name='%s', major=%d, minor=%d, total_memory=%dMB, multi_processor_count=%d, uuid=%s, pci_bus_id=%s, L2_cache_size=%dMB)",
		p.Name, p.Major, p.Minor, p.TotalMemory>>20, p.Multiprocessors, p.UUID, p.PCIBusID, p.L2Cache>>20)
}

// ComputeMode says which processes may use a GPU: CUcomputemode of cuda.h. The command "nvidia-smi
// -c" sets it.
type ComputeMode int

// The compute modes. Other values are obsolete, or come from newer drivers.
const (
	ComputeDefault          ComputeMode = 0 // any number of processes may use the GPU
	ComputeProhibited       ComputeMode = 2 // no process may use it
	ComputeExclusiveProcess ComputeMode = 3 // one process at a time may use it
)

// String returns the words that nvidia-smi uses.
func (m ComputeMode) String() string {
	switch m {
	case ComputeDefault:
		return "Default"
	case ComputeProhibited:
		return "Prohibited"
	case ComputeExclusiveProcess:
		return "Exclusive_Process"
	}
	return fmt.Sprintf("ComputeMode(%d)", int(m))
}

// DeviceProperties asks the driver for the properties of a GPU. The error is a
// *[device.OperandError] if dev is not a GPU, and otherwise the driver's.
func DeviceProperties(dev device.Device) (Properties, error) {
	d, err := gpu("device properties", dev)
	if err != nil {
		return Properties{}, err
	}
	p := Properties{Name: d.info.Name, Emulated: d.info.Emulated, Major: d.info.Capability[0], Minor: d.info.Capability[1], TotalMemory: d.info.Memory,
		StreamPriorityLevel: d.streams.least - d.streams.urgent + 1, SpillingKernels: len(d.Spills())}
	uuid, err := d.api.DeviceUUID(d.h)
	if err != nil {
		return Properties{}, err
	}
	p.UUID = uuid.String()
	if p.PCIBusID, err = d.api.DevicePCIBusID(d.h); err != nil {
		return Properties{}, err
	}
	var mode int
	for _, a := range []struct {
		of cu.DeviceAttr
		to *int
	}{
		{cu.AttrMultiprocessorCount, &p.Multiprocessors}, {cu.AttrWarpSize, &p.WarpSize},
		{cu.AttrMaxThreadsPerBlock, &p.MaxThreadsPerBlock}, {cu.AttrMaxThreadsPerSM, &p.MaxThreadsPerSM}, {cu.AttrMaxBlocksPerSM, &p.MaxBlocksPerSM},
		{cu.AttrMaxBlockDimX, &p.MaxBlockDim[0]}, {cu.AttrMaxBlockDimY, &p.MaxBlockDim[1]}, {cu.AttrMaxBlockDimZ, &p.MaxBlockDim[2]},
		{cu.AttrMaxGridDimX, &p.MaxGridDim[0]}, {cu.AttrMaxGridDimY, &p.MaxGridDim[1]}, {cu.AttrMaxGridDimZ, &p.MaxGridDim[2]},
		{cu.AttrMaxRegistersPerBlock, &p.RegistersPerBlock}, {cu.AttrMaxRegistersPerSM, &p.RegistersPerSM},
		{cu.AttrMaxSharedPerBlock, &p.SharedMemoryPerBlock}, {cu.AttrMaxSharedPerBlockOptin, &p.SharedMemoryPerBlockMax}, {cu.AttrMaxSharedPerSM, &p.SharedMemoryPerSM},
		{cu.AttrTotalConstantMemory, &p.ConstantMemory}, {cu.AttrL2CacheSize, &p.L2Cache},
		{cu.AttrClockRate, &p.ClockRate}, {cu.AttrMemoryClockRate, &p.MemoryClockRate}, {cu.AttrGlobalMemoryBusWidth, &p.MemoryBusWidth},
		{cu.AttrAsyncEngineCount, &p.CopyEngines}, {cu.AttrComputeMode, &mode},
	} {
		if *a.to, err = d.api.DeviceAttribute(d.h, a.of); err != nil {
			return Properties{}, err
		}
	}
	p.ComputeMode = ComputeMode(mode)
	for _, a := range []struct {
		of cu.DeviceAttr
		to *bool
	}{
		{cu.AttrIntegrated, &p.Integrated}, {cu.AttrECCEnabled, &p.ECC}, {cu.AttrConcurrentKernels, &p.ConcurrentKernels},
		{cu.AttrUnifiedAddressing, &p.UnifiedAddressing}, {cu.AttrManagedMemory, &p.ManagedMemory}, {cu.AttrCooperativeLaunch, &p.CooperativeLaunch},
		{cu.AttrVirtualMemoryManagement, &p.VirtualMemory}, {cu.AttrKernelExecTimeout, &p.KernelTimeout},
	} {
		v, err := d.api.DeviceAttribute(d.h, a.of)
		if err != nil {
			return Properties{}, err
		}
		*a.to = v != 0
	}
	return p, nil
}

// DriverVersion returns the newest CUDA version that the driver supports: "12.4" for driver 550.
// [DriverRelease] returns the driver's own version. Without a driver, the error is a
// *[device.UnavailableError].
func DriverVersion() (string, error) {
	p, u := current()
	if u != nil {
		return "", u
	}
	return p.version.String(), nil
}

// MemGetInfo returns the free and the total memory of a GPU in bytes. The driver counts the
// memory of all processes. Memory that this process's pool keeps for reuse does not count as
// free; its size is [MemoryReserved] minus [MemoryAllocated].
func MemGetInfo(dev device.Device) (free, total int, err error) {
	d, err := gpu("mem get info", dev)
	if err != nil {
		return 0, 0, err
	}
	if err := d.enter(); err != nil {
		return 0, 0, err
	}
	defer d.leave()
	f, t, err := d.api.MemGetInfo()
	if err != nil {
		return 0, 0, d.fault("", err)
	}
	return int(f), int(t), nil
}

// ArchList returns the architectures for which the library's kernels are written
// (torch.cuda.get_arch_list). The kernels are PTX, which the driver compiles for the actual GPU:
// "compute_80" runs on compute capability 8.0 and all later ones.
func ArchList() []string {
	return []string{fmt.Sprintf("compute_%d%d", minCapability[0], minCapability[1])}
}

// IsBF16Supported reports whether the GPU multiplies bfloat16 in hardware. That needs compute
// capability 8.0, which every GPU that can be opened has. It panics with a *[device.OperandError]
// if dev is not a GPU.
func IsBF16Supported(dev device.Device) bool {
	major, _ := DeviceCapability(dev)
	return major >= 8
}

// IsTF32Supported reports whether the GPU's tensor cores multiply TF32, which is float32 with 10
// bits of mantissa. Every GPU that can be opened does. Products of float32 are computed in float32,
// except where tensor.AllowTF32 permits TF32. It panics with a *[device.OperandError] if dev is not
// a GPU.
func IsTF32Supported(dev device.Device) bool {
	major, _ := DeviceCapability(dev)
	return major >= 8
}
