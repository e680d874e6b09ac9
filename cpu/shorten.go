package cpu

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// The list of a recording becomes shorter once, when the recording ends:
//
//   - A map that repeats an earlier one is dropped, if no item between them writes its operands or
//     results.
//   - A map is computed within the map or the reduction that reads its result: see [list.merge].
//   - A map whose results are not read is dropped.
//
// Whether items depend on each other is decided by ranges of addresses, so views that share memory
// need no special case. A range may be larger than the memory that a view uses. This can only
// prevent a change of the list, and never cause a wrong one.

// lifetime says up to which item of a list the memory of a buffer holds the buffer's values.
type lifetime struct {
	r   *recording
	end int // number of items before the buffer was freed; neverFreed until then
}

// neverFreed is the end of a lifetime whose memory is not freed in the recording.
const neverFreed = math.MaxInt

// noteFreed records that the buffer is freed now.
func (l *lifetime) noteFreed() {
	if l == nil {
		return
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if l.r.live {
		l.end = len(l.r.items)
	}
}

// maxDistance is the largest distance between items that are compared. It bounds the time.
const maxDistance = 512

// list is a recorded list that is being shortened.
type list struct {
	items   []item
	effects []effects
	ends    [][]int // for each result of a map: the item before which its memory is freed
	dropped []bool
	savings
}

// savings counts the items that were removed from a list, by reason.
type savings struct {
	repeated, merged, unread int
}

func newList(r *recording, items []item) *list {
	l := &list{items: items, effects: make([]effects, len(items)), ends: make([][]int, len(items)), dropped: make([]bool, len(items))}
	for i := range items {
		l.effects[i] = effectsOf(&items[i])
		if m, ok := items[i].op.(*device.Map); ok {
			for k := range m.Outs {
				end := neverFreed
				if life := m.Outs[k].Buf.(*buffer).life; life != nil && life.r == r {
					end = life.end
				}
				l.ends[i] = append(l.ends[i], end)
			}
		}
	}
	return l
}

// shorten returns the list with fewer items.
func (l *list) shorten() []item {
	for j := range l.items {
		l.repeats(j)
	}
	for j := range l.items {
		for l.mergeInto(j) {
		}
	}
	for i := len(l.items) - 1; i >= 0; i-- {
		if m := l.mapAt(i); m != nil && !l.anyNeeded(i, len(m.Outs)) {
			l.dropped[i] = true
			l.unread++
		}
	}
	var rest []item
	for i := range l.items {
		if !l.dropped[i] {
			rest = append(rest, l.items[i])
		}
	}
	return rest
}

// anyNeeded reports whether one of the n results of item i is needed.
func (l *list) anyNeeded(i, n int) bool {
	for k := range n {
		if l.needed(i, k, -1) {
			return true
		}
	}
	return false
}

// mapAt returns the map of item i, or nil if the item is not a map, is dropped, or has no elements.
func (l *list) mapAt(i int) *device.Map {
	if m, ok := l.items[i].op.(*device.Map); ok && !l.dropped[i] && len(m.Outs) > 0 && m.Outs[0].Size() > 0 {
		return m
	}
	return nil
}

// repeats drops map j if the results of an earlier, equal map are still in the same memory.
func (l *list) repeats(j int) {
	m := l.mapAt(j)
	if m == nil || anyOverlap(l.effects[j].reads, l.effects[j].writes) {
		return
	}
	for i := j - 1; i >= max(0, j-maxDistance); i-- {
		if l.dropped[i] {
			continue
		}
		if o := l.mapAt(i); o != nil && sameMap(o, m) {
			l.dropped[j] = true
			l.repeated++
			for k := range l.ends[i] { // the values must now live as long as those of j
				l.ends[i][k] = max(l.ends[i][k], l.ends[j][k])
			}
			return
		}
		if anyOverlap(l.effects[i].writes, l.effects[j].reads) || anyOverlap(l.effects[i].writes, l.effects[j].writes) {
			return
		}
	}
}

func sameMap(a, b *device.Map) bool {
	n := len(a.Program.Params)
	return a.Program.Key() == b.Program.Key() && slices.Equal(a.Params[:n], b.Params[:n]) &&
		slices.EqualFunc(a.Outs, b.Outs, equalViews) && slices.EqualFunc(a.Ins, b.Ins, equalViews)
}

func equalViews(v, w device.View) bool { return sameView(&v, &w) }

// writer returns the last item before j that writes into the range, or -1.
func (l *list) writer(j int, s span) int {
	for i := j - 1; i >= max(0, j-maxDistance); i-- {
		if !l.dropped[i] && overlapsAny(s, l.effects[i].writes) {
			return i
		}
	}
	return -1
}

// reads reports whether an item between i and j, without these two, reads a part of the ranges.
func (l *list) reads(i, j int, s []span) bool {
	return l.anyBetween(i, j, func(e *effects) bool { return anyOverlap(s, e.reads) })
}

func (l *list) writes(i, j int, s []span) bool {
	return l.anyBetween(i, j, func(e *effects) bool { return anyOverlap(s, e.writes) })
}

// mayFail reports whether an item between i and j may return an error.
func (l *list) mayFail(i, j int) bool {
	for k := i + 1; k < j; k++ {
		if _, ok := l.items[k].op.(*device.Map); !ok && l.items[k].op != nil && !l.dropped[k] {
			return true
		}
	}
	return false
}

func (l *list) anyBetween(i, j int, f func(e *effects) bool) bool {
	for k := i + 1; k < min(j, len(l.items)); k++ {
		if !l.dropped[k] && f(&l.effects[k]) {
			return true
		}
	}
	return false
}

// needed reports whether result k of map i is read after i by an item other than j, or may be read
// after a replay.
func (l *list) needed(i, k, j int) bool {
	end, s := l.ends[i][k], []span{l.effects[i].writes[k]}
	return end == neverFreed || l.reads(i, min(end, max(j, i+1)), s) || l.reads(max(i, j), end, s)
}
