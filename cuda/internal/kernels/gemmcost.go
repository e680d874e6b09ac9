package kernels

import (
	"math"
	"sync"

	"github.com/flambeau-go/flambeau/dtype"
)

// latency is the clocks from a request to memory until it is answered: 600 to 800 on devices of
// compute capability 8.0 and 9.0 (Luo and others, 2024, arXiv:2402.13499, section 4).
const latency = 800

// launchSeconds is what a kernel that copies an operand first costs: two events of a stream without
// host work between them are some microseconds apart.
const launchSeconds = 3e-6

// turn is the clocks that a multiprocessor takes for a step of k of one block, and what bounds it.
// All its blocks share the tensor cores, shared memory and the way from the cache.
func (g *GPU) turn(s tensorSpec) (clocks float64, bound string) {
	f := s.form
	wm, wn := f.warp()
	// tf32 at half the rate of 16 bits
	mma := float64(f.bm*f.bn*f.bk) / (g.Tensor * 2 / float64(s.typ.Size()))
	// Fragments of each warp, and what copies put there, at 128 bytes a clock.
	copied := float64(s.staged())
	moved := float64(f.bk * (f.bm*s.a.memory(s.typ).Size() + f.bn*s.b.memory(s.typ).Size()))
	read := float64(f.warpsM * f.warpsN * (wm + wn) * f.bk * s.typ.Size())
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

// slots is about how many instructions a warp issues in a step of k: what multiplies, what reads
// fragments, what copies, and what counts. TestProductModel holds it to the machine code.
func (s tensorSpec) slots() float64 {
	f := s.form
	wm, wn := f.warp()
	steps := s.steps()
	n := float64(steps*(wm/16*wn/8+(wm+wn)/16)) + 20
	if s.typ == dtype.F32 {
		n += float64(s.tf32Slots())
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

// fits reports whether a form has the registers for the way in which its tiles come: many small
// copies need those of the sums, and what goes through registers more.
func (s tensorSpec) fits() bool {
	f := s.form
	if s.singly(s.a) || s.singly(s.b) {
		return f.bn == 64 && (f.bm == 16 || f.bm == 64 && f.bk == 32)
	}
	if s.odd && f.bm < 64 {
		return false
	}
	// a row of the tile at once
	if s.unit(s.a)*f.threads() < f.bm || s.unit(s.b)*f.threads() < f.bn {
		return false
	}
	units := s.units(s.a, f.bm) + s.units(s.b, f.bn)
	if wm, wn := f.warp(); s.typ == dtype.F32 && wm*wn >= 64*64 { // rounding takes registers too
		return units <= 10
	}
	return f.threads() == 128 || units <= 12
}

// units is how many copies of an operand a thread starts in a step of k.
func (s tensorSpec) units(l tensorLoad, outer int) int {
	return ceilDiv(outer*s.form.bk, s.unit(l)*s.form.threads())
}

// resident is how many blocks a multiprocessor holds at once.
func (g *GPU) resident(s tensorSpec) int {
	f := s.form
	return min(s.blocks(), g.Shared/(s.shared()+1<<10), 1536/f.threads())
}

// cost is the seconds that a product takes, divided like that, by the model: the clocks of the
// multiprocessor with most blocks, the time that memory takes, and the sum of the parts.
func (g *GPU) cost(s tensorSpec, batch, m, n, k int, d division) (seconds float64, bound string) {
	f, held := s.form, g.resident(s)
	if held < 1 {
		return math.Inf(1), "room"
	}
	turn, bound := g.turn(s)
	whole, rest, parts := batch*d.whole, batch*(s.tiles(m, n)-d.whole), d.parts(k)
	blocks := whole + rest*parts
	most := ceilDiv(blocks, g.Cores) // of one multiprocessor
	together := float64(min(most, held))
	// A block is a turn ahead for each stage but one: what it waits for is not there sooner.
	pace := max(turn, latency/(float64(s.stages()-1)*together))
	if s.singly(s.a) || s.singly(s.b) { // what goes through registers is waited for in each step
		pace = max(pace, latency*float64(f.bk/16)/together)
	}
	if pace > turn {
		bound = "latency"
	}
	up := func(blocks, k int) float64 { return float64(ceilDiv(blocks, g.Cores) * ceilDiv(k, f.bk)) }
	turns := up(whole, k) + up(rest*parts, min(k, d.chunk))
	// The first tiles come from memory, and the results leave, while other blocks multiply. A block
	// that loops over tiles waits for the first of its tiles alone.
	again := max(1, float64(most)/float64(held))
	waits, stores := 2.0*latency*again, float64(f.bm*f.bn*s.out.Size())/64*again
	if s.loop {
		waits = 2 * latency
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

// joining is the seconds that the sums of parts take: all are written, and the block that comes
// last at a tile counts, waits for the first and reads all, at 64 bytes a clock.
func (g *GPU) joining(s tensorSpec, tiles, parts int) float64 {
	of := float64(parts * s.partBytes()) // a tile's
	all, rate := float64(tiles)*of, g.Bandwidth
	if all < float64(g.Cache)/2 {
		rate = g.CacheRate * g.Clock
	}
	read := max(all/rate, float64(ceilDiv(tiles, g.Cores))*of/64/g.Clock)
	return all/rate + read + 3*latency/g.Clock
}

// moved is the bytes that memory must move. Each operand moves once for each wave of blocks that
// shares it in the cache; the results move once.
func (g *GPU) moved(s tensorSpec, batch, m, n, k int, inParts bool) float64 {
	f := s.form
	wave := g.Cores * g.resident(s)
	rows := s.tune.or(s.tune.group, 8) // tiles along m that blocks take before they go on along n
	high := min(rows, ceilDiv(m, f.bm))
	wide := max(1, min(wave/high, ceilDiv(n, f.bn)))
	a, b := float64(batch*m*k*s.a.memory(s.typ).Size()), float64(batch*k*n*s.b.memory(s.typ).Size())
	// b is read again for each group of rows, a for each wave along n, unless the cache holds them.
	againA, againB := float64(ceilDiv(ceilDiv(n, f.bn), wide)), float64(ceilDiv(ceilDiv(m, f.bm), high))
	if a < float64(g.Cache)/2 {
		againA = 1
	}
	if b < float64(g.Cache)/2 {
		againB = 1
	}
	out := float64(batch * m * n * s.out.Size())
	if inParts { // which joining counts
		out = 0
	}
	return a*againA + b*againB + out
}

// product is what the choice of a form depends on, and chosenForm the choice.
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

// chosenForms keeps choices: a step asks for the same ones again, and a choice takes some
// microseconds.
type chosenForms struct {
	mu    sync.RWMutex
	forms map[product]chosenForm
}

// keptForms bounds what is kept of a program whose shapes never repeat.
const keptForms = 4096

// choose returns the form that costs least, and how it is divided: not at all where split is false.
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

// compare takes the form of least cost.
func (g *GPU) compare(p product) chosenForm {
	best := chosenForm{seconds: math.Inf(1)}
	g.eachForm(p, func(c chosenForm) {
		// Forms come in the order of what they read: a later one must gain something.
		if c.seconds < 0.97*best.seconds {
			best = c
		}
	})
	return best
}

// eachForm calls f with the ways to carry out a product, and what each costs.
func (g *GPU) eachForm(p product, f func(chosenForm)) {
	s, batch, m, n, k := p.spec, p.batch, p.m, p.n, p.k
	for _, form := range tensorForms {
		if form.bm > 16 && form.bm >= 2*m || form.bn > 64 && form.bn >= 2*n {
			continue // half of the block would be beyond the edge
		}
		s.form = form.of(s.typ)
		if !s.fits() {
			continue
		}
		for _, d := range g.divisions(s, batch, m, n, k, p.split) {
			t, _ := g.cost(s, batch, m, n, k, d)
			f(chosenForm{s, d, t})
		}
		if s, d, ok := g.looped(s, batch, m, n, k); ok {
			t, _ := g.cost(s, batch, m, n, k, d)
			f(chosenForm{s, d, t})
		}
	}
}

// divisions are ways to divide a product. Of parts there are such that their blocks are as many as
// the multiprocessors, or some times that. Of one matrix the whole tiles are as many as can be
// shared out evenly, or one less for each multiprocessor.
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
		for _, each := range []int{1, 2, 3, 4, 5, 6, 8, 12, mostEach} {
			parts := min(each*g.Cores/rest, k/128, mostParts)
			if parts > before {
				before = parts
				list = append(list, division{whole: whole, chunk: ceilDiv(ceilDiv(k, parts), 64) * 64})
			}
		}
	}
	return list
}

// mostEach is how many blocks of parts a division has at most for each multiprocessor.
const mostEach = 16

// tensorPlan is how a product on tensor cores is carried out.
type tensorPlan struct {
	tensorSpec
	division
	seconds            float64 // by the model, with the copies
	realignA, realignB bool    // copied first, to rows that begin on 16 bytes
}

// choosePlan is choose for operands of which some may be copied first: those that would come
// element by element, where the copies' bytes cost less than that.
func (g *GPU) choosePlan(out, a, b Operand, split bool) (best tensorPlan) {
	batch, m, n, k := out.Shape.At(0), out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	split = split && batch <= maxGridY
	list, count := g.realignments(out, a, b)
	for i, r := range list[:count] {
		if f, d, t := g.choose(r.spec, batch, m, n, k, split); i == 0 || t+r.seconds < best.seconds {
			best = tensorPlan{f, d, t + r.seconds, r.a, r.b}
		}
	}
	return best
}

// realignment is which operands are copied first, what that costs, and the product that is left,
// without a form.
type realignment struct {
	a, b    bool
	spec    tensorSpec
	seconds float64
}

// realignments are the ways to copy operands first; the first way copies none.
func (g *GPU) realignments(out, a, b Operand) (list [4]realignment, count int) {
	s, _ := tensorSpecFor(out, a, b)
	list[0].spec, count = s, 1
	batch, whole := out.Shape.At(0), 16/s.typ.Size()
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
			// Beside rows of k that are copied whole, those of a may begin anywhere.
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

// alongOf is the dimension along which rows of an operand lie.
func alongOf(l tensorLoad, outer int) int {
	if l.alongK {
		return 3 - outer
	}
	return outer
}
