package cpu

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// The key of an element is an unsigned integer with the order of the elements. Keys of 32 bits are
// sorted as the upper half of a word whose lower half is the position. Larger keys are sorted as
// pairs of key and position.

// sortTask sorts rows; a unit of work is a row.
type sortTask struct {
	*device.Argsort
	n, k int
}

// radixLength is the number of elements from which radix sort replaces comparisons.
const radixLength = 512

func (d *Device) argsort(o *device.Argsort) {
	if o.Out.Size() == 0 {
		return
	}
	t := &sortTask{o, o.X.Shape.At(1), o.Out.Shape.At(1)}
	rows := o.X.Shape.At(0)
	d.crew.parallel(rows, max(1, inlineWork/16/t.n, rows/(8*d.crew.size())), t)
}

// sortPair is a 64-bit key with its position.
type sortPair struct {
	key uint64
	at  int64
}

// sortSpace is a worker's memory.
type sortSpace struct {
	words, spareWords []uint64
	pairs, sparePairs []sortPair
}

var sortSpaces = sync.Pool{New: func() any { return new(sortSpace) }}

func (t *sortTask) run(lo, hi int) {
	s := sortSpaces.Get().(*sortSpace)
	defer sortSpaces.Put(s)
	packed := t.X.Type != dtype.F64 && t.X.Type != dtype.I64 && int64(t.n) <= math.MaxUint32
	for row := lo; row < hi; row++ {
		out := unsafe.Add(pointer(&t.Out), row*t.Out.Strides.At(0)*8)
		stride := t.Out.Strides.At(1) * 8
		if packed && t.X.Type == dtype.F32 && t.X.Strides.At(1) == 1 && t.k < t.n/16 {
			s.words = slices.Grow(s.words[:0], t.k)[:t.k]
			t.leastFloats(row, s.words)
			for i, w := range s.words {
				*(*int64)(unsafe.Add(out, i*stride)) = int64(uint32(w))
			}
			continue
		}
		if packed {
			s.words = slices.Grow(s.words[:0], t.n)[:t.n]
			t.keys(row, s.words)
			for i, key := range s.words {
				s.words[i] = key<<32 | uint64(i)
			}
			first := smallest(s.words, &s.spareWords, t.k, slices.Sort[[]uint64], cmp.Compare[uint64], func(w uint64, shift int) uint8 { return uint8(w >> (32 + shift)) }, 32)
			for i, w := range first {
				*(*int64)(unsafe.Add(out, i*stride)) = int64(uint32(w))
			}
			continue
		}
		s.pairs = slices.Grow(s.pairs[:0], t.n)[:t.n]
		s.words = slices.Grow(s.words[:0], t.n)[:t.n]
		t.keys(row, s.words)
		for i, key := range s.words {
			s.pairs[i] = sortPair{key, int64(i)}
		}
		first := smallest(s.pairs, &s.sparePairs, t.k, sortPairs, comparePairs, func(p sortPair, shift int) uint8 { return uint8(p.key >> shift) }, 64)
		for i, p := range first {
			*(*int64)(unsafe.Add(out, i*stride)) = p.at
		}
	}
}

func comparePairs(a, b sortPair) int {
	if c := cmp.Compare(a.key, b.key); c != 0 {
		return c
	}
	return cmp.Compare(a.at, b.at)
}

func sortPairs(x []sortPair) { slices.SortFunc(x, comparePairs) }

// keys sets dst to the keys of a row.
func (t *sortTask) keys(row int, dst []uint64) {
	size := t.X.Type.Size()
	stride := t.X.Strides.At(1) * size
	p := unsafe.Add(pointer(&t.X), row*t.X.Strides.At(0)*size)
	switch t.X.Type {
	case dtype.F32:
		keysOf(dst, p, stride, t.Descending, func(v float32) uint64 { return uint64(key32(v)) }, math.MaxUint32)
	case dtype.F16:
		keysOf(dst, p, stride, t.Descending, func(v dtype.Float16) uint64 { return uint64(key32(v.Float32())) }, math.MaxUint32)
	case dtype.BF16:
		keysOf(dst, p, stride, t.Descending, func(v dtype.BFloat16) uint64 { return uint64(key32(v.Float32())) }, math.MaxUint32)
	case dtype.F64:
		keysOf(dst, p, stride, t.Descending, key64, math.MaxUint64)
	case dtype.I64:
		keysOf(dst, p, stride, t.Descending, func(v int64) uint64 { return uint64(v) ^ 1<<63 }, math.MaxUint64)
	case dtype.I32:
		keysOf(dst, p, stride, t.Descending, func(v int32) uint64 { return uint64(uint32(v) ^ 1<<31) }, math.MaxUint32)
	case dtype.I16:
		keysOf(dst, p, stride, t.Descending, func(v int16) uint64 { return uint64(int64(v) + 1<<15) }, math.MaxUint16)
	case dtype.I8:
		keysOf(dst, p, stride, t.Descending, func(v int8) uint64 { return uint64(int64(v) + 1<<7) }, math.MaxUint8)
	default: // U8, Bool
		keysOf(dst, p, stride, t.Descending, func(v uint8) uint64 { return uint64(v) }, math.MaxUint8)
	}
}

func keysOf[T any](dst []uint64, p unsafe.Pointer, stride int, descending bool, key func(v T) uint64, most uint64) {
	var flip uint64
	if descending {
		flip = most
	}
	for i := range dst {
		dst[i] = key(*(*T)(unsafe.Add(p, i*stride))) ^ flip
	}
}

// key32 returns the key of a float32: all NaN have the same, greatest key, and -0 has the key of 0.
func key32(v float32) uint32 {
	switch {
	case v != v:
		return math.MaxUint32
	case v == 0:
		return 1 << 31
	}
	if b := math.Float32bits(v); int32(b) >= 0 {
		return b | 1<<31
	} else {
		return ^b
	}
}

// key64 returns the key of a float64.
func key64(v float64) uint64 {
	switch {
	case v != v:
		return math.MaxUint64
	case v == 0:
		return 1 << 63
	}
	if b := math.Float64bits(v); int64(b) >= 0 {
		return b | 1<<63
	} else {
		return ^b
	}
}

// smallest returns the k smallest elements of x in order; it changes x. digit returns eight bits of
// a key, and bits is the length of a key.
func smallest[T any](x []T, spare *[]T, k int, order func(x []T), compare func(a, b T) int, digit func(v T, shift int) uint8, bits int) []T {
	if k < len(x)/16 {
		return least(x, k, order, compare)
	}
	if len(x) < radixLength {
		order(x)
		return x[:k]
	}
	from, to := x, slices.Grow((*spare)[:0], len(x))[:len(x)]
	*spare = to
	for shift := 0; shift < bits; shift += 8 {
		var place [256]int
		for _, v := range from {
			place[digit(v, shift)]++
		}
		sum, one := 0, false
		for d, n := range place {
			one = one || n == len(from)
			place[d], sum = sum, sum+n
		}
		if one { // all elements have this digit
			continue
		}
		for _, v := range from {
			d := digit(v, shift)
			to[place[d]] = v
			place[d]++
		}
		from, to = to, from
	}
	return from[:k]
}

// leastFloats sets heap to the smallest words of a row of float32, in order. Nearly all elements
// are greater than the heap's maximum, which one float comparison finds. If a NaN is involved, keys
// are compared.
func (t *sortTask) leastFloats(row int, heap []uint64) {
	x := at[float32](unsafe.Add(pointer(&t.X), row*t.X.Strides.At(0)*4), t.n)
	var flip uint32
	if t.Descending {
		flip = math.MaxUint32
	}
	word := func(i int) uint64 { return uint64(key32(x[i])^flip)<<32 | uint64(i) }
	for i := range heap {
		heap[i] = word(i)
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		siftWords(heap, i)
	}
	root := x[uint32(heap[0])]
	for i := len(heap); i < len(x); i++ {
		if v := x[i]; t.Descending && v <= root || !t.Descending && v >= root {
			continue
		}
		if w := word(i); w < heap[0] {
			heap[0] = w
			siftWords(heap, 0)
			root = x[uint32(heap[0])]
		}
	}
	slices.Sort(heap)
}

// siftWords moves element i of a heap, whose root is the maximum, down to its place.
func siftWords(heap []uint64, i int) {
	for {
		c := 2*i + 1
		if c >= len(heap) {
			return
		}
		if c+1 < len(heap) && heap[c+1] > heap[c] {
			c++
		}
		if heap[c] <= heap[i] {
			return
		}
		heap[c], heap[i] = heap[i], heap[c]
		i = c
	}
}

// least returns the k smallest elements of x in order. It uses a heap of k elements, whose root is
// the maximum.
func least[T any](x []T, k int, order func(x []T), compare func(a, b T) int) []T {
	heap := x[:k]
	down := func(i int) {
		for {
			c := 2*i + 1
			if c >= k {
				return
			}
			if c+1 < k && compare(heap[c+1], heap[c]) > 0 {
				c++
			}
			if compare(heap[c], heap[i]) <= 0 {
				return
			}
			heap[c], heap[i] = heap[i], heap[c]
			i = c
		}
	}
	for i := k/2 - 1; i >= 0; i-- {
		down(i)
	}
	for _, v := range x[k:] {
		if compare(v, heap[0]) < 0 {
			heap[0] = v
			down(0)
		}
	}
	order(heap)
	return heap
}
