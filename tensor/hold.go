package tensor

import (
	"runtime"
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// A Hold keeps a tensor's memory for work that another goroutine will queue later. That goroutine
// first waits for other ranks. Until [Hold.Done] the memory is not reused, even if the tensor is
// freed. Ops that would disturb the work wait for it on the host. Streams order later ops after the
// work, as after any op.
type Hold struct {
	st    *storage
	view  device.View
	write bool
	owner any
	wait  func() error
	after []device.Event // events of the work on the memory that was queued before the hold
	done  chan struct{}
}

// Hold holds the contiguous x for work that reads it, and also changes it if write is true. The
// work runs after ops that are queued on x before this call. Ops that need the memory call wait,
// which must block until the hold is done. If the hold will never be done, wait must return an
// error. Holds of one owner may overlap, because their work is queued in order. owner must be
// comparable.
//
// graph is the graph into which the work is recorded, by any goroutine. It is nil if the work is
// not recorded.
//
// In a scope that records a graph of gradients x must not require a gradient, because the work has
// no gradient.
func (x *Tensor) Hold(op string, write bool, graph *Graph, owner any, wait func() error) *Hold {
	x.use(op)
	if !x.layout.Contiguous() {
		e := newError(op, ErrShape, []*Tensor{x}, "the tensor is not contiguous")
		panic(e.hint("use Contiguous"))
	}
	if graph == nil {
		x.scope.uncapturable(op, "it is queued by the last rank that comes to it, and not by this one")
	} else if !graph.live.Load() {
		fail(op, ErrCapture, []*Tensor{x}, "the capture is over")
	}
	if wantsGrad(op, x.scope, []*Tensor{x}) {
		e := newError(op, ErrGrad, []*Tensor{x}, "the tensor requires a gradient, and this computation has none")
		panic(e.hint("call it with Detach, or in a NoGrad scope"))
	}
	if write {
		x.writable(op)
		x.st.version.Add(1)
	}
	h := &Hold{st: x.st, view: x.deviceView(), write: write, owner: owner, wait: wait, done: make(chan struct{})}
	st := x.st
	st.mu.Lock()
	defer st.mu.Unlock()
	st.settle(op, write, owner)
	if graph != nil {
		graph.touch(op, st, write)
	}
	// For host memory, events are recorded only if it is page-locked: then a GPU copies from or to
	// it.
	if !st.dev.Info().Host || st.pinned() != nil {
		if st.writer != nil {
			h.recordEvent(op, st.writer)
		}
		for _, u := range st.readers() {
			if write {
				h.recordEvent(op, u)
			}
		}
	}
	st.retain()
	more := st.extend()
	more.holds = append(more.holds, h)
	runtime.KeepAlive(x)
	return h
}

// recordEvent makes the held work wait for the work that is queued on s now.
func (h *Hold) recordEvent(op string, s device.Stream) {
	ev, err := s.Record()
	check(op, err)
	h.after = append(h.after, ev)
}

// On makes s wait for the earlier work on the memory. So work that is queued on s later runs after
// it. For work of the host s is nil, and On itself waits for the earlier work. On returns the view
// of the memory.
func (h *Hold) On(s device.Stream) (device.View, error) {
	st := h.st
	st.mu.Lock()
	defer st.mu.Unlock()
	for i, ev := range h.after {
		wait := ev.Wait
		if s != nil {
			wait = func() error { return s.Wait(ev) }
		}
		if err := wait(); err != nil {
			return device.View{}, err
		}
		ev.Release()
		h.after[i] = nil
	}
	h.after = nil
	if s == nil {
		return h.view, nil
	}
	switch more := st.extend(); {
	case h.write:
		more.users, st.writer = more.users[:0], s
	case st.writer != s && !slices.Contains(more.users, s):
		more.users = append(more.users, s)
	}
	if st.home != s {
		st.usedBy(s)
	}
	return h.view, nil
}

// Done ends the hold. Call it once: when work of a device is queued, or when work of the host is
// done. Call it also when it is clear that the work will never be done.
func (h *Hold) Done() {
	st := h.st
	st.mu.Lock()
	st.more.holds = slices.DeleteFunc(st.more.holds, func(o *Hold) bool { return o == h })
	for _, ev := range h.after {
		if ev != nil {
			ev.Release()
		}
	}
	st.mu.Unlock()
	close(h.done)
	st.release()
}

// settle waits until no hold of another owner conflicts with an access. The caller holds st.mu,
// which settle unlocks while it waits.
func (st *storage) settle(op string, write bool, owner any) {
	more := st.extend()
	for {
		i := slices.IndexFunc(more.holds, func(h *Hold) bool {
			return (write || h.write) && (owner == nil || h.owner != owner)
		})
		if i < 0 {
			return
		}
		h := more.holds[i]
		st.mu.Unlock()
		var err error
		select {
		case <-h.done:
		default:
			err = h.wait()
		}
		st.mu.Lock()
		check(op, err)
	}
}
