package gemm

// Transpose32 sets dst[p*ldd+r] = src[r*rs+p] for r < rows and p < k, of elements of 32 bits,
// whatever they mean. It does as many rows, from the first on, and as many of their elements as its
// vectors divide, and returns these numbers, which are 0 where there is no kernel. What of dst lies
// between is left as it is.
func Transpose32(dst []float32, ldd int, src []float32, rs, rows, k int) (doneRows, doneK int) {
	kern := active32()
	if kern.transpose == nil || rows < kern.group || k < kern.step || rs < 0 {
		return 0, 0
	}
	doneRows, doneK = rows-rows%kern.group, k-k%kern.step
	_, _ = dst[(doneK-1)*ldd+doneRows-1], src[(doneRows-1)*rs+doneK-1] // within bounds
	for r := 0; r < doneRows; r += kern.group {
		kern.transpose(&dst[r], ldd, &src[r*rs], rs, kern.group, doneK)
	}
	return doneRows, doneK
}
