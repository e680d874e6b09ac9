//go:build !amd64 || noasm

package asm

// machineVariants returns the implementations beyond generic Go: none in this build.
func machineVariants() []variant { return nil }
