package cpu

import (
	"math"
	"math/bits"
	"slices"
	"sort"

	"github.com/flambeau-go/flambeau/device"
)

// pickPosition returns the position of the element that t.Pick selects in a row.
func (s *sortSpace) pickPosition(t *sortTask, row int) uint64 {
	if t.Pick == device.PickMode {
		s.pack(t, row)
		return s.mode(t)
	}
	s.keys = resized(s.keys, t.n)
	t.keys(row, 0, s.keys)
	switch rank := t.Rank; t.Pick {
	case device.PickMedian:
		if rank = (t.n - 1) / 2; s.nans(t) > 0 {
			rank = t.n - s.nans(t) // all NaN come after the numbers
		}
		return s.nth(rank)
	case device.PickNanMedian:
		return s.nth(max(0, t.n-1-s.nans(t)) / 2)
	default:
		return s.nth(rank)
	}
}

// nanKey returns the key of NaN in the row's type. It returns false if the type has no NaN.
func (t *sortTask) nanKey() (uint64, bool) {
	if t.X.Type.Size() == 8 {
		return math.MaxUint64, t.X.Type.IsFloat()
	}
	return math.MaxUint32, t.X.Type.IsFloat()
}

// nans returns the number of NaN in the row.
func (s *sortSpace) nans(t *sortTask) (n int) {
	if nan, ok := t.nanKey(); ok {
		for _, key := range s.keys {
			if key == nan {
				n++
			}
		}
	}
	return n
}

// These constants are for the selection of one element of the sorted row, without sorting it.
const (
	longDigit = 11 // number of bits by which keys are counted at a time
	// the same number for a short row, where going over 2¹¹ counters would take long
	shortDigit = 8
	shortRow   = 4 << 10
	fewKeys    = 32 // up to this number of keys, sorting them is faster
)

// nth returns the position of element k of the sorted row. It counts the keys by their highest bits
// (a digit), which shows the digit of the wanted key. It then counts the keys that have this digit
// by the bits below, and so on. Partitioning, as in quickselect, would have branches that the
// processor cannot predict.
func (s *sortSpace) nth(k int) uint64 {
	least, most := keyRange(s.keys)
	digit := longDigit
	if len(s.keys) < shortRow {
		digit = shortDigit
	}
	s.spare = resized(s.spare, len(s.keys)+1)
	x, base, y := s.keys, least, s.spare
	for shift := bits.Len64(most - least); shift > 0 && (len(x) > fewKeys || len(x) == len(s.keys)); {
		shift = max(0, shift-digit)
		var counts [1 << longDigit]uint32
		for _, key := range x {
			counts[(key-base)>>(shift&63)&(1<<longDigit-1)]++
		}
		d := uint64(0)
		for ; int(counts[d]) <= k; d++ {
			k -= int(counts[d])
		}
		// no key moves towards the end, so x may be a part of y
		n := 0
		for _, key := range x {
			y[n] = key
			if (key-base)>>(shift&63) == d {
				n++
			}
		}
		x, base = y[:n], base+d<<shift
	}
	wanted := least
	if most > least {
		slices.Sort(x)
		wanted = x[k]
		k -= sort.Search(k, func(i int) bool { return x[i] == wanted })
	}
	for i, key := range s.keys {
		if key == wanted {
			if k == 0 {
				return uint64(i)
			}
			k--
		}
	}
	panic("cpu: no key is equal to the selected one")
}

// mode returns the last position of the most frequent element. If several elements are equally
// frequent, it returns the last position of the least of these elements.
func (s *sortSpace) mode(t *sortTask) uint64 {
	nan, floats := t.nanKey()
	var best uint64
	most, run := 0, 0
	before := uint64(0)
	for i, w := range s.sorted() {
		p := s.position(w)
		key := s.keys[p]
		if run++; i == 0 || key != before || floats && key == nan {
			run = 1
		}
		if before = key; run > most {
			most, best = run, p
		}
	}
	return best
}
