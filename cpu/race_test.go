//go:build race

package cpu

// Under the race detector sync.Pool forgets at random what it is given.
const poolsForget = true
