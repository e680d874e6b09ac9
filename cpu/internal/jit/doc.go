// Package jit makes machine code at run time. [Compile] turns instructions of package expr into one
// loop for processors with AVX-512, or with AVX2. The loop keeps intermediate values in registers.
// It gives the same bits as running the kernels of package asm one after the other. Only the
// payload and sign of a NaN that arithmetic creates may differ.
//
// Go calls a loop in the same way as assembly. The loop uses no stack, calls no function, does not
// change RBP, and ends with VZEROUPPER. It may change R14, which Go restores after a call of
// assembly. The goroutine cannot be preempted during a call, so a call should take at most about
// 100 µs.
//
// The compiler makes one pass over the instructions for whole vectors, and another pass for the
// remaining elements of a row:
//
//   - lower.go and convert.go translate an instruction, and encode.go writes the bytes of the
//     machine code. avx2.go has the parts that differ for AVX2.
//   - fold.go combines the values of a row.
//   - quotient.go ends the steps of an exact remainder early, when further steps would change
//     nothing.
//   - registers.go assigns a register when a value is computed. If no register is free, the value
//     whose next use is farthest away moves to spill memory (Belady, "A study of replacement
//     algorithms for a virtual-storage computer", 1966).
//   - Constants are in memory after the code. If enough registers are free, constants that are used
//     often stay in registers. This also holds for values that are the same for all elements.
//
// All loads of an iteration come before its stores. A result may therefore be in the same memory as
// an operand.
package jit
