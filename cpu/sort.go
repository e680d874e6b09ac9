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

// sortTask sorts rows. The rows are divided among the workers.
type sortTask struct {
	*device.Argsort
	n, k int // number of elements in a row, and number of sorted elements that the result needs
}

// radixLength is the least number of elements for which radix sort is used. Shorter rows are
// sorted by comparisons.
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
	if t.long(rows, d.workers.size()) {
		for row := range rows {
			d.sortLong(t, row)
		}
		return
	}
	d.workers.parallel(rows, max(1, inlineWork/16/t.n, rows/(8*d.workers.size())), t)
}

// radixBits is the number of upper bits by which words are sorted, if these bits differ enough.
// Radix sort needs two to four passes for them.
const radixBits = 32

// sortSpace is a worker's temporary memory.
type sortSpace struct {
	keys, words, spare []uint64
	low                int // number of lower bits of a word that hold the position
	high               int // number of upper bits of a word that hold the difference of the keys
	cut                int // number of low bits of the differences that words leave out
	counts             [3]digitCounts
	parts              []sortedPart
}

var sortSpaces = sync.Pool{New: func() any { return new(sortSpace) }}

func (t *sortTask) run(lo, hi int) {
	s := sortSpaces.Get().(*sortSpace)
	defer sortSpaces.Put(s)
	few := t.few()
	for row := lo; row < hi; row++ {
		if t.Pick != device.PickFirst && !few {
			*(*int64)(unsafe.Add(pointer(&t.Out), row*t.Out.Strides.At(0)*8)) = int64(s.pickPosition(t, row))
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
		t.write(row, 0, first, s)
	}
}

// few reports whether the result needs so few elements that most of a row need not be sorted.
func (t *sortTask) few() bool { return t.k < t.n/16 }

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
	t.keys(row, 0, s.keys)
	least, most := keyRange(s.keys)
	s.divideWords(least, most)
	s.fillWords(least, 0, t.n)
}

// keyRange returns the least and the greatest key.
func keyRange(keys []uint64) (least, most uint64) {
	least, most = keys[0], keys[0]
	for _, key := range keys {
		least, most = min(least, key), max(most, key)
	}
	return least, most
}

// divideWords sets the numbers of bits of a word that hold the position (low) and the difference of
// the keys (high). It also sets the number of low bits of the difference that words leave out
// (cut).
func (s *sortSpace) divideWords(least, most uint64) {
	s.low, s.high = bits.Len(uint(len(s.keys)-1)), bits.Len64(most-least)
	s.cut = max(0, s.low+s.high-64)
	if len(s.keys) >= radixLength && s.high > radixBits && s.upperBitsDiffer(least) {
		s.cut = max(s.cut, s.high-radixBits)
	}
	s.high -= s.cut
}

// fillWords sets the words of the elements lo to hi-1.
func (s *sortSpace) fillWords(least uint64, lo, hi int) {
	cut, low, words := s.cut&63, s.low&63, s.words[lo:hi]
	for i, key := range s.keys[lo:hi] {
		words[i] = (key-least)>>cut<<low | uint64(lo+i)
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
	if len(x) < radixLength || int64(len(x)) > math.MaxUint32 {
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
	low := s.low & 63
	for i := 1; i < len(x); i++ {
		if x[i]>>low != x[i-1]>>low {
			continue
		}
		first := i - 1
		for i < len(x) && x[i]>>low == x[first]>>low {
			i++
		}
		slices.SortFunc(x[first:i], func(a, b uint64) int {
			if s.less(a, b) {
				return -1
			}
			return 1
		})
	}
}

// radix sorts the words. It moves them by one digit after the other, the highest digit last. A
// digit is some of the upper bits. Words with equal upper bits keep their order, which is the order
// of the positions.
//
// If hardly any words have the same highest digit, radix moves the words by this digit only. If
// hardly any words have the same two highest digits, radix moves the words by these two digits
// only. In both cases few words are then out of order, and all are near their places. settle
// therefore sorts them.
func (s *sortSpace) radix() []uint64 {
	from, n := s.words, len(s.words)
	if s.high == 0 {
		return from
	}
	s.spare = resized(s.spare, n)
	to, width := s.spare, min(s.high, longDigit, max(shortDigit, bits.Len(uint(n-1))))
	shift := func(digit int) int { return s.low + max(0, s.high-(digit+1)*width) } // digit 0 is the highest
	mask := uint64(1)<<width - 1
	pairs := s.counts[0].count(from, shift(0), mask)
	digits := (s.high + width - 1) / width
	if digits > 1 && pairs <= n/2 {
		digits = 1
	} else if digits > 1 {
		pairs = max(pairs, s.counts[1].count(from, shift(1), mask))
		if digits > 2 && pairs>>width <= n/8 {
			digits = 2
		}
	}
	for d := digits - 1; d >= 0; d-- {
		place, shift := &s.counts[min(d, 2)], shift(d)
		if d > 1 {
			place.count(from, shift, mask)
		}
		if int(place[from[0]>>(shift&63)&mask]) == n { // all words have the same digit
			continue
		}
		place.sum(mask)
		place.move(to, from, shift, mask)
		from, to = to, from
	}
	if digits*width < s.high {
		settle(from)
	}
	return from
}

// digitCounts has an entry for each value of a digit. The entry is first the number of words with
// this value, and later the place of the next such word.
type digitCounts [1 << longDigit]uint32

// count counts the words by their digit, which is in the given bits. It returns the number of pairs
// of words with the same digit.
func (c *digitCounts) count(words []uint64, shift int, mask uint64) (pairs int) {
	clear(c[:mask+1])
	mask &= uint64(len(c)) - 1
	for _, w := range words {
		d := w >> (shift & 63) & mask
		k := c[d]
		c[d] = k + 1
		pairs += int(k)
	}
	return pairs
}

// sum replaces each number by the sum of those before it.
func (c *digitCounts) sum(mask uint64) {
	sum := uint32(0)
	for v, n := range c[:mask+1] {
		c[v], sum = sum, sum+n
	}
}

// move moves words to their places.
func (c *digitCounts) move(to, from []uint64, shift int, mask uint64) {
	mask &= uint64(len(c)) - 1
	for _, w := range from {
		d := w >> (shift & 63) & mask
		p := c[d]
		c[d] = p + 1
		to[p] = w
	}
}

// settle sorts words that are near their places.
func settle(x []uint64) {
	steps := 8 * len(x)
	for i := 1; i < len(x); i++ {
		w, j := x[i], i
		for ; j > 0 && x[j-1] > w; j-- {
			x[j] = x[j-1]
		}
		x[j] = w
		if steps -= i - j; steps < 0 { // they are not near
			slices.Sort(x)
			return
		}
	}
}

// keys sets dst to the keys of the elements of a row, from element number first on.
func (t *sortTask) keys(row, first int, dst []uint64) {
	size := t.X.Type.Size()
	stride := t.X.Strides.At(1) * size
	p := unsafe.Add(pointer(&t.X), row*t.X.Strides.At(0)*size+first*stride)
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
