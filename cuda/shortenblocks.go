package cuda

import (
	"cmp"
	"math"
	"slices"

	"github.com/flambeau-go/flambeau/internal/worklist"
)

// The emulator checks that work uses a block only between the nodes that begin and end the block.
// When operations are merged, the merged operation may use a block earlier or later than the
// recorded ones. The beginning or the end of the block is then moved as well.

// nodePlace is a position in the list of recorded nodes: before, at, or after the node with an
// index.
type nodePlace struct {
	node int
	when int
}

const (
	beforeNode = iota
	atNode
	afterNode
)

func (p nodePlace) compare(q nodePlace) int {
	return cmp.Or(cmp.Compare(p.node, q.node), cmp.Compare(p.when, q.when))
}

// placedNode is a node with its position in the list.
type placedNode struct {
	nodePlace
	recorded
}

// markedBlock is a block that begins, and usually ends, in a recording.
type markedBlock struct {
	span       worklist.Span
	begin, end recorded
	// from and to are the positions of the beginning and the end. If the block has no end, to.node
	// is the constant never.
	from, to nodePlace
	first    int // index of the recorded beginning
	last     int // index of the recorded end
	moved    bool
	// group is another block of the same group, or the block itself. The blocks of a group share
	// memory at the same time. The method top returns the group's representative.
	group *markedBlock
}

const never = math.MaxInt

type blockList struct {
	blocks []*markedBlock // in the order in which they begin
	// segments holds the ends of blocks whose beginnings were not recorded. These blocks are whole
	// segments that the recording took over.
	segments []recorded
}

func blocksOf(nodes []recorded) *blockList {
	list := new(blockList)
	open := map[uint64]*markedBlock{}
	for n := range nodes {
		switch w := nodes[n]; w.kind {
		case recordedBlock:
			b := &markedBlock{span: worklist.Span{Lo: uintptr(w.dst), Hi: uintptr(w.dst + w.n)}, begin: w,
				from: nodePlace{n, atNode}, to: nodePlace{never, atNode}, first: n, last: never}
			b.group, open[w.dst] = b, b
			list.blocks = append(list.blocks, b)
		case recordedFreed:
			if b := open[w.dst]; b != nil {
				b.end, b.to, b.last = w, nodePlace{n, atNode}, n
				delete(open, w.dst)
			} else {
				list.segments = append(list.segments, w)
			}
		}
	}
	return list
}

// uses extends the lives of blocks. The recorded operation w at node n is now a part of a merged
// item (the argument named it). That item runs at node to. If both the operation and the item use a
// block, the block must be alive at node to.
func (list *blockList) uses(w *recorded, n, to int, it *worklist.Item) {
	own := worklist.Of(w.op, nil)
	for _, s := range slices.Concat(own.Reads, own.Writes) {
		if !slices.ContainsFunc(slices.Concat(it.Reads, it.Writes), s.Meets) {
			continue
		}
		for _, b := range list.at(n, s) {
			if p := (nodePlace{to, beforeNode}); p.compare(b.from) < 0 {
				b.from, b.moved = p, true
			}
			if p := (nodePlace{to, afterNode}); p.compare(b.to) > 0 {
				b.to, b.moved = p, true
			}
		}
	}
}

// lasts extends the life of the blocks that hold a result of the recorded operation w at node n.
// They must live at least until the position to. This is needed if a later operation was dropped
// because w computes the same result. The readers of the dropped operation now read the result of
// w.
func (list *blockList) lasts(w *recorded, n int, result worklist.Span, to nodePlace) {
	if !slices.ContainsFunc(worklist.Of(w.op, nil).Writes, result.Meets) {
		return
	}
	for _, b := range list.at(n, result) {
		if to.compare(b.to) > 0 {
			b.to, b.moved = to, true
		}
	}
}

// at returns the blocks that overlapped the range s when node n was recorded.
func (list *blockList) at(n int, s worklist.Span) (found []*markedBlock) {
	for _, b := range list.blocks {
		if b.first <= n && n <= b.last && b.span.Meets(s) {
			found = append(found, b)
		}
	}
	return found
}

// marks returns the beginnings and ends of the blocks. If blocks share memory at the same time, the
// first block begins, the others take over its memory, and only the last block ends.
func (list *blockList) marks() (marks []placedNode) {
	for _, a := range list.blocks {
		if !a.moved {
			continue
		}
		for _, b := range list.blocks {
			if a != b && a.span.Meets(b.span) && a.from.compare(b.to) < 0 && b.from.compare(a.to) < 0 {
				b.top().group = a.top()
			}
		}
	}
	for _, w := range list.segments {
		marks = append(marks, placedNode{nodePlace{-1, atNode}, w})
	}
	began, last := map[*markedBlock]bool{}, map[*markedBlock]nodePlace{}
	for _, b := range list.blocks {
		if t := b.top(); b.to.compare(last[t]) > 0 {
			last[t] = b.to
		}
	}
	sorted := slices.SortedStableFunc(slices.Values(list.blocks), func(a, b *markedBlock) int { return a.from.compare(b.from) })
	for _, b := range sorted {
		t := b.top()
		w := b.begin
		if began[t] {
			w.kind = recordedTakeover
		}
		began[t] = true
		marks = append(marks, placedNode{b.from, w})
		if b.to.node != never && b.to == last[t] {
			marks = append(marks, placedNode{b.to, b.end})
		}
	}
	return marks
}

// top returns the block that represents the group of b.
func (b *markedBlock) top() *markedBlock {
	for b.group != b {
		b = b.group
	}
	return b
}
