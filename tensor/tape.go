package tensor

import (
	"fmt"
	"slices"
	"sync"
)

// A tape records which random numbers a checkpointed segment drew, and returns the same numbers
// when the segment is computed again. Other code may draw from the generator in between: this does
// not change the returned numbers. Recomputing does not advance the generator. The generator of the
// segment's scope draws through the tape. An op whose operands are all older than that scope draws
// from the generator of the operands' scope instead. The tape records such a draw too, because the
// op runs on the segment's goroutine.
type tape struct {
	binding binding[*tape] // binds the tape to the goroutine that computes the segment

	mu    sync.Mutex
	gen   *Generator // the generator that draws the numbers
	draws []draw
	seed  uint64 // seed and start: the generator's state before the first draw
	start uint64

	replay bool // true while the tape returns its recorded draws again
	// true if more draws may follow, because forward has not reached the end of the segment yet
	open bool
	next int
}

// draw holds the result of one call of Generator.Draw.
type draw struct {
	n            int
	seed, offset uint64
}

// begin makes t record the draws of its goroutine, until t.stop is called.
func (t *tape) begin() { tapes.bind(&t.binding, t, false) }

func (t *tape) stop() { t.binding.end() }

// activeTapes returns the tapes that record the draws of this goroutine, the innermost first. The
// last tape in the list may be one that returns recorded draws.
func activeTapes() (list []*tape) {
	tapes.forEach(func(t *tape) bool {
		list = append(list, t)
		return !t.replay
	})
	return list
}

// replaying reports whether this goroutine computes a segment again.
func replaying() bool {
	list := activeTapes()
	return len(list) > 0 && list[len(list)-1].replay
}

// drawPast draws from g, which does not belong to a tape. The op that draws may still be part of a
// segment. The tapes of this goroutine then record the draw, or return a recorded draw.
func drawPast(g *Generator, n int) (seed, offset uint64) {
	list := activeTapes()
	if k := len(list) - 1; k >= 0 && list[k].replay {
		seed, offset = list[k].draw(n)
		list = list[:k]
	} else {
		seed, offset = g.advance(n)
	}
	for _, t := range list {
		t.mu.Lock()
		t.draws = append(t.draws, draw{n, seed, offset})
		t.mu.Unlock()
	}
	return seed, offset
}

// recordDraws returns a generator that draws from g and records the draws, until its tape is
// stopped.
func recordDraws(g *Generator) *Generator {
	t := &tape{gen: g}
	t.seed, t.start = g.State()
	t.begin()
	return &Generator{tape: t}
}

// repeat returns a generator that repeats the draws in t, and a function to call when the generator
// is no longer used. complete says whether forward has reached the end of the segment.
func (t *tape) repeat(complete bool) (*Generator, func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &tape{gen: t.gen, draws: slices.Clone(t.draws), seed: t.seed, start: t.start, replay: true, open: !complete}
	r.begin()
	return &Generator{tape: r}, r.stop
}

func (t *tape) draw(n int) (seed, offset uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.replay {
		seed, offset = t.gen.advance(n)
		t.draws = append(t.draws, draw{n, seed, offset})
		return seed, offset
	}
	switch {
	case t.next == len(t.draws) && t.open:
		// no saved value depends on these random numbers, so any numbers will do
		t.draws = append(t.draws, draw{n: n, seed: t.seed, offset: t.start})
	case t.next == len(t.draws):
		panic(differs(fmt.Sprintf("it draws %d random numbers where it drew no more in forward", n)))
	case t.draws[t.next].n != n:
		panic(differs(fmt.Sprintf("it draws %d random numbers where it drew %d in forward", n, t.draws[t.next].n)))
	}
	d := t.draws[t.next]
	t.next++
	return d.seed, d.offset
}

func (t *tape) state() (seed, offset uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.replay:
		return t.gen.State()
	case t.next < len(t.draws):
		return t.draws[t.next].seed, t.draws[t.next].offset
	case len(t.draws) > 0:
		d := t.draws[len(t.draws)-1]
		return d.seed, d.offset + uint64(d.n)
	}
	return t.seed, t.start
}

func (t *tape) setState(seed, offset uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.replay {
		t.gen.SetState(seed, offset)
	}
}
