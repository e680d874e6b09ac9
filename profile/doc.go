// Package profile shows which parts of a program take time and memory and cause copies, as
// torch.profiler does.
//
// A program starts a profile, trains a few steps, and reads tables or writes files:
//
//	prof, err := profile.Start(profile.Options{Memory: true, FLOPs: true})
//	…           // train a few steps; prof.Step() after each
//	if err := prof.Stop(); err != nil { … }
//	table, err := prof.KeyAverages().Table(profile.SortBy("cuda_time_total"), profile.Rows(20))
//	err = prof.WriteFile("trace.json")  // or .json.gz, .pb.gz for pprof, .txt for the table
//
// A profile records ops, their gradients, layers, named scopes (tensor.Named) and the program's own
// spans ([Span]). It records kernels, copies and allocations on every device, and waits of the
// host. Each of these events belongs to the innermost span on its goroutine. The profile is the
// library's [device.Tracer]. One profile runs at a time, while any number of goroutines may
// compute.
//
// The package guarantees:
//
//   - While no profile runs, and in the waiting steps of a [Schedule], an op reads one atomic
//     variable. This takes a few nanoseconds and no allocation. With all options, a 5 ms step of a
//     small network on the CPU takes about 2 % more processor time. With FLAMBEAU_SOAK=1, a test
//     checks that the overhead stays under 5 %.
//   - CPU times come from the host's clock. GPU times are measured by a timing event before and
//     after each kernel and copy. The events have a resolution of about half a microsecond, and
//     their difference includes the start of the kernel. An emulated GPU's times come from its
//     virtual clock, and every report says so.
//   - Nothing waits for GPU times before [Profile.Stop] or [Profile.Step]. Step waits for the times
//     of steps before the last one.
//   - The two events and the records of a launch cost the host about as much as the launch itself.
//     The work on the device becomes slower only where the device waits for the host.
//   - Work that is captured for a CUDA graph has not run and is not recorded. Each replay is one
//     piece of the device's work, without operations.
//   - [Options].MaxEvents limits the memory. Further events are counted, and every report says so.
//   - Files are written whole or not at all.
//
// The package differs from torch.profiler in four points:
//
//   - If an op calls an op of the same name, the inner time is not counted twice.
//   - A kernel's bytes are known as well as its FLOPs. So [Profile.Roofline] can compare a kernel
//     with the device's peaks.
//   - [Profile.Transfers] lists the copies and waits with the line that caused them.
//   - It writes pprof files.
package profile
