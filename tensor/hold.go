package tensor

import (
	"runtime"
	"slices"

	"github.com/flambeau-go/flambeau/device"
)

// A Hold keeps a tensor's memory for work that will be queued later, by another goroutine: work
// that waits for other ranks. Until [Hold.Done] the memory has no other owner, also where the
// tensor is freed, and ops that would disturb the work wait for it on the host. Later ops are
// ordered behind it by streams, as behind any op.
type Hold struct {
	st    *storage
	view  device.View
	write bool
	owner any
	wait  func() error
	after []device.Event // what was queued on the memory when it was held
	done  chan struct{}
}

// Hold holds x, contiguous, for work that reads it, or with write also changes it. What ops were
// queued on x until now comes before the work. Ops that need the memory call wait. It blocks until
// the hold is done, and returns an error if it never will be. Holds of one owner may lie over each
// other, since their work is queued in order; an owner can be compared.
//
// in is the graph that the work is recorded into, by whichever goroutine, and nil if it runs.
//
// In a scope that records a graph of gradients x must not require one: the work has none.
func (x *Tensor) Hold(op string, write bool, in *Graph, owner any, wait func() error) *Hold {
	x.use(op)
	if !x.layout.Contiguous() {
		e := newError(op, ErrShape, []*Tensor{x}, "the tensor is not contiguous")
		panic(e.hint("use Contiguous"))
	}
	if in == nil {
		x.scope.uncapturable(op, "it is queued by the last rank that comes to it, and not by this one")
	} else if !in.live.Load() {
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
	if in != nil {
		in.touch(op, st, write)
	}
	// On the host that is page-locked memory which a GPU copies from or to.
	if !st.dev.Info().Host || st.pinned != nil {
		if st.writer != nil {
			h.mark(op, st.writer)
		}
		for _, u := range st.users {
			if write {
				h.mark(op, u)
			}
		}
	}
	st.retain()
	st.holds = append(st.holds, h)
	runtime.KeepAlive(x)
	return h
}

// mark notes what is queued on s until now.
func (h *Hold) mark(op string, s device.Stream) {
	ev, err := s.Record()
	check(op, err)
	h.after = append(h.after, ev)
}

// On makes work that is queued on s from here on come after what the memory was held behind, and
// returns the view of the memory. s is nil for work of the host, which is done at once.
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
	switch {
	case h.write:
		st.users, st.writer = st.users[:0], s
	case st.writer != s && !slices.Contains(st.users, s):
		st.users = append(st.users, s)
	}
	if st.home != s {
		st.foreign(s)
	}
	return h.view, nil
}

// Done ends the hold: its work is queued, or on the host done, or will never be. It is called once.
func (h *Hold) Done() {
	st := h.st
	st.mu.Lock()
	st.holds = slices.DeleteFunc(st.holds, func(o *Hold) bool { return o == h })
	for _, ev := range h.after {
		if ev != nil {
			ev.Release()
		}
	}
	st.mu.Unlock()
	close(h.done)
	st.release()
}

// settle waits until no hold of another owner disturbs an access. st.mu is held, and given up
// meanwhile.
func (st *storage) settle(op string, write bool, owner any) {
	for {
		i := slices.IndexFunc(st.holds, func(h *Hold) bool {
			return (write || h.write) && (owner == nil || h.owner != owner)
		})
		if i < 0 {
			return
		}
		h := st.holds[i]
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
