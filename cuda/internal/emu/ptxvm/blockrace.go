package ptxvm

import (
	"fmt"
	"math/bits"
	"slices"
)

// The detector looks for races between blocks on global memory if Launch.CheckBlocks is set. Blocks
// then run one by one. The order of two blocks follows the PTX ISA ("Memory Consistency Model",
// causality order). Each warp knows which accesses happened before its next one. It releases this
// knowledge to a word of memory by a .release operation, or by a fence with an atomic or strong
// store after it. A warp that reads the word later can acquire the knowledge. It does so by an
// .acquire operation, or by an atomic or strong load with a fence after it. Barriers pass on the
// knowledge of warps within a block. The lanes of a warp are not distinguished. An operation of
// block scope does not order blocks.
//
// Atomics and strong accesses do not race with each other. Two writes of the same value do not race
// either.

const racePage = 4096

// mark describes the last access of one kind to one byte.
type mark struct {
	// block is the index of the block plus 1. It is 0 for no block, and manyBlocks for several
	// blocks.
	block uint32
	epoch uint32 // clock of the warp at the access
	pc    int32
	warp  uint16
	kind  accessKind
}

const manyBlocks = ^uint32(0)

type markPage struct{ w, r [racePage]mark }

// blockRaces is the state of the search for races between blocks, for one launch.
type blockRaces struct {
	grid     [3]uint32
	pages    map[*region]map[uint64]*markPage
	released map[uint64]knowledge // knowledge that was released to each word, by the word's address
	current  uint32               // index of the running block, plus 1
}

// knowledge maps blocks to a clock for each of their warps. All accesses of a warp up to that clock
// happened before now.
type knowledge map[uint32][]uint32

func (k *knowledge) add(other knowledge) {
	if *k == nil && len(other) > 0 {
		*k = knowledge{}
	}
	for block, epochs := range other {
		k.learn(block, epochs)
	}
}

func (k knowledge) learn(block uint32, epochs []uint32) {
	known := k[block]
	if known == nil {
		k[block] = slices.Clone(epochs)
		return
	}
	for i, e := range epochs {
		known[i] = max(known[i], e)
	}
}

// beyond holds what a warp knows about accesses of other blocks.
type beyond struct {
	seen knowledge
	// unacquired is knowledge that the warp has read but not acquired. A fence acquires it.
	unacquired knowledge
	// fenced holds the warp's clocks at its last fence. It is nil before the first fence.
	fenced []uint32
}

func newBlockRaces(l *Launch) *blockRaces {
	return &blockRaces{grid: l.Grid, pages: map[*region]map[uint64]*markPage{}, released: map[uint64]knowledge{}}
}

func (b *blockRaces) begin(c *cta, index uint64) {
	b.current = uint32(index) + 1
	for _, w := range c.warps {
		w.beyond = beyond{}
	}
}

// fenceBlocks executes a fence of device scope or more.
func (w *warp) fenceBlocks() {
	w.fenced = append(w.fenced[:0], w.vc...)
	w.vc[w.id]++ // later accesses are not ordered by this fence
	w.seen.add(w.unacquired)
	w.unacquired = nil
}

// synchronise executes an atomic or an ordered access to a word.
func (b *blockRaces) synchronise(w *warp, x *extra, addr uint64, reads, writes bool) {
	if x.block {
		return
	}
	if reads && x.acquire {
		w.seen.add(b.released[addr])
	} else if reads {
		w.unacquired.add(b.released[addr])
	}
	if !writes || !x.release && w.fenced == nil {
		return
	}
	to := b.released[addr]
	to.add(w.seen)
	if to == nil {
		to = knowledge{}
	}
	b.released[addr] = to
	if x.release {
		to.learn(b.current, w.vc)
		w.vc[w.id]++
	} else {
		to.learn(b.current, w.fenced)
	}
}

func (b *blockRaces) ordered(w *warp, m *mark) bool {
	if m.block == 0 || m.block == b.current {
		return true
	}
	if m.block == manyBlocks {
		return len(w.seen) > 0
	}
	known := w.seen[m.block]
	return known != nil && m.epoch <= known[m.warp]
}

func (b *blockRaces) page(r *region, off uint64) *markPage {
	p := b.pages[r]
	if p == nil {
		p = map[uint64]*markPage{}
		b.pages[r] = p
	}
	q := p[off/racePage]
	if q == nil {
		q = new(markPage)
		p[off/racePage] = q
	}
	return q
}

// access checks and records one lane's access to n bytes.
func (b *blockRaces) access(w *warp, in *inst, l int, r *region, off uint64, n int, write, same bool, k accessKind) {
	now := mark{b.current, w.vc[w.id], w.pc, uint16(w.id), k}
	for i := off; i < off+uint64(n); i++ {
		p := b.page(r, i)
		pw, pr := &p.w[i%racePage], &p.r[i%racePage]
		if !(k == strong && pw.kind == strong) && !same && !b.ordered(w, pw) {
			b.fault(w, in, l, r, i, pw, write, "wrote")
		}
		if write {
			if !(k == strong && pr.kind == strong) && !same && !b.ordered(w, pr) {
				b.fault(w, in, l, r, i, pr, write, "read")
			}
			*pw = now
			continue
		}
		several := pr.block != 0 && pr.block != b.current && !b.ordered(w, pr)
		if *pr = now; several {
			pr.block = manyBlocks
		}
	}
}

func (b *blockRaces) fault(w *warp, in *inst, l int, r *region, off uint64, m *mark, write bool, did string) {
	does := "reads"
	if write {
		does = "writes"
	}
	who := "several blocks"
	if m.block != manyBlocks {
		i := uint64(m.block - 1)
		g := b.grid
		who = fmt.Sprintf("block (%d,%d,%d)", i%uint64(g[0]), i/uint64(g[0])%uint64(g[1]), i/(uint64(g[0])*uint64(g[1])))
	}
	addr := r.base + off
	line := int(w.cta.entry.code[m.pc].line)
	w.faultAt(GlobalRace, in, l, addr, "it %s global byte %#x, %s, which %s %s at PTX line %d (%s), and nothing orders the two blocks", does, addr,
		w.cta.launch.Mem.describeAccess(addr, 1), who, did, line, w.cta.entry.mod.line(line))
}

// trackGlobal checks an access of the lanes of m for races with accesses of other blocks, before it
// is executed. If isWrite is false, the access is a load. Otherwise it is a store or an atomic
// operation.
func (w *warp) trackGlobal(in *inst, m uint32, total int, isWrite, atomic bool) {
	b := w.cta.blocks
	x := in.x
	k := kindOf(x)
	if atomic {
		k = strong
	}
	bit := uint64(shReady)
	if isWrite && !atomic {
		bit = shAddressable
	}
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		r, off := w.globalSpan(in, l, total, bit)
		if k == strong {
			b.synchronise(w, x, w.addr[l], atomic || !isWrite, isWrite)
		}
		same := isWrite && !atomic
		for e := 0; same && e < x.n; e++ {
			same = loadLE(r.data[off+uint64(e*x.size):], x.size) == w.r[x.vec[e]][l]&(^uint64(0)>>(64-8*x.size))
		}
		b.access(w, in, l, r, off, total, isWrite, same, k)
	}
}
