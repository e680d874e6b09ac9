// Package jit makes machine code at run time. [Compile] turns instructions of package expr into one
// loop for processors with AVX-512, or with AVX2. The loop keeps intermediate values in registers.
// It gives the same bits as the kernels of package asm, run one after the other, except for the
// payload and sign of a NaN that arithmetic creates.
//
// A loop is called as plain Go calls assembly: on the goroutine's stack, which it does not use. It
// calls nothing, keeps RBP, and ends with VZEROUPPER. Go reloads R14 after a call of assembly. The
// goroutine cannot be preempted meanwhile, so one call should work for at most about 100 µs.
//
// The compiler works in one pass over the instructions, once for whole vectors and once for the
// rest of a row:
//
//   - lower.go and convert.go translate an instruction, as the sequence of encode.go's bytes.
//     avx2.go has what is different for AVX2.
//   - fold.go combines the values of a row.
//   - registers.go assigns registers as values are made. If none is free, the value whose next use
//     is farthest away moves to spill memory (Belady, "A study of replacement algorithms for a
//     virtual-storage computer", 1966).
//   - Constants lie behind the code. Those that are used often, and values that are the same for
//     all elements, stay in registers if there is room.
//
// All loads of an iteration come before its stores. So a result may replace an operand that lies in
// the same memory.
package jit
