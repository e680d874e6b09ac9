package dist

import (
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// A bucket is parameters whose gradients are reduced together.
type bucket struct {
	flat   *flat
	leaves []int            // of the reducer
	views  []*tensor.Tensor // their gradients here, once they are
	name   string
}

// arrange makes buckets of the leaves in an order.
func (r *Reducer) arrange(order []int) {
	for _, b := range r.buckets {
		b.flat.free()
	}
	r.buckets, r.home = nil, make([]int, len(r.leaves))
	for _, list := range packs(pick(r.leaves, order), r.first, r.rest) {
		b := &bucket{leaves: pick(order, list), views: make([]*tensor.Tensor, len(list))}
		part := pick(r.leaves, b.leaves)
		b.flat = r.newFlat(part)
		b.name = "gradients of " + r.params[b.leaves[0]].Name
		if n := len(b.leaves); n > 1 {
			b.name += " … " + r.params[b.leaves[n-1]].Name
		}
		for _, i := range b.leaves {
			r.home[i] = len(r.buckets)
		}
		r.buckets = append(r.buckets, b)
	}
}

// newFlat makes room for tensors of the model.
func (r *Reducer) newFlat(like []*tensor.Tensor) *flat {
	f := newFlat(r.g.Device(), like[0].Type(), like)
	if t := r.g.capture(); t != nil {
		t.graph.Adopt(f.all, f.slots)
	}
	return f
}

// A reduction is one run of Backward.
type reduction struct {
	r       *Reducer
	reached []bool
	left    []int // of each bucket, the gradients that are still to come
	next    int   // the first bucket that is not reduced yet
	finish  []func()
	order   []int
	failed  error // what kept a bucket from being filled
}

// Begin begins the reduction of a run: see [tensor.BackwardWatcher].
func (r *Reducer) Begin(_ *tensor.Scope, reached []bool) tensor.BackwardRun {
	if t := r.g.capture(); t != nil {
		t.guard(r)
	}
	if r.quiet > 0 {
		for i, yes := range reached {
			r.unsynced[i] = r.unsynced[i] || yes
		}
		return nil
	}
	if r.running != nil {
		panic(r.of.misuse("backward", tensor.ErrGrad, "another Backward over parameters of the same model is under way on this rank"))
	}
	if r.order != nil {
		r.arrange(r.order)
		r.order, r.ordered = nil, true
	}
	n := &reduction{r: r, reached: reached, left: make([]int, len(r.buckets))}
	for i, yes := range reached {
		if yes {
			n.left[r.home[i]]++
		}
	}
	r.running = n
	r.runs++
	return n
}

// Ready puts a gradient into its bucket, and reduces the bucket when it is full.
func (n *reduction) Ready(i int) { n.came(i) }

// Missed is Ready of a leaf that got nothing.
func (n *reduction) Missed(i int) {
	n.reached[i] = false
	n.came(i)
}

func (n *reduction) came(i int) {
	n.order = append(n.order, i)
	n.left[n.r.home[i]]--
	for n.next < len(n.left) && n.left[n.next] == 0 {
		n.launch()
	}
}

// launch reduces the next bucket. A rank that cannot fill it, for want of memory, takes part all
// the same, and fails at the end of the run.
func (n *reduction) launch() {
	r, b := n.r, n.r.buckets[n.next]
	n.next++
	scope := r.g.recorded()
	if err := tensor.Try(func() { n.fill(b, scope) }); n.failed == nil {
		n.failed = err
	}
	all := b.flat.all
	if scope != nil {
		all = all.In(scope)
	}
	average := func(x *tensor.Tensor) *Work {
		return r.g.begin(what{op: "all reduce", kind: device.KindAllReduce, combine: Mean, weighted: r.weighted}, b.name, x, x, r.weight)
	}
	if r.hook == nil {
		average(all)
		return
	}
	var names []string
	for _, i := range b.leaves {
		names = append(names, r.params[i].Name)
	}
	if f := r.hook(r.g, Bucket{Index: n.next - 1, Of: len(r.buckets), Grads: all, Names: names, Average: average}); f != nil {
		n.finish = append(n.finish, f)
	}
}

// fill puts the gradients into a bucket, and makes them views of it. scope is that of a capture,
// nil for none.
func (n *reduction) fill(b *bucket, scope *tensor.Scope) {
	r := n.r
	from := make([]*tensor.Tensor, len(b.leaves))
	for k, i := range b.leaves {
		g := r.leaves[i].Grad()
		switch {
		case g == nil:
			v := b.flat.view(k)
			if scope != nil {
				v.In(scope).Zero()
			} else {
				v.Zero()
			}
			v.Free()
		case g != b.views[k]:
			from[k] = g
		}
	}
	b.flat.put(scope, from)
	for k, i := range b.leaves {
		if from[k] != nil && n.used(i) {
			b.views[k] = b.flat.view(k)
			r.leaves[i].SetGrad(b.views[k])
		}
	}
}

// used reports whether this rank has a gradient for a leaf that is not averaged yet.
func (n *reduction) used(i int) bool { return n.reached[i] || n.r.unsynced[i] }

// A status is what a rank tells the others at the end of a run.
type status struct {
	used   []bool
	order  []int
	failed error
	rank   int // of the world
	device string
}

// A StepError says that a rank has failed in a step, by which the gradients of all are void: each
// rank's Backward panics with it. The program may go on, if all ranks do the step again.
type StepError struct {
	Rank   int // that failed
	Device string
	Err    error
}

func (e *StepError) Error() string {
	return fmt.Sprintf("dist: the step is void: rank %d, on %s, failed in it: %v", e.Rank, e.Device, e.Err)
}

// Unwrap returns what the rank failed with.
func (e *StepError) Unwrap() error { return e.Err }

// Raised makes the error one that tensor.Try returns: see device.Raised.
func (e *StepError) Raised() {}

// End waits until all ranks are done with the run, and agrees with them on what it was.
func (n *reduction) End(failed error) {
	n.r.running = nil
	if failed == nil {
		n.end(nil)
		return
	}
	// What the run failed with goes on behind this call; the others' end is not this rank's
	// concern.
	_ = tensor.Try(func() { n.end(failed) })
}

func (n *reduction) end(failed error) {
	r := n.r
	for n.next < len(r.buckets) {
		n.launch()
	}
	raised := failed != nil // and goes on by itself
	if failed == nil {
		failed = n.failed
	}
	me := status{used: make([]bool, len(r.leaves)), failed: failed, rank: r.g.core.members[r.g.rank], device: r.g.Device().Name()}
	for i := range me.used {
		me.used[i] = n.used(i)
	}
	if !r.ordered && r.order == nil {
		me.order = n.order
	}
	all := r.g.exchange("end of backward", me, nil)
	clear(r.unsynced)
	lowest := -1
	anywhere := make([]bool, len(r.leaves))
	for rank, v := range all {
		s, there := v.(status)
		switch {
		case !there: // it has no more data
		case s.failed != nil && raised:
			return // its own panic goes on
		case s.failed != nil && failed != nil:
			panic(failed)
		case s.failed != nil:
			panic(&StepError{s.rank, s.device, s.failed})
		case lowest < 0:
			lowest = rank
			fallthrough
		default:
			for i, used := range s.used {
				anywhere[i] = anywhere[i] || used
			}
		}
	}
	for _, f := range n.finish {
		f()
	}
	n.share(lowest)
	if order := all[lowest].(status).order; order != nil {
		r.reorder(order)
	}
	for _, b := range r.buckets {
		for k, i := range b.leaves {
			if anywhere[i] && !me.used[i] && r.leaves[i].Grad() != b.views[k] || anywhere[i] && r.leaves[i].Grad() == nil {
				b.views[k] = b.flat.view(k)
				r.leaves[i].SetGrad(b.views[k])
			}
		}
	}
}

// reorder has the buckets made anew, before the next run, in the order in which gradients were
// ready.
func (r *Reducer) reorder(order []int) {
	order = slices.Clone(order)
	var now []int
	for _, b := range r.buckets {
		now = append(now, b.leaves...)
	}
	for _, i := range now {
		if !slices.Contains(order, i) {
			order = append(order, i)
		}
	}
	if slices.Equal(order, now) {
		r.ordered = true
		return
	}
	r.order = order
}

// share gives all ranks the buffers of one.
func (n *reduction) share(root int) {
	r := n.r
	if len(r.bufs) == 0 || r.keepBuffers {
		return
	}
	r.makeStatics()
	for k, f := range r.statics {
		r.give(f, pick(r.bufs, r.packed[k]), root, "buffers")
	}
}

// makeStatics makes room for the buffers.
func (r *Reducer) makeStatics() {
	if r.statics != nil {
		return
	}
	r.packed = packs(r.bufs, r.rest, r.rest)
	for _, list := range r.packed {
		part := pick(r.bufs, list)
		r.statics = append(r.statics, r.newFlat(part))
	}
}

// Void takes part in a step without a gradient, where this rank has failed before its Backward: the
// others' Backward panics with a *[StepError] of err.
func (r *Reducer) Void(err error) {
	if r.g.World() == 1 || r.quiet > 0 {
		return
	}
	n := r.Begin(nil, make([]bool, len(r.leaves))).(*reduction)
	n.End(err)
}
