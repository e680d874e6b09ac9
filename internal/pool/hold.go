package pool

// Adopter is optionally satisfied by a Backing whose streams can wait for each other. A stream that
// is held (see [Pool.Hold]) then takes segments in which nothing is in use from other streams,
// before it asks for new ones. Pages of expandable segments stay where they are.
type Adopter interface {
	// Follow makes later work on stream come after what is queued on before. It runs under the
	// pool's lock.
	Follow(stream, before StreamID) error
}

// adoptLocked serves a request of a held stream from a segment of another stream in which nothing
// is in use, the smallest that is large enough. It reports whether it could.
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
	// without order it is not safe: a new segment is
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

// Hold keeps the segments of a stream, those that it has and those that it gets, from being
// returned to the backing, also where nothing in them is in use. Who recorded the work of a stream
// comes back to the addresses. [Pool.Retire] ends it.
func (p *Pool) Hold(stream StreamID) {
	p.mu.Lock()
	p.arenaLocked(stream).held = true
	p.mu.Unlock()
}
