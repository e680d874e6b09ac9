package emu

import (
	"fmt"

	"github.com/flambeau-go/flambeau/cuda/internal/cu"
)

// limits holds the properties that depend on the compute capability. Source: table "Technical
// Specifications per Compute Capability" of the CUDA C++ Programming Guide.
type limits struct {
	threadsPerSM, blocksPerSM int
	// Bytes of shared memory of a multiprocessor, and the most that a block may use.

	sharedPerSM, sharedOptin int
}

func limitsOf(sm int) limits {
	switch sm {
	case 80:
		return limits{2048, 32, 164 << 10, 163 << 10}
	case 86:
		return limits{1536, 16, 100 << 10, 99 << 10}
	case 87:
		return limits{1536, 16, 164 << 10, 163 << 10}
	case 89:
		return limits{1536, 24, 100 << 10, 99 << 10}
	case 90:
		return limits{2048, 32, 228 << 10, 227 << 10}
	}
	// Config.check refuses all other compute capabilities
	panic(fmt.Sprintf("emu: no limits for sm_%d", sm))
}

// Limits that hold for every compute capability, and properties that this emulator chooses.
const (
	maxThreadsPerBlock = 1024
	maxBlockX          = 1024
	maxBlockY          = 1024
	maxBlockZ          = 64
	maxGridX           = 1<<31 - 1
	maxGridY           = 65535
	maxGridZ           = 65535
	sharedDefault      = 48 << 10
	sharedReserved     = 1 << 10
	warpSize           = 32

	// a small number, because some kernels choose the size of their grid by it
	multiprocessors = 4
	clockKHz        = 1_000_000 // 1 GHz
	registersPerSM  = 64 << 10
	// assumed number of registers of a thread; only ptxas, which the emulator does not run, knows
	// the true number
	assumedRegs = 32
)

// device returns the device with the ordinal dev.
func (d *Driver) device(call string, dev cu.Device) (*device, error) {
	if dev < 0 || int(dev) >= len(d.devices) {
		return nil, fail(call, cu.ErrInvalidDevice, "device %d of %d", dev, len(d.devices))
	}
	return d.devices[dev], nil
}

// Init does nothing: an emulated driver is always initialised.
func (d *Driver) Init() error { return nil }

// DriverVersion returns a fixed version.
func (d *Driver) DriverVersion() (cu.Version, error) { return DriverVersion, nil }

// DeviceCount returns the number of devices in the Config.
func (d *Driver) DeviceCount() (int, error) { return len(d.devices), nil }

// DeviceGet returns the device with the given ordinal.
func (d *Driver) DeviceGet(ordinal int) (cu.Device, error) {
	if ordinal < 0 || ordinal >= len(d.devices) {
		return 0, fail("cuDeviceGet", cu.ErrInvalidDevice, "ordinal %d of %d devices", ordinal, len(d.devices))
	}
	return cu.Device(ordinal), nil
}

// DeviceName returns a name such as "Emulated GPU (sm_90)", or "Emulated GPU (sm_90, meta)" in meta
// mode.
func (d *Driver) DeviceName(dev cu.Device) (string, error) {
	if _, err := d.device("cuDeviceGetName", dev); err != nil {
		return "", err
	}
	if d.cfg.Meta {
		return fmt.Sprintf("Emulated GPU (sm_%d, meta)", d.cfg.SM), nil
	}
	return fmt.Sprintf("Emulated GPU (sm_%d)", d.cfg.SM), nil
}

// DeviceAttribute returns an attribute, or ErrInvalidValue for attributes that package cu does not
// have.
func (d *Driver) DeviceAttribute(dev cu.Device, a cu.DeviceAttr) (int, error) {
	if _, err := d.device("cuDeviceGetAttribute", dev); err != nil {
		return 0, err
	}
	l := limitsOf(d.cfg.SM)
	switch a {
	case cu.AttrMaxThreadsPerBlock:
		return maxThreadsPerBlock, nil
	case cu.AttrMaxBlockDimX:
		return maxBlockX, nil
	case cu.AttrMaxBlockDimY:
		return maxBlockY, nil
	case cu.AttrMaxBlockDimZ:
		return maxBlockZ, nil
	case cu.AttrMaxGridDimX:
		return maxGridX, nil
	case cu.AttrMaxGridDimY:
		return maxGridY, nil
	case cu.AttrMaxGridDimZ:
		return maxGridZ, nil
	case cu.AttrMaxSharedPerBlock:
		return sharedDefault, nil
	case cu.AttrMaxSharedPerBlockOptin:
		return l.sharedOptin, nil
	case cu.AttrMaxSharedPerSM:
		return l.sharedPerSM, nil
	case cu.AttrReservedSharedPerBlock:
		return sharedReserved, nil
	case cu.AttrTotalConstantMemory:
		return 64 << 10, nil
	case cu.AttrWarpSize:
		return warpSize, nil
	case cu.AttrMaxRegistersPerBlock, cu.AttrMaxRegistersPerSM:
		return registersPerSM, nil
	case cu.AttrClockRate, cu.AttrMemoryClockRate:
		return clockKHz, nil
	case cu.AttrMultiprocessorCount:
		return multiprocessors, nil
	case cu.AttrGlobalMemoryBusWidth:
		return 5120, nil
	case cu.AttrL2CacheSize:
		return 32 << 20, nil
	case cu.AttrMaxThreadsPerSM:
		return l.threadsPerSM, nil
	case cu.AttrMaxBlocksPerSM:
		return l.blocksPerSM, nil
	case cu.AttrAsyncEngineCount:
		return 2, nil
	case cu.AttrCanMapHostMemory, cu.AttrConcurrentKernels, cu.AttrUnifiedAddressing, cu.AttrStreamPriorities,
		cu.AttrVirtualMemoryManagement:
		return 1, nil
	case cu.AttrPCIBusID:
		return int(dev) + 1, nil
	case cu.AttrComputeCapabilityMajor:
		return d.cfg.SM / 10, nil
	case cu.AttrComputeCapabilityMinor:
		return d.cfg.SM % 10, nil
	case cu.AttrKernelExecTimeout, cu.AttrIntegrated, cu.AttrComputeMode, cu.AttrECCEnabled, cu.AttrPCIDeviceID, cu.AttrPCIDomainID,
		cu.AttrManagedMemory, cu.AttrPageableMemoryAccess, cu.AttrCooperativeLaunch, cu.AttrMemoryPools,
		cu.AttrClusterLaunch, cu.AttrTensorMapAccessSupported:
		return 0, nil // the emulator does not support the property
	}
	return 0, fail("cuDeviceGetAttribute", cu.ErrInvalidValue, "attribute %d is not emulated", a)
}

// DeviceTotalMem returns the size of a device's memory in the Config.
func (d *Driver) DeviceTotalMem(dev cu.Device) (uint64, error) {
	_, err := d.device("cuDeviceTotalMem", dev)
	return d.cfg.Memory, err
}

// DeviceUUID returns an identifier that starts with "emulated" in ASCII and ends with the ordinal.
func (d *Driver) DeviceUUID(dev cu.Device) (cu.UUID, error) {
	_, err := d.device("cuDeviceGetUuid", dev)
	u := cu.UUID{15: byte(dev)}
	copy(u[:], "emulated")
	return u, err
}

// DevicePCIBusID returns an ID whose bus number is the ordinal plus one.
func (d *Driver) DevicePCIBusID(dev cu.Device) (string, error) {
	_, err := d.device("cuDeviceGetPCIBusId", dev)
	return fmt.Sprintf("0000:%02x:00.0", int(dev)+1), err
}
