package gemm

// A task first reads its panels from the third-level cache or from memory. To hide this latency,
// each call of a kernel prefetches a part of what later calls read: a share of a panel. On a Zen 5
// a product of size 4096 takes 0.96 to 0.98 of the time that it takes without prefetching.

// sharesB is the number of shares of a panel of B. A call of a kernel prefetches one share.
const sharesB = 4

// sharesA returns the number of shares of a panel of A. A share of A is as long as a share of B.
func (kern *kernel[E, T]) sharesA() int { return sharesB * kern.stride / kern.width }

// multiplyAhead multiplies panels a0 to a1-1 of A with panels b0 to b1-1 of B, over the block of k
// from k0 to k0+kc. Meanwhile the kernels prefetch the panels of the next block. Nothing has
// prefetched the panels of the first block. In that block, each panel of A is prefetched while the
// panel before it is multiplied.
func (j *job[E, T]) multiplyAhead(l *local[E, T], to *target[T], a0, a1, b0, b1, k0, kc int) {
	k1 := k0 + kc
	ahead, sharesA := min(j.block, j.kg-k1), j.kern.sharesA()
	next := 0 // share of the next block
	for pa := a0; pa < a1; pa++ {
		a := j.panelA(pa, k0, kc)
		for pb := b0; pb < b1; pb++ {
			from := a.data
			switch {
			case k0 == 0 && pb-b0 < sharesA && pa+1 < a1:
				from = j.shareA(pa+1, k0, kc, pb-b0)
			case ahead == 0: // this is the last block
			case next < (b1-b0)*sharesB:
				from = j.shareB(b0+next/sharesB, k1, ahead, next%sharesB)
				next++
			case next < (b1-b0)*sharesB+(a1-a0)*sharesA:
				i := next - (b1-b0)*sharesB
				from = j.shareA(a0+i/sharesA, k1, ahead, i%sharesA)
				next++
			}
			j.multiply(l, to, a, pb, k0, kc, &j.blockB(pb, k0, kc)[0], j.kern.width, from)
		}
	}
}

// shareA returns where a share of panel p of A begins, for k from k0 to k0+kc.
func (j *job[E, T]) shareA(p, k0, kc, share int) *E {
	return &j.blockA(p, k0, kc)[share*(j.kern.even(kc)*j.kern.width/sharesB)]
}

// shareB returns where a share of panel p of B begins, for k from k0 to k0+kc.
func (j *job[E, T]) shareB(p, k0, kc, share int) *E {
	return &j.blockB(p, k0, kc)[share*(j.kern.even(kc)*j.kern.width/sharesB)]
}
