// Package emu is an NVIDIA driver without hardware: the interface of package cu over emulated devices that parse and run PTX text.
//
// Its purpose is to find, on any machine, the mistakes that a GPU hides or reports badly.
//
// # Order
//
// Streams are real queues. Work that was enqueued runs no earlier than something needs it: a host synchronisation, a query,
// a full queue. Events, waits and the legacy default stream order work across streams exactly as CUDA promises and no further. With Seed 0 the
// queues run in the order of the calls; any other seed picks at random, reproducibly, which ready queue runs next and lets some queues
// lag far behind, so that a missing event or synchronisation changes results under some seed.
//
// Copies from and to pinned host memory happen when the queue gets there. A pageable source is captured by the call; a copy to a
// pageable destination completes within the call. MemFree takes effect at once and waits for nothing.
//
// # Faults
//
// A kernel that does something wrong (see package ptxvm) ends its context as on hardware: the next call that notices, and each call
// after it, returns the same error, in which errors.As finds the *ptxvm.Fault. Faults that hardware does not report, such as a
// race or a read of memory that nothing wrote, are delivered in the same way. Reset revives a device, which hardware cannot do.
//
// The nodes of a graph are queues of their own, as far as their dependencies allow. A launch of a graph counts as one.
//
// # Time
//
// Each device has a virtual clock, driven by a cost model (Cost) and not by the host's clock: event times are reproducible and say nothing about real speed.
//
// # Stricter than hardware
//
// Refused here although a driver may let it pass: parameters whose size is not exactly what the kernel declares, copies that overlap or that
// leave the stream's device other than by MemcpyPeerAsync, and work on memory, pinned memory or modules that were freed while it was pending.
//
// # Less than hardware
//
// No peer access, managed memory, virtual memory management, clusters or tensor maps; the attributes say so. A capture follows one stream,
// without events. Registers are unknown before ptxas and assumed to be 32 a thread, JITOptions.MaxRegisters has no effect, priorities have
// none either, and a device has 4 multiprocessors.
//
// # Meta mode
//
// With Config.Meta memory has addresses and a size but no contents: allocations are counted against the limit, kernels are checked and counted
// but not run, and reading a value is ErrMeta. It answers how much memory and how many launches a step needs, for models that would not fit.
package emu
