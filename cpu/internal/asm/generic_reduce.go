package asm

import "math"

// fold adds the upper half of the lanes to the lower half until one is left.
func fold[T float](acc []T) T {
	for n := len(acc) / 2; n > 0; n /= 2 {
		for j := range acc[:n] {
			acc[j] += acc[j+n]
		}
	}
	return acc[0]
}

func sumF32(a []float32) float32 {
	var acc [64]float32
	for ; len(a) >= 64; a = a[64:] {
		for j, x := range a[:64] {
			acc[j] += x
		}
	}
	for j, x := range a { // adding the +0 of the other lanes changes nothing: a lane is never -0
		acc[j] += x
	}
	return fold(acc[:])
}

func sumF64(a []float64) float64 {
	var acc [32]float64
	for ; len(a) >= 32; a = a[32:] {
		for j, x := range a[:32] {
			acc[j] += x
		}
	}
	for j, x := range a {
		acc[j] += x
	}
	return fold(acc[:])
}

func dotF32(a, b []float32) float32 {
	var acc [64]float32
	for ; len(a) >= 64; a, b = a[64:], b[64:] {
		for j := range acc {
			acc[j] = fma32(a[j], b[j], acc[j])
		}
	}
	if len(a) > 0 {
		for j := range a {
			acc[j] = fma32(a[j], b[j], acc[j])
		}
		for j := len(a); j < len(acc); j++ { // a product that underflowed may have left -0 here
			acc[j] += 0
		}
	}
	return fold(acc[:])
}

func dotF64(a, b []float64) float64 {
	var acc [32]float64
	for ; len(a) >= 32; a, b = a[32:], b[32:] {
		for j := range acc {
			acc[j] = math.FMA(a[j], b[j], acc[j])
		}
	}
	if len(a) > 0 {
		for j := range a {
			acc[j] = math.FMA(a[j], b[j], acc[j])
		}
		for j := len(a); j < len(acc); j++ {
			acc[j] += 0
		}
	}
	return fold(acc[:])
}

func reduceMin[T float](a []T) T {
	r := T(math.Inf(1))
	for _, x := range a {
		r = min(r, x)
	}
	return r
}

func reduceMax[T float](a []T) T {
	r := T(math.Inf(-1))
	for _, x := range a {
		r = max(r, x)
	}
	return r
}
