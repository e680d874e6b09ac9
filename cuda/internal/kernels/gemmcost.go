package kernels

import (
	"math"
	"sync"

	"github.com/flambeau-go/flambeau/dtype"
)

// latency is the number of clock cycles from a request to global memory to its answer: 600 to 800
// on devices of compute capability 8.0 and 9.0 (Luo and others, 2024, arXiv:2402.13499, section 4).
const latency = 800

// launchSeconds is the assumed time of an additional launch, which copies an operand before the
// product. On hardware, two events on a stream are some microseconds apart, even if the host does
// no work between them.
const launchSeconds = 3e-6

// stepClocks returns the clock cycles that a multiprocessor needs for one step of k of one block.
// It also returns the name of the hardware unit that limits the speed. All blocks of a
// multiprocessor share the tensor cores, shared memory and the bandwidth to the cache.
func (g *GPU) stepClocks(s tensorSpec) (clocks float64, bound string) {
	f := s.form
	wm, wn := f.warp()
	// tensor cores multiply tf32 at half the rate of 16-bit types
	mma := float64(f.bm*f.bn*f.bk) / (g.Tensor * 2 / float64(s.typ.Size()))
	// The warps read fragments from shared memory, and copies write tiles to it. Reads and writes
	// each move 128 bytes in a clock cycle.
	copied := float64(s.staged())
	moved := float64(f.bk * (f.bm*s.a.memory(s.typ).Size() + f.bn*s.b.memory(s.typ).Size()))
	read := float64(f.warpsM * f.warpsN * (wm + wn) * f.bk * s.typ.Size())
	if s.storesLater() {
		read += float64(s.laterBytes())
	}
	clocks, bound = mma, "tensor cores"
	for _, c := range []struct {
		clocks float64
		bound  string
	}{{(copied + read) / 128, "shared memory"}, {moved / g.CacheRate * float64(g.Cores), "cache"}, {s.slots() * float64(f.warpsM*f.warpsN) / 4, "issue"}} {
		if c.clocks > clocks {
			clocks, bound = c.clocks, c.bound
		}
	}
	return clocks, bound
}

// slots estimates how many instructions a warp issues in a step of k: multiplications, reads of
// fragments, copies and loop counters. TestProductModelSlots compares the estimate with the machine
// code.
func (s tensorSpec) slots() float64 {
	f := s.form
	wm, wn := f.warp()
	steps := s.steps()
	n := float64(steps*(wm/16*wn/8+(wm+wn)/16)) + 20
	if s.typ == dtype.F32 {
		n += float64(s.tf32Slots())
	}
	if s.storesLater() {
		n += 15 * laterPieces
	}
	for _, o := range []struct {
		load  tensorLoad
		outer int
	}{{s.a, f.bm}, {s.b, f.bn}} {
		units, each := float64(s.units(o.load, o.outer)), 3.0
		switch {
		case s.singly(o.load):
			each = 10
		case o.load.ragged:
			each = 6
		}
		n += units * each
	}
	return n
}

// fits reports whether the sums leave enough registers for the copies. Many small copies need many
// registers, and copies through registers need even more.
func (s tensorSpec) fits() bool {
	f := s.form
	if s.singly(s.a) || s.singly(s.b) {
		return f.bn == 64 && (f.bm == 16 || f.bm == 64 && f.bk == 32)
	}
	if s.odd && f.bm < 64 {
		return false
	}
	// The threads of the block together must copy at least one row of the tile at a time.
	if s.unit(s.a)*f.threads() < f.bm || s.unit(s.b)*f.threads() < f.bn {
		return false
	}
	units := s.units(s.a, f.bm) + s.units(s.b, f.bn)
	// rounding to tf32 needs registers too
	if wm, wn := f.warp(); s.typ == dtype.F32 && wm*wn >= 64*64 {
		return units <= 10
	}
	return f.threads() == 128 || units <= 12
}

// units returns the number of copies that a thread starts for an operand in a step of k.
func (s tensorSpec) units(l tensorLoad, outer int) int {
	return ceilDiv(outer*s.form.bk, s.unit(l)*s.form.threads())
}

// resident returns the number of blocks that fit on a multiprocessor at once.
func (g *GPU) resident(s tensorSpec) int {
	f := s.form
	return min(s.blocks(), g.Shared/(s.shared()+1<<10), 1536/f.threads())
}

// cost returns the predicted time in seconds of a product with division d, and the name of what
// limits it. The time is that of the multiprocessor with the most blocks, plus the time for adding
// up partial sums. Memory bandwidth sets a lower bound.
func (g *GPU) cost(s tensorSpec, batch, m, n, k int, d division) (seconds float64, bound string) {
	f, held := s.form, g.resident(s)
	if held < 1 {
		return math.Inf(1), "room"
	}
	step, bound := g.stepClocks(s)
	whole, rest, parts := batch*d.undivided, batch*(s.tiles(m, n)-d.undivided), d.parts(k)
	blocks := whole + rest*parts
	maxBlocks := ceilDiv(blocks, g.Cores) // number of blocks on the multiprocessor with the most blocks
	together := float64(min(maxBlocks, held))
	// A block's copies run stages-1 steps ahead of its multiplications. A step takes at least the
	// time in which its copies arrive.
	pace := max(step, latency/(float64(s.stages()-1)*together))
	if s.singly(s.a) || s.singly(s.b) { // each step waits for copies through registers
		pace = max(pace, latency*float64(f.bk/16)/together)
	}
	if pace > step {
		bound = "latency"
	}
	up := func(blocks, k int) float64 { return float64(ceilDiv(blocks, g.Cores) * ceilDiv(k, f.bk)) }
	turns := up(whole, k) + up(rest*parts, min(k, d.chunk))
	// While the first copies of a tile arrive, and while its results are stored, the block does not
	// multiply. Only other blocks of the multiprocessor multiply then. A block that loops over
	// tiles waits only for the copies of its first tile.
	again := max(1, float64(maxBlocks)/float64(held))
	waits, stores := 2.0*latency*again, float64(f.bm*f.bn*s.out.Size())/64*again
	if s.loop {
		waits = 2 * latency
	}
	if s.storesLater() { // The results stay in shared memory, and are stored during the next tile.
		results := f.bm * f.bn * s.out.Size()
		left := max(0, results-s.laterBytes()*ceilDiv(k, f.bk))
		stores = float64(results)/64 + again*(float64(results)/128+float64(left)/64)
	}
	ends := (waits + stores) / together
	clocks := turns*pace + ends
	if bound == "tensor cores" && ends > 0.1*clocks {
		bound = "ends of tiles"
	}
	if all := float64((whole + rest) * ceilDiv(k, f.bk)); all < 0.9*turns*float64(g.Cores) && bound != "latency" {
		bound = "waves"
	}
	seconds = clocks / g.Clock
	if bytes := g.moved(s, batch, m, n, k, parts > 1 && whole == 0); bytes/g.Bandwidth > seconds {
		seconds, bound = bytes/g.Bandwidth, "memory"
	}
	if parts > 1 {
		join := g.joining(s, rest, parts)
		if seconds += join; join > 0.1*seconds {
			bound = "joining"
		}
	}
	return seconds, bound
}

// joining returns the time in seconds to add up partial sums. Every block writes its sums. The
// last block of a tile increments the counter, waits for one read, and reads the partial sums of
// all blocks at 64 bytes a clock cycle. If the blocks of a tile share this work, each block waits
// once more, until all blocks of the tile have written. Each block then adds its part of the sums
// in order.
func (g *GPU) joining(s tensorSpec, tiles, parts int) float64 {
	tileBytes := float64(parts * s.partBytes()) // bytes of all partial sums of a tile
	tilesF, rate := float64(tiles)*tileBytes, g.Bandwidth
	if tilesF < float64(g.Cache)/2 {
		rate = g.CacheRate * g.Clock
	}
	if s.share {
		// number of vectors whose partial sums one block adds up
		vectors := ceilDiv(s.partBytes()/16, parts)
		each := float64(ceilDiv(tiles*parts, g.Cores))
		read := max(tilesF/rate, each*float64(vectors*parts)*16/64/g.Clock)
		add := each * float64(ceilDiv(vectors, s.form.threads())*parts) * shareAdd
		return tilesF/rate + read + (add+4*latency)/g.Clock
	}
	read := max(tilesF/rate, float64(ceilDiv(tiles, g.Cores))*tileBytes/64/g.Clock)
	return tilesF/rate + read + 3*latency/g.Clock
}

// shareAdd is the number of clock cycles in which a warp adds four partial sums to its own sums, if
// no other warp uses its scheduler. One iteration of the loop adds the sums of shareAhead parts. It
// takes 56 instructions and one latency of shared memory.
const shareAdd = 11

// moved returns the number of bytes that pass between memory and the multiprocessors. The blocks
// that run at the same time (a wave) read an operand once and share it through the cache. The
// results are written once.
func (g *GPU) moved(s tensorSpec, batch, m, n, k int, inParts bool) float64 {
	f := s.form
	wave := g.Cores * g.resident(s)
	// number of tiles along m that blocks compute before they go on along n
	rows := s.tune.or(s.tune.group, 8)
	high := min(rows, ceilDiv(m, f.bm))
	wide := max(1, min(wave/high, ceilDiv(n, f.bn)))
	a, b := float64(m*k*s.a.memory(s.typ).Size()), float64(k*n*s.b.memory(s.typ).Size())
	if !s.oneA {
		a *= float64(batch)
	}
	if !s.oneB {
		b *= float64(batch)
	}
	// Operand b is read again for each group of rows, and operand a again for each wave along n. An
	// operand that the cache holds is read once.
	againA, againB := float64(ceilDiv(ceilDiv(n, f.bn), wide)), float64(ceilDiv(ceilDiv(m, f.bm), high))
	if a < float64(g.Cache)/2 {
		againA = 1
	}
	if b < float64(g.Cache)/2 {
		againB = 1
	}
	out := float64(batch * m * n * s.out.Size())
	if inParts { // the model counts these stores in the time for adding up partial sums
		out = 0
	}
	return a*againA + b*againB + out
}

// product holds everything on which the model's choice of a form depends. The choice is a
// chosenForm. The field spec of a product is the kernel's specification without a form.
type product struct {
	spec           tensorSpec
	batch, m, n, k int
	split          bool
}

type chosenForm struct {
	spec tensorSpec
	division
	seconds float64
}

// chosenForms caches the model's choices. A choice takes some microseconds, and each training step
// repeats the choices of the previous step.
type chosenForms struct {
	mu    sync.RWMutex
	forms map[product]chosenForm
}

// keptForms is the largest number of choices in the cache. The cache has a limit, because the
// shapes of some programs never repeat.
const keptForms = 4096

// choose returns the cheapest form and its division. If split is false, sums over k are not
// divided.
func (g *GPU) choose(s tensorSpec, batch, m, n, k int, split bool) (best tensorSpec, d division, seconds float64) {
	p, kept := product{s, batch, m, n, k, split}, g.chosen
	kept.mu.RLock()
	c, ok := kept.forms[p]
	kept.mu.RUnlock()
	if !ok {
		c = g.compare(p)
		kept.mu.Lock()
		if len(kept.forms) >= keptForms {
			clear(kept.forms)
		}
		kept.forms[p] = c
		kept.mu.Unlock()
	}
	return c.spec, c.division, c.seconds
}

// costTolerance bounds the predicted time of a chosen form, as a multiple of the shortest predicted
// time. The model's predictions for published kernels are wrong by more than this factor, so
// smaller differences mean little.
const costTolerance = 1.03

// compare returns the cheapest form. All forms that cost at most costTolerance times the least cost
// count as equal. Among these it returns the one with the least time for adding up partial sums.
// Partial sums need memory, and the estimate of their time is uncertain: the model was compared
// with published kernels, which have none. If these times are equal too, it returns the first form.
// Forms are sorted by the bytes that they read, and the divisions of a form by the number of parts.
func (g *GPU) compare(p product) chosenForm {
	var all []chosenForm
	fastest := math.Inf(1)
	g.eachForm(p, func(c chosenForm) {
		all = append(all, c)
		fastest = min(fastest, c.seconds)
	})
	best, least := chosenForm{seconds: math.Inf(1)}, math.Inf(1)
	for _, c := range all {
		join, parts := 0.0, c.division.parts(p.k)
		if parts > 1 {
			join = g.joining(c.spec, p.batch*(c.spec.tiles(p.m, p.n)-c.undivided), parts)
		}
		if c.seconds <= costTolerance*fastest && join < least {
			best, least = c, join
		}
	}
	return best
}

// eachForm calls f with each kernel form that can compute p, the division of p among blocks, and
// the estimated cost.
func (g *GPU) eachForm(p product, f func(chosenForm)) {
	s, batch, m, n, k := p.spec, p.batch, p.m, p.n, p.k
	for _, form := range tensorForms {
		if form.bm > 16 && form.bm >= 2*m || form.bn > 64 && form.bn >= 2*n {
			continue // at least half of the block would lie beyond the edge
		}
		s.form, s.share = form.forType(s.typ), false
		if !s.fits() {
			continue
		}
		for _, d := range g.divisions(s, batch, m, n, k, p.split) {
			t, _ := g.cost(s, batch, m, n, k, d)
			f(chosenForm{s, d, t})
			if p.spec.share && g.shares(s, batch*(s.tiles(m, n)-d.undivided), d.parts(k)) {
				s := s
				s.share = true
				t, _ := g.cost(s, batch, m, n, k, d)
				f(chosenForm{s, d, t})
			}
		}
		if s, d, ok := g.looped(s, batch, m, n, k); ok {
			t, _ := g.cost(s, batch, m, n, k, d)
			f(chosenForm{s, d, t})
		}
	}
}

// divisions lists ways to divide the sums over k among blocks. The number of parts is chosen so
// that the blocks fill all multiprocessors once, or several times. A product that is bound by
// memory may need only some of the multiprocessors. With blocks for only these, fewer partial sums
// have to be added up. In a product of single matrices, some tiles may stay undivided: w tiles for
// each multiprocessor, where w is the largest possible number or one less.
func (g *GPU) divisions(s tensorSpec, batch, m, n, k int, split bool) []division {
	list := []division{undivided(k)}
	if !split {
		return list
	}
	tiles := s.tiles(m, n)
	for left := range 3 {
		whole := 0
		if left < 2 {
			if whole = (tiles/g.Cores - left) * g.Cores; batch > 1 || s.odd || whole <= 0 {
				continue
			}
		}
		rest, before := batch*(tiles-whole), 1
		if rest == 0 || rest > CounterWords {
			continue
		}
		for _, eighths := range []int{3, 4, 5, 6, 7, 8, 16, 24, 32, 40, 48, 64, 96, 8 * mostEach} {
			parts := min(eighths*g.Cores/(8*rest), k/128, mostParts)
			if parts > before {
				before = parts
				list = append(list, division{undivided: whole, chunk: ceilDiv(ceilDiv(k, parts), 64) * 64})
			}
		}
	}
	return list
}

// mostEach is the largest number of blocks with partial sums on each multiprocessor.
const mostEach = 16

// tensorPlan is the plan of a product on tensor cores.
type tensorPlan struct {
	tensorSpec
	division
	seconds float64 // time that the model predicts, including that of copying operands
	// whether an operand is first copied, so that its rows begin at multiples of 16 bytes
	realignA, realignB bool
}

// choosePlan chooses like the method choose, but operands may be copied first. An operand that
// would be loaded element by element is copied if that takes less time. If share is true, the
// blocks of a tile may share the work of adding up partial sums.
func (g *GPU) choosePlan(out, a, b Operand, split, share bool) (best tensorPlan) {
	batch, m, n, k := out.Shape.At(0), out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	split = split && batch <= maxGridY
	list, count := g.realignments(out, a, b)
	for i, r := range list[:count] {
		r.spec.share = share
		if f, d, t := g.choose(r.spec, batch, m, n, k, split); i == 0 || t+r.seconds < best.seconds {
			best = tensorPlan{f, d, t + r.seconds, r.a, r.b}
		}
	}
	return best
}

// realignment says which operands are copied first, and the time of the copies. The field spec is
// the specification of the product that follows, without a form.
type realignment struct {
	a, b    bool
	spec    tensorSpec
	seconds float64
}

// realignments lists the ways to copy operands before the product. The first entry copies none.
func (g *GPU) realignments(out, a, b Operand) (list [4]realignment, count int) {
	s, _ := tensorSpecFor(out, a, b)
	batch, whole := out.Shape.At(0), 16/s.typ.Size()
	s.oneA, s.oneB = batch > 1 && a.Strides.At(0) == 0, batch > 1 && b.Strides.At(0) == 0
	list[0].spec, count = s, 1
	canA, canB := a.Type == b.Type && s.a.vector == 1 && a.Strides.At(alongOf(s.a, 1)) == 1, a.Type == b.Type && s.b.vector == 1 && b.Strides.At(alongOf(s.b, 2)) == 1
	copies := func(o Operand) float64 {
		elements := o.Shape.Size()
		if o.Strides.At(0) == 0 {
			elements /= batch
		}
		return launchSeconds + float64(2*a.Type.Size()*elements)/g.Bandwidth
	}
	for _, c := range []struct{ a, b bool }{{true, false}, {false, true}, {true, true}} {
		if c.a && !canA || c.b && !canB {
			continue
		}
		r := &list[count]
		r.a, r.b, r.spec = c.a, c.b, s
		with := &r.spec
		if c.b {
			with.b.vector, with.b.ragged = whole, b.Shape.At(alongOf(with.b, 2))%whole != 0
			r.seconds += copies(b)
			// If rows of operand b can be copied in whole vectors, rows of operand a may begin at
			// odd elements.
			if !c.a && !with.b.alongK && s.singly(s.a) && oddRows(a, with.a.alongK) {
				with.odd, with.a.vector, with.a.ragged = true, 2, true
			}
		}
		if c.a {
			with.a.vector, with.a.ragged = whole, a.Shape.At(alongOf(with.a, 1))%whole != 0
			r.seconds += copies(a)
		}
		count++
	}
	return list, count
}

// alongOf returns the dimension along which an operand's rows lie.
func alongOf(l tensorLoad, outer int) int {
	if l.alongK {
		return 3 - outer
	}
	return outer
}
