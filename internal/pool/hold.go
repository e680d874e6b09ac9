package pool

// Adopter is implemented by a Backing whose streams can wait for each other. With such a backing, a
// held stream (see [Pool.Hold]) takes over unused segments of other streams before it asks for new
// segments. It does not take over the pages of expandable segments.
type Adopter interface {
	// Follow makes later work on stream wait for all work that is already queued on producer. The
	// pool holds its lock when it calls Follow.
	Follow(stream, producer StreamID) error
}

// adoptLocked serves a request of a held stream from an unused segment of another stream: the
// smallest segment that is large enough. It reports whether there is one.
func (p *Pool) adoptLocked(r *request) bool {
	a, ok := p.backing.(Adopter)
	to := p.arenaLocked(r.stream)
	if !ok || !to.held {
		return false
	}
	var best *segment
	for _, seg := range p.segments {
		b := seg.first
		if seg.space != nil || b.state != stateFree || b.next != nil || seg.home.held || seg.small != (r.rounded <= p.o.SmallMax) || seg.size < r.rounded {
			continue
		}
		if best == nil || seg.size < best.size {
			best = seg
		}
	}
	// If Follow fails, the segment cannot be used: the held stream would not wait for the other
	// stream's work on it.
	if best == nil || a.Follow(r.stream, best.home.stream) != nil {
		return false
	}
	p.unindexLocked(best.first)
	best.home = to
	best.first.stream.Store(uint64(r.stream))
	p.indexLocked(best.first)
	r.block = p.takeLocked(r.size, r.rounded, r.stream, r.origin)
	return r.block != nil
}

// Hold prevents the pool from giving the segments of a stream back to the backing, even if they are
// unused. This applies to present and future segments. Hold is for streams of a recording, whose
// replays need the same addresses. It has an effect until [Pool.Retire] is called for the stream.
func (p *Pool) Hold(stream StreamID) {
	p.mu.Lock()
	p.arenaLocked(stream).held = true
	p.mu.Unlock()
}
