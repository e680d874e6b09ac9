package gemm

import (
	"runtime"
	"slices"
)

// stripe is a tile task: the product of panels a0 to a1-1 of A with panels b0 to b1-1 of B. Short
// stripes apart, these are all panels of B in the group. A stripe packs its panels of A itself, one
// block of k at a time, so they are written and read in its cache. Other tasks share packed panels
// of A: that is more memory, which a shared cache may not hold.
type stripe struct{ a0, a1, b0, b1 int }

// enoughForStripes reports whether tasks are stripes if A has so many panels.
func enoughForStripes(panels int) bool {
	return panels >= leastStripe*perWorker*runtime.GOMAXPROCS(0)
}

// divide divides the product into stripes. Each takes a part of the panels of A that are left, and
// the last panels are divided along B too. So the last stripes are short, and all workers end at
// about the same time. One worker takes the stripes from the front, and the others take them from
// the back: the short ones are where they meet.
func (j *job[E, T]) divide() {
	workers := runtime.GOMAXPROCS(0)
	front, back := 0, j.panelsA
	j.list, j.backs = j.list[:0], j.backs[:0]
	for back-front > workers {
		n := min(max(1, (back-front)/(perWorker*workers)), tilePanelsA)
		if front*(workers-1) <= j.panelsA-back {
			j.list = append(j.list, stripe{front, front + n, 0, j.panelsB})
			front += n
		} else {
			back -= n
			j.backs = append(j.backs, stripe{back, back + n, 0, j.panelsB})
		}
	}
	for ; front < back; front++ {
		for b := 0; b < j.panelsB; b += j.tileB {
			j.list = append(j.list, stripe{front, front + 1, b, min(b+j.tileB, j.panelsB)})
		}
	}
	slices.Reverse(j.backs)
	j.list = append(j.list, j.backs...)
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
	if at.b0 == at.bFrom {
		j.packA(block, p, at.k0, at.kc)
	}
	row, h := j.rowsOf(p)
	return panelA[E]{&block[0], row, h}
}
