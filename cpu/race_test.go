//go:build race

package cpu

// poolsForget says that sync.Pool drops some values at random, as it does under the race detector.
const poolsForget = true
