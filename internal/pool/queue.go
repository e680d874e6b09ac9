package pool

// Queue asks for the release of a block whose owner, of generation gen, has become garbage. It is
// made for cleanups: no lock, no allocation, no waiting. The release happens at the next Alloc,
// Stats, Snapshot, Largest or Empty; a stale generation is counted and ignored there.
//
// The queue is a stack threaded through the blocks, so a block is in it at most once. An entry that
// an earlier generation left behind (its owner was freed explicitly after all) is overwritten by a
// later one.
func (p *Pool) Queue(b *Block, gen uint64) {
	p.checkOwn(b)
	if gen == 0 {
		p.staleQueued.Add(1)
		return
	}
	for {
		in := b.queued.Load()
		if in >= gen { // twice the same, or older than what is in the queue
			p.staleQueued.Add(1)
			return
		}
		if !b.queued.CompareAndSwap(in, gen) {
			continue
		}
		if in != 0 { // b is in the queue already, and its drainer will see gen
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

// signal wakes the goroutine on the ladder, if it waits.
func (p *Pool) signal() {
	if p.hungry.Load() {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// drainLocked carries out the queued releases and reports whether there were any.
func (p *Pool) drainLocked() bool {
	b := p.queue.Swap(nil)
	any := b != nil
	for b != nil {
		next := b.queueNext
		b.queueNext = nil
		gen := b.queued.Swap(0) // from here on b can be queued again, so next was read before
		if p.freeLocked(b, gen) {
			p.stats.QueuedFrees++
		}
		b = next
	}
	return any
}
