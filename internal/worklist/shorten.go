// Package worklist makes a recorded list of work shorter. All drivers use it.
//
//   - A map that repeats an earlier one is dropped, unless its operands or results were written
//     since.
//   - A map is merged into the map or the reduction that reads its result.
//   - A map whose results nobody reads is dropped.
//
// The package compares ranges of addresses, so views that share memory need no special care. A
// range may be larger than the memory that a view uses. This can only prevent a change of the list.
package worklist

import (
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// Item is one piece of recorded work.
type Item struct {
	Op device.Op // nil for other work, which is not changed
	// Reads is the memory that the item reads. If Op is neither nil nor a map or a reduction, Reads
	// also contains the memory that the item writes.
	Reads  []Span
	Writes []Span
	// Ends says, for each result of a map, after how many items of the list its memory is freed. It
	// is Alive if the memory is not freed.
	Ends  []int
	Fails bool // whether the item may return an error, after which the items behind it do not run
	// Scratch is the temporary memory of an op. Reads and Writes contain these ranges too.
	Scratch []Span

	// Shorten sets these fields. They are indices in the list that Shorten was given. Number is the
	// index of the item. After a merge, it is the index of the part that reads the other parts'
	// results.
	Number int
	Parts  []int // indices of the items that were merged into this one, including its own
	Place  int   // index of the item whose position in the list this item takes
}

// Of returns an item for an op that uses the given scratch memory.
func Of(op device.Op, scratch []Span) Item {
	it := Item{Op: op, Scratch: scratch}
	it.Reads, it.Writes = effects(op)
	it.Reads, it.Writes = append(it.Reads, scratch...), append(it.Writes, scratch...)
	return it
}

// Alive is the entry of Ends for memory that is not freed in the recording.
const Alive = math.MaxInt

// Limits holds a driver's limits for merged items.
type Limits struct {
	MostPointers int // limit for operands plus results of a merged map, unless a part has more
	MostCode     int // greatest number of instructions of a merged program
	// SameOrder reports whether a recorded reduction and the same reduction, merged with a map,
	// combine their values in the same order. If SameOrder is nil, they do so if their operands
	// have equal strides.
	SameOrder func(recorded, merged *device.Reduce) bool
}

// Savings counts the items that Shorten removed.
type Savings struct {
	Repeated, Merged, Unread int
}

// All returns the number of items that Shorten removed.
func (s Savings) All() int { return s.Repeated + s.Merged + s.Unread }

// farthest is the largest distance in the list between two items that Shorten compares. It limits
// the time that Shorten takes.
const farthest = 512

// list is the state of [Shorten].
type list struct {
	items []Item
	gone  []bool
	Limits
	Savings
}

// Shorten returns a shorter list. Both lists leave the same bits in all memory that is not freed.
// Shorten overwrites the given items.
func Shorten(items []Item, limits Limits) ([]Item, Savings) {
	for i := range items {
		items[i].Number, items[i].Parts, items[i].Place = i, []int{i}, i
	}
	l := &list{items: items, gone: make([]bool, len(items)), Limits: limits}
	return l.shorten(), l.Savings
}

func (l *list) shorten() []Item {
	for j := range l.items {
		l.repeats(j)
	}
	for j := range l.items {
		for l.mergeInto(j) {
		}
	}
	for i := len(l.items) - 1; i >= 0; i-- {
		if m := l.mapAt(i); m != nil && !l.anyNeeded(i, len(m.Outs)) {
			l.gone[i] = true
			l.Unread++
		}
	}
	var rest []Item
	for i := range l.items {
		if !l.gone[i] {
			rest = append(rest, l.items[i])
		}
	}
	return rest
}

func (l *list) anyNeeded(i, n int) bool {
	for k := range n {
		if l.needed(i, k, -1) {
			return true
		}
	}
	return false
}

// mapAt returns the map of item i, or nil if the item is no map.
func (l *list) mapAt(i int) *device.Map {
	if m, ok := l.items[i].Op.(*device.Map); ok && !l.gone[i] && len(m.Outs) > 0 && m.Outs[0].Size() > 0 {
		return m
	}
	return nil
}

// repeats drops map j if an earlier item has stored the same results in the same memory.
func (l *list) repeats(j int) {
	m := l.mapAt(j)
	if m == nil || meetAny(l.items[j].Reads, l.items[j].Writes) {
		return
	}
	for i := j - 1; i >= max(0, j-farthest); i-- {
		if l.gone[i] {
			continue
		}
		if o := l.mapAt(i); o != nil && sameMap(o, m) {
			l.gone[j] = true
			l.Repeated++
			// the values stored by i now stay in memory as long as the results of j
			for k := range l.items[i].Ends {
				l.items[i].Ends[k] = max(l.items[i].Ends[k], l.items[j].Ends[k])
			}
			return
		}
		if meetAny(l.items[i].Writes, l.items[j].Reads) || meetAny(l.items[i].Writes, l.items[j].Writes) {
			return
		}
	}
}

func sameMap(a, b *device.Map) bool {
	n := len(a.Program.Params)
	return a.Program.Key() == b.Program.Key() && slices.Equal(a.Params[:n], b.Params[:n]) &&
		slices.EqualFunc(a.Outs, b.Outs, equalViews) && slices.EqualFunc(a.Ins, b.Ins, equalViews)
}

func equalViews(v, w device.View) bool { return SameView(&v, &w) }

// writer returns the index of the last item before j that writes into a span, or -1.
func (l *list) writer(j int, s Span) int {
	for i := j - 1; i >= max(0, j-farthest); i-- {
		if !l.gone[i] && meetsAny(s, l.items[i].Writes) {
			return i
		}
	}
	return -1
}

// reads reports whether any item between i and j reads memory in the spans s.
func (l *list) reads(i, j int, s []Span) bool {
	return l.between(i, j, func(it *Item) bool { return meetAny(s, it.Reads) })
}

func (l *list) writes(i, j int, s []Span) bool {
	return l.between(i, j, func(it *Item) bool { return meetAny(s, it.Writes) })
}

// fails reports whether an item between i and j may return an error.
func (l *list) fails(i, j int) bool {
	for k := i + 1; k < j; k++ {
		if l.items[k].Fails && !l.gone[k] {
			return true
		}
	}
	return false
}

func (l *list) between(i, j int, f func(it *Item) bool) bool {
	for k := i + 1; k < min(j, len(l.items)); k++ {
		if !l.gone[k] && f(&l.items[k]) {
			return true
		}
	}
	return false
}

// needed reports whether an item other than j reads result k of map i, or the program may read it
// after a replay.
func (l *list) needed(i, k, j int) bool {
	end, s := l.items[i].Ends[k], []Span{l.items[i].Writes[k]}
	return end == Alive || l.reads(i, min(end, max(j, i+1)), s) || l.reads(max(i, j), end, s)
}
