// Package emu is an NVIDIA driver without hardware: the interface of package cu over emulated
// devices that parse and run PTX text.
//
// Its purpose is to find, on any machine, the mistakes that a GPU hides or reports badly.
//
// # Order
//
// Streams are real queues. Work that was enqueued runs no earlier than something needs it: a host
// synchronisation, a query, a full queue. Events, waits and the legacy default stream order work
// across streams exactly as CUDA promises and no further. With Seed 0 the queues run in the order
// of the calls. Any other seed picks at random, reproducibly, which ready queue runs next, and lets
// some queues lag far behind. So a missing event or synchronisation changes results under some
// seed.
//
// Copies from and to page-locked host memory happen when the queue gets there. A pageable source is
// captured by the call, and a copy to a pageable destination completes within it, as hardware
// usually does. MemFree takes effect at once and waits for nothing.
//
// CUDA promises less of pageable memory, and with PageableLate the driver does no more than that:
// such copies happen when the queue gets there as well. A source that changes before that ends the
// context. A destination holds poison until then. FLAMBEAU_PAGEABLE=late sets this for each driver
// whose Config leaves it open, for whole suites of tests.
//
// # Peers
//
// Devices can address each other unless Config.NoPeer says otherwise: servers with NVLink or
// NVSwitch can, GeForce cards cannot. Access holds from CtxEnablePeerAccess on, in that direction,
// and a kernel that uses a peer's memory without it faults. A copy between devices is staged
// through the host, at the pace of two copies, unless the context whose stream it is in has access.
// An adversarial schedule splits it in two, as a staged one is, and what is not ordered with it may
// come between.
//
// # Collectives
//
// What a library's kernels do on several devices at once is a [Meeting]: its parts, one in a stream
// of each device, are done together. A host's wait for a part to which the others never come ends
// the context.
//
// # Faults
//
// A kernel that does something wrong (see package ptxvm) ends its context as on hardware. The next
// call that notices, and each call after it, returns the same error, in which errors.As finds the
// *ptxvm.Fault. Faults that hardware does not report, such as a race or a read of memory that
// nothing wrote, are delivered in the same way. Reset revives a device, which hardware cannot do.
//
// The nodes of a graph are queues of their own, as far as their dependencies allow. A launch of a
// graph counts as one.
//
// # Time
//
// Each device has a virtual clock, driven by a cost model (Cost) and not by the host's clock: event
// times are reproducible and say nothing about real speed. Config.Timeline hears when each
// operation began and ended.
//
// A device has an engine for kernels, fills and copies within it, one for copies from the host and
// one for copies to it. Between two devices there is a link each way. An engine or a link does one
// thing at a time. Operations take its time in the order of the calls, but one that waits for an
// event holds up none that is ready. What comes later then uses the time before it, and the time
// behind it for the rest. So a small kernel of a stream that communicates takes from the kernels
// beside it the time that it runs, and not the time that it waits.
//
// An operation begins no earlier than the host submitted it, and the host of each device has a
// clock of its own: ranks that drive a device each, as goroutines, submit side by side. A wait
// moves the clock of the device whose context is current.
//
// With Seed 0 the times do not depend on how such goroutines take turns, as long as
//
//   - each device is driven, and waited for, by one goroutine, and each link used by one of them,
//     such as that of the device at its end;
//   - what a stream waits for has been recorded: goroutines that wait for each other's events order
//     the record and the wait among themselves, by a channel for example. That takes no time.
//
// Otherwise who calls first has the engine or the link first. Where one goroutine drives two
// devices and waits for one of them, what it gives the other afterwards is not later for that. In
// an adversarial schedule the order of the calls decides what the seed draws: times, and the order
// of what nothing orders, depend on the goroutines' turns. Values of a program whose events are
// right do not.
//
// # Stricter than hardware
//
// Refused here although a driver may let it pass: parameters whose size is not exactly what the
// kernel declares, and copies that overlap. So are copies that leave the stream's device other than
// by MemcpyPeerAsync, or as a graph's copy between peers. So is work on memory, page-locked memory
// or modules that were freed while it was pending.
//
// # Less than hardware
//
// No managed memory, clusters or tensor maps; the attributes say so. Peer access is to memory of
// MemAlloc, and of any number of peers. A capture follows one stream, without events. Registers are
// unknown before ptxas and assumed to be 32 a thread, JITOptions.MaxRegisters has no effect,
// priorities have none either, and a device has 4 multiprocessors. Memory of MemCreate is mapped at
// one place at most, for its own device, and is poisoned when it is mapped again.
//
// # Meta mode
//
// With Config.Meta memory has addresses and a size but no contents: allocations are counted against
// the limit, launches are checked and counted but not run, and reading a value is ErrMeta. It
// answers how much memory and how many launches a step needs, for models that would not fit. Of a
// kernel's text only the declarations are read. Page-locked memory is addresses as well: pages that
// nobody writes are not there. A copy to it is counted; a host that waits for an event behind such
// a copy, as one does before reading, gets ErrMeta. The virtual clock knows of a kernel its launch,
// and of copies all.
package emu
