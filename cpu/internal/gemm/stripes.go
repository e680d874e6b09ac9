package gemm

import (
	"runtime"
	"slices"
)

// A stripe is a tile task that computes all columns of a group, for some panels of A. It packs
// these panels itself, one block of k at a time, so they are written and read in its cache. Other
// tasks share packed panels of A: that is more memory, which a shared cache may not hold.

// enoughForStripes reports whether tasks are stripes if A has so many panels.
func enoughForStripes(panels int) bool {
	return panels >= leastStripe*perWorker*runtime.GOMAXPROCS(0)
}

// divide divides the panels of A into stripes. Each takes a part of the panels that are left, so
// the last ones are short, and all workers end at about the same time. One worker takes the stripes
// from the front, and the others take them from the back: the short ones are where they meet.
func (j *job[E, T]) divide() {
	workers := runtime.GOMAXPROCS(0)
	front, back := 0, j.panelsA
	j.starts, j.backs = append(j.starts[:0], 0), append(j.backs[:0], j.panelsA)
	for i := 0; front < back; i++ {
		n := min(max(1, (back-front)/(perWorker*workers)), tilePanelsA)
		if i%workers == 0 {
			front += n
			j.starts = append(j.starts, front)
		} else {
			back -= n
			j.backs = append(j.backs, back)
		}
	}
	for _, p := range slices.Backward(j.backs) {
		if p > front {
			j.starts = append(j.starts, p)
		}
	}
}

// packedA returns the block of panel p of A that an area needs. If tasks are stripes, the first
// area of each block of k packs it, to memory that the task keeps in its cache.
func (j *job[E, T]) packedA(l *local[E, T], p int, at area) panelA[E] {
	if !j.stripes {
		return j.panelA(p, at.k0, at.kc)
	}
	apart := j.kern.even(at.kc) * j.kern.stride
	l.stripe = aligned(l.stripe, (at.a1-at.a0)*apart)
	block := l.stripe[(p-at.a0)*apart:]
	if at.b0 == 0 {
		j.packA(block, p, at.k0, at.kc)
	}
	row, h := j.rowsOf(p)
	return panelA[E]{&block[0], row, h}
}
