// Package emu is an NVIDIA driver without hardware: the interface of package cu over emulated
// devices that parse and run PTX text.
//
// Its purpose is to find, on any machine, the mistakes that a GPU hides or reports badly.
//
// # Order
//
// Streams are real queues. Enqueued work runs only when something needs it: a host synchronisation,
// a query, or a full queue. Events, waits and the legacy default stream order work across streams
// exactly as CUDA promises, and no further. With Seed 0 the queues run in the order of the calls.
// Any other seed picks at random, reproducibly, which ready queue runs next, and lets some queues
// lag far behind. So a missing event or synchronisation changes results under some seed.
//
// Copies from and to page-locked host memory happen when their turn in the queue comes. With
// pageable memory, the call itself captures the source, or completes the copy to the destination,
// as hardware usually does. MemFree takes effect immediately and waits for nothing.
//
// CUDA promises less about pageable memory. With PageableLate the driver does no more than CUDA
// promises: copies of pageable memory also happen when their turn in the queue comes. If a source
// changes before that, the context ends. A destination holds poison until then.
// FLAMBEAU_PAGEABLE=late sets PageableLate for each driver whose Config does not set Pageable.
// A whole test suite can then run with PageableLate.
//
// The nodes of a graph form queues of their own, as far as their dependencies allow. A launch of a
// graph counts as one launch.
//
// # Peers
//
// Devices can address each other's memory unless Config.NoPeer is set: servers with NVLink or
// NVSwitch can, GeForce cards cannot. Access is one-way, and begins with CtxEnablePeerAccess. A
// kernel that uses a peer's memory but has no access causes a fault. A copy between devices goes
// through the host, and takes the time of two copies, unless its stream's context has access. An
// adversarial schedule divides a copy through the host into two pieces. Work that is not ordered
// with the copy may run between the pieces.
//
// # Collectives
//
// A [Meeting] is what a library's kernels do on several devices at once. It has one part in a
// stream of each device, and all parts are done together. If a host waits for a part whose partners
// never arrive, the context ends.
//
// # Faults
//
// A kernel that does something wrong (see package ptxvm) ends its context, as on hardware. The next
// call that notices, and each call after it, returns one and the same error, in which errors.As
// finds the *ptxvm.Fault. Some of these faults are not reported by hardware, such as a race, or a
// read of memory that nothing wrote. They too end the context. Reset revives a device, which
// hardware cannot do.
//
// # Time
//
// Each device has a virtual clock, which follows a cost model (Cost) and not the host's clock.
// Event times are reproducible and say nothing about real speed. Config.Timeline is called with the
// times at which each operation began and ended.
//
// A device has three engines: one for kernels, fills and copies within it, one for copies from the
// host, and one for copies to the host. Between two devices there is a link in each direction. An
// engine or a link does one thing at a time. Operations occupy it in the order of the calls. But an
// operation that waits for an event does not delay an operation that is ready. The ready operation
// uses the engine until the waiting one begins, and continues after it if there is work left. So a
// small kernel of a stream that communicates delays other kernels by the time that it runs, not by
// the time that it waits.
//
// An operation never begins before the host has submitted it. The host of each device has a clock
// of its own: if ranks are goroutines with one device each, they submit at the same time. A wait
// moves the clock of the device whose context is current.
//
// With Seed 0 the times do not depend on how such goroutines take turns, under two conditions:
//
//   - Each device has one goroutine that drives it and waits for it. Each link has one goroutine
//     that uses it, for example the goroutine of the device at its end.
//   - A stream waits only for events that have been recorded. Goroutines that wait for each other's
//     events order the record and the wait among themselves, for example by a channel. That takes
//     no virtual time.
//
// If a condition is not met, the goroutine that calls first gets the engine or the link first. If
// one goroutine drives two devices, a wait for one of them does not delay work that the goroutine
// later submits to the second device.
//
// In an adversarial schedule the order of the calls decides which random number each call gets. So
// the order in which goroutines run affects the times. It also affects the order of operations that
// no event orders. It does not affect the values that a program computes, if its events are right.
//
// # Stricter than hardware
//
// The emulator refuses some things that a driver may let pass: parameters whose size is not exactly
// what the kernel declares, and copies that overlap. It refuses copies to or from a device that is
// not the stream's, except by MemcpyPeerAsync or as a graph's copy between peers. It also refuses
// work on memory, page-locked memory or modules that were freed while the work was pending.
//
// # Less than hardware
//
// There is no managed memory, and there are no clusters or tensor maps; the attributes say so. Peer
// access reaches memory of MemAlloc, and any number of peers. A capture follows one stream, without
// events. Only ptxas knows the registers of a kernel, so 32 a thread are assumed.
// JITOptions.MaxRegisters and priorities have no effect. A device has 4 multiprocessors. Memory of
// MemCreate can be mapped at one place only, for its own device, and is poisoned when it is mapped
// again.
//
// # Meta mode
//
// With Config.Meta memory has addresses and a size but no contents. Allocations count against the
// limit, launches are checked and counted but not run, and reading a value returns ErrMeta. This
// mode says how much memory and how many launches a step needs, for models that would not fit. The
// emulator reads only the declarations of a kernel's text. Page-locked memory also has addresses
// only: pages that nobody writes do not exist. A copy to page-locked memory is counted. Before the
// host reads the copy, it must wait for an event, and that wait returns ErrMeta. On the virtual
// clock a kernel takes the time of its launch, and a copy its whole time.
package emu
