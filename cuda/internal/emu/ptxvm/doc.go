// Package ptxvm executes PTX text on the CPU, one warp at a time, and checks what it executes.
//
// It is the core of the emulated GPU. Parse turns PTX text into a Module. A Launch runs one of its
// entries over a grid on a Memory. The result is either Stats or a *Fault that names kernel, PTX
// line, block and thread. The package knows nothing of contexts, streams or the driver API, which
// are built on it.
//
// # What is executed
//
// The package executes the integer, floating-point, memory, warp-level, atomic, barrier, cp.async,
// mbarrier, ldmatrix, mma.sync and wmma instructions of PTX ISA 7.x/8.x up to sm_90. It executes
// functions, including recursive functions and calls by address.
//
// The package does not execute wgmma, TMA, the transaction counts of mbarrier, textures, clusters
// of more than one block, 8-bit floats, or matrices of 4 and 1 bits. Neither does it execute SIMD
// video instructions, alloca, parameters of functions in registers, or CUDA's device library
// (printf, malloc). A failed assert is a Trap that quotes the assertion. An instruction, modifier
// or operand type that is not executed is a *ParseError that names it. Parse skips no instruction
// silently.
//
// Arithmetic is bit-exact IEEE 754 with the stated rounding. Functions with .approx stay within the
// error bounds that the PTX ISA gives for them. mma.sync accumulates in float32 in the order of k.
// Its results must be compared with an error bound, as on hardware. mul and add without a rounding
// modifier, which the assembler may fuse, are not fused.
//
// This package and the library's kernels might share a wrong understanding of the ISA. Two kinds of
// tests would reveal that. The first kind compares Parse with the real assembler, if it is
// installed. Both must agree on whether to accept each of tens of thousands of combinations of
// instruction, type and modifier. The second kind runs kernels that other compilers (NVIDIA's,
// Triton) made of sources in testdata/foreign, and compares their results with those of Go code.
//
// # What is checked
//
// The package finds accesses out of bounds and misaligned accesses in every space, and reads of
// registers and memory that were never written. It finds races on shared memory, and on global
// memory between threads of one block: lanes of a warp are concurrent unless bar.warp.sync or a
// barrier orders them. It finds barriers and warp-level instructions under divergence, reads of
// cp.async destinations before their wait, deadlocks, and endless loops.
//
// # What is not modelled
//
// Lanes reconverge at immediate post-dominators. So a lane must not spin for another lane of its
// own warp that has not run yet. It would never end, and is reported as Runaway. At a warp-level
// instruction the missing lanes run first. At barriers of the block and at matrix instructions
// they do not: these are .aligned, so reaching them with a divided warp is a mistake. Races on
// global memory between threads of one block are always found. Races between blocks are found only
// on request (Launch.CheckBlocks). Acquire and release order is not tracked within a block. An
// access with .acquire or .release is itself never a race. But accesses to the data that it guards
// count as a race unless a barrier orders them.
package ptxvm
