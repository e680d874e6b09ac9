//go:build race

package cpu

// With the race detector, sync.Pool drops some values at random.
const poolsForget = true
