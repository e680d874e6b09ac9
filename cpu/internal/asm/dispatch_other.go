//go:build !amd64 || noasm

package asm

// machineVariants returns the implementations besides generic Go: none in this build.
func machineVariants() []variant { return nil }
