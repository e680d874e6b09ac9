//go:build !amd64 || noasm

package asm

// AMD reports whether AMD made the processor. In this build nothing depends on it.
func AMD() bool { return false }

// machineVariants returns all variants except generic Go. This build has none.
func machineVariants() []variant { return nil }
