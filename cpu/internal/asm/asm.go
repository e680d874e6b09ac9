// Package asm holds the block primitives of the CPU driver. Each primitive is a loop over slices of
// up to about a thousand elements, which should be in the first-level cache. A program runs as a
// sequence of such primitives.
//
// These rules hold:
//
//   - Sources must be as long as dst; otherwise a primitive panics with its name and the lengths.
//     Any length is allowed, including 0. dst may be one of the sources; partial overlap is not
//     allowed.
//   - Every variant (generic Go, AVX2, AVX-512) gives the same bits, except for the payload and
//     sign of a NaN that arithmetic creates. Each float operation rounds to nearest even; only
//     primitives with FMA in their name fuse a multiplication and an addition.
//   - A truth value is a uint32, 0 or 1, for any compared type. Selection treats any value except 0
//     as true.
//   - Integers wrap. A shift by the width or more gives 0, or copies of the sign for [ShrI32] and
//     [ShrI64].
//   - Conversion of floats to integers rounds towards zero and saturates; NaN becomes 0. (PTX's
//     cvt.rzi differs in one case: for conversions from float64 and to 64-bit integers, NaN becomes
//     the least integer.)
//   - Sums have a fixed order. With L lanes (64 for float32, 32 for float64), element i is added to
//     lane i mod L, in the order of i. Lanes start with +0, and the last, incomplete round is
//     filled up with +0. Then the upper half of the lanes is added to the lower half, lane by lane,
//     until one lane is left. For longer sums the caller adds the sums of blocks.
//
// There are also kernels for whole functions ([Function]). They compute the formula of package
// expr, with its intermediate values in registers. Package calls finds the places in a program
// where such a kernel can be used.
//
// The generic Go in generic.go is the reference. The doc comment of an assembly kernel shows the
// equivalent loop in Go. cpu/_gen/block writes the assembly, its declarations and the exported
// functions. With the build tag noasm, and on machines other than amd64, the generic variant is the
// only one.
package asm

//go:generate sh ../../_gen/generate.sh

import (
	"fmt"
	"unsafe"
)

type variant struct {
	name   string
	usable bool // whether this machine can run the variant
	k      *kernels
	// functions holds kernels for named functions of package expr.
	functions map[string]function
	philox    func(dst []uint32, seed, counter uint64) // kernel that [Philox] calls
}

// function is a kernel for a function of package expr. The field formula identifies the formula
// from which the kernel was generated.
type function struct {
	formula string
	run     func(dst, a []float32)
}

// variants lists the implementations in this build, slowest first. machineVariants returns those of
// the machine's architecture.
var variants = append([]variant{{name: "generic", usable: true, k: &generic, philox: philox}}, machineVariants()...)

// current is the variant in use, and active holds its kernels. The exported functions call the
// kernels in active.
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

// Variants returns the names of the implementations that this machine can run, slowest first.
// "generic" is always among them.
func Variants() []string {
	var names []string
	for _, v := range variants {
		if v.usable {
			names = append(names, v.name)
		}
	}
	return names
}

// Active returns the name of the implementation in use: the last of [Variants], or the one that
// [Use] chose.
func Active() string { return current.name }

// Use makes the exported functions run the named variant until restore is called. It is for tests
// and benchmarks: nothing else may use the package before restore is called. It panics if the
// machine cannot run the variant.
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

// Function returns the kernel that computes dst[i] = f(a[i]) for the named function of package
// expr. It returns nil if the variant in use has no such kernel. The kernel gives the same bits as
// the primitives of the function's float32 formula, but keeps intermediate values in registers. dst
// and a must have the same length. They must be the same block or must not overlap.
func Function(name string) func(dst, a []float32) { return current.functions[name].run }

// Formula returns a key of the formula from which the kernel of the named function was generated,
// or "" if there is no kernel. If package expr now has a formula with another key, the kernel must
// not be used.
func Formula(name string) string { return current.functions[name].formula }

//go:noinline
func panicLength(name string, want int, lens ...int) {
	panic(fmt.Sprintf("asm: %s: sources of length %v for a destination of length %d", name, lens, want))
}

// fill sets every element to v. It doubles the filled part by copying, which is as fast as a loop
// of stores.
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
	for n := 0; n < len(dst); n += len(ramp32) {
		part := dst[n:min(n+len(ramp32), len(dst))]
		FillU32(part, start+uint32(n))
		AddU32(part, part, ramp32[:len(part)])
	}
}

// IotaI64 computes dst[i] = start + i, wrapping.
func IotaI64(dst []int64, start int64) {
	for n := 0; n < len(dst); n += len(ramp64) {
		part := dst[n:min(n+len(ramp64), len(dst))]
		FillI64(part, start+int64(n))
		AddI64(part, part, ramp64[:len(part)])
	}
}

// ramp32 and ramp64 hold the numbers 0 to 1023. A vector kernel adds them to the start of a
// sequence.
var ramp32, ramp64 = ramp[uint32](), ramp[int64]()

func ramp[T uint32 | int64]() *[1024]T {
	var r [1024]T
	for i := range r {
		r[i] = T(i)
	}
	return &r
}

// AsU32 reads the bits of a block's elements as uint32. The result shares the memory of x.
func AsU32[T int32 | uint32 | float32](x []T) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// AsI32 reads the bits of a block's elements as int32. The result shares the memory of x.
func AsI32[T int32 | uint32 | float32](x []T) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// AsF32 reads the bits of a block's elements as float32. The result shares the memory of x.
func AsF32[T int32 | uint32 | float32](x []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// AsU64 reads the bits of a block's elements as uint64. The result shares the memory of x.
func AsU64[T int64 | uint64 | float64](x []T) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// AsI64 reads the bits of a block's elements as int64. The result shares the memory of x.
func AsI64[T int64 | uint64 | float64](x []T) []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// AsF64 reads the bits of a block's elements as float64. The result shares the memory of x.
func AsF64[T int64 | uint64 | float64](x []T) []float64 {
	return unsafe.Slice((*float64)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}
