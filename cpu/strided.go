package cpu

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/flambeau-go/flambeau/shape"
)

// walk visits positions in row-major order. It keeps the byte offsets of the current position in up
// to three views, because computing them from the position would take a division for each
// dimension.
type walk struct {
	rank    int
	dims, c [shape.MaxRank]int
	steps   [shape.MaxRank][3]int
	at      [3]int // offsets in bytes of the current position in the views
}

// dim adds an inner dimension of n positions. strides holds the views' strides in bytes.
func (w *walk) dim(n int, strides [3]int) {
	if n != 1 {
		w.dims[w.rank], w.steps[w.rank] = n, strides
		w.rank++
	}
}

// seek moves to a position.
func (w *walk) seek(p int) {
	w.at = [3]int{}
	for k := w.rank - 1; k >= 0; k-- {
		c := p % w.dims[k]
		p /= w.dims[k]
		w.c[k] = c
		for i, by := range w.steps[k] {
			w.at[i] += c * by
		}
	}
}

// next moves to the next position.
func (w *walk) next() {
	for k := w.rank - 1; k >= 0; k-- {
		by, n := &w.steps[k], w.dims[k]
		w.at[0], w.at[1], w.at[2] = w.at[0]+by[0], w.at[1]+by[1], w.at[2]+by[2]
		if w.c[k]++; w.c[k] < n {
			return
		}
		w.at[0], w.at[1], w.at[2] = w.at[0]-n*by[0], w.at[1]-n*by[1], w.at[2]-n*by[2]
		w.c[k] = 0
	}
}

// gather copies n elements of the given size, which are stride bytes apart, to contiguous dst.
func gather(dst, src unsafe.Pointer, size, stride, n int) {
	switch {
	case n == 1: // the code below reads two words at a time, so it needs two elements
		writeBits(dst, size, readBits(src, size))
	case stride == size:
		if n*size <= 64 && size == 4 { // for such short runs, calling memmove would take longer
			d, s := at[uint64](dst, n/2), at[uint64](src, n/2)
			for i := range d {
				d[i] = s[i]
			}
			if n%2 == 1 {
				*(*uint32)(unsafe.Add(dst, 4*(n-1))) = *(*uint32)(unsafe.Add(src, 4*(n-1)))
			}
			return
		}
		copy(at[byte](dst, n*size), at[byte](src, n*size))
	case stride == -size && size == 4:
		if !gatherSteps(&backRows, dst, src, n) {
			reverseWords(dst, src, n)
		}
	case stride == 2*size && size == 4:
		if !gatherSteps(&secondRows, dst, src, n) {
			everySecondWord(dst, src, n)
		}
	case stride == 0:
		fillBits(dst, readBits(src, size), size, n)
	case size == 1:
		gatherAs[uint8](dst, src, stride, n)
	case size == 2:
		gatherAs[uint16](dst, src, stride, n)
	case size == 4:
		gatherAs[uint32](dst, src, stride, n)
	default:
		gatherAs[uint64](dst, src, stride, n)
	}
}

// reverseWords gathers 32-bit words in reverse order, two at a time.
func reverseWords(dst, src unsafe.Pointer, n int) {
	low := unsafe.Add(src, -4*(n-1))
	if n%2 == 1 {
		*(*uint32)(unsafe.Add(dst, 4*(n-1))) = *(*uint32)(low)
		if n == 1 {
			return
		}
		low = unsafe.Add(low, 4)
	}
	d, s := at[uint64](dst, n/2), at[uint64](low, n/2)
	for ; len(d) >= 4 && len(s) >= 4; d, s = d[4:], s[:len(s)-4] {
		e := (*[4]uint64)(s[len(s)-4:])
		*(*[4]uint64)(d) = [4]uint64{bits.RotateLeft64(e[3], 32), bits.RotateLeft64(e[2], 32), bits.RotateLeft64(e[1], 32), bits.RotateLeft64(e[0], 32)}
	}
	for i := range d {
		d[i] = bits.RotateLeft64(s[len(s)-1-i], 32)
	}
}

// everySecondWord gathers every second 32-bit word. It writes two words at a time.
func everySecondWord(dst, src unsafe.Pointer, n int) {
	s := at[uint64](src, n-1) // the word after the last element may be outside the memory
	*(*uint32)(unsafe.Add(dst, 4*(n-1))) = *(*uint32)(unsafe.Add(src, 8*(n-1)))
	d := at[uint64](dst, (n-1)/2)
	for ; len(d) >= 4 && len(s) >= 8; d, s = d[4:], s[8:] {
		e := (*[8]uint64)(s)
		*(*[4]uint64)(d) = [4]uint64{e[0]&math.MaxUint32 | e[1]<<32, e[2]&math.MaxUint32 | e[3]<<32, e[4]&math.MaxUint32 | e[5]<<32, e[6]&math.MaxUint32 | e[7]<<32}
	}
	for ; len(d) > 0; d, s = d[1:], s[2:] {
		d[0] = s[0]&math.MaxUint32 | s[1]<<32
	}
	if n%2 == 0 {
		*(*uint32)(unsafe.Add(dst, 4*(n-2))) = uint32(s[0])
	}
}

func gatherAs[T uint8 | uint16 | uint32 | uint64](dst, src unsafe.Pointer, stride, n int) {
	d := at[T](dst, n)
	i := 0
	for ; i+4 <= n; i += 4 {
		a, b := *(*T)(src), *(*T)(unsafe.Add(src, stride))
		src = unsafe.Add(src, 2*stride)
		d[i], d[i+1], d[i+2], d[i+3] = a, b, *(*T)(src), *(*T)(unsafe.Add(src, stride))
		if i+4 < n { // Go allows no pointer past the end of the memory
			src = unsafe.Add(src, 2*stride)
		}
	}
	for ; i < n; i++ {
		d[i] = *(*T)(src)
		if i+1 < n {
			src = unsafe.Add(src, stride)
		}
	}
}

// spread copies n contiguous elements of the given size to places that are stride bytes apart.
func spread(dst, src unsafe.Pointer, size, stride, n int) {
	switch {
	case stride == size:
		copy(at[byte](dst, n*size), at[byte](src, n*size))
	case size == 1:
		spreadAs[uint8](dst, src, stride, n)
	case size == 2:
		spreadAs[uint16](dst, src, stride, n)
	case size == 4:
		spreadAs[uint32](dst, src, stride, n)
	default:
		spreadAs[uint64](dst, src, stride, n)
	}
}

func spreadAs[T uint8 | uint16 | uint32 | uint64](dst, src unsafe.Pointer, stride, n int) {
	s, i := at[T](src, n), 0
	for ; i+4 <= n; i += 4 {
		e := (*[4]T)(s[i:])
		*(*T)(dst), *(*T)(unsafe.Add(dst, stride)) = e[0], e[1]
		dst = unsafe.Add(dst, 2*stride)
		*(*T)(dst), *(*T)(unsafe.Add(dst, stride)) = e[2], e[3]
		if i+4 < n { // Go allows no pointer past the end of the memory
			dst = unsafe.Add(dst, 2*stride)
		}
	}
	for k, v := range s[i:] {
		*(*T)(unsafe.Add(dst, k*stride)) = v
	}
}
