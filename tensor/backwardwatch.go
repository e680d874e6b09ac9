package tensor

import (
	"errors"
	"fmt"
	"slices"
)

// A BackwardWatcher is told about runs of Backward: see [WatchBackward].
type BackwardWatcher interface {
	// Begin is called before the first VJP of a run. reached[i] says whether the run adds to the
	// gradient of leaf i. At least one entry is true. The callee may keep the slice.
	//
	// s is a scope that ends after End returns. It records no graph, unless the run has the option
	// [CreateGraph]. Autocast is off in it.
	//
	// The BackwardRun that Begin returns is told what happens later in this run. If Begin returns
	// nil, there are no further calls.
	Begin(s *Scope, reached []bool) BackwardRun
}

// A BackwardRun is told what happens to the leaves that one run of Backward reaches. Unless the run
// fails, each leaf is reported once, either ready or missed. All calls come one after the other, on
// the goroutine that called Backward, in an order that is the same for the same graph. No lock is
// held. The run continues when a call returns. A call that panics ends the run.
type BackwardRun interface {
	// Ready says that the gradient of leaf i is complete and in its Grad. It is called as soon as
	// no more gradients can arrive. With [Into] it is called at the end of the run. It is called
	// before the functions of [Tensor.RegisterPostAccumulateGradHook]. Ready may set, take or free
	// the gradient.
	Ready(i int)

	// Missed says that leaf i receives no gradient from this run after all. Either each VJP that
	// could have sent one returned nil, or the leaf has been freed. Its Grad is the same as before
	// the run.
	Missed(i int)

	// End is called once, last. failed is nil if the run is complete. Otherwise it is the value
	// that the run panicked with. A value that is not an error is wrapped in an error. The panic
	// continues after End.
	End(failed error)
}

// errExited is the error that End gets when the goroutine of a run ended by runtime.Goexit.
var errExited = errors.New("tensor: backward: the goroutine ended in it, by runtime.Goexit")

// WatchBackward reports to w each run of Backward that adds to the gradient of at least one of the
// leaves. w knows the leaves by their index in the list. The leaves that a run reaches are known
// before it begins, so w need not wait for the leaves that the run does not use. [Gradients] adds
// to no leaf, so it is not reported. Several goroutines may run Backward at the same time: each run
// has a [BackwardRun] of its own. If two runs reach one leaf, the first run may report it ready
// while the second run still adds to it.
//
// Leaves must be floating point tensors that require a gradient, and each may be given once.
// Otherwise WatchBackward panics with an *[Error] of the kind [ErrGrad] or [ErrValue]. remove ends
// the watch for runs that begin later. A leaf that nobody watches costs each run one atomic load.
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
		x.mustBeCurrent(op)
		switch k, twice := number[x.base()]; {
		case x.node != nil:
			fail(op, ErrGrad, []*Tensor{x}, "gradients are added to leaves; number %d is a result", i)
		case !x.needsGrad:
			x.failWithoutGrad(op, fmt.Sprintf("leaf %d does not require a gradient", i))
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
	n int // number of leaves
}

// watchedAs says that a leaf has index i in a watch.
type watchedAs struct {
	watch *watch
	i     int
}

// A watchedRun keeps what one run of the engine must report about its leaves.
type watchedRun struct {
	// watched leaves that the run reaches, in the order in which their gradients become complete
	leaves []*watchedLeaf
	passed int           // number of these leaves that can receive no more gradients
	told   []BackwardRun // runs whose End has not been called
}

// A watchedLeaf is a leaf that a run reaches and that somebody watches.
type watchedLeaf struct {
	t       *task
	watches []watchedAs
	// one run for each entry of watches; nil if the entry's watcher wants no calls
	runs []BackwardRun
	sent bool // true if a gradient has arrived
}

// reaches notes that the run has a task for a leaf. If nobody watches the leaf this costs one load.
func (r *watchedRun) reaches(t *task) {
	k := t.at.leaf.hooks.Load()
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.watched) > 0 {
		t.watched = &watchedLeaf{t: t, watches: k.watched}
		r.leaves = append(r.leaves, t.watched)
	}
}

// begin tells the watchers which leaves the run adds to.
func (e *engine) begin() {
	r := &e.watched
	r.leaves = slices.DeleteFunc(r.leaves, func(l *watchedLeaf) bool { return !l.t.wanted() })
	if e.inputs != nil && e.o.into == nil {
		r.leaves = nil // Gradients adds to no leaf
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
		for _, a := range l.watches {
			if reached[a.watch] == nil {
				order, reached[a.watch] = append(order, a.watch), make([]bool, a.watch.n)
			}
			reached[a.watch][a.i] = true
		}
	}
	runs := map[*watch]BackwardRun{}
	for _, by := range order {
		if run := by.w.Begin(e.scope, reached[by]); run != nil {
			runs[by], r.told = run, append(r.told, run)
		}
	}
	for _, l := range r.leaves {
		for _, a := range l.watches {
			l.runs = append(l.runs, runs[a.watch])
		}
	}
}

// reportMissed reports as missed the leaves that have received no gradient and cannot receive one
// any more. The caller ensures that all tasks of a greater order than the given one are done.
func (r *watchedRun) reportMissed(order uint64) {
	for r.passed < len(r.leaves) && r.leaves[r.passed].t.order > order {
		l := r.leaves[r.passed]
		r.passed++
		if !l.sent {
			l.tell(BackwardRun.Missed)
		}
	}
}

// tell calls the given function for every watcher of the leaf.
func (l *watchedLeaf) tell(call func(run BackwardRun, i int)) {
	for k, run := range l.runs {
		if run != nil {
			call(run, l.watches[k].i)
		}
	}
}

// addToLeaf adds g to the leaf of task t, and tells the leaf's watchers.
func (e *engine) addToLeaf(t *task, g *Tensor) {
	leaf := t.at.leaf
	added := e.accumulate(leaf, g)
	if l := t.watched; l != nil {
		if added {
			l.tell(BackwardRun.Ready)
		} else {
			l.tell(BackwardRun.Missed)
		}
	}
	e.runPostHooks(leaf)
}

// end tells the watchers that the run is complete.
func (r *watchedRun) end() {
	for len(r.told) > 0 {
		run := r.told[0]
		r.told = r.told[1:]
		run.End(nil)
	}
}

// abandon tells the watchers that the run failed. It is called by defer.
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

// endAll calls End of all runs, even if one of them panics.
func endAll(told []BackwardRun, failed error) {
	if len(told) > 0 {
		defer endAll(told[1:], failed)
		told[0].End(failed)
	}
}
