package tensor

import (
	"errors"
	"fmt"
	"slices"
)

// A BackwardWatcher is told of runs of Backward: see [WatchBackward].
type BackwardWatcher interface {
	// Begin comes when it is known which leaves a run adds to, and before its first VJP.
	// reached[i] says whether leaf i is one of them; at least one is. The slice is the callee's.
	//
	// s is a scope of the run, which ends behind End. It records no graph, unless the run was
	// asked to [CreateGraph], and autocast is off in it.
	//
	// What Begin returns is told of the rest of this run. Nil: it is told of nothing.
	Begin(s *Scope, reached []bool) BackwardRun
}

// A BackwardRun is told what becomes of the leaves that one run of Backward reaches. Each of them
// is either ready or missed, once, unless the run fails. All calls come one after the other, on the
// goroutine that called Backward, in an order that is the same for the same graph. No lock is held.
// The run goes on when a call returns; a panic of one ends it.
type BackwardRun interface {
	// Ready says that the gradient of leaf i is complete and in its Grad: as soon as no more can
	// come, with [Into] at the end of the run. It comes before the functions of
	// [Tensor.RegisterPostAccumulateGradHook]. It may set, take away or free the gradient.
	Ready(i int)

	// Missed says that leaf i gets nothing from this run after all: each VJP that could have sent
	// it a gradient returned nil for it, or the leaf has been freed. Its Grad is as it was before.
	Missed(i int)

	// End comes once, last. failed is nil if the run is complete. Else it is what the run panicked
	// with, which goes on behind End; a value that is no error is wrapped in one.
	End(failed error)
}

// errExited is what a run of Backward failed with when its goroutine ended.
var errExited = errors.New("tensor: backward: the goroutine ended in it, by runtime.Goexit")

// WatchBackward has w told of each run of Backward that adds to the gradient of at least one of the
// leaves, which w knows by their number. Which leaves a run reaches is known before it begins, so
// that w need not wait for those that it does not use. [Gradients] adds to no leaf: nothing is told
// of it. Runs may go on at the same time, on several goroutines: each has a [BackwardRun] of its
// own. A leaf that two of them reach may be added to by one while it is ready in the other.
//
// Leaves are floating point tensors that require a gradient, each given once; other ones are
// refused with an [ErrGrad] or [ErrValue]. remove ends the watch for runs that begin later.
// A watch costs nothing where there is none, but for an atomic load a leaf and run.
func WatchBackward(leaves []*Tensor, w BackwardWatcher) (remove func()) {
	const op = "watch_backward"
	switch {
	case len(leaves) == 0:
		fail(op, ErrValue, nil, "there are no leaves to watch")
	case w == nil:
		fail(op, ErrValue, nil, "the watcher is nil")
	}
	number := map[*Tensor]int{}
	for i, x := range leaves {
		x.use(op)
		x.current(op)
		switch k, twice := number[x.base()]; {
		case x.node != nil:
			fail(op, ErrGrad, []*Tensor{x}, "gradients are added to leaves; number %d is a result", i)
		case !x.needsGrad:
			x.gradless(op, fmt.Sprintf("leaf %d does not require a gradient", i))
		case twice:
			fail(op, ErrValue, []*Tensor{x}, "leaf %d is leaf %d once more", i, k)
		}
		number[x.base()] = i
	}
	by := &watch{w, len(leaves)}
	removes := make([]func(), len(leaves))
	for i, x := range leaves {
		k, h := x.hooksOf(), watchedAs{by, i}
		k.mu.Lock()
		k.watched = append(slices.Clip(k.watched), h)
		k.mu.Unlock()
		removes[i] = remover(k, &k.watched, h)
	}
	return func() {
		for _, f := range removes {
			f()
		}
	}
}

// A watch is one call of WatchBackward.
type watch struct {
	w BackwardWatcher
	n int // leaves
}

// watchedAs says that a leaf is number i of a watch.
type watchedAs struct {
	by *watch
	i  int
}

// A watchedRun is what one run of the engine tells of its leaves.
type watchedRun struct {
	leaves []*watchedLeaf // that it reaches, in the order in which they are complete
	passed int            // how many of them no more gradients go to
	told   []BackwardRun  // whose End is still to come
}

// A watchedLeaf is a leaf that a run reaches and somebody watches.
type watchedLeaf struct {
	t    *task
	as   []watchedAs
	to   []BackwardRun // by as; nil: nobody
	sent bool          // a gradient has come
}

// reaches notes that the run has a task for a leaf. Where nobody watches that costs a load.
func (r *watchedRun) reaches(t *task) {
	k := t.at.leaf.hooks.Load()
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.watched) > 0 {
		t.watched = &watchedLeaf{t: t, as: k.watched}
		r.leaves = append(r.leaves, t.watched)
	}
}

// begin tells the watchers which leaves the run adds to.
func (e *engine) begin() {
	r := &e.watched
	r.leaves = slices.DeleteFunc(r.leaves, func(l *watchedLeaf) bool { return !l.t.wanted() })
	if e.inputs != nil && e.o.into == nil {
		r.leaves = nil // of Gradients, which adds to none
	}
	if len(r.leaves) == 0 {
		return
	}
	slices.SortStableFunc(r.leaves, func(a, b *watchedLeaf) int {
		switch {
		case a.t.order > b.t.order:
			return -1
		case a.t.order < b.t.order:
			return 1
		}
		return 0
	})
	var order []*watch
	reached := map[*watch][]bool{}
	for _, l := range r.leaves {
		for _, a := range l.as {
			if reached[a.by] == nil {
				order, reached[a.by] = append(order, a.by), make([]bool, a.by.n)
			}
			reached[a.by][a.i] = true
		}
	}
	runs := map[*watch]BackwardRun{}
	for _, by := range order {
		if run := by.w.Begin(e.scope, reached[by]); run != nil {
			runs[by], r.told = run, append(r.told, run)
		}
	}
	for _, l := range r.leaves {
		for _, a := range l.as {
			l.to = append(l.to, runs[a.by])
		}
	}
}

// pass tells of leaves to which nothing has come, and nothing can any more, as all tasks are done
// whose order is greater than this.
func (r *watchedRun) pass(order uint64) {
	for r.passed < len(r.leaves) && r.leaves[r.passed].t.order > order {
		l := r.leaves[r.passed]
		r.passed++
		if !l.sent {
			l.tell(BackwardRun.Missed)
		}
	}
}

// tell tells everybody who watches the leaf.
func (l *watchedLeaf) tell(what func(run BackwardRun, i int)) {
	for k, run := range l.to {
		if run != nil {
			what(run, l.as[k].i)
		}
	}
}

// into adds g to a leaf, and tells of it.
func (e *engine) into(t *task, g *Tensor) {
	leaf := t.at.leaf
	added := e.accumulate(leaf, g)
	if l := t.watched; l != nil {
		if added {
			l.tell(BackwardRun.Ready)
		} else {
			l.tell(BackwardRun.Missed)
		}
	}
	e.accumulated(leaf)
}

// end tells of the end of a complete run.
func (r *watchedRun) end() {
	for len(r.told) > 0 {
		run := r.told[0]
		r.told = r.told[1:]
		run.End(nil)
	}
}

// abandon, which is deferred, tells of the end of a run that failed.
func (r *watchedRun) abandon() {
	if len(r.told) == 0 {
		return
	}
	p := recover()
	failed := errExited
	switch p := p.(type) {
	case nil:
	case error:
		failed = p
	default:
		failed = fmt.Errorf("tensor: backward: %v", p)
	}
	told := r.told
	r.told = nil
	endAll(told, failed)
	if p != nil {
		panic(p)
	}
}

// endAll tells all, also when one of them panics.
func endAll(told []BackwardRun, failed error) {
	if len(told) > 0 {
		defer endAll(told[1:], failed)
		told[0].End(failed)
	}
}
