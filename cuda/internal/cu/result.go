package cu

import (
	"fmt"
	"strings"
)

// Result is a CUresult, the number that each function of the driver returns. Every Result except 0
// is an error. Methods of [API] return it in an [*Error], in which errors.Is finds it.
type Result uint32

// Results that the driver returns. Numbers and names are those of cuda.h (CUDA 12.9). The
// explanations are this package's own.
const (
	ErrInvalidValue                Result = 1
	ErrOutOfMemory                 Result = 2
	ErrNotInitialized              Result = 3
	ErrDeinitialized               Result = 4
	ErrProfilerDisabled            Result = 5
	ErrStubLibrary                 Result = 34
	ErrDeviceUnavailable           Result = 46
	ErrNoDevice                    Result = 100
	ErrInvalidDevice               Result = 101
	ErrDeviceNotLicensed           Result = 102
	ErrInvalidImage                Result = 200
	ErrInvalidContext              Result = 201
	ErrMapFailed                   Result = 205
	ErrUnmapFailed                 Result = 206
	ErrAlreadyMapped               Result = 208
	ErrNoBinaryForGPU              Result = 209
	ErrNotMapped                   Result = 211
	ErrECCUncorrectable            Result = 214
	ErrUnsupportedLimit            Result = 215
	ErrContextAlreadyInUse         Result = 216
	ErrPeerAccessUnsupported       Result = 217
	ErrInvalidPTX                  Result = 218
	ErrNVLinkUncorrectable         Result = 220
	ErrJITCompilerNotFound         Result = 221
	ErrUnsupportedPTXVersion       Result = 222
	ErrJITCompilationDisabled      Result = 223
	ErrContained                   Result = 226
	ErrInvalidSource               Result = 300
	ErrFileNotFound                Result = 301
	ErrSharedObjectSymbolNotFound  Result = 302
	ErrSharedObjectInitFailed      Result = 303
	ErrOperatingSystem             Result = 304
	ErrInvalidHandle               Result = 400
	ErrIllegalState                Result = 401
	ErrNotFound                    Result = 500
	ErrNotReady                    Result = 600
	ErrIllegalAddress              Result = 700
	ErrLaunchOutOfResources        Result = 701
	ErrLaunchTimeout               Result = 702
	ErrPeerAccessAlreadyEnabled    Result = 704
	ErrPeerAccessNotEnabled        Result = 705
	ErrPrimaryContextActive        Result = 708
	ErrContextIsDestroyed          Result = 709
	ErrAssert                      Result = 710
	ErrTooManyPeers                Result = 711
	ErrHostMemoryAlreadyRegistered Result = 712
	ErrHostMemoryNotRegistered     Result = 713
	ErrHardwareStackError          Result = 714
	ErrIllegalInstruction          Result = 715
	ErrMisalignedAddress           Result = 716
	ErrInvalidAddressSpace         Result = 717
	ErrInvalidPC                   Result = 718
	ErrLaunchFailed                Result = 719
	ErrCooperativeLaunchTooLarge   Result = 720
	ErrNotPermitted                Result = 800
	ErrNotSupported                Result = 801
	ErrSystemNotReady              Result = 802
	ErrSystemDriverMismatch        Result = 803
	ErrCompatNotSupportedOnDevice  Result = 804
	ErrMPSConnectionFailed         Result = 805
	ErrMPSRPCFailure               Result = 806
	ErrMPSServerNotReady           Result = 807
	ErrMPSMaxClientsReached        Result = 808
	ErrMPSMaxConnectionsReached    Result = 809
	ErrMPSClientTerminated         Result = 810
	ErrStreamCaptureUnsupported    Result = 900
	ErrStreamCaptureInvalidated    Result = 901
	ErrStreamCaptureMerge          Result = 902
	ErrStreamCaptureUnmatched      Result = 903
	ErrStreamCaptureUnjoined       Result = 904
	ErrStreamCaptureIsolation      Result = 905
	ErrStreamCaptureImplicit       Result = 906
	ErrCapturedEvent               Result = 907
	ErrStreamCaptureWrongThread    Result = 908
	ErrTimeout                     Result = 909
	ErrGraphExecUpdateFailure      Result = 910
	ErrExternalDevice              Result = 911
	ErrInvalidClusterSize          Result = 912
	ErrFunctionNotLoaded           Result = 913
	ErrUnknown                     Result = 999
)

// Name returns the driver's name of r, such as "CUDA_ERROR_OUT_OF_MEMORY".
func (r Result) Name() string {
	if r == 0 {
		return "CUDA_SUCCESS"
	}
	if t, ok := resultTexts[r]; ok {
		return t.name
	}
	return fmt.Sprintf("CUDA_ERROR_%d", uint32(r))
}

// Explanation says in a sentence what r means. It is "" for a number that this package does not
// know.
func (r Result) Explanation() string { return resultTexts[r].text }

// Error returns the result's name, number and explanation.
func (r Result) Error() string {
	t := r.Explanation()
	if t == "" {
		t = "this version of the library has no explanation for it"
	}
	return fmt.Sprintf("%s (%d): %s", r.Name(), uint32(r), t)
}

// Sticky reports whether r means that the context is lost. From then on each call in that context
// fails with r. On hardware only a new process can use the device again.
func (r Result) Sticky() bool {
	switch r {
	case ErrECCUncorrectable, ErrNVLinkUncorrectable, ErrContained, ErrIllegalAddress, ErrLaunchTimeout, ErrAssert, ErrHardwareStackError,
		ErrIllegalInstruction, ErrMisalignedAddress, ErrInvalidAddressSpace, ErrInvalidPC, ErrLaunchFailed:
		return true
	}
	return false
}

// Error is a failed call of the driver. errors.Is finds its Result, and errors.As finds errors in
// Cause.
type Error struct {
	Call   string // the driver's function, such as "cuMemAlloc"
	Result Result // the driver's result, never 0
	Detail string // arguments of the call, such as "8589934592 bytes"; may be empty
	Log    string // the compiler's messages, if a module or link failed
	Cause  error  // the emulator's report on the failure; nil on hardware
}

// Error returns call, detail, result, cause and log.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Call)
	if e.Detail != "" {
		b.WriteString(" (" + e.Detail + ")")
	}
	b.WriteString(": " + e.Result.Error())
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	if log := strings.TrimSpace(e.Log); log != "" {
		b.WriteString("\n" + log)
	}
	return b.String()
}

// Unwrap returns the result and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Result}
	}
	return []error{e.Result, e.Cause}
}

type resultText struct{ name, text string }

var resultTexts = map[Result]resultText{
	ErrInvalidValue:                {"CUDA_ERROR_INVALID_VALUE", "an argument is outside of the range that the call accepts"},
	ErrOutOfMemory:                 {"CUDA_ERROR_OUT_OF_MEMORY", "the device, or the host for pinned memory, has no free memory of this size"},
	ErrNotInitialized:              {"CUDA_ERROR_NOT_INITIALIZED", "the driver was used before its initialisation"},
	ErrDeinitialized:               {"CUDA_ERROR_DEINITIALIZED", "the driver is shutting down with the process"},
	ErrProfilerDisabled:            {"CUDA_ERROR_PROFILER_DISABLED", "the profiler is not available, for example because another tool profiles the process"},
	ErrStubLibrary:                 {"CUDA_ERROR_STUB_LIBRARY", "the library that was loaded is the toolkit's link-time stub and not the driver"},
	ErrDeviceUnavailable:           {"CUDA_ERROR_DEVICE_UNAVAILABLE", "the GPU is taken: it is in exclusive mode and another process has it, or its compute mode prohibits use"},
	ErrNoDevice:                    {"CUDA_ERROR_NO_DEVICE", "the driver sees no usable GPU"},
	ErrInvalidDevice:               {"CUDA_ERROR_INVALID_DEVICE", "there is no GPU of this ordinal"},
	ErrDeviceNotLicensed:           {"CUDA_ERROR_DEVICE_NOT_LICENSED", "the virtual GPU has no valid licence"},
	ErrInvalidImage:                {"CUDA_ERROR_INVALID_IMAGE", "the kernel image is not one that the driver understands"},
	ErrInvalidContext:              {"CUDA_ERROR_INVALID_CONTEXT", "the calling thread has no current context, or the one given does not exist"},
	ErrMapFailed:                   {"CUDA_ERROR_MAP_FAILED", "memory could not be mapped"},
	ErrUnmapFailed:                 {"CUDA_ERROR_UNMAP_FAILED", "memory could not be unmapped"},
	ErrAlreadyMapped:               {"CUDA_ERROR_ALREADY_MAPPED", "the resource is mapped already"},
	ErrNoBinaryForGPU:              {"CUDA_ERROR_NO_BINARY_FOR_GPU", "the module holds no code for this GPU: its target is newer than, or different from, the device"},
	ErrNotMapped:                   {"CUDA_ERROR_NOT_MAPPED", "the resource is not mapped"},
	ErrECCUncorrectable:            {"CUDA_ERROR_ECC_UNCORRECTABLE", "the GPU's memory reported an error that could not be corrected: check the hardware"},
	ErrUnsupportedLimit:            {"CUDA_ERROR_UNSUPPORTED_LIMIT", "the device does not support this limit"},
	ErrContextAlreadyInUse:         {"CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "the context is in use by another thread"},
	ErrPeerAccessUnsupported:       {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "the two GPUs cannot address each other's memory"},
	ErrInvalidPTX:                  {"CUDA_ERROR_INVALID_PTX", "the PTX text did not compile"},
	ErrNVLinkUncorrectable:         {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "NVLink reported an error that could not be corrected: check the hardware"},
	ErrJITCompilerNotFound:         {"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "the driver's PTX compiler library (libnvidia-ptxjitcompiler) is not installed"},
	ErrUnsupportedPTXVersion:       {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX .version is newer than the driver's compiler: a newer driver is needed"},
	ErrJITCompilationDisabled:      {"CUDA_ERROR_JIT_COMPILATION_DISABLED", "compiling PTX was switched off (CUDA_DISABLE_PTX_JIT)"},
	ErrContained:                   {"CUDA_ERROR_CONTAINED", "a memory error was contained to this context, which is lost"},
	ErrInvalidSource:               {"CUDA_ERROR_INVALID_SOURCE", "the kernel source is invalid"},
	ErrFileNotFound:                {"CUDA_ERROR_FILE_NOT_FOUND", "a file was not found"},
	ErrSharedObjectSymbolNotFound:  {"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "a shared library lacks a symbol"},
	ErrSharedObjectInitFailed:      {"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "a shared library could not be initialised"},
	ErrOperatingSystem:             {"CUDA_ERROR_OPERATING_SYSTEM", "a call to the operating system failed"},
	ErrInvalidHandle:               {"CUDA_ERROR_INVALID_HANDLE", "a handle is of no living object, or belongs to another context"},
	ErrIllegalState:                {"CUDA_ERROR_ILLEGAL_STATE", "the object is in a state that does not allow the call"},
	ErrNotFound:                    {"CUDA_ERROR_NOT_FOUND", "a named thing, such as a kernel in a module, does not exist"},
	ErrNotReady:                    {"CUDA_ERROR_NOT_READY", "the work has not completed yet"},
	ErrIllegalAddress:              {"CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed memory that is not allocated; the context is lost"},
	ErrLaunchOutOfResources:        {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "the launch needs more threads, registers or shared memory than the device or the kernel allows"},
	ErrLaunchTimeout:               {"CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel ran longer than the time limit of a GPU that also drives a display; the context is lost"},
	ErrPeerAccessAlreadyEnabled:    {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access was enabled before"},
	ErrPeerAccessNotEnabled:        {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access was not enabled"},
	ErrPrimaryContextActive:        {"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context exists already, so its flags cannot be changed"},
	ErrContextIsDestroyed:          {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context was destroyed"},
	ErrAssert:                      {"CUDA_ERROR_ASSERT", "an assertion in a kernel failed; the context is lost"},
	ErrTooManyPeers:                {"CUDA_ERROR_TOO_MANY_PEERS", "no further peer access is possible on this hardware"},
	ErrHostMemoryAlreadyRegistered: {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is page-locked already"},
	ErrHostMemoryNotRegistered:     {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the host memory is not page-locked"},
	ErrHardwareStackError:          {"CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel corrupted or exhausted its call stack; the context is lost"},
	ErrIllegalInstruction:          {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel ran into an instruction that does not exist; the context is lost"},
	ErrMisalignedAddress:           {"CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel accessed memory at an address that is not a multiple of the access size; the context is lost"},
	ErrInvalidAddressSpace:         {"CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used an address in a memory space where it is not valid; the context is lost"},
	ErrInvalidPC:                   {"CUDA_ERROR_INVALID_PC", "a kernel jumped outside of its code; the context is lost"},
	ErrLaunchFailed:                {"CUDA_ERROR_LAUNCH_FAILED", "a kernel failed in a way that has no code of its own; the context is lost"},
	ErrCooperativeLaunchTooLarge:   {"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "a cooperative launch has more blocks than can be resident at once"},
	ErrNotPermitted:                {"CUDA_ERROR_NOT_PERMITTED", "the operation is not permitted"},
	ErrNotSupported:                {"CUDA_ERROR_NOT_SUPPORTED", "this driver, system or GPU does not support the operation"},
	ErrSystemNotReady:              {"CUDA_ERROR_SYSTEM_NOT_READY", "a system service is not running yet, such as the fabric manager of an NVSwitch machine"},
	ErrSystemDriverMismatch:        {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "the kernel's NVIDIA module and the user-space driver library are of different versions"},
	ErrCompatNotSupportedOnDevice:  {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "the forward-compatibility package (cuda-compat) does not support this GPU"},
	ErrMPSConnectionFailed:         {"CUDA_ERROR_MPS_CONNECTION_FAILED", "the MPS client could not reach its server"},
	ErrMPSRPCFailure:               {"CUDA_ERROR_MPS_RPC_FAILURE", "a call to the MPS server failed"},
	ErrMPSServerNotReady:           {"CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server does not accept clients now"},
	ErrMPSMaxClientsReached:        {"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the MPS server has no room for another client"},
	ErrMPSMaxConnectionsReached:    {"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "the MPS server has no room for another connection"},
	ErrMPSClientTerminated:         {"CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS server ended this client"},
	ErrStreamCaptureUnsupported:    {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "the call is not allowed while a stream is being captured"},
	ErrStreamCaptureInvalidated:    {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier error made the stream capture invalid"},
	ErrStreamCaptureMerge:          {"CUDA_ERROR_STREAM_CAPTURE_MERGE", "the call would merge two independent captures"},
	ErrStreamCaptureUnmatched:      {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was not started in this stream"},
	ErrStreamCaptureUnjoined:       {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "the capture ended with a forked stream that was not joined"},
	ErrStreamCaptureIsolation:      {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "the call would make a captured stream depend on uncaptured work"},
	ErrStreamCaptureImplicit:       {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the call would use the legacy default stream during a capture"},
	ErrCapturedEvent:               {"CUDA_ERROR_CAPTURED_EVENT", "the event was recorded during a capture and cannot be waited for outside of it"},
	ErrStreamCaptureWrongThread:    {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture belongs to another thread"},
	ErrTimeout:                     {"CUDA_ERROR_TIMEOUT", "the operation took longer than its limit"},
	ErrGraphExecUpdateFailure:      {"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "an executable graph cannot be updated to the new topology"},
	ErrExternalDevice:              {"CUDA_ERROR_EXTERNAL_DEVICE", "an external device reported an asynchronous error"},
	ErrInvalidClusterSize:          {"CUDA_ERROR_INVALID_CLUSTER_SIZE", "the cluster dimensions are not possible on this device"},
	ErrFunctionNotLoaded:           {"CUDA_ERROR_FUNCTION_NOT_LOADED", "the function is not loaded yet"},
	ErrUnknown:                     {"CUDA_ERROR_UNKNOWN", "the driver failed without saying why; often its device nodes are missing or need a reload after a suspend"},
}
