// Package kernels holds the CUDA kernels as programs on the ptx builder, and plans how they are
// launched.
//
// For each operation of the device contract there is one pure planning function, which takes
// operands as addresses with layouts and returns the launches that carry the operation out, in
// order, on one stream:
//
//	Map            elementwise programs: dense with 16-byte vectors, strided, broadcast; also
//	               copy, cast, fill
//	Reduce         sum, prod, max, min, argmax, argmin over any dimensions, in a fixed order
//	MatMul         batched products of any strides; MatMulSplit also adds a bias, applies an
//	               activation and divides long sums among blocks. Those of 16-bit floats choose
//	               among forms by a model of the [GPU]
//	Softmax        rows, and SoftmaxGrad; also of the logarithm
//	Attention      softmax(scale·q·kᵀ + mask)·v by tiles of keys, in one launch, or in two that
//	               share the keys of a few queries among blocks; AttentionGrad in three
//	CrossEntropy   fused log-softmax and negative log likelihood, and CrossEntropyGrad
//	Gather         elements along an axis by index, and Scatter in a fixed order
//	MultiMap       one program over many groups of tensors in one launch (optimizer steps)
//
// A [Launch] names its [Kernel], the grid and the packed parameter block. The caller loads
// Kernel.PTX once a device, keyed by the *Kernel pointer (equal specifications give the same
// pointer). It launches Kernel.Entry with Kernel.Block threads and Kernel.DynShared bytes. An
// operation on no elements has no launches. Planning touches no device and is safe for concurrent
// use.
//
// Some operations need scratch memory: the planner asks for it through the [Scratch] that it is
// given, and the memory must stay valid until the launches have run. Indices that are out of range
// do not trap: the kernel writes the first of them to a fault record (see [FaultBytes]) whose
// address the caller gives, stores zero and goes on.
//
// Every kernel is deterministic: results have the same bits on every run, and elementwise results
// have the bits that [expr.Program.Eval] defines.
//
// What NVIDIA's assembler makes of the kernels, and what that allows at most, is in
// bench/results/machinecode.md; TestMachineCode holds it.
package kernels
