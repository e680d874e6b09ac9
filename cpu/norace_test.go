//go:build !race

package cpu

const underRace = false
