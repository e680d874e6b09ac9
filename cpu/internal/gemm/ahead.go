package gemm

// A task first reads its panels from the third-level cache or from memory. To hide this latency,
// each call of a kernel prefetches a share of a panel that later calls read. A share is short,
// because a core can wait for few cache lines at a time.

// area is the part of a task that one call of multiplyAhead computes: the product of panels a0 to
// a1-1 of A with panels b0 to b1-1 of B, over the block of k from k0 to k0+kc. The whole task
// multiplies panels bFrom to bTo-1 of B.
type area struct{ a0, a1, b0, b1, bFrom, bTo, k0, kc int }

// area returns the first area of tile task i. Tasks other than stripes are about equal, so that all
// workers end at about the same time.
func (j *job[E, T]) area(i int) area {
	var s stripe
	if j.stripes {
		s = j.list[i]
	} else {
		x, y := i/j.tilesB, i%j.tilesB
		s = stripe{
			x * j.panelsA / j.tilesA, (x + 1) * j.panelsA / j.tilesA,
			y * j.panelsB / j.tilesB, (y + 1) * j.panelsB / j.tilesB,
		}
	}
	return area{s.a0, s.a1, s.b0, min(s.b0+j.tileB, s.b1), s.b0, s.b1, 0, min(j.block, j.kg)}
}

// following returns the next area of the same task. If there is none, its kc is 0. The areas cover
// all columns of the task before they go on along k.
func (j *job[E, T]) following(at area) area {
	if at.b1 < at.bTo {
		at.b0, at.b1 = at.b1, min(at.b1+j.tileB, at.bTo)
		return at
	}
	at.b0, at.b1 = at.bFrom, min(at.bFrom+j.tileB, at.bTo)
	at.k0 += at.kc
	at.kc = min(j.block, j.kg-at.k0)
	return at
}

// multiplyAhead multiplies the panels of one area. It calls a kernel for each panel of A and each
// panel of B. For each panel of A, up to half of the calls, rounded up, prefetch the next panel of
// A. After the last panel of A, the next panel is the first one of the next area. The other calls
// prefetch panels of B of the task's next area, until no calls are left. If the task packs its
// panels of A itself, no call prefetches A.
func (j *job[E, T]) multiplyAhead(l *local[E, T], to *target[T], at area) {
	then := j.following(at)
	panels, sharesB := at.b1-at.b0, j.kern.shares
	sharesA := 0
	if !j.stripes {
		sharesA = min(sharesB*j.kern.stride/j.kern.width, ceil(panels, 2)) // 0 if nothing is prefetched
	}
	share := 0 // of the panels of B of the next area
	for pa := at.a0; pa < at.a1; pa++ {
		a := j.packedA(l, pa, at)
		for pb := at.b0; pb < at.b1; pb++ {
			next := a.data
			switch i := pb - at.b0; {
			case i < sharesA && pa+1 < at.a1:
				next = j.part(j.blockA(pa+1, at.k0, at.kc), at.kc, i)
			case then.kc == 0: // this is the last area
			case i < sharesA:
				next = j.part(j.blockA(at.a0, then.k0, then.kc), then.kc, i)
			case share < (then.b1-then.b0)*sharesB:
				next = j.part(j.blockB(then.b0+share/sharesB, then.k0, then.kc), then.kc, share%sharesB)
				share++
			}
			j.multiply(l, to, a, pb, at.k0, at.kc, &j.blockB(pb, at.k0, at.kc)[0], j.kern.width, next)
		}
	}
}

// part returns where share i of a panel begins. The panel has kc elements along k.
func (j *job[E, T]) part(panel []E, kc, i int) *E {
	return &panel[i*(j.kern.even(kc)*j.kern.width/j.kern.shares)]
}
