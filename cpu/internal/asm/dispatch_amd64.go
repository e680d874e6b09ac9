//go:build !noasm

package asm

import "golang.org/x/sys/cpu"

// AMD reports whether AMD made the processor.
func AMD() bool { return madeByAMD() }

// machineVariants returns all variants except generic Go, slowest first.
func machineVariants() []variant {
	x := &cpu.X86
	hasAVX2 := x.HasAVX2 && x.HasFMA && hasF16C()
	return []variant{
		{"avx2", hasAVX2, &avx2, functionsAVX2, wholeRounds(32, philoxAVX2)},
		{"avx512", hasAVX2 && x.HasBMI2 && x.HasAVX512F && x.HasAVX512DQ && x.HasAVX512BW && x.HasAVX512VL, &avx512, functionsAVX512, wholeRounds(64, philoxAVX512)},
	}
}
