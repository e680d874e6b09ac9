package pool

import "math/bits"

// arena is the index of one stream's free blocks. Among blocks of the same size it returns the one
// that was freed last, because processor caches most likely still hold its contents.
type arena struct {
	stream StreamID
	small  bins
	large  tree
	held   bool // whether the stream is held: its segments are not given back (see Pool.Hold)
}

// bins is an index by exact size. It has one list of blocks for each multiple of Options.Round. A
// bitmap marks the lists that are not empty. A second bitmap marks the words of the first bitmap
// that are not zero.
type bins struct {
	heads   []*Block
	words   []uint64
	summary []uint64
}

func (x *bins) insert(b *Block, unit uint64, count int) {
	if x.heads == nil {
		x.heads = make([]*Block, count+1)
		x.words = make([]uint64, count/64+1)
		x.summary = make([]uint64, count/64/64+1)
	}
	// the last list holds all blocks of its size or larger; only expandable segments have larger
	// ones
	i := min(b.size>>bits.TrailingZeros64(unit), uint64(len(x.heads)-1))
	h := x.heads[i]
	b.listPrev, b.listNext = nil, h
	if h != nil {
		h.listPrev = b
	} else {
		x.words[i/64] |= 1 << (i % 64)
		x.summary[i/64/64] |= 1 << (i / 64 % 64)
	}
	x.heads[i] = b
}

func (x *bins) remove(b *Block, unit uint64) {
	i := min(b.size>>bits.TrailingZeros64(unit), uint64(len(x.heads)-1))
	if b.listNext != nil {
		b.listNext.listPrev = b.listPrev
	}
	if b.listPrev != nil {
		b.listPrev.listNext = b.listNext
	} else if x.heads[i] = b.listNext; b.listNext == nil {
		if x.words[i/64] &^= 1 << (i % 64); x.words[i/64] == 0 {
			x.summary[i/64/64] &^= 1 << (i / 64 % 64)
		}
	}
	b.listPrev, b.listNext = nil, nil
}

// bestFit returns a block of the smallest indexed size that is at least size, or nil.
func (x *bins) bestFit(size, unit uint64) *Block {
	if x.heads == nil {
		return nil
	}
	i := size >> bits.TrailingZeros64(unit)
	if i >= uint64(len(x.heads)) {
		return nil
	}
	if h := x.heads[i]; h != nil {
		return h
	}
	n := i / 64
	if w := x.words[n] &^ (1<<(i%64) - 1); w != 0 {
		return x.heads[n*64+uint64(bits.TrailingZeros64(w))]
	}
	n++ // next word that is not zero
	for m := n / 64; m < uint64(len(x.summary)); m++ {
		w := x.summary[m]
		if m == n/64 {
			w &^= 1<<(n%64) - 1
		}
		if w != 0 {
			n = m*64 + uint64(bits.TrailingZeros64(w))
			return x.heads[n*64+uint64(bits.TrailingZeros64(x.words[n]))]
		}
	}
	return nil
}

// tree is a treap. Its keys are sizes, and the priority of a node is a hash of its size, so the
// shape depends only on the set of sizes. The blocks of one size form a list, whose first block is
// the node.
type tree struct{ root *Block }

// priority is the last step of the hash MurmurHash3 (Austin Appleby, public domain). It is a
// bijection, so two sizes never have equal priorities.
func priority(size uint64) uint64 {
	size ^= size >> 33
	size *= 0xff51afd7ed558ccd
	size ^= size >> 33
	size *= 0xc4ceb9fe1a85ec53
	return size ^ size>>33
}

// place returns the pointer in the tree that points to the node of this size. If there is no such
// node, place returns the pointer at which the search ends. This pointer leads to an empty subtree,
// or to a node of lower priority.
func (t *tree) place(size uint64) **Block {
	p := priority(size)
	link := &t.root
	for n := *link; n != nil && n.size != size && priority(n.size) > p; n = *link {
		if size < n.size {
			link = &n.left
		} else {
			link = &n.right
		}
	}
	return link
}

func (t *tree) insert(b *Block) {
	link := t.place(b.size)
	n := *link
	b.listPrev, b.left, b.right = nil, nil, nil
	// b replaces n as the node of its size, and n becomes the second block of the list
	if n != nil && n.size == b.size {
		b.listNext, n.listPrev = n, b
		b.left, b.right = n.left, n.right
		n.left, n.right = nil, nil
		*link = b
		return
	}
	b.listNext = nil
	*link = b
	l, r := &b.left, &b.right
	for n != nil { // split the subtree by size
		if n.size < b.size {
			*l = n
			l = &n.right
			n = n.right
		} else {
			*r = n
			r = &n.left
			n = n.left
		}
	}
	*l, *r = nil, nil
}

func (t *tree) remove(b *Block) {
	if b.listPrev != nil { // b is not a node of the tree
		b.listPrev.listNext = b.listNext
		if b.listNext != nil {
			b.listNext.listPrev = b.listPrev
		}
		b.listPrev, b.listNext = nil, nil
		return
	}
	link := t.place(b.size)
	if n := b.listNext; n != nil { // the next block of the same size replaces b as the node
		n.listPrev, n.left, n.right = nil, b.left, b.right
		*link = n
	} else { // no other block has this size: merge the two subtrees
		l, r := b.left, b.right
		for l != nil && r != nil {
			if priority(l.size) > priority(r.size) {
				*link = l
				link = &l.right
				l = l.right
			} else {
				*link = r
				link = &r.left
				r = r.left
			}
		}
		if l == nil {
			l = r
		}
		*link = l
	}
	b.listNext, b.left, b.right = nil, nil, nil
}

// bestFit returns a block of the smallest indexed size that is at least size, or nil.
func (t *tree) bestFit(size uint64) *Block {
	var best *Block
	for n := t.root; n != nil; {
		if n.size == size {
			return n
		}
		if n.size > size {
			best = n
			n = n.left
		} else {
			n = n.right
		}
	}
	return best
}
