//go:build race

package cpu

// underRace says that the race detector is on. Then sync.Pool drops some values at random, and Go
// writes zeros to new memory.
const underRace = true
