//go:build !linux

package gemm

import "testing"

func convOperand(_ *testing.T, n int) []float32 { return make([]float32, n) }
