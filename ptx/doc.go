// Package ptx builds NVIDIA PTX kernels as Go programs.
//
// A [Builder] collects one kernel: parameters, shared arrays, typed values and
// structured control flow. [Builder.Build] checks it, runs the optimization
// passes and prints PTX text that any driver which knows its `.version` can
// load. No toolkit is involved.
//
// # Values
//
// A [Value] is in static single assignment form. It is defined once, where the method that made it
// was called. It may be used only in that region of control flow and in regions nested in it. What
// must change over time is a [Var]: it is set with [Var.Set] and read with [Var.Get], which gives a
// snapshot that later Sets do not change.
//
// Both operands of an operation have one [Type]; nothing converts by itself.
// Untyped constants ([Int], [Float]) take the type of the value they meet.
//
// # Arithmetic
//
// Float32 and float64 add, sub, mul, div, fma and sqrt always print `.rn`. So the assembler may not
// contract a multiplication and an addition into a fused one: what is written is what is computed,
// bit for bit. The fast approximations have Approx in their names. Integers wrap at their width.
// Shift amounts of the width or more give 0 (or the sign, shifting a signed value right), as PTX
// defines.
//
// # Control flow
//
// If, IfElse, For, While and Loop take Go functions for their bodies; there are
// no labels. A Go loop around builder calls unrolls. Every path of a kernel
// built this way reconverges after the construct.
//
// # Errors
//
// Misuse does not panic. It is recorded with the caller's file and line, the
// operation yields an invalid value that silences what depends on it, and
// [Builder.Build] reports the whole list as one [*Error].
//
// # Versions
//
// Each kernel prints the lowest `.version` and `.target` that its instructions
// need; the floor is PTX 7.0 for sm_80. [Builder.Target] names another target, an exact one such as
// sm_90a among them, and instructions that it lacks are problems.
package ptx
