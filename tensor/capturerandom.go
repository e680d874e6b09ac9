package tensor

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"

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

// A standIn is what a generator is replaced by while a graph is captured: an offset that starts at 0 and a seed that is only a token, so
// that numbers find their way here however state and seed are saved and restored. What is drawn is relative to where the generator
// is when a replay begins.
type standIn struct {
	of    *Generator // what it stands for
	as    *Generator
	once  sync.Once
	slots *Tensor // seed and offset on the device, once something is drawn
}

// generator returns the stand-in of gen, gen itself where nothing is captured. Generators that a scope's Seed makes have none: they start anew
// with every run, so that their numbers are the same each time.
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

// numbers returns the tensors that hold a generator's seed and offset when s records and seed is a stand-in's, nil otherwise.
func (s *Scope) numbers(seed uint64) (slots *Tensor) {
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
	t.once.Do(func() {
		t.slots = g.Feed(dtype.I64, 2, func(to []byte) {
			seed, offset := t.of.Draw(int(t.as.offset.Load()))
			binary.NativeEndian.PutUint64(to, seed)
			binary.NativeEndian.PutUint64(to[8:], offset)
		})
	})
	return t.slots
}
