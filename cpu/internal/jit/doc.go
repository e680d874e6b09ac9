// Package jit makes machine code at run time. [Compile] turns instructions of package expr into one
// loop for processors with AVX-512, or with AVX2. The loop keeps intermediate values in registers.
// It gives the same bits as the kernels of package asm, run one after the other, except for the
// payload and sign of a NaN that arithmetic creates.
//
// Go calls a loop as it calls assembly: on the goroutine's stack, which the loop does not use. The
// loop calls no function, keeps RBP, and ends with VZEROUPPER. Go restores R14 after a call of
// assembly. The goroutine cannot be preempted during a call, so a call should take at most about
// 100 µs.
//
// The compiler makes one pass over the instructions for whole vectors, and another pass for the
// remaining elements of a row:
//
//   - lower.go and convert.go translate an instruction, and encode.go writes the bytes of the
//     machine code. avx2.go has the parts that differ for AVX2.
//   - fold.go combines the values of a row.
//   - quotient.go ends the divisions of an exact remainder as soon as they change nothing.
//   - registers.go assigns a register when a value is computed. If no register is free, the value
//     whose next use is farthest away moves to spill memory (Belady, "A study of replacement
//     algorithms for a virtual-storage computer", 1966).
//   - Constants are in memory after the code. Constants that are used often stay in registers if
//     enough registers are free. So do values that are the same for all elements.
//
// All loads of an iteration come before its stores. So a result may be in the same memory as an
// operand.
package jit
