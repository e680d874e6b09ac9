package tensor

import (
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/internal/callsite"
)

// byGoroutine knows the graph that a goroutine captures, the innermost one: to refuse what it does beside it, never to do something else.
var byGoroutine sync.Map // uint64 to *Graph

// enter notes that this goroutine captures g from now on.
func (g *Graph) enter() {
	g.goroutine = callsite.Goroutine()
	if outer, ok := byGoroutine.Load(g.goroutine); ok {
		g.outer = outer.(*Graph)
	}
	byGoroutine.Store(g.goroutine, g)
}

// leave undoes enter.
func (g *Graph) leave() {
	if g.outer == nil {
		byGoroutine.Delete(g.goroutine)
	} else {
		byGoroutine.Store(g.goroutine, g.outer)
		g.outer = nil
	}
}

// once panics if this goroutine captures, and is about to change memory of a GPU that is older than the capture by work that runs now: once, and not
// by replays. New memory may be filled: so begins the state of an optimizer.
func (st *storage) once(op string, s device.Stream) {
	if st.dev == hostDevice() || capturing(s) != nil {
		return
	}
	v, ok := byGoroutine.Load(callsite.Goroutine())
	if !ok {
		return
	}
	g := v.(*Graph)
	if st.epoch >= g.number {
		return
	}
	e := newError(op, ErrCapture, nil, "what it writes to would be changed now, once, and not by replays: the work is not in the scope of the capture")
	g.mu.Lock()
	defer g.mu.Unlock()
	panic(g.refused(e.hint("start it with In(s), s being the scope that the function gets; call an optimizer or an average behind Backward; or do it before the capture")))
}
