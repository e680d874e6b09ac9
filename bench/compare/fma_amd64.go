package main

// fma512 and fma256 run a loop n times. Each iteration executes twelve independent FMAs.
//
//go:noescape
func fma512(n int)

//go:noescape
func fma256(n int)

// fmaLoop returns the loop for an instruction set, and the number of float32 values that one of its
// FMAs computes.
func fmaLoop(simd string) (func(n int), int) {
	switch simd {
	case "avx512":
		return fma512, 16
	case "avx2":
		return fma256, 8
	}
	return nil, 0
}
