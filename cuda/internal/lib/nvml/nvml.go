// Package nvml queries NVIDIA's management library (libnvidia-ml.so.1, nvml.dll) for the state of a
// GPU: temperature, power, clocks, use, memory errors, processes, the PCI link. The library comes
// with the driver.
//
// [API] has the queries in Go terms. [Open] finds and initialises the library at run time. If it
// is missing, the error is an [*Unavailable]. A query that fails returns an [*Error], in which
// errors.Is finds the [Return]. The Return is ErrFunctionNotFound if the library is too old for
// the query, and ErrNotSupported if the GPU does not support it.
//
// Constants and struct layouts are those of nvml.h of CUDA 12.9. A test compares the layouts.
package nvml

import (
	"errors"
	"fmt"
	"strings"
)

// API is the management library. Methods are safe for concurrent use.
type API interface {
	// DriverVersion is nvmlSystemGetDriverVersion. It returns a version such as "550.54.15".
	DriverVersion() (string, error)
	// DeviceCount is nvmlDeviceGetCount_v2: the number of GPUs that this process may see.
	// CUDA_VISIBLE_DEVICES has no effect on it.
	DeviceCount() (int, error)
	// DeviceByIndex is nvmlDeviceGetHandleByIndex_v2, in the order of the PCI bus.
	DeviceByIndex(i int) (Device, error)
	// DeviceByPCIBusID is nvmlDeviceGetHandleByPciBusId_v2. An id looks like "0000:01:00.0".
	DeviceByPCIBusID(id string) (Device, error)
	// Name is nvmlDeviceGetName.
	Name(d Device) (string, error)
	// UUID is nvmlDeviceGetUUID. The result begins with "GPU-".
	UUID(d Device) (string, error)
	// Utilization is nvmlDeviceGetUtilizationRates. It returns percentages of the last sample
	// period, which lasts 1/6 s to 1 s. The result gpu is the time in which a kernel ran. The
	// result memory is the time in which memory was read or written.
	Utilization(d Device) (gpu, memory int, err error)
	// Temperature is nvmlDeviceGetTemperature of the die, in degrees Celsius.
	Temperature(d Device) (int, error)
	// Power is nvmlDeviceGetPowerUsage and nvmlDeviceGetEnforcedPowerLimit, in milliwatts.
	Power(d Device) (current, limit int, err error)
	// Clock is nvmlDeviceGetClockInfo and nvmlDeviceGetMaxClockInfo, in MHz.
	Clock(d Device, c ClockType) (current, limit int, err error)
	// Memory is nvmlDeviceGetMemoryInfo, in bytes.
	Memory(d Device) (Memory, error)
	// Processes is nvmlDeviceGetComputeRunningProcesses: the processes with a CUDA context on the
	// GPU.
	Processes(d Device) ([]Process, error)
	// Link is the PCI link: nvmlDeviceGetCurrPcieLinkGeneration and the three similar functions.
	Link(d Device) (Link, error)
	// ECC is nvmlDeviceGetEccMode: whether memory errors are corrected, now and after the next
	// restart.
	ECC(d Device) (current, pending bool, err error)
	// ECCErrors is nvmlDeviceGetTotalEccErrors. It counts memory errors since the driver was loaded
	// (volatile). If aggregate is true, it counts the errors of the GPU's whole life.
	ECCErrors(d Device, aggregate bool) (corrected, uncorrected uint64, err error)
	// RemappedRows is nvmlDeviceGetRemappedRows.
	RemappedRows(d Device) (Rows, error)
	// Throttle is nvmlDeviceGetCurrentClocksEventReasons: why the clocks are below their maximum.
	Throttle(d Device) (Throttle, error)
	// Persistence is nvmlDeviceGetPersistenceMode: whether the driver keeps the GPU initialised
	// when nobody uses it.
	Persistence(d Device) (bool, error)
	// MIG is nvmlDeviceGetMigMode: whether the GPU is divided into instances, now and after the
	// next reset.
	MIG(d Device) (current, pending bool, err error)
}

// Device is a handle of the library.
type Device uintptr

// ClockType is nvmlClockType_t.
type ClockType uint32

// The clocks.
const (
	ClockGraphics ClockType = 0
	ClockSM       ClockType = 1
	ClockMemory   ClockType = 2
)

// Memory is nvmlMemory_t.
type Memory struct{ Total, Free, Used uint64 }

// Process is nvmlProcessInfo_t.
type Process struct {
	PID uint32
	// UsedMemory is in bytes. It is NoValue if the system does not report it, as under WDDM and in
	// containers.
	UsedMemory uint64
	// GPUInstance is the MIG instance of the process, or NoInstance for none.
	GPUInstance uint32
	Compute     uint32
}

// These values mark fields of a Process that have no value (NVML_VALUE_NOT_AVAILABLE).
const (
	NoValue    = ^uint64(0)
	NoInstance = ^uint32(0)
)

// Link is the PCI link of a GPU: its state now, and the best that is possible in this machine. An
// idle GPU may lower its generation to save power.
type Link struct{ Generation, Width, MaxGeneration, MaxWidth int }

// Rows counts rows of memory that were replaced by spare rows.
type Rows struct {
	// numbers of rows that were replaced after corrected and after uncorrected errors
	Corrected, Uncorrected int
	Pending                bool // whether a row will be replaced at the next reset
	Failure                bool // whether a row could not be replaced
}

// Throttle is a set of nvmlClocksEventReasons.
type Throttle uint64

// Reasons for clocks below their maximum.
const (
	ThrottleIdle Throttle = 0x1
	// A user has set lower clocks with "nvidia-smi -ac".
	ThrottleSetting Throttle = 0x2
	// Software keeps the power below its limit.
	ThrottlePowerCap Throttle = 0x4
	// clocks are halved or lower, because of temperature, power brake or power supply
	ThrottleHardware Throttle = 0x8
	ThrottleSync     Throttle = 0x10
	// Software keeps the temperature below its limit.
	ThrottleThermal     Throttle = 0x20
	ThrottleHardwareHot Throttle = 0x40
	// An external signal, such as the power supply's, lowers the clocks.
	ThrottlePowerBrake   Throttle = 0x80
	ThrottleDisplayClock Throttle = 0x100
)

var throttleNames = []struct {
	bit  Throttle
	name string
}{
	{ThrottleIdle, "idle"}, {ThrottleSetting, "application clocks"}, {ThrottlePowerCap, "power cap"}, {ThrottleHardware, "hardware slowdown"},
	{ThrottleSync, "sync boost"}, {ThrottleThermal, "thermal slowdown"}, {ThrottleHardwareHot, "hardware thermal slowdown"},
	{ThrottlePowerBrake, "hardware power brake"}, {ThrottleDisplayClock, "display clocks"},
}

// Names returns the reasons in words.
func (t Throttle) Names() []string {
	names := []string{}
	for _, n := range throttleNames {
		if t&n.bit != 0 {
			names = append(names, n.name)
			t &^= n.bit
		}
	}
	if t != 0 {
		names = append(names, fmt.Sprintf("unknown reason %#x", uint64(t)))
	}
	return names
}

// String returns the names separated by commas, or "none" if the set is empty.
func (t Throttle) String() string {
	if t == 0 {
		return "none"
	}
	return strings.Join(t.Names(), ", ")
}

// Return is nvmlReturn_t.
type Return uint32

// These are the return codes that callers distinguish.
const (
	ErrUninitialized    Return = 1
	ErrInvalidArgument  Return = 2
	ErrNotSupported     Return = 3
	ErrNoPermission     Return = 4
	ErrNotFound         Return = 6
	ErrInsufficientSize Return = 7
	ErrDriverNotLoaded  Return = 9
	ErrFunctionNotFound Return = 13
	ErrGPULost          Return = 15
	ErrResetRequired    Return = 16
	ErrOperatingSystem  Return = 17
	ErrVersionMismatch  Return = 18
)

var returnTexts = map[Return]string{
	ErrUninitialized: "the library is not initialised", ErrInvalidArgument: "an argument is invalid", ErrNotSupported: "this GPU does not tell",
	ErrNoPermission: "this user has no permission", ErrNotFound: "not found", ErrInsufficientSize: "an argument is too small",
	8: "a power cable is not attached", ErrDriverNotLoaded: "the driver is not loaded", 10: "it took too long", 11: "the kernel found a problem with an interrupt",
	12: "the library could not be loaded", ErrFunctionNotFound: "the library is too old for this question", 14: "the GPU's infoROM is corrupted",
	ErrGPULost: "the GPU has fallen off the bus", ErrResetRequired: "the GPU must be reset", ErrOperatingSystem: "the operating system or its control groups block the device",
	ErrVersionMismatch: "the kernel's module and the library are of different versions", 19: "the GPU is in use", 20: "too little memory", 21: "no data",
	999: "an error inside the driver",
}

// Error describes the return code in words.
func (r Return) Error() string {
	t := returnTexts[r]
	if t == "" {
		t = "an error without a name here"
	}
	return fmt.Sprintf("%s (NVML error %d)", t, uint32(r))
}

// Error is a query that failed.
type Error struct {
	Call   string // name of the function, such as "nvmlDeviceGetTemperature"
	Return Return // the library's return code, never 0
}

func (e *Error) Error() string { return e.Call + ": " + e.Return.Error() }
func (e *Error) Unwrap() error { return e.Return }

// Unavailable says why the library cannot be used on this machine.
type Unavailable struct {
	Library string   // file that was loaded; "" if none was
	Tried   []string // names and folders that were tried, each with the loader's error
	Return  Return   // the library's return code; 0 if the library was not called
}

func (u *Unavailable) Error() string {
	if u.Library == "" {
		return "NVIDIA's management library (" + libraryName() + ") is not there: it comes with the driver"
	}
	return "NVIDIA's management library " + u.Library + " does not start: " + u.Return.Error()
}

// Unwrap returns the library's return code.
func (u *Unavailable) Unwrap() error {
	if u.Return == 0 {
		return nil
	}
	return u.Return
}

// Missing reports whether err says that this GPU, or this version of the library, cannot answer a
// query.
func Missing(err error) bool {
	return errors.Is(err, ErrNotSupported) || errors.Is(err, ErrFunctionNotFound)
}
