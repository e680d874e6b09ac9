package gemm

import "testing"

// convOperand returns n elements before a page without access.
func convOperand(t *testing.T, n int) []float32 { return beforeFault(t, n) }
