package tensor

import (
	"fmt"
	"sync/atomic"
)

// A Generator is a source of random numbers: a seed, and an offset that each draw advances
// atomically. Child scopes share their parent's generator. Element i of a draw is a word of the
// Philox4x32-10 block at (seed, offset + i/4). In float64 it is two words of the block at offset +
// i/2. So the numbers are the same on every device. A draw of n numbers advances the offset by n,
// so that no two draws share a block.
type Generator struct {
	seed   uint64
	offset atomic.Uint64
	// tape that records the generator's draws, or repeats recorded draws; nil if there is none
	tape *tape
}

// NewGenerator returns a generator that starts at offset 0.
func NewGenerator(seed uint64) *Generator { return &Generator{seed: seed} }

// State returns the seed and the offset. [Generator.SetState] restores them.
func (g *Generator) State() (seed, offset uint64) {
	if g.tape != nil {
		return g.tape.state()
	}
	return g.seed, g.offset.Load()
}

// String shows the state.
func (g *Generator) String() string {
	seed, offset := g.State()
	return fmt.Sprintf("Generator(seed %d, offset %d)", seed, offset)
}

// SetState makes the generator continue from a state. Nobody may draw at the same time.
func (g *Generator) SetState(seed, offset uint64) {
	if g.tape != nil {
		g.tape.setState(seed, offset)
		return
	}
	if replaying() {
		return
	}
	g.seed = seed
	g.offset.Store(offset)
}

// Draw reserves n numbers and returns the seed and the offset of the first one.
func (g *Generator) Draw(n int) (seed, offset uint64) {
	if g.tape == nil {
		return drawPast(g, n)
	}
	return g.tape.draw(n)
}

// advance does what Draw does, but ignores the goroutine's tape. The tape itself calls advance.
func (g *Generator) advance(n int) (seed, offset uint64) {
	if g.tape != nil {
		return g.tape.draw(n)
	}
	return g.seed, g.offset.Add(uint64(n)) - uint64(n)
}
