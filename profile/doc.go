// Package profile says where the time, the memory and the copies of a program go: torch.profiler
// for Go.
//
// One starts a profile, trains a few steps, and reads tables or writes files:
//
//	prof, err := profile.Start(profile.Options{Memory: true, FLOPs: true})
//	…           // train a few steps; prof.Step() after each
//	if err := prof.Stop(); err != nil { … }
//	table, err := prof.KeyAverages().Table(profile.SortBy("cuda_time_total"), profile.Rows(20))
//	err = prof.WriteFile("trace.json")  // or .json.gz, .pb.gz for pprof, .txt for the table
//
// It records ops, their gradients, layers, named scopes (tensor.Named) and the program's own spans
// ([Span]). It records kernels, copies and allocations on every device, and waits of the host. Each
// belongs to the innermost span on its goroutine. The library tells it of them by [device.Tracer].
// One profile runs at a time; any number of goroutines may compute meanwhile.
//
// The contract:
//
//   - While no profile runs, and in the waiting steps of a [Schedule], the library asks one atomic
//     variable per op: no allocation, a few nanoseconds. With everything recorded, a step of a
//     small network on the CPU, of 8 ms, takes about 4 % more of the processor's time. A test holds
//     it under 5 %, with FLAMBEAU_SOAK=1.
//   - CPU times are the host's clock. GPU times are measured by a timing event before and after
//     each kernel and copy, of a resolution of about half a microsecond. They hold what lies
//     between the two, the start of the kernel too. An emulated GPU's times are its virtual
//     clock's, and every report says so.
//   - Nothing waits for GPU times before [Profile.Stop] or [Profile.Step], which waits for those of
//     steps before the last.
//   - The two events and the records of a launch cost the host about as much as the launch itself
//     again. Work of the device is not slowed down, except where it waits for the host.
//   - What is captured for a CUDA graph has not run and is not recorded. Each replay is one piece
//     of the device's work, without operations.
//   - Memory is bounded by [Options].MaxEvents. What is beyond is counted, and every report says
//     so.
//   - Files are written whole or not at all.
//
// It differs from torch.profiler in four things:
//
//   - Times of ops that call an op of the same name are not counted twice.
//   - A kernel's bytes are known as well as its FLOPs. So [Profile.Roofline] can tell how far it is
//     from what the device can do.
//   - [Profile.Transfers] lists the copies and waits with the line that asked for them.
//   - It writes pprof files.
package profile
