package pool

// Hold keeps the segments of a stream, those that it has and those that it gets, from being returned to the backing, also where nothing in
// them is in use: who recorded the work of a stream comes back to the addresses. [Pool.Retire] ends it.
func (p *Pool) Hold(stream StreamID) {
	p.mu.Lock()
	p.arenaLocked(stream).held = true
	p.mu.Unlock()
}
