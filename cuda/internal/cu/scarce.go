package cu

// Sized is satisfied by an implementation that says how large the segments are that a pool takes of a device's memory.
type Sized interface {
	// Segment returns their bytes; 0 leaves them to the pool.
	Segment() uint64
}

// Scarce is satisfied by an implementation that can be told to run out of memory, for tests of programs that are to survive it.
type Scarce interface {
	// RefuseMemory makes the n-th request for memory of dev from now on, counted from 1, and every one after it fail with ErrOutOfMemory, until
	// Relent. 0 takes that back.
	RefuseMemory(dev Device, n uint64)
	// Relent ends a refusal that has begun. One that has not is left as it is.
	Relent(dev Device)
}
