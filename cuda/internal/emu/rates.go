package emu

import "github.com/flambeau-go/flambeau/cuda/internal/cu"

var _ cu.Rated = (*Driver)(nil)

// Rates returns the cost model's rates.
func (d *Driver) Rates() (warpInstructions, memoryBytes float64) {
	return d.cfg.Cost.WarpInstructions, d.cfg.Cost.MemoryBytes
}
