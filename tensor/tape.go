package tensor

import (
	"fmt"
	"slices"
	"sync"
)

// A tape records which numbers a checkpointed segment drew, and gives the same again when the
// segment is computed a second time. It does so whatever others have drawn from the generator
// meanwhile. The generator itself does not move. What the segment draws from the generator of its
// scope comes by way of the tape. An op on older tensors alone draws from that of their scope, past
// the tape; it is known by the goroutine, which is that of the segment.
type tape struct {
	kept kept[*tape] // for the goroutine that computes the segment

	mu    sync.Mutex
	of    *Generator // that the numbers come from
	draws []draw
	seed  uint64 // of where it was before the first
	start uint64

	replay bool // the numbers of draws are given again
	open   bool // and then others: the segment is not at its end yet
	next   int
}

// draw is what one call of Draw gave.
type draw struct {
	n            int
	seed, offset uint64
}

// begin makes t hear of what its goroutine draws, until stop.
func (t *tape) begin() { tapes.keep(&t.kept, t, false) }

func (t *tape) stop() { t.kept.end() }

// hearing returns the tapes that hear of what this goroutine draws, innermost first, up to one that
// gives its numbers again.
func hearing() (list []*tape) {
	tapes.each(func(t *tape) bool {
		list = append(list, t)
		return !t.replay
	})
	return list
}

// replaying reports whether this goroutine computes a segment for the second time.
func replaying() bool {
	list := hearing()
	return len(list) > 0 && list[len(list)-1].replay
}

// drawPast draws from g, which is not that of a tape, for an op that may be part of a segment
// nevertheless.
func drawPast(g *Generator, n int) (seed, offset uint64) {
	list := hearing()
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

// recordDraws returns a generator that gives what g gives and remembers it, until its tape is
// stopped.
func recordDraws(g *Generator) *Generator {
	t := &tape{of: g}
	t.seed, t.start = g.State()
	t.begin()
	return &Generator{tape: t}
}

// again returns a generator that gives what t has recorded, and a function that ends its use.
func (t *tape) again(over bool) (*Generator, func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &tape{of: t.of, draws: slices.Clone(t.draws), seed: t.seed, start: t.start, replay: true, open: !over}
	r.begin()
	return &Generator{tape: r}, r.stop
}

func (t *tape) draw(n int) (seed, offset uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.replay {
		seed, offset = t.of.advance(n)
		t.draws = append(t.draws, draw{n, seed, offset})
		return seed, offset
	}
	switch {
	case t.next == len(t.draws) && t.open:
		// for values that nobody asks for
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
		return t.of.State()
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
		t.of.SetState(seed, offset)
	}
}
