package gemm

// Transpose32 sets dst[p*ldd+r] = src[r*rs+p] for r < rows and p < k. Elements have 32 bits of any
// type. It handles only as much as fills whole vectors: the first doneRows rows, and the first
// doneK elements of each. Both are 0 if there is no kernel. Other elements of dst do not change.
func Transpose32(dst []float32, ldd int, src []float32, rs, rows, k int) (doneRows, doneK int) {
	kern := active32()
	if kern.transpose == nil || rows < kern.group || k < kern.step || rs < 0 {
		return 0, 0
	}
	doneRows, doneK = rows-rows%kern.group, k-k%kern.step
	_, _ = dst[(doneK-1)*ldd+doneRows-1], src[(doneRows-1)*rs+doneK-1] // check the bounds
	for r := 0; r < doneRows; r += kern.group {
		kern.transpose(&dst[r], ldd, &src[r*rs], rs, kern.group, doneK)
	}
	return doneRows, doneK
}
