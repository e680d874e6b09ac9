package gemm

import "slices"

// stripe is a tile task: the product of panels a0 to a1-1 of A with panels b0 to b1-1 of B. The
// last and shortest stripes may have only a part of the group's panels of B. All other stripes have
// them all. A stripe packs its panels of A itself, one block of k at a time, so a packed block
// stays in its core's cache. The tasks of other products share packed panels of A, which may be
// larger than a shared cache.
type stripe struct{ a0, a1, b0, b1 int }

// enoughForStripes reports whether A has enough panels for the tasks of so many workers to be
// stripes.
func enoughForStripes(panels, workers int) bool { return panels >= leastStripe*perWorker*workers }

// divide divides the product into stripes. Each gets a part of the panels of A that are left, and
// the last panels are divided along B too. So the last stripes are short, and all workers end at
// about the same time. One worker takes the stripes from the front of the list, and the others take
// them from the back. They meet in the middle, where the short stripes are.
func (j *job[E, T]) divide() {
	front, back := 0, j.panelsA
	j.list, j.backs = j.list[:0], j.backs[:0]
	for back-front > j.workers {
		n := min(max(1, (back-front)/(perWorker*j.workers)), tilePanelsA)
		if front*(j.workers-1) <= j.panelsA-back {
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

// packedA returns the block of panel p of A that an area needs. If tasks are stripes, the task's
// first area of each block of k packs the panel. The packed block is in memory that stays in the
// core's cache.
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
