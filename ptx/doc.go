// Package ptx builds kernels for NVIDIA GPUs as Go programs, and prints them as PTX.
//
// A [Builder] collects one kernel: parameters, shared arrays, typed values and structured control
// flow. [Builder.Build] checks the kernel, runs the optimization passes and prints PTX text. Any
// driver that knows the text's `.version` can load it. Building needs no CUDA toolkit.
//
// # Values
//
// A [Value] is in static single assignment form. It is defined once, by the method call that
// returned it. It may be used only in the region of control flow in which that call was made, and
// in regions nested in that region. A [Var] is a variable that changes over time: [Var.Set] sets
// it, and [Var.Get] returns a snapshot that later Sets do not change.
//
// Both operands of an operation have the same [Type]. There are no implicit conversions. Untyped
// constants ([Int], [Float]) get the type of the other operand.
//
// # Arithmetic
//
// Float32 and float64 add, sub, mul, div, fma and sqrt always print `.rn`. This keeps the assembler
// from fusing a multiplication and an addition: the kernel computes exactly what is written. The
// fast approximations have Approx in their names. Integers wrap at their width. A shift by the
// width or more gives 0, as PTX defines. A right shift of a signed value by so much gives copies of
// the sign.
//
// # Control flow
//
// If, IfElse, For, While and Loop take Go functions as their bodies. There are no labels. A Go loop
// around builder calls gives an unrolled loop. All paths of a kernel reconverge after each
// construct.
//
// # Errors
//
// Misuse does not panic. It is recorded with the caller's file and line. The operation returns an
// invalid value, and operations on an invalid value report nothing. [Builder.Build] returns all
// recorded misuse as one [*Error].
//
// # Versions
//
// Each kernel prints the lowest `.version` and `.target` that its instructions need, at least PTX
// 7.0 and sm_80. [Builder.Target] names another target, possibly an exact one such as sm_90a.
// Instructions that this target lacks are reported as problems.
package ptx
