package tensor

import (
	"fmt"
	"sync/atomic"
)

// A Generator is a source of random numbers: a seed and an offset that drawing advances,
// atomically. Child scopes share their parent's. Element i of a draw takes a word of the
// Philox4x32-10 block at (seed, offset + i/4), or two of block i/2 in float64: the same numbers on
// every device. A draw of n advances the offset by n, so that no two share a block.
type Generator struct {
	seed   uint64
	offset atomic.Uint64
	tape   *tape // it records what another one gives, or gives it again; nil for one of its own
}

// NewGenerator returns a generator that starts at offset 0.
func NewGenerator(seed uint64) *Generator { return &Generator{seed: seed} }

// State returns the seed and the offset, to be restored by [Generator.SetState].
func (g *Generator) State() (seed, offset uint64) {
	if g.tape != nil {
		return g.tape.state()
	}
	return g.seed, g.offset.Load()
}

// String tells the state.
func (g *Generator) String() string {
	seed, offset := g.State()
	return fmt.Sprintf("Generator(seed %d, offset %d)", seed, offset)
}

// SetState continues from a state. It must not run while others draw.
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

// Draw reserves n numbers and returns where they start.
func (g *Generator) Draw(n int) (seed, offset uint64) {
	if g.tape == nil {
		return drawPast(g, n)
	}
	return g.tape.draw(n)
}

// advance is Draw of a generator that no segment records: the tape that calls it has done so.
func (g *Generator) advance(n int) (seed, offset uint64) {
	if g.tape != nil {
		return g.tape.draw(n)
	}
	return g.seed, g.offset.Add(uint64(n)) - uint64(n)
}
