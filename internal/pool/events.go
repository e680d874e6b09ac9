package pool

import "fmt"

// eventQueue holds events that were recorded on one stream. Freed blocks of other streams wait for
// them. The events are done in the order in which they were recorded.
type eventQueue struct {
	stream StreamID
	waits  []eventWait
	head   int // index of the first entry whose event is not done
}

type eventWait struct {
	event Event
	block *Block
}

// Use tells the pool that work on another stream reads or writes the block. After the block is
// freed, its memory is reused only when the work that was queued on that stream before the free is
// done. The caller must own the block. Use panics if the block has been freed, because its memory
// may have another owner.
func (b *Block) Use(stream StreamID) {
	if b.Stream() == stream {
		return
	}
	p := b.pool
	p.mu.Lock()
	if b.state != stateLive {
		p.mu.Unlock()
		panic(fmt.Errorf("pool: %s: Use on stream %d of a block that is %s", p.o.Name, stream, b.state))
	}
	known := b.seg == nil
	for _, s := range b.uses {
		known = known || s == stream
	}
	if !known {
		b.uses = append(b.uses, stream)
	}
	p.mu.Unlock()
}

// recordLocked records the events that a freed block waits for. If an event cannot be recorded, or
// recording is paused, the block is deferred: its events are recorded later, and it cannot be
// reused until then. An event that is recorded later also waits for the work queued in the
// meantime, which is safe.
func (p *Pool) recordLocked(b *Block) {
	for p.paused == 0 && len(b.uses) > 0 {
		last := len(b.uses) - 1
		s := b.uses[last]
		e, err := p.backing.Record(s)
		if err != nil {
			p.eventIssue = fmt.Errorf("event on %s: %w", p.streamName(s), err)
			break
		}
		q := p.eventQueueLocked(s)
		q.waits = append(q.waits, eventWait{e, b})
		p.pending++
		b.events++
		b.uses = b.uses[:last]
	}
	switch {
	case len(b.uses) > 0:
		b.deferred = true
		p.deferred = append(p.deferred, b)
	case b.events == 0:
		p.releaseLocked(b)
	}
}

func (p *Pool) eventQueueLocked(s StreamID) *eventQueue {
	for _, q := range p.events {
		if q.stream == s {
			return q
		}
	}
	q := &eventQueue{stream: s}
	p.events = append(p.events, q)
	return q
}

// pollLocked releases the blocks whose events are done.
func (p *Pool) pollLocked() {
	for _, q := range p.events {
		for q.head < len(q.waits) && p.backing.Done(q.waits[q.head].event) {
			w := q.waits[q.head]
			q.waits[q.head] = eventWait{}
			q.head++
			p.pending--
			p.eventDoneLocked(w)
		}
		if q.head == len(q.waits) {
			q.waits, q.head = q.waits[:0], 0
		} else if q.head > 64 && q.head > len(q.waits)/2 {
			// Move the remaining entries to the front. On a stream that always has work, the slice
			// would otherwise grow without limit.
			n := copy(q.waits, q.waits[q.head:])
			clear(q.waits[n:])
			q.waits, q.head = q.waits[:n], 0
		}
	}
}

func (p *Pool) eventDoneLocked(w eventWait) {
	w.event.Release()
	w.block.events--
	if w.block.events == 0 && !w.block.deferred {
		p.releaseLocked(w.block)
	}
}

// retryDeferredLocked records the events of deferred blocks.
func (p *Pool) retryDeferredLocked() {
	if p.paused > 0 {
		return
	}
	blocks := p.deferred
	p.deferred = nil
	for _, b := range blocks {
		b.deferred = false
		p.recordLocked(b)
	}
	if len(p.deferred) == 0 {
		p.eventIssue = nil
	}
}

// syncLocked waits for all events of all pending blocks. It releases the lock while it waits.
func (p *Pool) syncLocked() {
	if p.paused > 0 {
		return
	}
	p.retryDeferredLocked()
	if p.pending == 0 {
		return
	}
	var waits []eventWait
	for _, q := range p.events {
		waits = append(waits, q.waits[q.head:]...)
		clear(q.waits)
		q.waits, q.head = q.waits[:0], 0
	}
	p.pending = 0
	p.stats.Syncs++
	p.mu.Unlock()
	for _, w := range waits {
		p.backing.Wait(w.event)
	}
	p.mu.Lock()
	for _, w := range waits {
		p.eventDoneLocked(w)
	}
}

// PauseEvents stops the pool from recording, querying and waiting for events until ResumeEvents. A
// stream capture requires this. Blocks that other streams used stay pending if they are freed
// during the pause. Calls may be nested.
func (p *Pool) PauseEvents() {
	p.mu.Lock()
	p.paused++
	p.mu.Unlock()
}

// ResumeEvents ends the pause that one call of PauseEvents began.
func (p *Pool) ResumeEvents() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == 0 {
		panic("pool: ResumeEvents without PauseEvents")
	}
	p.paused--
	p.retryDeferredLocked()
}

// Retire gives the blocks of a stream to another stream, heir. It must be called before the driver
// destroys the stream, when all work on the stream is done. The heir can then reuse the free blocks
// of the stream. Blocks that are in use then count as allocated on the heir.
func (p *Pool) Retire(stream, heir StreamID) {
	if stream == heir {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settleLocked()
	to := p.arenaLocked(heir)
	for _, seg := range p.segments {
		moves := seg.home.stream == stream
		for b := seg.first; b != nil; b = b.next {
			if moves {
				if b.state == stateFree {
					p.unindexLocked(b)
				}
				b.stream.Store(uint64(heir))
			}
			if b.state == stateLive || b.state == statePending {
				kept := b.uses[:0]
				for _, s := range b.uses {
					if s != stream && s != b.Stream() {
						kept = append(kept, s)
					}
				}
				b.uses = kept
			}
		}
		if moves {
			seg.home = to
			for b := seg.first; b != nil; b = b.next {
				if b.state == stateFree {
					p.indexLocked(b)
				}
			}
		}
	}
	for _, s := range p.spaces {
		if s.home.stream == stream {
			s.home = to
		}
	}
	for i, a := range p.arenas {
		if a.stream == stream {
			p.arenas = append(p.arenas[:i], p.arenas[i+1:]...)
			break
		}
	}
	p.lastArena = nil
	for i, q := range p.events {
		if q.stream == stream && q.head == len(q.waits) {
			p.events = append(p.events[:i], p.events[i+1:]...)
			break
		}
	}
	p.retryDeferredLocked()
	p.offerLocked()
}
