//go:build !noasm

package gemm

import (
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/cpu/internal/asm"
	"golang.org/x/sys/cpu"
)

// int8State is the part of a task's temporary memory that only the tiles of AMX need.
type int8State struct{ call tileCall }

// These are the kernels for int8. They use VPMADDWD of AVX2 on elements that are extended to int16,
// VPDPBUSD of AVX512_VNNI, and TDPBSSD of AMX. VPDPBUSD multiplies unsigned numbers by signed ones.
var (
	avx2Int8  = int8Kernel{multiply: multiplyInt8AVX2}
	vnniInt8  = int8Kernel{multiply: multiplyInt8VNNI, flip: 0x80, pack: packInt8AVX512, sum: sumInt8VNNI, columns: columnsInt8}
	tilesInt8 = int8Kernel{multiply: multiplyInt8Tiles, inPlace: true, pack: packInt8AVX512}
)

// activeInt8 returns the kernel for a product with m rows and k elements along k.
func activeInt8(m, k int) *int8Kernel {
	switch asm.Active() {
	case "avx512":
		switch {
		case m >= tiledRows && k >= tiledDepth && hasInt8Tiles() && !withoutTiles:
			return &tilesInt8
		case cpu.X86.HasAVX512VNNI:
			return &vnniInt8
		}
		return &avx2Int8
	case "avx2":
		return &avx2Int8
	}
	return &genericInt8
}

// hasInt8Tiles reports whether this process may multiply int8 by the tiles of AMX. It asks the
// system only once.
var hasInt8Tiles = sync.OnceValue(func() bool {
	x := &cpu.X86
	return x.HasAMXTile && x.HasAMXInt8 && permitTiles()
})

// quadsInt8AVX512 packs whole quads of up to 32 columns, whose elements are neighbours in a row of
// the matrix. steps is the number of quads of a column, and rs is the distance between rows of
// src in elements. mask has a bit for each column. Each element of dst is combined with flip by
// exclusive or.
//
//go:noescape
func quadsInt8AVX512(dst, src *int8, rs, steps int, mask uint32, flip uint32)

// dotsInt8VNNI computes up to 32 columns and the given number of rows of C. groups, 1 to 3, is the
// number of groups of four rows of A, and rows is at most 4·groups. The sums of row r begin with
// begin[r], and are added to C if add is 1.
//
//go:noescape
func dotsInt8VNNI(groups, steps int, a *int8, aRow int, b *int8, begin, c *int32, cRow, rows int, mask uint32, add uint32)

// dotsInt8AVX2 computes four rows and eight columns: out[r*8+j] = Σ a[r*aRow+p]·b[p/4*128+4*j+p%4].
//
//go:noescape
func dotsInt8AVX2(steps int, a *int8, aRow int, b *int8, out *int32)

// totalInt8VNNI returns the sum of chunks·64 elements.
//
//go:noescape
func totalInt8VNNI(x *int8, chunks int) int32

// columnsInt8VNNI computes out[j] = begin + Σ a[p]·(b[j*cs+p] + 128) for four columns. The sum is
// over chunks of 64 elements, and then over the last elements that mask selects. a has a further
// chunk for these.
//
//go:noescape
func columnsInt8VNNI(a *int8, chunks int, mask uint64, b *int8, cs int, begin int32, out *int32)

func columnsInt8(a, b []int8, k, cs int, begin int32, out *[4]int32) {
	columnsInt8VNNI(&a[0], k/64, 1<<(k%64)-1, &b[0], cs, begin, &out[0])
}

func sumInt8VNNI(x []int8) int32 { return totalInt8VNNI(&x[0], len(x)/64) }

// packInt8AVX512 packs quads if the elements of B are neighbours along rows, or along columns that
// are a multiple of four elements apart. Otherwise it returns false.
func packInt8AVX512(dst, src []int8, rs, cs, w, k int, flip byte) bool {
	steps := k / 4
	switch {
	case cs == 1:
		quadsInt8AVX512(&dst[0], &src[0], rs, steps, uint32(1<<w-1), uint32(flip)*0x01010101)
		return true
	case rs == 1 && cs%4 == 0: // a quad is one word of a column, so transpose words
		whole := steps / 4 * 4
		for c := 0; c < w && whole > 0; c += 16 {
			transpose16F32((*float32)(unsafe.Pointer(&dst[4*c])), int8Width, (*float32)(unsafe.Pointer(&src[c*cs])), cs/4, min(16, w-c), whole)
		}
		if flip != 0 {
			words := unsafe.Slice((*uint64)(unsafe.Pointer(&dst[0])), whole*int8Width/2)
			for i := range words {
				words[i] ^= uint64(flip) * 0x0101010101010101
			}
		}
		packQuads(dst, src, rs, cs, w, whole, steps*4, flip)
		return true
	}
	return false
}

func multiplyInt8VNNI(l *int8Local, h, w, k int, c []int32, cRow int, add bool) {
	adds := uint32(0)
	if add {
		adds = 1
	}
	for r := 0; r < h; r += int8Height {
		rows := min(int8Height, h-r)
		dotsInt8VNNI(ceil(rows, 4), ceil(k, 4), &l.a[r*l.aRow], l.aRow, &l.panel[0], &l.begin[r], &c[r*cRow], 4*cRow, rows, uint32(1<<w-1), adds)
	}
}

func multiplyInt8AVX2(l *int8Local, h, w, k int, c []int32, cRow int, add bool) {
	for r := 0; r < h; r += 4 {
		for q := 0; q < w; q += 8 {
			dotsInt8AVX2(ceil(k, 4), &l.a[r*l.aRow], l.aRow, &l.panel[4*q], &l.few[0])
			for i := range min(4, h-r) {
				to, from := c[(r+i)*cRow+q:][:min(8, w-q)], l.few[8*i:]
				for x := range to {
					if add {
						to[x] += from[x]
					} else {
						to[x] = from[x]
					}
				}
			}
		}
	}
}

func multiplyInt8Tiles(l *int8Local, h, w, k int, c []int32, cRow int, add bool) {
	t := &l.call
	padded := l.panel[ceil(k, 4)*4*int8Width : ceil(k, int8Step)*int8Step*int8Width]
	clear(padded)
	steps, ends := k/int8Step, k%int8Step > 0
	inPlace := len(l.packed) == 0 || &l.a[0] != &l.packed[0]
	if ends && !inPlace {
		steps, ends = steps+1, false
	}
	whole := h - h%tileSize
	for r := 0; r < h; {
		height, panels := tileSize, whole/tileSize
		if r == whole {
			height, panels = h-whole, 1
		}
		t.shape(height, w)
		t.panels, t.steps = panels, steps
		t.a, t.aRow, t.aStep, t.aPanel = unsafe.Pointer(&l.a[r*l.aRow]), l.aRow, int8Step, tileSize*l.aRow
		t.b, t.tail = unsafe.Pointer(&l.panel[0]), nil
		if ends {
			t.tail = unsafe.Pointer(&l.tail[r*int8Step])
		}
		t.c, t.cRow, t.cStep = unsafe.Pointer(&c[r*cRow]), 4*cRow, 4*cRow*tileSize
		t.from, t.fromRow, t.low = nil, 0, nil
		if add {
			t.from, t.fromRow = t.c, t.cRow
		}
		t.aAt, t.tailAt, t.fromAt, t.cAt, t.lowAt = 0, 0, 0, 0, 0
		tilesDotInt8(t)
		r += height * panels
	}
	t.a, t.tail, t.b, t.from, t.c = nil, nil, nil, nil, nil
}
