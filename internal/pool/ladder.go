package pool

import (
	"errors"
	"fmt"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// idleLimit is how long the out-of-memory ladder waits for the next cleanup of a garbage
// collection. If none comes in this time, the ladder goes on with more expensive steps. Before the
// ladder fails it waits again, until Options.CollectWait has passed since the collection.
const idleLimit = 2 * time.Millisecond

// collections is the largest number of garbage collections for one request. The ladder starts
// another collection only if the previous one freed blocks, and none of them served the request.
// Other goroutines may have taken the blocks. These goroutines soon wait for the ladder too, so a
// few collections suffice.
const collections = 8

// climb runs the out-of-memory ladder for a request that neither the cache nor the backing could
// serve. The steps are, in this order:
//
//  1. drain the queue and try again, because another goroutine may have just run the ladder;
//  2. call Options.Pressure;
//  3. if no live block is Collected, do step 5 first, because a collection would find only blocks
//     that the program forgot to free;
//  4. run a garbage collection, and run it again if the blocks that it freed served only other
//     requests. Wait up to Options.CollectWait for its cleanups to queue releases, and for other
//     goroutines to free blocks. Such blocks go to this request before others;
//  5. wait for the events of pending blocks, return unused segments, and ask the backing again. The
//     last attempt is a segment of exactly the requested size;
//  6. return the typed error.
func (p *Pool) climb(r *request) (*Block, error) {
	p.ladderMu.Lock()
	defer p.ladderMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiter = r
	finished := false
	defer func() {
		p.waiter = nil
		if !finished && r.block != nil { // a hook panicked, so nobody will own r.block
			p.freeLocked(r.block, r.block.gen)
		}
	}()
	p.stats.Retries++
	cause := p.stepsLocked(r)
	p.waiter, finished = nil, true // from here on, freed blocks do not go to r
	switch {
	case r.block != nil:
		return r.block, nil
	case errors.Is(cause, ErrNoMemory):
		p.stats.OOMs++
		return nil, p.oomLocked(r.size, r.stream, r.origin, cause)
	}
	return nil, p.growError(r, cause)
}

// unlocked calls a hook without the pool's lock. The hook may panic.
func (p *Pool) unlocked(hook func()) {
	p.mu.Unlock()
	defer p.mu.Lock()
	hook()
}

// stepsLocked runs the steps of the ladder until r has a block. If no step helps, it returns the
// backing's last error. It releases the lock during slow operations.
func (p *Pool) stepsLocked(r *request) error {
	p.cachedLocked(r)
	if r.block != nil {
		return nil
	}
	err := p.growLocked(r, false)
	if r.block != nil || !errors.Is(err, ErrNoMemory) {
		return err
	}
	if p.hopelessLocked(r) {
		return err
	}
	if p.o.Pressure != nil {
		p.unlocked(p.o.Pressure)
		p.cachedLocked(r)
		if r.block != nil {
			return nil
		}
		if err = p.growLocked(r, false); r.block != nil || !errors.Is(err, ErrNoMemory) {
			return err
		}
	}
	if p.collectable == 0 {
		if err = p.reclaimLocked(r); r.block != nil || !errors.Is(err, ErrNoMemory) {
			return err
		}
	}
	p.ladderWaits.Store(true)
	defer p.ladderWaits.Store(false)
	for range collections {
		before := p.stats.QueuedFrees
		p.unlocked(p.o.GC)
		p.stats.Collections++
		deadline := time.Now().Add(p.o.CollectWait)
		for _, pause := range []time.Duration{idleLimit, p.o.CollectWait} {
			p.awaitLocked(r, deadline, pause)
			if r.block != nil {
				return nil
			}
			if err = p.reclaimLocked(r); r.block != nil || !errors.Is(err, ErrNoMemory) {
				return err
			}
		}
		if p.stats.QueuedFrees == before {
			break
		}
	}
	return err
}

// cachedLocked releases blocks whose events are done, and looks for a free block for r.
func (p *Pool) cachedLocked(r *request) {
	p.settleLocked()
	p.offerLocked()
}

// awaitLocked waits until freed blocks serve r, or until the deadline. Once a cleanup has queued a
// release, it also returns if no further release is queued within the given pause.
func (p *Pool) awaitLocked(r *request, deadline time.Time, pause time.Duration) {
	grew := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		grew = p.drainLocked() || grew
		p.cachedLocked(r)
		left := time.Until(deadline)
		if r.block != nil || left <= 0 {
			return
		}
		if grew {
			left = min(left, pause)
		}
		p.mu.Unlock()
		timer.Reset(left)
		woken := false
		select {
		case <-p.wake:
			woken = true
		case <-timer.C:
		}
		p.mu.Lock()
		if !woken && p.queue.Load() == nil && r.block == nil {
			if p.pending > 0 && p.paused == 0 {
				p.pollLocked()
			}
			return
		}
	}
}

// reclaimLocked waits for pending blocks, gives unused segments back, and asks the backing again.
func (p *Pool) reclaimLocked(r *request) error {
	p.syncLocked()
	p.cachedLocked(r)
	if r.block != nil {
		return nil
	}
	p.emptyLocked()
	if r.block != nil {
		return nil
	}
	err := p.growLocked(r, false)
	if r.block == nil && errors.Is(err, ErrNoMemory) {
		if e := p.growLocked(r, true); e == nil || !errors.Is(e, ErrNoMemory) {
			err = e
		}
	}
	return err
}

// hopelessLocked reports whether the request is larger than all memory that the pool may have.
func (p *Pool) hopelessLocked(r *request) bool {
	if p.limit > 0 && r.rounded > p.limit {
		return true
	}
	p.mu.Unlock()
	_, total := p.backing.Capacity()
	p.mu.Lock()
	return total > 0 && r.rounded > total
}

// Empty gives segments without live or pending blocks back to the backing, when the work on their
// streams is done. It returns their size in bytes. It corresponds to torch.cuda.empty_cache.
func (p *Pool) Empty() uint64 {
	// While this lock is held, requests that find no memory wait for it and do not fail.
	p.ladderMu.Lock()
	defer p.ladderMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retryDeferredLocked()
	p.settleLocked()
	return p.emptyLocked()
}

// emptyLocked is Empty for a caller that holds the ladder's lock and the pool's lock. It releases
// the pool's lock while it waits and while it frees.
func (p *Pool) emptyLocked() (bytes uint64) {
	if p.paused > 0 {
		return 0
	}
	type waited struct {
		stream StreamID
		// event after all work of the stream; nil if it could not be recorded: the stream's
		// segments then stay
		event Event
	}
	var events []waited
	idle := func(stream StreamID) bool {
		for _, w := range events {
			if w.stream == stream {
				return w.event != nil
			}
		}
		e, err := p.backing.Record(stream)
		if err != nil {
			e = nil
			p.eventIssue = fmt.Errorf("event on %s: %w", p.streamName(stream), err)
		}
		events = append(events, waited{stream, e})
		return e != nil
	}
	var unused []*segment
	for i := 0; i < len(p.segments); {
		seg := p.segments[i]
		if seg.space != nil { // carveLocked gives back the pages of expandable segments
			i++
			continue
		}
		b := seg.first
		if b.state != stateFree || b.next != nil || seg.home.held || !idle(seg.home.stream) {
			i++
			continue
		}
		p.unindexLocked(b)
		p.recycleLocked(b)
		last := len(p.segments) - 1
		p.segments[i] = p.segments[last]
		p.segments[i].index = i
		p.segments[last] = nil
		p.segments = p.segments[:last]
		unused = append(unused, seg)
		p.stats.of(seg.small).returned(seg.size)
		if p.history != nil {
			p.history.segmentLocked(device.ActionSegmentFree, seg.addr, seg.size, seg.home.stream, nil)
		}
		bytes += seg.size
	}
	segments := uint64(len(unused))
	pages := p.carveLocked(idle)
	for _, u := range pages {
		bytes += u.size
		p.stats.ExpandableBytes.sub(u.size)
		p.stats.of(u.space.small).ReservedBytes.sub(u.size)
	}
	if bytes == 0 && len(events) == 0 {
		return 0
	}
	p.reserving += bytes // until Free has returned, these bytes count towards the limit
	p.stats.ReservedBytes.sub(bytes)
	p.stats.Segments.sub(segments)
	p.stats.Returned += bytes
	p.mu.Unlock()
	for _, w := range events {
		if w.event != nil {
			p.backing.Wait(w.event)
			w.event.Release()
		}
	}
	for _, seg := range unused {
		p.backing.Free(seg.addr, seg.size)
	}
	p.unmap(pages)
	p.mu.Lock()
	p.unmappedLocked(pages)
	p.reserving -= bytes
	return bytes
}

// backgroundGCLocked starts a garbage collection, unless one is running or the last collection
// ended shortly before.
func (p *Pool) backgroundGCLocked() {
	now := p.o.Now()
	if p.gcRunning || now.Sub(p.gcLast) < p.o.GCInterval {
		return
	}
	p.gcRunning, p.gcLast = true, now
	go p.collectEarly()
}

// collectEarly runs a garbage collection and waits until its cleanups queue no further releases.
// From the bytes that survive, it computes when the next collection starts. It does not count
// blocks that were allocated during the collection: on a busy machine there may be many.
func (p *Pool) collectEarly() {
	p.mu.Lock()
	ever := p.collectableEver
	p.mu.Unlock()
	p.o.GC()
	deadline := time.Now().Add(p.o.CollectWait)
	p.mu.Lock()
	for {
		p.drainLocked()
		before := p.stats.QueuedFrees
		p.mu.Unlock()
		time.Sleep(idleLimit)
		p.mu.Lock()
		p.drainLocked()
		if p.stats.QueuedFrees == before || time.Now().After(deadline) {
			break
		}
	}
	p.stats.EarlyCollections++
	survived := p.collectable - min(p.collectable, p.collectableEver-ever)
	p.gcNext = max(p.o.GCMinBytes, uint64(float64(survived)*(1+p.o.GCRatio)))
	p.gcLast, p.gcRunning = p.o.Now(), false
	p.mu.Unlock()
}
