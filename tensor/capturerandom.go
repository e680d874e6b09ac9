package tensor

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// seeded reports whether options make a generator of the scope's own: another one each time.
func seeded(opts []Option) bool {
	var a, b modes
	for _, o := range opts {
		if o != nil {
			o(&a)
			o(&b)
		}
	}
	return a.gen != b.gen
}

// A standIn is what a generator is replaced by while a graph is captured. Its offset starts at 0
// and its seed is only a token, so that numbers find their way here however state and seed are
// saved and restored. What is drawn is relative to where the generator is when a replay begins.
type standIn struct {
	of    *Generator // what it stands for
	as    *Generator
	mu    sync.Mutex
	slots map[device.Device]*Tensor // seed and offset there, once something is drawn
	// What the replay that is being queued begins with, from the generator's first slots on.
	seed, offset uint64
}

// generator returns the stand-in of gen, gen itself where nothing is captured. Generators that a
// scope's Seed makes have none: they start anew with every run, so that their numbers are the same
// each time.
func (g *Graph) generator(gen *Generator) *Generator {
	if gen == nil || g == nil || !g.live.Load() {
		return gen
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.tokens {
		if t.as == gen {
			return gen
		}
	}
	if as := g.gens[gen]; as != nil {
		return as
	}
	token := rand.Uint64()
	for g.tokens[token] != nil {
		token = rand.Uint64()
	}
	as := NewGenerator(token)
	g.gens[gen], g.tokens[token] = as, &standIn{of: gen, as: as}
	return as
}

// numbers returns the tensor on dev that holds a generator's seed and offset when s records and
// seed is a stand-in's, nil otherwise.
func (s *Scope) numbers(seed uint64, dev device.Device) (slots *Tensor) {
	g := s.Capture()
	if g == nil {
		return nil
	}
	g.mu.Lock()
	t := g.tokens[seed]
	g.mu.Unlock()
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if slots = t.slots[dev]; slots != nil {
		return slots
	}
	first := len(t.slots) == 0 // a replay fills these before those on other devices
	slots = g.FeedOn(dev, dtype.I64, 2, func(to []byte) {
		if first {
			t.seed, t.offset = t.of.Draw(int(t.as.offset.Load()))
		}
		binary.NativeEndian.PutUint64(to, t.seed)
		binary.NativeEndian.PutUint64(to[8:], t.offset)
	})
	if t.slots == nil {
		t.slots = map[device.Device]*Tensor{}
	}
	t.slots[dev] = slots
	return slots
}
