package gemm

import "unsafe"

// pack copies a panel: dst[p*ldd+r] = src[r*rs+p*ks] for r < h and p < k. For kernels with pairs,
// the index in dst is p/2*2*ldd+2*r+p%2, and if k is odd, a row of zeros follows. The elements of
// dst from column h to ldd-1 get arbitrary values. Kernels may compute with them but do not store
// the results.
func (kern *kernel[E, T]) pack(dst []E, ldd int, src []E, rs, ks, h, k int) {
	switch {
	case kern.pairs:
		kern.packPairs(dst, ldd, src, rs, ks, h, k)
	case ks == 1 && kern.transpose != nil:
		kern.packTransposed(dst, ldd, src, rs, h, k)
	case rs == 1:
		kern.packRows(dst, ldd, src, ks, h, k)
	default:
		for p := range k {
			d := dst[p*ldd : p*ldd+ldd]
			s := src[p*ks:]
			for r := range h {
				d[r] = s[r*rs]
			}
			clear(d[h:])
		}
	}
}

// packRows packs a panel whose rows are contiguous. The panel may be narrower than a row of
// dst. The kernel copyRows then fills each row with the elements that follow in the source, as
// long as the source has enough of them. All other rows end with zeros.
func (kern *kernel[E, T]) packRows(dst []E, ldd int, src []E, ks, h, k int) {
	p := 0
	size := int(unsafe.Sizeof(src[0]))
	if kern.copyRows != nil && len(src) >= ldd {
		p = k
		if ks > 0 {
			p = min(k, (len(src)-ldd)/ks+1)
		}
		kern.copyRows[ldd*size/kern.vector]((*byte)(unsafe.Pointer(&dst[0])), (*byte)(unsafe.Pointer(&src[0])), ks*size, p)
	}
	for ; p < k; p++ {
		d := dst[p*ldd : p*ldd+ldd]
		copy(d, src[p*ks:][:h])
		clear(d[h:])
	}
}

// packTransposed packs a panel that is contiguous along k. It handles rows in groups. If the last
// group is incomplete, its last row is repeated. Missing groups of rows become zeros.
func (kern *kernel[E, T]) packTransposed(dst []E, ldd int, src []E, rs, h, k int) {
	whole := k - k%kern.step
	for g := 0; g < ldd; g += kern.group {
		if g >= h {
			for p := range k {
				clear(dst[p*ldd+g : p*ldd+ldd])
			}
			return
		}
		if whole > 0 {
			kern.transpose(&dst[g], ldd, &src[g*rs], rs, h-g, whole)
		}
		for p := whole; p < k; p++ {
			for r := range kern.group {
				dst[p*ldd+g+r] = src[min(g+r, h-1)*rs+p]
			}
		}
	}
}

// rowOffsets returns the offsets of 16 rows at distance rs. If there are only h rows, it repeats
// the offset of the last.
func rowOffsets(rs, h int) (rows [16]int) {
	for r := range rows {
		rows[r] = min(r, h-1) * rs
	}
	return rows
}

// packPairs packs a panel of pairs. If k is odd, the second element of each last pair becomes 0 in
// both factors. Kernels multiply these elements: if one were NaN, the sum would be NaN.
func (kern *kernel[E, T]) packPairs(dst []E, ldd int, src []E, rs, ks, h, k int) {
	done := 0
	switch {
	case ks == 1:
		done = k / 2 / kern.step * kern.step
		for g := 0; g < h && done > 0; g += kern.group {
			kern.transpose(&dst[2*g], ldd, &src[g*rs], rs, h-g, done)
		}
	case rs == 1 && k > 1:
		done = k / 2
		kern.interleave[ldd/16](&dst[0], &src[0], ks, h, done)
	}
	for p := 2 * done; p < k; p += 2 {
		d := dst[p*ldd : (p+2)*ldd]
		clear(d)
		for r := range h {
			d[2*r] = src[r*rs+p*ks]
			if p+1 < k {
				d[2*r+1] = src[r*rs+(p+1)*ks]
			}
		}
	}
}
