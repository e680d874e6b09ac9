package tensor

// A joint is a goroutine's part in a capture that another one began.
type joint struct {
	scope *Scope
	kept  kept[*Graph]
}

// Join has the calling goroutine take part in the capture, beside the one that called [Capture].
// Capture's function must not return before it. scope is for what the goroutine records: a child of
// the graph's scope with these options, which is closed with the graph's. What the goroutine
// changes beside it is refused as it is on the first goroutine, until leave is called.
//
// The goroutines of a capture take turns. Only one of them records at a time, and which one when
// decides the order of the graph's feeds. [Graph.Feed] is of the device that Capture was given; for
// others there is [Graph.FeedOn].
func (g *Graph) Join(opts ...Option) (scope *Scope, leave func()) {
	if !g.live.Load() {
		fail("join", ErrCapture, nil, "the capture is over")
	}
	j := &joint{scope: g.scope.New(opts...)}
	g.mu.Lock()
	g.joined = append(g.joined, j)
	g.mu.Unlock()
	captures.keep(&j.kept, g, false)
	return j.scope, j.kept.end
}

// part closes the scopes of those who joined.
func (g *Graph) part() {
	for _, j := range g.joined {
		j.scope.abandon()
	}
}
