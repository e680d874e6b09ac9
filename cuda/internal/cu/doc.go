// Package cu is the CUDA driver API as a Go interface, and its real implementation.
//
// [API] is the contract: the calls of the driver that a training library needs, in Go terms (typed
// handles, errors instead of codes, time.Duration instead of milliseconds in a float). Two
// implementations satisfy it: the driver that NVIDIA installs, found and bound at run time by
// [Open], and the emulated one of package emu. Code above this package never knows which one it
// talks to, except through the two optional interfaces [Checker] and [Emulated].
//
// # Contract
//
// Every method returns nil or an [*Error], in which errors.Is finds the [Result] (errors.Is(err,
// cu.ErrOutOfMemory)). A Result of 0 is success and is never returned as an error.
//
// The current context belongs to an operating system thread, as in CUDA. A caller therefore does
//
//	runtime.LockOSThread()
//	err := api.CtxSetCurrent(ctx)
//	... calls ...
//	runtime.UnlockOSThread()
//
// for all calls whose documentation says "current context". The others find their context through a
// handle. All methods may be called from several goroutines at once.
//
// Memory that a call receives as an unsafe.Pointer must stay where it is and alive until the work
// that reads or writes it has completed, which is later than the call's return. That holds for
// memory from MemHostAlloc (page-locked) and for any other (pageable) memory: drivers usually take
// what they need of the latter within the call, and do not promise it. So who copies from or to Go
// memory synchronises the stream before the memory is let go (runtime.KeepAlive) or looked at.
//
// # Absence is a state, not a failure
//
// [Open] never panics and never ends the process. On a machine without a GPU, without a driver,
// with one that is too old, and so on, its error is an [*Unavailable] that says what was found and
// what to do.
//
// # Build tags
//
// With the tag nogpu nothing here is linked against a C library, and a program is fully static;
// Open then reports [BuiltWithout]. The real implementation exists on linux (amd64, arm64) and
// windows.
package cu
