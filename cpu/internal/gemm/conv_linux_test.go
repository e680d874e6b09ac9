package gemm

import "testing"

// convOperand returns n elements, followed by a page that the process may not access.
func convOperand(t *testing.T, n int) []float32 { return beforeFault[float32](t, n) }
