//go:build race

package cpu

// poolsForget is true because, with the race detector, sync.Pool drops some values at random.
const poolsForget = true
