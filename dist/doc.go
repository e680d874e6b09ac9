// Package dist trains on many devices, as torch.distributed and torch.nn.parallel do, in one
// process.
//
// Ranks are goroutines. [Run] starts a goroutine for each device, passes it its [Group], and
// returns when all goroutines have returned:
//
//	gpus := dist.Devices("cuda:0", "cuda:1")
//	err := dist.Run(ctx, gpus, func(ctx context.Context, g *dist.Group) error {
//		model := dist.DDP(nn.To(newModel(), g.Device()), g)
//		…the loop of one device, with g.Rank() of g.World()…
//	})
//
// All ranks share one process and one log, and Ctrl-C ends them. There is no launcher, and no
// serialization of objects between processes. The devices are GPUs, or ranks of the CPU:
// Devices("cpu", "cpu") gives cpu:0 and cpu:1.
//
// A program chooses among four ways:
//
//   - [DDP] averages the gradients of ranks that have the same model.
//   - [NewZeRO] also divides the optimizer's state among the ranks.
//   - [DataParallel] divides each batch of an ordinary program, which has no ranks, among devices.
//   - Collectives, such as [Group.AllReduce] and [AllGather], are for custom training loops. The
//     functions, such as [AllGather], have gradients; the methods work in place and have none.
//
// These rules hold:
//
//   - All ranks call the collectives of a group in the same order, with operands that fit. A
//     mismatch is an *[Error] that names both ranks and both lines of the program.
//   - A collective returns immediately. An op that needs its result waits automatically. On devices
//     with streams, the device waits, not the host. Tensors may be freed before the collective has
//     run.
//   - The same run gives the same bits, because a collective combines the ranks in their order.
//   - When one rank fails, the run ends on all ranks. [Run] returns one error, a *[RankError],
//     which names the rank. If a rank does not call a collective within [Timeout], the run ends,
//     and the error contains the stack of that rank.
//   - A rank that catches its failure may make the step void instead: see [Group.Void]. The other
//     ranks get a *[StepError], and all ranks repeat the step.
package dist
