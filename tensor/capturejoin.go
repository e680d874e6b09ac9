package tensor

// A joint is a goroutine's part in a capture that another goroutine began.
type joint struct {
	scope   *Scope
	binding binding[*Graph]
}

// Join makes the calling goroutine record into the capture, in addition to the goroutine that
// called [Capture]. The function given to Capture must not return before this goroutine has called
// leave. scope is for the work of this goroutine. It is a child of the graph's scope with these
// options, and closes with the graph's scope. Until leave is called, changes that replays would
// miss are refused, as on the first goroutine.
//
// The goroutines of a capture must take turns: only one may record at a time. The order in which
// they record decides the order of the graph's feeds. [Graph.Feed] is for the device that was
// passed to Capture. For other devices use [Graph.FeedOn].
func (g *Graph) Join(opts ...Option) (scope *Scope, leave func()) {
	if !g.live.Load() {
		fail("join", ErrCapture, nil, "the capture is over")
	}
	j := &joint{scope: g.scope.New(opts...)}
	g.mu.Lock()
	g.joined = append(g.joined, j)
	g.mu.Unlock()
	captures.bind(&j.binding, g, false)
	return j.scope, j.binding.end
}

func (g *Graph) closeJoined() {
	for _, j := range g.joined {
		j.scope.abandon()
	}
}
