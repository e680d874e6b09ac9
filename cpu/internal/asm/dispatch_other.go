//go:build !amd64 || noasm

package asm

// machineVariants returns all variants except generic Go. This build has none.
func machineVariants() []variant { return nil }
