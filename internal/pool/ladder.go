package pool

import (
	"errors"
	"fmt"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// quiet is how long the ladder lets the queue be still, once cleanups have begun to fill it, before
// it goes on to its costlier steps. It comes back to waiting, up to Options.CollectWait, before it
// fails.
const quiet = 2 * time.Millisecond

// collections is how many garbage collections a request may cause. Another one follows only when
// the last brought memory back that others (on other streams, whose blocks could not be offered to
// this request) took and may have dropped again: they soon wait behind the ladder, so few are
// enough.
const collections = 8

// climb is the ladder: what is tried, in this order, for a request that neither the cache nor the
// backing could serve.
//
//  1. the same once more (another goroutine may have been on the ladder before), with the queue
//     drained;
//  2. Options.Pressure;
//  3. where no live block awaits the garbage collector: step 5 first, for a collection would then
//     find only what programs that free promptly have lost;
//  4. a garbage collection (again, when it helped only others), and up to Options.CollectWait for
//     its cleanups to queue releases, and for other goroutines to free: those are offered to this
//     request first;
//  5. waiting for the events of pending blocks; returning unused segments and asking the backing
//     again; a segment of just the size asked;
//  6. the typed error.
func (p *Pool) climb(r *request) (*Block, error) {
	p.ladderMu.Lock()
	defer p.ladderMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiter = r
	finished := false
	defer func() {
		p.waiter = nil
		if !finished && r.block != nil { // a hook panicked: nobody will own it
			p.freeLocked(r.block, r.block.gen)
		}
	}()
	p.stats.Retries++
	cause := p.stepsLocked(r)
	p.waiter, finished = nil, true // from here on, what is freed is not offered to r
	switch {
	case r.block != nil:
		return r.block, nil
	case errors.Is(cause, ErrNoMemory):
		p.stats.OOMs++
		return nil, p.oomLocked(r.size, r.stream, r.origin, cause)
	}
	return nil, p.growError(r, cause)
}

// unlocked calls a hook, which may panic, without the pool's lock.
func (p *Pool) unlocked(hook func()) {
	p.mu.Unlock()
	defer p.mu.Lock()
	hook()
}

// stepsLocked tries until r has a block, or returns the last refusal of the backing. The lock is
// released for whatever takes time.
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
	p.hungry.Store(true)
	defer p.hungry.Store(false)
	for range collections {
		before := p.stats.QueuedFrees
		p.unlocked(p.o.GC)
		p.stats.Collections++
		deadline := time.Now().Add(p.o.CollectWait)
		for _, pause := range []time.Duration{quiet, p.o.CollectWait} {
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

// cachedLocked serves r from the cache after taking in whatever is already reusable.
func (p *Pool) cachedLocked(r *request) {
	p.settleLocked()
	p.offerLocked()
}

// awaitLocked serves r from what is queued or freed until the deadline. Once something was queued,
// it also ends when nothing more came for a pause.
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

// reclaimLocked waits for pending blocks, returns unused segments, and asks the backing again.
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

// hopelessLocked reports that the request exceeds what the pool may ever hold.
func (p *Pool) hopelessLocked(r *request) bool {
	if p.limit > 0 && r.rounded > p.limit {
		return true
	}
	p.mu.Unlock()
	_, total := p.backing.Capacity()
	p.mu.Lock()
	return total > 0 && r.rounded > total
}

// Empty returns the segments without a live or pending block to the backing, after the work on
// their streams, and returns how many bytes these were (torch.cuda.empty_cache).
func (p *Pool) Empty() uint64 {
	p.ladderMu.Lock() // so that no one fails for want of memory that is on its way back
	defer p.ladderMu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retryDeferredLocked()
	p.settleLocked()
	return p.emptyLocked()
}

// emptyLocked does what Empty says, under the ladder's lock. The pool's lock is released while it
// waits and frees.
func (p *Pool) emptyLocked() (bytes uint64) {
	if p.paused > 0 {
		return 0
	}
	type waited struct {
		stream StreamID
		event  Event // nil: the stream cannot be asked, its segments stay
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
		if seg.space != nil { // see carveLocked
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
	p.reserving += bytes // still held, so no one may take it for room below the limit
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

// backgroundGCLocked starts a collection unless one runs or the last was a moment ago.
func (p *Pool) backgroundGCLocked() {
	now := p.o.Now()
	if p.gcRunning || now.Sub(p.gcLast) < p.o.GCInterval {
		return
	}
	p.gcRunning, p.gcLast = true, now
	go p.collectEarly()
}

// collectEarly collects, waits until the cleanups' queue is still, and sets the next goal from what
// survived: what was allocated meanwhile, which may be much on a busy machine, is not part of that.
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
		time.Sleep(quiet)
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
