//go:build race

package gemm

func init() { raceEnabled = true }
