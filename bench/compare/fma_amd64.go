package main

// fma512 and fma256 compute twelve independent FMAs in each of n loops.
//
//go:noescape
func fma512(n int)

//go:noescape
func fma256(n int)

// fmaLoop returns the loop for a kind of SIMD, and how many float32 an FMA has.
func fmaLoop(simd string) (func(n int), int) {
	switch simd {
	case "avx512":
		return fma512, 16
	case "avx2":
		return fma256, 8
	}
	return nil, 0
}
