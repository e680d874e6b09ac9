// Package kernels holds the CUDA kernels, written as programs on the ptx builder, and plans how
// they are launched.
//
// Each operation of the device contract has one pure planning function. It takes operands as
// addresses with layouts, and returns the launches that compute the operation, in order, on one
// stream:
//
//	Map            elementwise programs: dense with 16-byte vectors, strided, broadcast; also
//	               copy, cast, fill
//	Reduce         sum, prod, max, min, argmax, argmin over any dimensions, in a fixed order
//	MatMul         batched products of any strides; MatMulSplit also adds a bias, applies an
//	               activation and divides long sums among blocks. For 16-bit floats a model of
//	               the [GPU] chooses the form
//	Softmax        softmax and log-softmax of rows, and SoftmaxGrad
//	Attention      softmax(scale·q·kᵀ + mask)·v by tiles of keys, in one launch, or in two if
//	               blocks divide the keys of a few queries; AttentionGrad in three
//	CrossEntropy   fused log-softmax and negative log likelihood, and CrossEntropyGrad
//	Gather         elements along an axis by index, and Scatter in a fixed order
//	MultiMap       one program over many groups of tensors in one launch (optimizer steps)
//
// A [Launch] holds its [Kernel], the grid and the packed parameters. The caller loads Kernel.PTX
// once for each device, with the *Kernel pointer as the key: equal specifications give the same
// pointer. The caller then launches Kernel.Entry with Kernel.Block threads and Kernel.DynShared
// bytes. An operation on no elements has no launches. Planning touches no device and is safe for
// concurrent use.
//
// Some operations need scratch memory. The planner requests it from its [Scratch] argument. The
// memory must stay valid until the launches have run. Indices that are out of range do not trap.
// The kernel writes the first such index to a fault record (see [FaultBytes]) at the address that
// the caller gives, stores zero as the result, and continues.
//
// Every kernel is deterministic: results have the same bits on every run. Elementwise results have
// the bits that [expr.Program.Eval] defines.
//
// The page bench/results/machinecode.md lists how many instructions NVIDIA's assembler makes of the
// kernels, and the highest speed that these allow. TestMachineCode checks these numbers.
package kernels
