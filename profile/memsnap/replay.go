package memsnap

import (
	"cmp"
	"maps"
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// alive is a block that is in use, or a freed block that waits for other streams.
type alive struct {
	size, requested uint64
	owner           int
	category        string
}

// state is the state of an allocator at one event of a history.
type state struct {
	// blocks in use, and freed blocks that wait, by the number of their allocation
	live, waiting map[uint64]alive
	// total bytes of blocks in use, of blocks that wait, and of segments
	allocated, late, mapped uint64
}

func (s *state) clone() *state {
	c := *s
	c.live, c.waiting = maps.Clone(s.live), maps.Clone(s.waiting)
	return &c
}

func (s *state) add(m map[uint64]alive, sum *uint64, n uint64, a alive) {
	if old, ok := m[n]; ok {
		*sum -= old.size
	}
	m[n] = a
	*sum += a.size
}

func (s *state) remove(m map[uint64]alive, sum *uint64, n uint64) {
	if old, ok := m[n]; ok {
		*sum -= old.size
		delete(m, n)
	}
}

func (s *state) apply(e device.HistoryEvent) {
	a := alive{e.Size, e.Requested, e.Owner, e.Category}
	switch e.Action {
	case device.ActionAlloc:
		s.add(s.live, &s.allocated, e.Number, a)
	case device.ActionFreeRequested:
		s.remove(s.live, &s.allocated, e.Number)
		s.add(s.waiting, &s.late, e.Number, a)
	case device.ActionFreeCompleted:
		s.remove(s.waiting, &s.late, e.Number)
	case device.ActionSegmentAlloc, device.ActionSegmentMap:
		s.mapped += e.Size
	case device.ActionSegmentFree, device.ActionSegmentUnmap:
		s.mapped -= min(s.mapped, e.Size)
	}
}

func (s *state) undo(e device.HistoryEvent) {
	a := alive{e.Size, e.Requested, e.Owner, e.Category}
	switch e.Action {
	case device.ActionAlloc:
		s.remove(s.live, &s.allocated, e.Number)
	case device.ActionFreeRequested:
		s.remove(s.waiting, &s.late, e.Number)
		s.add(s.live, &s.allocated, e.Number, a)
	case device.ActionFreeCompleted:
		s.add(s.waiting, &s.late, e.Number, a)
	case device.ActionSegmentAlloc, device.ActionSegmentMap:
		s.mapped -= min(s.mapped, e.Size)
	case device.ActionSegmentFree, device.ActionSegmentUnmap:
		s.mapped += e.Size
	}
}

// final returns the state at the end of a snapshot.
func final(s *device.MemorySnapshot) *state {
	st := &state{live: map[uint64]alive{}, waiting: map[uint64]alive{}}
	for _, g := range s.Segments {
		st.mapped += g.Size
		for _, b := range g.Blocks {
			a := alive{b.Size, b.Requested, b.Owner, b.Category}
			switch b.State {
			case device.BlockActiveAllocated:
				st.add(st.live, &st.allocated, b.Number, a)
			case device.BlockActiveAwaitingFree:
				st.add(st.waiting, &st.late, b.Number, a)
			}
		}
	}
	return st
}

// initial returns the state before the snapshot's first event. It starts with the final state and
// undoes all events in reverse. This works even if the recording has dropped older events.
func initial(s *device.MemorySnapshot) *state {
	st := final(s)
	for i := len(s.Events) - 1; i >= 0; i-- {
		st.undo(s.Events[i])
	}
	return st
}

// These are the groupings by which the timeline can be stacked.
const (
	byCategory = iota
	byOp
	bySite
	byScope
	groupings
)

var groupingNames = [groupings]string{"category", "op", "call site", "scope"}

const (
	notRecorded = "not recorded"
	others      = "all others"
	maxGroups   = 10
)

// group returns the name of the group to which block a belongs. The argument by is the grouping.
func group(s *device.MemorySnapshot, a alive, by int) string {
	name := ""
	o := owner(s, a.owner)
	switch by {
	case byCategory:
		name = a.category
	case byOp:
		name = o.Op
	case bySite:
		name = o.Where
	case byScope:
		name = o.Scope
		if name == "" {
			name = "no named scope"
		}
	}
	if name == "" {
		name = notRecorded
	}
	return name
}

func owner(s *device.MemorySnapshot, i int) device.MemoryOwner {
	if i < 0 || i >= len(s.Owners) {
		return device.MemoryOwner{}
	}
	return s.Owners[i]
}

// point is a point of the timeline. It represents several events, and shows the event after which
// the most memory was in use.
type point struct {
	event    int // number of events so far
	time     int64
	reserved uint64
	waiting  uint64
	total    uint64
	sums     [groupings][]uint64
}

// history is the part of a recording that the page draws.
type history struct {
	// for each grouping, the names of the largest groups, and a name for all others
	groups    [groupings][]string
	points    []point
	peak      uint64
	peakEvent int // number of events until the peak
	peakLive  map[uint64]alive
	oom       int
}

// timeline replays the events and reduces them to a history. The argument most is the largest
// number of its points.
func timeline(s *device.MemorySnapshot, most int) *history {
	h := &history{}
	// The first pass finds the peak, and the groups that are among the largest at some time.
	type key struct {
		by   int
		name string
	}
	sums, tops := map[key]uint64{}, map[key]uint64{}
	first := initial(s)
	st := first.clone()
	count := func(a alive, sign bool) {
		for by := range groupings {
			k := key{by, group(s, a, by)}
			if sign {
				sums[k] += a.size
				tops[k] = max(tops[k], sums[k])
			} else {
				sums[k] -= min(sums[k], a.size)
			}
		}
	}
	for _, a := range st.live {
		count(a, true)
	}
	h.peak = st.allocated
	for i, e := range s.Events {
		switch e.Action {
		case device.ActionAlloc:
			count(alive{e.Size, e.Requested, e.Owner, e.Category}, true)
		case device.ActionFreeRequested:
			count(alive{e.Size, e.Requested, e.Owner, e.Category}, false)
		case device.ActionOOM:
			h.oom++
		}
		if st.apply(e); st.allocated > h.peak {
			h.peak, h.peakEvent = st.allocated, i+1
		}
	}
	index := [groupings]map[string]int{}
	for by := range groupings {
		var names []string
		for k := range tops {
			if k.by == by {
				names = append(names, k.name)
			}
		}
		slices.SortFunc(names, func(a, b string) int {
			return cmp.Or(cmp.Compare(tops[key{by, b}], tops[key{by, a}]), cmp.Compare(a, b))
		})
		if len(names) > maxGroups {
			names = append(names[:maxGroups-1], others)
		}
		h.groups[by] = names
		index[by] = map[string]int{}
		for i, n := range names {
			index[by][n] = i
		}
	}

	// The second pass makes the points.
	st = first.clone()
	var now [groupings][]uint64
	for by := range groupings {
		now[by] = make([]uint64, len(h.groups[by]))
	}
	place := func(a alive, sign bool) {
		for by := range groupings {
			i, ok := index[by][group(s, a, by)]
			if !ok {
				i = len(now[by]) - 1 // group of all others
			}
			if sign {
				now[by][i] += a.size
			} else {
				now[by][i] -= min(now[by][i], a.size)
			}
		}
	}
	for _, a := range st.live {
		place(a, true)
	}
	start := s.Time.UnixNano()
	if len(s.Events) > 0 {
		start = s.Events[0].Time
	}
	at := func(event int, time int64) point {
		p := point{event: event, time: time - start, reserved: st.mapped, waiting: st.late, total: st.allocated}
		for by := range groupings {
			p.sums[by] = slices.Clone(now[by])
		}
		return p
	}
	if h.peakEvent == 0 {
		h.peakLive = maps.Clone(st.live)
	}
	h.points = append(h.points, at(0, start))
	step := max(1, (len(s.Events)+most-2)/max(most-1, 1))
	var best point
	last := -1 // index of the last event of the previous point
	have := false
	for i, e := range s.Events {
		switch e.Action {
		case device.ActionAlloc:
			place(alive{e.Size, e.Requested, e.Owner, e.Category}, true)
		case device.ActionFreeRequested:
			place(alive{e.Size, e.Requested, e.Owner, e.Category}, false)
		}
		st.apply(e)
		if i+1 == h.peakEvent {
			h.peakLive = maps.Clone(st.live)
		}
		if freedAtOnce(s.Events, i) {
			continue
		}
		if !have || st.allocated > best.total {
			best, have = at(i+1, e.Time), true
		}
		best.reserved = max(best.reserved, st.mapped)
		if i-last >= step || i == len(s.Events)-1 {
			last = i
			h.points = append(h.points, best)
			have = false
		}
	}
	return h
}

// freedAtOnce reports whether event i is a free that the next event completes. The timeline then
// does not show the state between the two events.
func freedAtOnce(events []device.HistoryEvent, i int) bool {
	return events[i].Action == device.ActionFreeRequested && i+1 < len(events) && events[i+1].Action == device.ActionFreeCompleted &&
		events[i+1].Number == events[i].Number
}

// row is a line in a table of owners.
type row struct {
	owner         device.MemoryOwner
	category      string
	blocks        int
	bytes, wasted uint64
	stack         int
	text          string // the row's text, by which rows of equal size are sorted
}

// rows groups blocks by category and by the description of their owner. The largest rows come
// first.
func rows(s *device.MemorySnapshot, live map[uint64]alive) []row {
	type key struct {
		owner    int
		category string
	}
	at, text := map[key]*row{}, map[string]*row{}
	// Visit the blocks in order: a group then always shows the stack of its first block.
	for _, n := range slices.Sorted(maps.Keys(live)) {
		a := live[n]
		k := key{a.owner, a.category}
		r := at[k]
		if r == nil {
			o := owner(s, a.owner)
			t := o.String() + "\x00" + a.category
			if r = text[t]; r == nil {
				r = &row{owner: o, category: a.category, stack: o.Stack, text: t}
				text[t] = r
			}
			at[k] = r
		}
		r.blocks++
		r.bytes += a.size
		r.wasted += a.size - min(a.size, a.requested)
	}
	out := make([]row, 0, len(text))
	for _, r := range text {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b row) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.text, b.text)) })
	return out
}
