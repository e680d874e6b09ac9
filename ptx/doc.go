// Package ptx builds kernels for NVIDIA GPUs as Go programs, and prints them as PTX.
//
// One makes a [Builder] ([New]), names parameters, writes arithmetic and control flow by calls, and
// calls [Builder.Build]. Build checks the kernel, runs the optimization passes and prints text. Any
// driver that knows the text's `.version` can load it, and no toolkit is involved. The method
// Launch of cuda.Device runs it.
//
// # Values
//
// A [Value] is in static single assignment form. The call that made it defines it, once. It may be
// used only in that region of control flow and in regions nested in it. What must change over time
// is a [Var]. [Var.Set] sets it. [Var.Get] reads it and gives a snapshot that later Sets do not
// change.
//
// Both operands of an operation have one [Type], and nothing converts by itself. Untyped constants
// ([Int], [Float]) take the type of the value that they meet.
//
// # Arithmetic
//
// Float32 and float64 add, sub, mul, div, fma and sqrt always print `.rn`. So the assembler may not
// contract a multiplication and an addition into a fused one: what is written is computed, bit for
// bit. The fast approximations have Approx in their names. Integers wrap at their width. Shift
// amounts of the width or more give 0 (or the sign, when a signed value is shifted right), as PTX
// defines.
//
// # Control flow
//
// If, IfElse, For, While and Loop take Go functions for their bodies. There are no labels. A Go
// loop around builder calls unrolls. Every path of a kernel built this way reconverges after the
// construct.
//
// # Errors
//
// Misuse does not panic. The builder records it with the caller's file and line. The operation
// yields an invalid value, which silences what depends on it. [Builder.Build] reports the whole
// list as one *[Error].
//
// # Versions
//
// Each kernel prints the lowest `.version` and `.target` that its instructions need. The floor is
// PTX 7.0 for sm_80. [Builder.Target] names another target, such as the exact sm_90a. An
// instruction that the target lacks is then a problem.
package ptx
