// Package profile shows where the time, the memory and the copies of a program go: torch.profiler
// for Go.
//
// A program starts a profile, trains a few steps, and reads tables or writes files:
//
//	prof, err := profile.Start(profile.Options{Memory: true, FLOPs: true})
//	…           // train a few steps; prof.Step() after each
//	if err := prof.Stop(); err != nil { … }
//	table, err := prof.KeyAverages().Table(profile.SortBy("cuda_time_total"), profile.Rows(20))
//	err = prof.WriteFile("trace.json")  // or .json.gz, .pb.gz for pprof, .txt for the table
//
// It records ops, their gradients, layers, named scopes (tensor.Named) and the program's own spans
// ([Span]). It also records kernels, copies and allocations on every device, and waits of the host.
// Each belongs to the innermost span on its goroutine. The library reports them through
// [device.Tracer]. One profile runs at a time. Any number of goroutines may compute meanwhile.
//
// The contract:
//
//   - While no profile runs, and in the waiting steps of a [Schedule], each op reads one atomic
//     variable. This takes a few nanoseconds and allocates nothing. With everything recorded, a
//     step of a small network on the CPU, of 8 ms, takes about 4 % more CPU time. With
//     FLAMBEAU_SOAK=1 a test checks that it takes less than 5 % more.
//   - CPU times come from the host's clock. GPU times come from a timing event before and after
//     each kernel and copy, with a resolution of about half a microsecond. They include everything
//     between the two events, also the start of the kernel. The times of an emulated GPU come from
//     its virtual clock, and every report says so.
//   - Nothing waits for GPU times before [Profile.Stop] or [Profile.Step]. Step waits for the times
//     of steps before the last one.
//   - For the host, the two events and the record cost about as much as a launch. The device's work
//     is not slowed down, except where the device waits for the host.
//   - Work that is captured for a CUDA graph has not run, and is not recorded. Each replay is
//     recorded as one piece of device work, without operations.
//   - [Options].MaxEvents bounds the memory. Further events are counted, and every report says so.
//   - Files are written completely or not at all.
//
// It differs from torch.profiler in four ways:
//
//   - The time of an op that calls an op of the same name is not counted twice.
//   - The bytes of a kernel are known as well as its FLOPs. So [Profile.Roofline] can compare its
//     time with the device's limits.
//   - [Profile.Transfers] lists copies and waits with the line of the program that caused them.
//   - It writes pprof files.
package profile
