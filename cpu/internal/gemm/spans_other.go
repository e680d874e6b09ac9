//go:build !amd64 || noasm

package gemm

var spanKernels map[string]*spanKernel

// turn transposes: it sets dst[p*ldd+r] to src[rows[r]+p], for r < group and p < k. It writes in
// ascending order of p. k is a multiple of 4.
func (w *spanKernel) turn(dst *float32, ldd int, src *float32, rows *[16]int, k int) {
	turnGo(dst, ldd, src, rows, k)
}
