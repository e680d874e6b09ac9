//go:build !noasm

package asm

// machineVariants returns the implementations beyond generic Go, slowest first.
func machineVariants() []variant { return nil }
