package gemm

import "testing"

// convOperand returns n elements that end at a page without access.
func convOperand(t *testing.T, n int) []float32 { return beforeFault[float32](t, n) }
