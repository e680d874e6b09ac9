// Package cu is the CUDA driver API as a Go interface, and its real implementation.
//
// [API] is the contract: the calls of the driver that a training library needs, in Go terms (typed
// handles, errors instead of codes, time.Duration instead of milliseconds in a float). Two
// implementations satisfy it. The first is the driver that NVIDIA installs, which [Open] finds and
// binds at run time. The second is the emulated driver of package emu. Code above this package
// cannot tell them apart, except by the optional interfaces [Checker] and [Emulated].
//
// # Contract
//
// Every method returns nil or an [*Error], in which errors.Is finds the [Result] (errors.Is(err,
// cu.ErrOutOfMemory)). A Result of 0 is success and is never returned as an error.
//
// The current context belongs to an operating system thread, as in CUDA. For calls whose
// documentation says "current context", a caller therefore does
//
//	runtime.LockOSThread()
//	err := api.CtxSetCurrent(ctx)
//	... calls ...
//	runtime.UnlockOSThread()
//
// All other calls find their context through a handle. All methods may be called from several
// goroutines at once.
//
// Some calls receive memory as an unsafe.Pointer. That memory must not move, and must stay alive,
// until the work that reads or writes it has completed. That may be after the call's return. This
// holds for page-locked memory from MemHostAlloc, and for pageable memory. Drivers usually finish
// with pageable memory within the call, but they do not promise it. So a caller that copies from
// or to Go memory synchronises the stream before it reads the memory or gives it up
// (runtime.KeepAlive).
//
// # Absence of the driver
//
// [Open] never panics and never ends the process. If a machine has no GPU, no driver, or a driver
// that is too old, for example, the error is an [*Unavailable]. It says what was found and what to
// do.
//
// # Build tags
//
// With the tag nogpu this package is not linked against a C library, and programs are fully static.
// Open then reports [BuiltWithout]. The real implementation exists on linux (amd64, arm64) and
// windows.
package cu
