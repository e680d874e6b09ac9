package kernels

import (
	"math"
	"sync"
)

// latency is the clocks from a request to memory until it is answered: 600 to 800 on devices of
// compute capability 8.0 and 9.0 (Luo and others, 2024, arXiv:2402.13499, section 4).
const latency = 800

// launchSeconds is what a further kernel on the stream costs: two events of a stream without host
// work between them are some microseconds apart.
const launchSeconds = 3e-6

// turn is the clocks that a multiprocessor takes for a step of k of one block, and what bounds it.
// All its blocks share the tensor cores, shared memory and the way from the cache.
func (g *GPU) turn(s tensorSpec) (clocks float64, bound string) {
	f := s.form
	wm, wn := f.warp()
	mma := float64(f.bm*f.bn*f.bk) / g.Tensor
	// Fragments of each warp, and what copies put there, at 128 bytes a clock.
	copied := float64((f.bm + f.bn) * f.bk * 2)
	read := float64(f.warpsM * f.warpsN * (wm + wn) * f.bk * 2)
	clocks, bound = mma, "tensor cores"
	for _, c := range []struct {
		clocks float64
		bound  string
	}{{(copied + read) / 128, "shared memory"}, {copied / g.CacheRate * float64(g.Cores), "cache"}, {s.slots() * float64(f.warpsM*f.warpsN) / 4, "issue"}} {
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
	steps := f.bk / 16
	n := float64(steps*(wm/16*wn/8+(wm+wn)/16)) + 20
	for _, o := range []struct {
		load  tensorLoad
		outer int
	}{{s.a, f.bm}, {s.b, f.bn}} {
		units, each := float64(s.units(o.load, o.outer)), 3.0
		switch {
		case o.load.vector == 1:
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
	if min(s.a.vector, s.b.vector) == 1 {
		return f.bn == 64 && (f.bm == 16 || f.bm == 64 && f.bk == 32)
	}
	if s.odd && f.bm < 64 {
		return false
	}
	return f.threads() == 128 || s.units(s.a, f.bm)+s.units(s.b, f.bn) <= 12
}

// units is how many copies of an operand a thread starts in a step of k.
func (s tensorSpec) units(l tensorLoad, outer int) int {
	return ceilDiv(outer*s.form.bk, max(l.vector, 2)*s.form.threads())
}

// resident is how many blocks a multiprocessor holds at once.
func (g *GPU) resident(s tensorSpec) int {
	f := s.form
	return min(s.blocks(), g.Shared/(s.shared()+1<<10), 1536/f.threads())
}

// cost is the seconds that a product takes in parts of k, by the model: the clocks of the
// multiprocessor with most blocks, the time that memory takes, and the sum of the parts.
func (g *GPU) cost(s tensorSpec, batch, m, n, k, parts int) (seconds float64, bound string) {
	f, held := s.form, g.resident(s)
	if held < 1 {
		return math.Inf(1), "room"
	}
	turn, bound := g.turn(s)
	chunk := ceilDiv(k, parts)
	tiles := batch * s.tiles(m, n)
	blocks := tiles * parts
	most := ceilDiv(blocks, g.Cores) // of one multiprocessor
	together := float64(min(most, held))
	// A block is a turn ahead for each stage but one: what it waits for is not there sooner.
	pace := max(turn, latency/(float64(s.stages()-1)*together))
	if min(s.a.vector, s.b.vector) == 1 { // what goes through registers is waited for in each step
		pace = max(pace, latency*float64(f.bk/16)/together)
	}
	if pace > turn {
		bound = "latency"
	}
	turns := float64(ceilDiv(chunk, f.bk))
	// The first tiles come from memory, and the results leave, while other blocks multiply.
	ends := 2*latency + float64(f.bm*f.bn*s.out.Size())/64
	clocks := float64(most)*turns*pace + ends*max(1, float64(most)/float64(held))/together
	if full := float64(blocks) / float64(g.Cores); full < 0.9*float64(most) && bound != "latency" {
		bound = "waves"
	}
	seconds = clocks / g.Clock
	if bytes := g.moved(s, batch, m, n, k, parts); bytes/g.Bandwidth > seconds {
		seconds, bound = bytes/g.Bandwidth, "memory"
	}
	if parts > 1 {
		sums := float64(4 * batch * m * n * parts)
		rate := g.Bandwidth
		if sums < float64(g.Cache)/2 {
			rate = g.CacheRate * g.Clock
		}
		seconds += launchSeconds + 2*sums/rate
	}
	return seconds, bound
}

// moved is the bytes that memory must move: each operand once for each wave of blocks that shares
// it in the cache, and the results.
func (g *GPU) moved(s tensorSpec, batch, m, n, k, parts int) float64 {
	f := s.form
	wave := g.Cores * g.resident(s)
	rows := s.tune.or(s.tune.group, 8) // tiles along m that blocks take before they go on along n
	high := min(rows, ceilDiv(m, f.bm))
	wide := max(1, min(wave/high, ceilDiv(n, f.bn)))
	a, b := float64(batch*m*k*2), float64(batch*k*n*2)
	// b is read again for each group of rows, a for each wave along n, unless the cache holds them.
	againA, againB := float64(ceilDiv(ceilDiv(n, f.bn), wide)), float64(ceilDiv(ceilDiv(m, f.bm), high))
	if a < float64(g.Cache)/2 {
		againA = 1
	}
	if b < float64(g.Cache)/2 {
		againB = 1
	}
	out := float64(batch * m * n * s.out.Size())
	if parts > 1 {
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
	spec    tensorSpec
	chunk   int // of k
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

// choose returns the form that costs least, and in how many parts of k: one where split is false.
func (g *GPU) choose(s tensorSpec, batch, m, n, k int, split bool) (best tensorSpec, chunk int, seconds float64) {
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
	return c.spec, c.chunk, c.seconds
}

// compare takes the form of least cost.
func (g *GPU) compare(p product) chosenForm {
	s, batch, m, n, k, split := p.spec, p.batch, p.m, p.n, p.k, p.split
	var best tensorSpec
	var chunk int
	seconds := math.Inf(1)
	for _, f := range tensorForms {
		if f.bm > 16 && f.bm >= 2*m || f.bn > 64 && f.bn >= 2*n {
			continue // half of the block would be beyond the edge
		}
		s.form = f
		if !s.fits() {
			continue
		}
		most := 1
		if split {
			most = min(max(k/128, 1), 64)
		}
		wave := g.Cores * max(1, g.resident(s))
		tiles := batch * s.tiles(m, n)
		for waves := 0; waves <= 4; waves++ {
			parts := min(max(1, waves*wave/tiles), most)
			if waves > 0 && parts == 1 {
				continue
			}
			c := ceilDiv(ceilDiv(max(k, 1), parts), 64) * 64
			if parts == 1 {
				c = max(k, 1)
			}
			// Forms come in the order of what they read: a later one must gain something.
			if t, _ := g.cost(s, batch, m, n, k, ceilDiv(max(k, 1), c)); t < 0.97*seconds {
				best, chunk, seconds = s, c, t
			}
			if parts == most {
				break
			}
		}
	}
	return chosenForm{best, chunk, seconds}
}

// tensorPlan is how a product of 16-bit floats is carried out.
type tensorPlan struct {
	tensorSpec
	chunk              int     // of k
	seconds            float64 // by the model, with the copies
	realignA, realignB bool    // copied first, to rows that begin on 16 bytes
}

// choosePlan is choose for operands of which some may be copied first: those that would come
// element by element, where the copies' bytes cost less than that.
func (g *GPU) choosePlan(out, a, b Operand) (best tensorPlan) {
	s, _ := tensorSpecFor(out, a, b)
	batch, m, n, k := out.Shape.At(0), out.Shape.At(1), out.Shape.At(2), a.Shape.At(2)
	split := batch <= maxGridY
	best.tensorSpec, best.chunk, best.seconds = g.choose(s, batch, m, n, k, split)
	canA, canB := s.a.vector == 1 && a.Strides.At(alongOf(s.a, 1)) == 1, s.b.vector == 1 && b.Strides.At(alongOf(s.b, 2)) == 1
	copies := func(o Operand) float64 {
		elements := o.Shape.Size()
		if o.Strides.At(0) == 0 {
			elements /= batch
		}
		return launchSeconds + float64(4*elements)/g.Bandwidth
	}
	for _, c := range []struct{ a, b bool }{{true, false}, {false, true}, {true, true}} {
		if c.a && !canA || c.b && !canB {
			continue
		}
		with, more := s, 0.0
		if c.b {
			with.b.vector, with.b.ragged = 8, b.Shape.At(alongOf(with.b, 2))%8 != 0
			more += copies(b)
			// Beside rows of k that are copied whole, those of a may begin anywhere.
			if !c.a && !with.b.alongK && s.a.vector == 1 && oddRows(a, with.a.alongK) {
				with.odd, with.a.vector, with.a.ragged = true, 2, true
			}
		}
		if c.a {
			with.a.vector, with.a.ragged = 8, a.Shape.At(alongOf(with.a, 1))%8 != 0
			more += copies(a)
		}
		if f, chunk, t := g.choose(with, batch, m, n, k, split); t+more < best.seconds {
			best = tensorPlan{f, chunk, t + more, c.a, c.b}
		}
	}
	return best
}

// alongOf is the dimension along which rows of an operand lie.
func alongOf(l tensorLoad, outer int) int {
	if l.alongK {
		return 3 - outer
	}
	return outer
}
