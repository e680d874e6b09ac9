package tensor

import "github.com/flambeau-go/flambeau/device"

// once panics if this goroutine captures, and is about to change memory of a GPU that is older than the capture by work that runs now: once, and not
// by replays. New memory may be filled: so begins the state of an optimizer.
func (st *storage) once(op string, s device.Stream) {
	if st.dev == hostDevice() || capturing(s) != nil {
		return
	}
	var g *Graph
	captures.each(func(innermost *Graph) bool {
		g = innermost
		return false
	})
	if g == nil || st.epoch >= g.number {
		return
	}
	e := newError(op, ErrCapture, nil, "what it writes to would be changed now, once, and not by replays: the work is not in the scope of the capture")
	g.mu.Lock()
	defer g.mu.Unlock()
	panic(g.refused(e.hint("start it with In(s), s being the scope that the function gets; call an optimizer or an average behind Backward; or do it before the capture")))
}
