package cpu

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// pickPosition returns the position that is the result for a packed row.
func (s *sortSpace) pickPosition(t *sortTask) uint64 {
	switch rank := t.Rank; t.Pick {
	case device.PickMode:
		return s.mode(t)
	case device.PickMedian:
		if rank = (t.n - 1) / 2; s.nans(t) > 0 {
			rank = t.n - s.nans(t) // NaN come after all numbers
		}
		return s.position(s.nth(rank))
	case device.PickNanMedian:
		return s.position(s.nth(max(0, t.n-1-s.nans(t)) / 2))
	default:
		return s.position(s.nth(rank))
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

// nth returns word k of the sorted words. It partitions the words with Hoare's algorithm until few
// are left, and sorts these.
func (s *sortSpace) nth(k int) uint64 {
	if s.cut > 0 {
		return s.sorted()[k]
	}
	x := s.words
	for range 64 { // bounds the time for rows in an unfavourable order
		if len(x) <= 24 {
			break
		}
		a, b, c := x[len(x)/4], x[len(x)/2], x[len(x)-1-len(x)/4]
		pivot := max(min(a, b), min(max(a, b), c)) // the middle one of three
		i, j := 0, len(x)-1
		for i <= j {
			for x[i] < pivot {
				i++
			}
			for x[j] > pivot {
				j--
			}
			if i <= j {
				x[i], x[j] = x[j], x[i]
				i++
				j--
			}
		}
		switch {
		case k <= j:
			x = x[:j+1]
		case k >= i:
			x, k = x[i:], k-i
		default:
			return x[k]
		}
	}
	slices.Sort(x)
	return x[k]
}

// mode returns the last position of the most frequent element. If several elements are equally
// frequent, it uses the least of them.
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
