//go:build !noasm

package gemm

import (
	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"golang.org/x/sys/cpu"
)

type micro32 = func(k int, a, b *float32, ldb int, c *float32, ldc, w, accumulate int, next *float32)
type micro64 = func(k int, a, b *float64, ldb int, c *float64, ldc, w, accumulate int, next *float64)
type microBF16 = func(k int, a, b *uint16, ldb int, c *float32, ldc, w, accumulate int, next *uint16)

type dots32 = dotKernel[float32, float32]
type dots64 = dotKernel[float64, float64]
type dotsBF16 = dotKernel[uint16, float32]

// These maps hold the kernels by the names of package asm's variants. A tile of 14 rows and two
// vectors takes 28 registers. With two registers for B and two for broadcast elements of A, it
// fills the 32 registers of AVX-512. A tile of 6 rows fills the 16 registers of AVX2. The blocks of
// k are short: a panel of A stays in the first-level cache, and panels of B are read from the
// second-level cache.
var kernels32 = map[string]*kernel32{
	"avx2": {height: 6, width: 16, stride: 8, block: 256, dots: []dots32{nil, dots1x2F32AVX2, dots2x2F32AVX2, dots3x2F32AVX2, dots4x2F32AVX2}, dots1: []dots32{nil, dots1x1F32AVX2, dots2x1F32AVX2, dots3x1F32AVX2, dots4x1F32AVX2}, dotWidth: 2, rowDots: rowDotsF32AVX2,
		vector: 32, copyRows: copy256, transpose: transpose8F32, group: 8, step: 4, micro: []micro32{nil,
			micro1F32AVX2, micro2F32AVX2, micro3F32AVX2, micro4F32AVX2, micro5F32AVX2, micro6F32AVX2}},
	"avx512": {height: 14, width: 32, stride: 16, block: 384, masked: true, shares: 8, dots: []dots32{nil, dots1x4F32AVX512, dots2x4F32AVX512, dots3x4F32AVX512, dots4x4F32AVX512}, dots1: []dots32{nil, dots1x1F32AVX512, dots2x1F32AVX512, dots3x1F32AVX512, dots4x1F32AVX512}, dotWidth: 4,
		vector: 64, copyRows: copy512, transpose: transpose16F32, group: 16, step: 4, micro: []micro32{nil,
			micro1F32AVX512, micro2F32AVX512, micro3F32AVX512, micro4F32AVX512, micro5F32AVX512, micro6F32AVX512, micro7F32AVX512,
			micro8F32AVX512, micro9F32AVX512, micro10F32AVX512, micro11F32AVX512, micro12F32AVX512, micro13F32AVX512, micro14F32AVX512}},
}

var kernels64 = map[string]*kernel64{
	"avx2": {height: 6, width: 8, stride: 8, block: 256, dots: []dots64{nil, dots1x2F64AVX2, dots2x2F64AVX2, dots3x2F64AVX2, dots4x2F64AVX2}, dots1: []dots64{nil, dots1x1F64AVX2, dots2x1F64AVX2, dots3x1F64AVX2, dots4x1F64AVX2}, dotWidth: 2, rowDots: rowDotsF64AVX2,
		vector: 32, copyRows: copy256, transpose: transpose4F64, group: 4, step: 2, micro: []micro64{nil,
			micro1F64AVX2, micro2F64AVX2, micro3F64AVX2, micro4F64AVX2, micro5F64AVX2, micro6F64AVX2}},
	"avx512": {height: 14, width: 16, stride: 16, block: 256, masked: true, shares: 4, dots: []dots64{nil, dots1x4F64AVX512, dots2x4F64AVX512, dots3x4F64AVX512, dots4x4F64AVX512}, dots1: []dots64{nil, dots1x1F64AVX512, dots2x1F64AVX512, dots3x1F64AVX512, dots4x1F64AVX512}, dotWidth: 4,
		vector: 64, copyRows: copy512, transpose: transpose8F64, group: 8, step: 2, micro: []micro64{nil,
			micro1F64AVX512, micro2F64AVX512, micro3F64AVX512, micro4F64AVX512, micro5F64AVX512, micro6F64AVX512, micro7F64AVX512,
			micro8F64AVX512, micro9F64AVX512, micro10F64AVX512, micro11F64AVX512, micro12F64AVX512, micro13F64AVX512, micro14F64AVX512}},
}

// Blocks of k have as many bytes as in the kernels of float32.
var bf16 = kernelBF16{height: 14, width: 32, stride: 16, block: 768, masked: true, pairs: true, shares: 8,
	dots: []dotsBF16{nil, dots1x4AVX512BF16, dots2x4AVX512BF16, dots3x4AVX512BF16, dots4x4AVX512BF16}, dots1: []dotsBF16{nil, dots1x1AVX512BF16, dots2x1AVX512BF16, dots3x1AVX512BF16, dots4x1AVX512BF16}, dotWidth: 4,
	transpose: transpose16BF16, group: 16, step: 4, interleave: []func(dst, src *uint16, ks, h, k int){1: interleave16AVX512BF16, 2: interleave32AVX512BF16}, micro: []microBF16{nil,
		micro1AVX512BF16, micro2AVX512BF16, micro3AVX512BF16, micro4AVX512BF16, micro5AVX512BF16, micro6AVX512BF16, micro7AVX512BF16,
		micro8AVX512BF16, micro9AVX512BF16, micro10AVX512BF16, micro11AVX512BF16, micro12AVX512BF16, micro13AVX512BF16, micro14AVX512BF16}}

// activeBF16 returns the kernel for bfloat16, or nil if the instructions in use have none.
func activeBF16() *kernelBF16 {
	switch {
	case !cpu.X86.HasAVX512BF16 || asm.Active() != "avx512":
		return nil
	case hasTiles() && !withoutTiles:
		return &bf16Tiles
	}
	return &bf16
}

// withoutTiles prevents the use of AMX. Tests set it to test VDPBF16PS on processors that have AMX.
var withoutTiles bool

// bf16Tiles is the kernel for bfloat16 on processors with AMX. It computes all but small products
// with tiles.
var bf16Tiles = func() kernelBF16 {
	kern := bf16
	kern.tiled = tiled
	return kern
}()

var (
	copy256 = []func(dst, src *byte, distance, k int){1: copyRows32AVX2, 2: copyRows64AVX2}
	copy512 = []func(dst, src *byte, distance, k int){1: copyRows64AVX512, 2: copyRows128AVX512}
)

func transpose16F32(dst *float32, ldd int, src *float32, rs, h, k int) {
	rows := rowOffsets(rs, h)
	transpose16F32AVX512(dst, ldd, src, &rows, k)
}

func transpose16BF16(dst *uint16, ldd int, src *uint16, rs, h, k int) {
	rows := rowOffsets(rs, h)
	transpose16AVX512BF16(dst, ldd, src, &rows, k)
}

func transpose8F64(dst *float64, ldd int, src *float64, rs, h, k int) {
	rows := rowOffsets(rs, h)
	transpose8F64AVX512(dst, ldd, src, &rows, k)
}

func transpose8F32(dst *float32, ldd int, src *float32, rs, h, k int) {
	rows := rowOffsets(rs, h)
	transpose8F32AVX2(dst, ldd, src, &rows, k)
}

func transpose4F64(dst *float64, ldd int, src *float64, rs, h, k int) {
	rows := rowOffsets(rs, h)
	transpose4F64AVX2(dst, ldd, src, &rows, k)
}
