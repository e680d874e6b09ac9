// Package ptxvm executes PTX text on the CPU, one warp at a time, and checks what it executes.
//
// It is the heart of the emulated GPU. Parse turns PTX text into a Module, and a Launch runs one of
// its entries over a grid against a Memory. The result is either Stats or a *Fault that names
// kernel, PTX line, block and thread. The package knows nothing of contexts, streams or the driver
// API; those live above it.
//
// # What is executed
//
// The integer, floating-point, memory, warp-level, atomic, barrier, cp.async, mbarrier, ldmatrix,
// mma.sync and wmma instructions of PTX ISA 7.x/8.x up to sm_90, and functions, recursive ones and
// those called by address among them. What is not there: wgmma, TMA and the transaction counts of
// mbarrier, textures, clusters of more than one block, 8-bit floats, and matrices of 4 and 1 bits.
// Nor are there SIMD video instructions, alloca, parameters of functions in registers, and CUDA's
// device library (printf, malloc; a failed assert is a Trap that quotes it). An instruction,
// modifier or operand type that is not executed is a *ParseError naming it; nothing is skipped
// silently.
//
// Arithmetic is bit-exact IEEE 754 with the stated rounding. Functions with .approx stay within the
// error bounds that the PTX ISA gives for them. mma.sync accumulates in float32 in order of k and
// must be compared by error bound, as on hardware. mul and add without a rounding modifier, which
// the assembler may fuse, are not fused.
//
// Two things keep a misreading of the ISA from hiding here and in the library's kernels alike.
// Tests hold acceptance against the real assembler, where it is installed: tens of thousands of
// combinations of instruction, type and modifier, each taken or refused by both. And they run
// kernels that others' compilers (NVIDIA's, Triton) made of sources in testdata/foreign, against
// the same computation in Go.
//
// # What is checked
//
// Out-of-bounds and misaligned access in every space, and reads of registers and memory never
// written. Races on shared memory, and on global memory between threads of one block: lanes of a
// warp are concurrent unless bar.warp.sync or a barrier orders them. Barriers and warp-level
// instructions under divergence, reads of cp.async destinations before their wait, deadlock, and
// runaway loops.
//
// # What is not modelled
//
// Lanes reconverge at immediate post-dominators, so a lane that spins for another lane of its own
// warp never ends and is reported as Runaway, unless the lane that it waits for has run before it.
// At a warp-level instruction the lanes that are missing go on first; at barriers of the block and
// matrix instructions they do not: those are .aligned, and a warp that is divided there is a
// mistake. Races on global memory between blocks are only looked for on request
// (Launch.CheckBlocks), those between threads of one block always. Ordering by acquire and release
// flags within a block is not tracked: such an access itself is never a race, but the data it
// guards needs a barrier to satisfy the detector.
package ptxvm
