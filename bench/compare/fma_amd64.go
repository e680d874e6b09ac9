package main

// fma512 and fma256 compute twelve independent FMAs in each of n loops.
//
//go:noescape
func fma512(n int)

//go:noescape
func fma256(n int)

// fmaLoop returns the loop for an instruction set, and the number of float32 values in one of its
// FMAs.
func fmaLoop(simd string) (func(n int), int) {
	switch simd {
	case "avx512":
		return fma512, 16
	case "avx2":
		return fma256, 8
	}
	return nil, 0
}
