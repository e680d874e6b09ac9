// Package dist trains on many devices: torch.distributed and torch.nn.parallel, in one process.
//
// Ranks are goroutines. [Run] starts one for each device, gives it its [Group], and returns when
// all have returned:
//
//	gpus := dist.Devices("cuda:0", "cuda:1")
//	err := dist.Run(ctx, gpus, func(ctx context.Context, g *dist.Group) error {
//		model := dist.DDP(nn.To(newModel(), g.Device()), g)
//		…the loop of one device, with g.Rank() of g.World()…
//	})
//
// So there is one process, one log and one Ctrl-C, and nothing is pickled or launched. The devices
// are GPUs, or shares of the CPU: Devices("cpu", "cpu") gives cpu:0 and cpu:1.
//
// The contract:
//
//   - Every rank calls the collectives of a group in one order, with operands that fit. What does
//     not match is an *[Error] that names both ranks and both lines of the program.
//   - A collective returns at once. An op that needs its result waits for the other ranks by
//     itself, on the device where there are streams. Tensors may be freed meanwhile.
//   - The same run gives the same bits: ranks are combined in their order.
//   - When one rank fails, all end. [Run] returns one error, a *[RankError], that says which rank
//     it was. A rank that does not come is given up after [Timeout], and the error has its stack.
//   - A rank that catches its failure may make the step void instead: see [Group.Void]. All learn
//     of it by a *[StepError], and do the step again.
package dist
