// Package asm holds the block primitives of the CPU driver: one loop each over slices of up to
// about a thousand elements that lie in the first-level cache, which the expression evaluator
// strings together.
//
// Contract:
//
//   - Sources are as long as dst (else a panic that names the function and the lengths); any
//     length, also 0, is fine. dst may be one of the sources; partial overlap is not allowed.
//   - Every variant (generic Go, AVX2, AVX-512) gives the same bits, but for the payload and sign
//     of a NaN that arithmetic makes. Float operations round one by one to nearest even; a
//     multiplication and an addition are fused only where FMA is written.
//   - A truth value is a uint32, 0 or 1, whatever was compared. Selection takes any value but 0 for
//     true.
//   - Integers wrap. A shift by the width or more leaves 0, or the sign for [ShrI32] and [ShrI64].
//   - Floats become integers towards zero, saturating, NaN 0. (PTX's cvt.rzi differs in one point:
//     from float64 and to 64-bit integers it turns NaN into the least integer.)
//   - Sums have a fixed order. With L lanes (64 for float32, 32 for float64), element i is added to
//     lane i mod L, from +0, in the order of i; the last, incomplete round is filled with +0. Then
//     the upper half of the lanes is added to the lower half, lane by lane, until one is left. A
//     longer sum is the caller's sum of blocks.
//
// Beside the primitives there are kernels for whole functions ([Function]): the formula of package
// expr with its intermediate values in registers. Package calls finds where a program may use them.
//
// The generic Go in generic.go is the reference; the doc comment of an assembly kernel is its Go
// loop. The assembly, its declarations and the exported functions are written by cpu/_gen/block.
// With the build tag noasm, and on machines other than amd64, the generic variant is the only one.
package asm

//go:generate sh ../../_gen/generate.sh

import (
	"fmt"
	"unsafe"
)

// A variant is an implementation that this build holds.
type variant struct {
	name   string
	usable bool // by this machine
	k      *kernels
	// functions are kernels for named functions of package expr.
	functions map[string]function
	philox    func(dst []uint32, seed, counter uint64) // see Philox
}

// A function is a kernel for a function of package expr, made from the formula with the given key.
type function struct {
	formula string
	run     func(dst, a []float32)
}

// variants lists what this build holds, slowest first; dispatch files append to it.
var variants = append([]variant{{name: "generic", usable: true, k: &generic, philox: philox}}, machineVariants()...)

// current is the variant in use, active its kernels: what the exported functions call.
var (
	current = best()
	active  = current.k
)

func best() *variant {
	for i := len(variants) - 1; ; i-- {
		if v := &variants[i]; v.usable {
			return v
		}
	}
}

// Variants names the implementations that this machine can run, slowest first; "generic" is always
// one of them.
func Variants() []string {
	var names []string
	for _, v := range variants {
		if v.usable {
			names = append(names, v.name)
		}
	}
	return names
}

// Active names the implementation in use: the last of [Variants] unless [Use] chose another.
func Active() string { return current.name }

// Use makes the exported functions run the named variant until restore is called. It is for tests
// and benchmarks and must not run beside other uses of the package. It panics if the machine cannot
// run the variant.
func Use(name string) (restore func()) {
	for i := range variants {
		if v := &variants[i]; v.name == name && v.usable {
			old := current
			current, active = v, v.k
			return func() { current, active = old, old.k }
		}
	}
	panic(fmt.Sprintf("asm: no variant %q on this machine; there are %q", name, Variants()))
}

// Function returns the kernel that computes dst[i] = f(a[i]) for a function of package expr, named
// as there, or nil if the variant in use has none. Its bits are those of the function's float32
// formula run one primitive after the other, but the intermediate values never leave the registers.
// dst and a have the same length; they are the same block or do not overlap.
func Function(name string) func(dst, a []float32) { return current.functions[name].run }

// Formula returns the key of the lowered formula from which the kernel of a function was made, ""
// if there is none. Where package expr has another now, the kernel must not stand for it.
func Formula(name string) string { return current.functions[name].formula }

//go:noinline
func panicLength(name string, want int, lens ...int) {
	panic(fmt.Sprintf("asm: %s: sources of length %v for a destination of length %d", name, lens, want))
}

// fill sets every element to v. Doubling copies are as fast as any loop of stores.
func fill[T any](dst []T, v T) {
	n := min(len(dst), 16)
	for i := range dst[:n] {
		dst[i] = v
	}
	for ; n < len(dst); n *= 2 {
		copy(dst[n:], dst[:n])
	}
}

// FillF32 sets every element of dst to v.
func FillF32(dst []float32, v float32) { fill(dst, v) }

// FillF64 sets every element of dst to v.
func FillF64(dst []float64, v float64) { fill(dst, v) }

// FillU32 sets every element of dst to v.
func FillU32(dst []uint32, v uint32) { fill(dst, v) }

// FillI32 sets every element of dst to v.
func FillI32(dst []int32, v int32) { fill(dst, v) }

// FillU64 sets every element of dst to v.
func FillU64(dst []uint64, v uint64) { fill(dst, v) }

// FillI64 sets every element of dst to v.
func FillI64(dst []int64, v int64) { fill(dst, v) }

// IotaU32 computes dst[i] = start + i, wrapping.
func IotaU32(dst []uint32, start uint32) {
	for i := range dst {
		dst[i] = start + uint32(i)
	}
}

// IotaI64 computes dst[i] = start + i, wrapping.
func IotaI64(dst []int64, start int64) {
	for i := range dst {
		dst[i] = start + int64(i)
	}
}

// AsU32 returns the block x with its elements' bits read as uint32; the memory is shared.
func AsU32[T int32 | uint32 | float32](x []T) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// AsI32 returns the block x with its elements' bits read as int32; the memory is shared.
func AsI32[T int32 | uint32 | float32](x []T) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// AsF32 returns the block x with its elements' bits read as float32; the memory is shared.
func AsF32[T int32 | uint32 | float32](x []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// AsU64 returns the block x with its elements' bits read as uint64; the memory is shared.
func AsU64[T int64 | uint64 | float64](x []T) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// AsI64 returns the block x with its elements' bits read as int64; the memory is shared.
func AsI64[T int64 | uint64 | float64](x []T) []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// AsF64 returns the block x with its elements' bits read as float64; the memory is shared.
func AsF64[T int64 | uint64 | float64](x []T) []float64 {
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}
