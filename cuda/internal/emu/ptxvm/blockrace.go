package ptxvm

import (
	"fmt"
	"math/bits"
)

// Races between blocks on global memory, found on request (Launch.CheckBlocks). Blocks then run one by one. Nothing orders two blocks but a
// release (a fence, then an atomic; or a .release operation) that the other block acquires (by an atomic or an .acquire operation later in the
// run). Atomics and strong accesses are no race among themselves, nor are two writes of one value.

const racePage = 4096

// mark is the last access of a kind to one byte.
type mark struct {
	block uint32 // index + 1; 0: none, manyBlocks: several
	epoch uint32 // of the block
	pc    int32
	kind  accessKind
}

const manyBlocks = ^uint32(0)

type markPage struct{ w, r [racePage]mark }

// blockRaces is the state of one launch.
type blockRaces struct {
	grid    [3]uint32
	pages   map[*region]map[uint64]*markPage
	seq     uint32 // releases so far
	blocks  map[uint32]released
	current struct { // the block that runs
		block    uint32 // index + 1
		epoch    uint32
		fenced   bool
		acquired uint32 // releases up to this one are seen
	}
}

// released says how far the writes of a block are released.
type released struct{ epoch, seq uint32 }

func newBlockRaces(l *Launch) *blockRaces {
	return &blockRaces{grid: l.Grid, pages: map[*region]map[uint64]*markPage{}, blocks: map[uint32]released{}}
}

func (b *blockRaces) begin(index uint64) {
	b.current.block, b.current.epoch, b.current.fenced, b.current.acquired = uint32(index)+1, 1, false, 0
}

func (b *blockRaces) fence() {
	if b != nil {
		b.current.fenced = true
	}
}

// synchronise is an atomic or an ordered access: it acquires what others released, and releases what a fence lies behind.
func (b *blockRaces) synchronise(release bool) {
	c := &b.current
	c.acquired = b.seq
	if c.fenced || release {
		b.seq++
		b.blocks[c.block] = released{c.epoch, b.seq}
		c.epoch++
		c.fenced = false
	}
}

func (b *blockRaces) ordered(m *mark) bool {
	if m.block == 0 || m.block == b.current.block {
		return true
	}
	if m.block == manyBlocks {
		return b.current.acquired > 0
	}
	r, ok := b.blocks[m.block]
	return ok && m.epoch <= r.epoch && r.seq <= b.current.acquired
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

// access checks and records an access of one lane to n bytes.
func (b *blockRaces) access(w *warp, in *inst, l int, r *region, off uint64, n int, write, same bool, k accessKind) {
	c := &b.current
	for i := off; i < off+uint64(n); i++ {
		p := b.page(r, i)
		pw, pr := &p.w[i%racePage], &p.r[i%racePage]
		if !(k == strong && pw.kind == strong) && !same && !b.ordered(pw) {
			b.fault(w, in, l, r, i, pw, write, "wrote")
		}
		if write {
			if !(k == strong && pr.kind == strong) && !same && !b.ordered(pr) {
				b.fault(w, in, l, r, i, pr, write, "read")
			}
			*pw = mark{c.block, c.epoch, w.pc, k}
			continue
		}
		block := c.block
		if pr.block != 0 && pr.block != block && !b.ordered(pr) {
			block = manyBlocks
		}
		*pr = mark{block, c.epoch, w.pc, k}
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
		w.cta.launch.Mem.whereabouts(addr, 1), who, did, line, w.cta.entry.mod.line(line))
}

// trackGlobal checks a load (write false), a store or an atomic of the lanes of m against other blocks, before it is executed.
func (w *warp) trackGlobal(in *inst, m uint32, total int, write, atomic bool) {
	b := w.cta.blocks
	x := in.x
	k := kindOf(x)
	if atomic {
		k = strong
	}
	if k == strong {
		b.synchronise(x.release)
	}
	bit := uint64(shReady)
	if write && !atomic {
		bit = shAddressable
	}
	for rest := m; rest != 0; rest &= rest - 1 {
		l := bits.TrailingZeros32(rest)
		r, off := w.globalSpan(in, l, total, bit)
		same := write && !atomic
		for e := 0; same && e < x.n; e++ {
			same = get(r.data[off+uint64(e*x.size):], x.size) == w.r[x.vec[e]][l]&(^uint64(0)>>(64-8*x.size))
		}
		b.access(w, in, l, r, off, total, write, same, k)
	}
}
