package ptxvm

import (
	"fmt"
	"math/bits"
	"strings"
	"sync/atomic"
	"time"
)

// cta runs one block at a time. A worker uses one cta for all its blocks.
type cta struct {
	launch   *Launch
	entry    *Entry
	block    [3]uint32
	id       [3]uint32
	index    uint64
	warps    []*warp
	live     int // number of warps that have not ended
	stats    Stats
	maxSteps int64
	start    time.Time
	shared   sharedMemory
	barriers [16]ctaBarrier
	global   globalLog
	watch    bool        // whether to look for races on global memory within the block
	blocks   *blockRaces // search for races between blocks; nil if the launch does not request it
	lines    []LineStats // counters for each instruction; nil if the launch does not collect them
	cache    *blockCache // cache that counts memory traffic; nil if the launch does not count it
	// fence counts fences. Its atomic increments order accesses to host memory.
	fence atomic.Uint64
	// abort is called between slices of instructions. If it returns true, the block ends.
	abort func() bool
}

// slice is the number of instructions that a warp executes before the next warp runs.
const slice = 256

// newCTA returns the state for running blocks of a launch. It reuses the state of an earlier launch
// with the same dimensions of the block and the same size of shared memory, if there is one.
func newCTA(l *Launch, globals map[*variable]uint64) *cta {
	e := l.Entry
	c, ok := e.pool.Get().(*cta)
	if !ok || c.block != l.Block || c.shared.dyn != int(l.DynShared) {
		c = buildCTA(l)
	}
	c.launch, c.stats, c.maxSteps = l, Stats{}, l.MaxSteps
	if c.maxSteps <= 0 {
		c.maxSteps = defaultMaxSteps
	}
	for _, w := range c.warps {
		for _, k := range e.consts {
			if k.global != nil {
				w.fillConst(k.slot, k.val+globals[k.global])
			}
		}
		for _, s := range e.specials {
			c.fillSpecial(w, s)
		}
	}
	return c
}

// release makes the state available to later launches.
func (c *cta) release() {
	c.launch, c.abort, c.blocks, c.lines, c.cache = nil, nil, nil, nil, nil
	for _, w := range c.warps {
		w.lastRegion = nil
		clear(w.pending)
		w.pending = w.pending[:0]
	}
	c.entry.pool.Put(c)
}

func buildCTA(l *Launch) *cta {
	e := l.Entry
	c := &cta{entry: e, block: l.Block}
	n := (int(l.Block[0]*l.Block[1]*l.Block[2]) + 31) / 32
	c.shared.setup(e.dynOffset, int(l.DynShared), n, e.usesAsync)
	c.global.setup(n)
	c.watch = e.writesGlobal && l.Block[0]*l.Block[1]*l.Block[2] > 1
	regs, masks := make([]lanes, n*e.nreg), make([]uint32, n*(e.nreg+2*e.npred))
	part := func(k int) []uint32 {
		s := masks[:k:k]
		masks = masks[k:]
		return s
	}
	warps := make([]warp, n)
	for i := range warps {
		w := &warps[i]
		*w = warp{r: regs[i*e.nreg : (i+1)*e.nreg : (i+1)*e.nreg], wm: part(e.nreg), p: part(e.npred), pm: part(e.npred), id: i, cta: c}
		w.vc = make([]uint32, n)
		w.stride = e.Local
		if e.Local > 0 || e.base != 0 {
			w.junk = make([]uint32, e.nreg)
		}
		if e.Local > 0 {
			w.local, w.localInit = make([]byte, 32*e.Local), make([]byte, 32*e.Local)
		}
		for _, k := range e.consts {
			v := k.val
			if k.dyn {
				v += uint64(e.dynOffset)
			}
			w.fillConst(k.slot, v)
		}
		c.warps = append(c.warps, w)
	}
	return c
}

func (w *warp) fillConst(slot int32, v uint64) {
	r := &w.r[slot]
	for l := range r {
		r[l] = v
	}
}

// thread returns %tid of the thread with linear index i.
func (c *cta) thread(i int) [3]uint32 {
	b := c.launch.Block
	t := uint32(i)
	return [3]uint32{t % b[0], t / b[0] % b[1], t / (b[0] * b[1])}
}

func (c *cta) fillSpecial(w *warp, s specialUse) {
	l := c.launch
	if s.sr >= srCtaidX && s.sr <= srCtaidZ {
		r := &w.r[s.slot]
		for i := range r {
			r[i] = uint64(c.id[s.sr-srCtaidX])
		}
		return
	}
	for i := range w.r[s.slot] {
		tid := c.thread(w.id*32 + i)
		var v uint64
		switch s.sr {
		case srTidX, srTidY, srTidZ:
			v = uint64(tid[s.sr-srTidX])
		case srNtidX, srNtidY, srNtidZ:
			v = uint64(l.Block[s.sr-srNtidX])
		case srNctaidX, srNctaidY, srNctaidZ:
			v = uint64(l.Grid[s.sr-srNctaidX])
		case srLaneid:
			v = uint64(i)
		case srWarpid:
			v = uint64(w.id)
		case srNwarpid:
			v = uint64(len(c.warps))
		case srSmid:
			v = c.index % uint64(numSM(l.SM))
		case srNsmid:
			v = uint64(numSM(l.SM))
		case srMaskEq:
			v = 1 << i
		case srMaskLt:
			v = 1<<i - 1
		case srMaskLe:
			v = 2<<i - 1
		case srMaskGt:
			v = 0xffffffff &^ (2<<i - 1)
		case srMaskGe:
			v = 0xffffffff &^ (1<<i - 1)
		case srDynShared:
			v = uint64(l.DynShared)
		case srTotalShared:
			v = uint64(c.entry.dynOffset) + uint64(l.DynShared)
		case srOne:
			v = 1
		}
		w.r[s.slot][i] = v
	}
}

// numSM returns the number of multiprocessors for %nsmid: that of an A100 or H100.
func numSM(sm int) int {
	if sm >= 90 {
		return 132
	}
	return 108
}

func (c *cta) reset(index uint64) {
	g := c.launch.Grid
	c.index = index
	c.id = [3]uint32{uint32(index % uint64(g[0])), uint32(index / uint64(g[0]) % uint64(g[1])), uint32(index / (uint64(g[0]) * uint64(g[1])))}
	b := c.launch.Block
	threads := int(b[0] * b[1] * b[2])
	c.live = len(c.warps)
	c.shared.reset()
	c.global.drop(c)
	for i := range c.barriers {
		c.barriers[i].reset()
	}
	for i, w := range c.warps {
		clear(w.wm)
		clear(w.junk)
		clear(w.pm)
		w.wm[0], w.pm[0], w.p[0] = fullMask, fullMask, fullMask
		w.pm[predFalse], w.p[predFalse] = fullMask, 0
		for _, k := range c.entry.consts {
			w.wm[k.slot] = fullMask
		}
		for _, s := range c.entry.specials {
			w.wm[s.slot] = fullMask
			if s.sr >= srCtaidX && s.sr <= srCtaidZ || s.sr == srSmid {
				c.fillSpecial(w, s)
			}
		}
		w.live = fullMask
		if rest := threads - i*32; rest < 32 {
			w.live = 1<<rest - 1
		}
		w.frame = frame{pc: 0, rpc: -1, mask: w.live}
		w.stack, w.calls = w.stack[:0], w.calls[:0]
		if base := c.entry.base; base != 0 {
			w.r[base], w.wm[base] = lanes{}, fullMask
		}
		w.state, w.steps, w.cc = warpReady, 0, 0
		w.clocks.reset(i)
		w.pending = w.pending[:0]
		w.groups = [32]uint32{}
		fill(w.local, poison)
		clear(w.localInit)
	}
}

// run executes one block to its end. It returns the fault of the kernel, if there is one. Any other
// panic is a bug of this package, and run does not recover from it.
func (c *cta) run(index uint64) (f *Fault) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *Fault:
			f = e
		default:
			panic(e)
		}
	}()
	c.reset(index)
	c.cache.empty()
	if c.blocks != nil {
		c.blocks.begin(c, index)
	}
	n := len(c.warps)
	for round := uint64(0); c.live > 0; round++ {
		if c.abort != nil && c.abort() {
			return nil
		}
		first := int(((index+c.launch.Seed)*0x9e3779b97f4a7c15 + (round+c.launch.Seed)*0xbf58476d1ce4e5b9) >> 33 % uint64(n))
		ran := false
		for i := range n {
			w := c.warps[(first+i)%n]
			if w.state == warpReady {
				ran = true
				w.run(slice)
			}
		}
		if !ran && c.live > 0 {
			c.deadlock()
		}
	}
	c.global.end(c)
	return nil
}

func (c *cta) deadlock() {
	for _, w := range c.warps {
		if w.state == warpWaiting {
			b := &c.barriers[w.barrier]
			what := "all live warps"
			if b.want > 0 {
				what = fmt.Sprintf("%d threads", b.want)
			}
			w.fault(Deadlock, w.barInst, bits.TrailingZeros32(w.live), "barrier %d expects %s and has %d threads of %d warps, and no warp can run any more (%s)",
				w.barrier, what, b.threads, bits.OnesCount32(b.arrived), c.waitingWarps())
		}
	}
}

// waitingWarps describes where each warp of a deadlocked block waits.
func (c *cta) waitingWarps() string {
	var s []string
	for i, w := range c.warps {
		if w.state == warpDone {
			s = append(s, fmt.Sprintf("warp %d has ended", i))
		} else {
			s = append(s, fmt.Sprintf("warp %d waits at barrier %d, line %d", i, w.barrier, w.barInst.line))
		}
	}
	return strings.Join(s, "; ")
}

func (c *cta) warpEnded() {
	c.live--
	for i := range c.barriers {
		c.tryRelease(i)
	}
}
