//go:build !race

package cpu

const poolsForget = false
