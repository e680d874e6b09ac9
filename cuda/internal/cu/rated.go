package cu

// Rated is satisfied by an implementation whose speed is a model's.
type Rated interface {
	// Rates returns the instructions of warps and the bytes of global memory a second.
	Rates() (warpInstructions, memoryBytes float64)
}
