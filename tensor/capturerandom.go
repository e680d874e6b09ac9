package tensor

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// seeded reports whether one of the options makes a generator for the scope. Such an option makes a
// new generator each time it is applied.
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

// A standIn replaces a generator while a graph is captured. Its generator starts at offset 0, and
// its seed is only a token. The graph recognises draws by the token, even after the generator's
// state was saved and restored. Draws are relative to the offset that the real generator has when a
// replay begins.
type standIn struct {
	replaced    *Generator // the generator that the stand-in replaces
	replacement *Generator
	mu          sync.Mutex
	slots       map[device.Device]*Tensor // tensor with seed and offset, for each device that draws
	// Seed and offset of the replay that is being queued. The function that fills the first tensor
	// in slots sets them.
	seed, offset uint64
}

// generator returns the generator that replaces gen in the capture, or gen itself if nothing is
// captured. A generator made by a scope's Seed is not replaced, because it starts at the same
// number in every run.
func (g *Graph) generator(gen *Generator) *Generator {
	if gen == nil || g == nil || !g.live.Load() {
		return gen
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range g.tokens {
		if t.replacement == gen {
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
	g.gens[gen], g.tokens[token] = as, &standIn{replaced: gen, replacement: as}
	return as
}

// numbers returns the tensor on dev that holds a generator's seed and offset. It is nil unless the
// work of s is recorded and seed is the token of a stand-in.
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
	first := len(t.slots) == 0 // a replay fills this tensor before the tensors on other devices
	slots = g.FeedOn(dev, dtype.I64, 2, func(to []byte) {
		if first {
			t.seed, t.offset = t.replaced.Draw(int(t.replacement.offset.Load()))
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
