package autograd

import "github.com/flambeau-go/flambeau/tensor"

// SaveOnCPU gives a scope in which ops keep what they save for gradients in the memory of the CPU instead of their GPU's, and have it brought back
// when Backward comes to them: torch.autograd.graph.save_on_cpu.
//
//	s.Do(func(s *tensor.Scope) { loss = model.Loss(x.In(s)); … }, autograd.SaveOnCPU(true))
//
// With pinned memory the copies run on a stream of their own beside the GPU's work, and Backward starts the copy of the value that it needs
// next before it needs it; without, each copy waits. Values have the same bits as without. Leaves that require a gradient, such as parameters, and views
// of them stay, as do values on the CPU and those of less than 4 KiB; a tensor that several ops save is copied once. (PyTorch copies each time,
// and parameters too.) The inputs that [Checkpoint] keeps are saved values as well: both together leave next to nothing on the GPU.
//
// In a capture ([tensor.Capture]) each replay copies anew, from and to memory that is the graph's until it is closed, and in the order of the work itself,
// by which the GPU's memory comes free; without pinned memory it is an error there.
//
// A change in place of a tensor after it was saved goes unnoticed, as in PyTorch: the copy is what it was.
func SaveOnCPU(pinned bool) tensor.Option { return tensor.Offload(pinned) }
