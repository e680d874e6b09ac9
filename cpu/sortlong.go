package cpu

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/flambeau-go/flambeau/device"
)

// These constants are for sorting one long row by all workers.
const (
	longRow  = 32 << 10 // least number of elements
	sortPart = 8 << 10  // least number of elements of a part of the row
	// number of elements of a list, if the keys are spread evenly; a list of this size stays in
	// the first-level cache
	sortList = 1 << 10
)

// long reports whether all workers sort a row together.
func (t *sortTask) long(rows, workers int) bool {
	return t.Pick == device.PickFirst && !t.few() && t.n >= longRow && int64(t.n) <= math.MaxUint32 && rows < workers
}

// sortLong sorts a row. First the workers move the words of each part of the row to lists. All
// words of a list have the same highest digit. Then they sort the lists.
func (d *Device) sortLong(t *sortTask, row int) {
	s := sortSpaces.Get().(*sortSpace)
	defer sortSpaces.Put(s)
	s.keys, s.words, s.spare = resized(s.keys, t.n), resized(s.words, t.n), resized(s.spare, t.n)
	parts := min(t.n/sortPart, 4*d.workers.size())
	if len(s.parts) < parts {
		s.parts = make([]sortedPart, parts)
	}
	inParts := func(f func(p *sortedPart, lo, hi int)) {
		d.workers.parallel(parts, 1, each(func(i int) { f(&s.parts[i], t.n*i/parts, t.n*(i+1)/parts) }))
	}
	inParts(func(p *sortedPart, lo, hi int) {
		t.keys(row, lo, s.keys[lo:hi])
		p.least, p.most = keyRange(s.keys[lo:hi])
	})
	least, most := s.parts[0].least, s.parts[0].most
	for i := range s.parts[:parts] {
		least, most = min(least, s.parts[i].least), max(most, s.parts[i].most)
	}
	s.divideWords(least, most)

	width := min(s.high, longDigit, bits.Len(uint(t.n/sortList)))
	shift, mask := s.low+s.high-width, uint64(1)<<width-1
	inParts(func(p *sortedPart, lo, hi int) {
		s.fillWords(least, lo, hi)
		p.places.count(s.words[lo:hi], shift, mask)
	})
	sum := uint32(0)
	for v := range mask + 1 {
		for i := range s.parts[:parts] {
			c := &s.parts[i].places
			c[v], sum = sum, sum+c[v]
		}
	}
	inParts(func(p *sortedPart, lo, hi int) { p.places.move(s.spare, s.words[lo:hi], shift, mask) })

	ends := &s.parts[parts-1].places
	lists := int(mask) + 1
	d.workers.parallel(lists, max(1, lists/(16*d.workers.size())), each(func(v int) {
		lo, hi := 0, int(ends[v])
		if v > 0 {
			lo = int(ends[v-1])
		}
		if hi = min(hi, t.k); lo < hi {
			s.sortList(t, row, lo, int(ends[v]), width)
		}
	}))
}

// sortedPart is the state of a part of a long row.
type sortedPart struct {
	least, most uint64
	places      digitCounts
}

// sortList sorts a list of words and stores their positions. All its words have the same upper
// bits; the argument equal is the number of these bits.
func (s *sortSpace) sortList(t *sortTask, row, lo, hi, equal int) {
	l := sortSpaces.Get().(*sortSpace)
	keys, words, spare := l.keys, l.words, l.spare
	l.keys, l.words, l.spare = s.keys, s.spare[lo:hi:hi], s.words[lo:hi:hi]
	l.low, l.high, l.cut = s.low, s.high-equal, s.cut
	t.write(row, lo, l.sorted()[:min(hi, t.k)-lo], l)
	l.keys, l.words, l.spare = keys, words, spare
	sortSpaces.Put(l)
}

// write stores the positions of words in a row of results, from the result with number first on.
func (t *sortTask) write(row, first int, words []uint64, s *sortSpace) {
	stride := t.Out.Strides.At(1) * 8
	out := unsafe.Add(pointer(&t.Out), row*t.Out.Strides.At(0)*8+first*stride)
	mask := uint64(1)<<s.low - 1
	for i, w := range words {
		*(*int64)(unsafe.Add(out, i*stride)) = int64(w & mask)
	}
}
