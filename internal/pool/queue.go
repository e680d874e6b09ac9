package pool

// Queue requests the release of a block whose owner, with generation gen, has become unreachable.
// Cleanups of the garbage collector can call it: it takes no lock, does not allocate and does not
// wait. The next Alloc, Stats, Snapshot, Largest or Empty performs the release. If gen is no longer
// the generation of the block, the pool only counts the request.
//
// The queue is a linked list of blocks, so it contains a block at most once. A later generation of
// the same block replaces the entry.
func (p *Pool) Queue(b *Block, gen uint64) {
	p.checkOwn(b)
	if gen == 0 {
		p.staleQueued.Add(1)
		return
	}
	for {
		in := b.queued.Load()
		if in >= gen { // the queue already has this or a later generation of b
			p.staleQueued.Add(1)
			return
		}
		if !b.queued.CompareAndSwap(in, gen) {
			continue
		}
		if in != 0 { // b is already in the queue; whoever empties the queue will read gen
			p.staleQueued.Add(1)
			return
		}
		break
	}
	for {
		head := p.queue.Load()
		b.queueNext = head
		if p.queue.CompareAndSwap(head, b) {
			break
		}
	}
	p.signal()
}

// signal wakes the goroutine that runs the out-of-memory ladder, if that goroutine waits.
func (p *Pool) signal() {
	if p.ladderWaits.Load() {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// drainLocked performs the queued releases and returns whether there were any.
func (p *Pool) drainLocked() bool {
	b := p.queue.Swap(nil)
	any := b != nil
	for b != nil {
		next := b.queueNext
		b.queueNext = nil
		// next must be read before this line: afterwards, b can be queued again
		gen := b.queued.Swap(0)
		if p.freeLocked(b, gen) {
			p.stats.QueuedFrees++
		}
		b = next
	}
	return any
}
