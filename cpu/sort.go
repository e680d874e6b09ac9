package cpu

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
)

// The key of an element is an unsigned integer. Keys have the same order as the elements. A row is
// sorted as a list of words, one for each element. The upper bits of a word hold the difference
// between the key and the row's least key. The lower bits hold the position. If the differences
// have too many bits for a word, words leave out their lowest bits. Elements whose words have equal
// upper bits are then compared by their keys.

// sortTask sorts rows. The workers share the rows.
type sortTask struct {
	*device.Argsort
	n, k int // number of elements in a row, and number of sorted elements that the result needs
}

// radixLength is the least number of elements for which radix sort is used and not a sort by
// comparisons.
const radixLength = 128

func (d *Device) argsort(o *device.Argsort) {
	if o.Out.Size() == 0 {
		return
	}
	t := &sortTask{o, o.X.Shape.At(1), o.Out.Shape.At(1)}
	switch o.Pick {
	case device.PickRank:
		t.k += o.Rank
	case device.PickMedian, device.PickNanMedian, device.PickMode:
		t.k = t.n
	}
	rows := o.X.Shape.At(0)
	d.workers.parallel(rows, max(1, inlineWork/16/t.n, rows/(8*d.workers.size())), t)
}

// radixBits is the number of upper bits by which words are sorted, if these bits differ enough.
// Radix sort needs four passes for them.
const radixBits = 32

// sortSpace is a worker's temporary memory.
type sortSpace struct {
	keys, words, spare []uint64
	low                int // number of lower bits of a word that hold the position
	high               int // number of upper bits of a word that hold the difference of the keys
	cut                int // number of low bits of the differences that words leave out
}

var sortSpaces = sync.Pool{New: func() any { return new(sortSpace) }}

func (t *sortTask) run(lo, hi int) {
	s := sortSpaces.Get().(*sortSpace)
	defer sortSpaces.Put(s)
	few := t.k < t.n/16
	for row := lo; row < hi; row++ {
		out, stride := unsafe.Add(pointer(&t.Out), row*t.Out.Strides.At(0)*8), t.Out.Strides.At(1)*8
		if t.Pick != device.PickFirst && !few {
			*(*int64)(out) = int64(s.pickPosition(t, row))
			continue
		}
		var first []uint64
		if few && t.X.Type == dtype.F32 && t.X.Strides.At(1) == 1 && int64(t.n) <= math.MaxUint32 {
			first = t.smallestFloats(row, s)
		} else if s.pack(t, row); few {
			first = s.least(t.k)
		} else {
			first = s.sorted()[:t.k]
		}
		if t.Pick != device.PickFirst {
			first = first[t.k-1:]
		}
		for i, w := range first {
			*(*int64)(unsafe.Add(out, i*stride)) = int64(s.position(w))
		}
	}
}

func (s *sortSpace) position(w uint64) uint64 { return w & (1<<s.low - 1) }

// less reports whether the element of word a comes before the element of word b.
func (s *sortSpace) less(a, b uint64) bool {
	if s.cut > 0 && a>>s.low == b>>s.low {
		if x, y := s.keys[s.position(a)], s.keys[s.position(b)]; x != y {
			return x < y
		}
	}
	return a < b
}

// pack fills s.words with the words of a row.
func (s *sortSpace) pack(t *sortTask, row int) {
	s.keys, s.words = resized(s.keys, t.n), resized(s.words, t.n)
	t.keys(row, s.keys)
	least, most := s.keys[0], s.keys[0]
	for _, key := range s.keys {
		least, most = min(least, key), max(most, key)
	}
	s.low, s.high = bits.Len(uint(t.n-1)), bits.Len64(most-least)
	s.cut = max(0, s.low+s.high-64)
	if t.n >= radixLength && s.high > radixBits && s.upperBitsDiffer(least) {
		s.cut = max(s.cut, s.high-radixBits)
	}
	s.high -= s.cut
	for i, key := range s.keys {
		s.words[i] = (key-least)>>s.cut<<s.low | uint64(i)
	}
}

// upperBitsDiffer reports whether, in a sample, the upper bits of nearly all keys differ. Words may
// then leave out the lower bits, because few words have equal upper bits.
func (s *sortSpace) upperBitsDiffer(least uint64) bool {
	var sample [64]uint64
	step := len(s.keys) / len(sample)
	for i := range sample {
		sample[i] = (s.keys[i*step] - least) >> (s.high - radixBits)
	}
	slices.Sort(sample[:])
	differ := 1
	for i := range len(sample) - 1 {
		if sample[i] != sample[i+1] {
			differ++
		}
	}
	return differ > len(sample)*9/10
}

func resized(x []uint64, n int) []uint64 { return slices.Grow(x[:0], n)[:n] }

// sorted returns the words in sorted order.
func (s *sortSpace) sorted() []uint64 {
	x := s.words
	if len(x) < radixLength {
		slices.Sort(x)
	} else {
		x = s.radix()
	}
	s.sortEqualWords(x)
	return x
}

// sortEqualWords sorts words that have equal upper bits by their keys.
func (s *sortSpace) sortEqualWords(x []uint64) {
	if s.cut == 0 {
		return
	}
	for i := 0; i < len(x); {
		j := i + 1
		for j < len(x) && x[j]>>s.low == x[i]>>s.low {
			j++
		}
		if j-i > 1 {
			slices.SortFunc(x[i:j], func(a, b uint64) int {
				if s.less(a, b) {
					return -1
				}
				return 1
			})
		}
		i = j
	}
}

// radix sorts the words by their upper bits. It sorts eight bits at a time, from the lowest bits
// on. Words with equal upper bits keep their order, which is the order of the positions.
func (s *sortSpace) radix() []uint64 {
	s.spare = resized(s.spare, len(s.words))
	from, to := s.words, s.spare
	var counts [8][256]int
	passes := (s.high + 7) / 8
	for _, w := range from {
		w >>= s.low
		for p := range passes {
			counts[p&7][uint8(w)]++
			w >>= 8
		}
	}
	for p := range passes {
		place, shift := &counts[p], s.low+8*p
		if place[uint8(from[0]>>shift)] == len(from) { // these eight bits are equal in all words
			continue
		}
		sum := 0
		for d, n := range place {
			place[d], sum = sum, sum+n
		}
		for _, w := range from {
			d := uint8(w >> shift)
			to[place[d]] = w
			place[d]++
		}
		from, to = to, from
	}
	return from
}

// keys sets dst to the keys of the elements of a row.
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
	default: // U8 or Bool
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

// key32 returns the key of a float32. All NaN have the same key, the greatest one. -0 has the key
// of +0.
func key32(v float32) uint32 {
	if v != v {
		return math.MaxUint32
	}
	b := math.Float32bits(v + 0) // changes -0 to 0
	return b ^ (uint32(int32(b)>>31) | 1<<31)
}

// key64 returns the key of a float64.
func key64(v float64) uint64 {
	if v != v {
		return math.MaxUint64
	}
	b := math.Float64bits(v + 0)
	return b ^ (uint64(int64(b)>>63) | 1<<63)
}

// smallestFloats returns the words of the smallest elements of a row of float32, in order. It keeps
// the smallest elements so far in a heap. One comparison of floats with the heap's maximum suffices
// to skip an element, and nearly all elements are skipped. If an element is NaN, keys are compared.
func (t *sortTask) smallestFloats(row int, s *sortSpace) []uint64 {
	x := at[float32](unsafe.Add(pointer(&t.X), row*t.X.Strides.At(0)*4), t.n)
	var flip uint32
	if t.Descending {
		flip = math.MaxUint32
	}
	s.low, s.cut = 32, 0
	word := func(i int) uint64 { return uint64(key32(x[i])^flip)<<32 | uint64(i) }
	s.words = resized(s.words, t.k)
	heap := s.words
	for i := range heap {
		heap[i] = word(i)
	}
	s.heapify(heap)
	root := x[uint32(heap[0])]
	for i := len(heap); i < len(x); i++ {
		if v := x[i]; t.Descending && v <= root || !t.Descending && v >= root {
			continue
		}
		if w := word(i); w < heap[0] {
			heap[0] = w
			s.sift(heap, 0)
			root = x[uint32(heap[0])]
		}
	}
	slices.Sort(heap)
	return heap
}

// least returns the k smallest words, in order. It uses a heap of k words whose root is the
// maximum.
func (s *sortSpace) least(k int) []uint64 {
	heap := s.words[:k]
	s.heapify(heap)
	for _, w := range s.words[k:] {
		if w>>s.low <= heap[0]>>s.low && s.less(w, heap[0]) {
			heap[0] = w
			s.sift(heap, 0)
		}
	}
	slices.Sort(heap) // a heap is not in the order of the positions, which radix sort would need
	s.sortEqualWords(heap)
	return heap
}

func (s *sortSpace) heapify(heap []uint64) {
	for i := len(heap)/2 - 1; i >= 0; i-- {
		s.sift(heap, i)
	}
}

// sift moves element i of a heap down to where it belongs. The root of the heap is its maximum.
func (s *sortSpace) sift(heap []uint64, i int) {
	for {
		c := 2*i + 1
		if c >= len(heap) {
			return
		}
		if c+1 < len(heap) && s.less(heap[c], heap[c+1]) {
			c++
		}
		if !s.less(heap[i], heap[c]) {
			return
		}
		heap[c], heap[i] = heap[i], heap[c]
		i = c
	}
}
