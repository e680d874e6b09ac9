package tensor

import (
	"fmt"
	"slices"
	"sync"
)

// A tape records which numbers a checkpointed segment drew from the generator of its scope, and gives the same again when the segment is
// computed a second time: exactly these, whatever others have drawn from that generator in between, which stays where it is.
type tape struct {
	mu    sync.Mutex
	of    *Generator // that the numbers come from
	draws []draw
	seed  uint64 // of where it was before the first
	start uint64

	// loose says that the generator gave numbers past the tape while it recorded: to an op on older tensors alone, which draws from the
	// generator of their scope. Then that generator is put back while the segment is computed again, as torch does.
	loose bool

	replay bool // the numbers of draws are given again
	open   bool // and then others: the segment is not at its end yet
	next   int
}

// draw is what one call of Draw gave.
type draw struct {
	n            int
	seed, offset uint64
}

// recordDraws returns a generator that gives what g gives and remembers it.
func recordDraws(g *Generator) *Generator {
	t := &tape{of: g}
	t.seed, t.start = g.State()
	return &Generator{tape: t}
}

// stop ends the recording.
func (t *tape) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	seed, at := t.seed, t.start
	for _, d := range t.draws {
		if t.loose = t.loose || d.seed != seed || d.offset != at; t.loose {
			break
		}
		at += uint64(d.n)
	}
	s, o := t.of.State()
	t.loose = t.loose || s != seed || o != at
}

// again returns a generator that gives what t has recorded, and a function that ends its use.
func (t *tape) again(over bool) (*Generator, func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &tape{of: t.of, draws: slices.Clone(t.draws), seed: t.seed, start: t.start, loose: t.loose, replay: true, open: !over}
	if !t.loose {
		return &Generator{tape: r}, func() {}
	}
	seed, offset := t.of.State()
	t.of.SetState(t.seed, t.start)
	return &Generator{tape: r}, func() { t.of.SetState(seed, offset) }
}

func (t *tape) draw(n int) (seed, offset uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.replay {
		seed, offset = t.of.Draw(n)
		t.draws = append(t.draws, draw{n, seed, offset})
		return seed, offset
	}
	switch {
	case t.next == len(t.draws) && t.open:
		t.draws = append(t.draws, draw{n: n, seed: t.seed, offset: t.start}) // for values that nobody asks for
	case t.next == len(t.draws):
		panic(differs(fmt.Sprintf("it draws %d random numbers where it drew no more in forward", n)))
	case t.draws[t.next].n != n:
		panic(differs(fmt.Sprintf("it draws %d random numbers where it drew %d in forward", n, t.draws[t.next].n)))
	}
	d := t.draws[t.next]
	t.next++
	if t.loose {
		t.of.SetState(d.seed, d.offset+uint64(n))
	}
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
