package dist

import (
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// bucket is a group of parameters whose gradients are averaged by one collective.
type bucket struct {
	flat   *flat
	leaves []int // indices of the leaves in this bucket
	// views[k] is a view of flat: the gradient of leaf number leaves[k]. It is nil if the gradient
	// is not a view of flat yet.
	views []*tensor.Tensor
	name  string
}

// arrange puts the leaves into buckets, in the given order of their indices. If memory is
// exhausted, the reducer has no buckets until a later call succeeds.
func (r *Reducer) arrange(order []int) {
	for _, b := range r.buckets {
		b.flat.free()
	}
	r.buckets = nil
	var made []*bucket
	defer func() {
		if r.buckets == nil {
			for _, b := range made {
				b.flat.free()
			}
		}
	}()
	home := make([]int, len(r.leaves))
	for _, list := range packs(pick(r.leaves, order), r.firstBytes, r.laterBytes) {
		b := &bucket{leaves: pick(order, list), views: make([]*tensor.Tensor, len(list))}
		part := pick(r.leaves, b.leaves)
		b.flat = r.newFlat(part)
		b.name = "gradients of " + r.params[b.leaves[0]].Name
		if n := len(b.leaves); n > 1 {
			b.name += " … " + r.params[b.leaves[n-1]].Name
		}
		for _, i := range b.leaves {
			home[i] = len(made)
		}
		made = append(made, b)
	}
	r.buckets, r.home = made, home
}

// newFlat allocates a flat that can hold the given tensors of the model.
func (r *Reducer) newFlat(like []*tensor.Tensor) *flat {
	f := newFlat(r.g.Device(), like[0].Type(), like)
	if t := r.g.capture(); t != nil {
		t.graph.Adopt(f.buffer, f.slots)
	}
	return f
}

// reduction averages the gradients of one run of Backward.
type reduction struct {
	r       *Reducer
	reached []bool
	left    []int // number of gradients of each bucket that are not ready yet
	next    int   // index of the first bucket whose averaging has not begun
	finish  []func()
	order   []int
	// kept holds copies of old gradients in buckets, by leaf. It has the leaves to which this
	// rank's Backward adds nothing. If no rank adds to a leaf in this run, its copy is restored.
	kept map[int]*tensor.Tensor
}

// Begin starts the averaging for one run of Backward, as [tensor.BackwardWatcher] specifies.
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
		panic(r.group.misuse("backward", tensor.ErrGrad, "another Backward over parameters of the same model is under way on this rank"))
	}
	r.group.gone = nil
	if r.order != nil {
		r.attempt(func() { r.arrange(r.order) })
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

// attempt calls f. If f panics with an error of the library, attempt makes the step void on all
// ranks and then panics with the same error.
func (r *Reducer) attempt(f func()) {
	if err := tensor.Try(f); err != nil {
		r.group.void(err)
		panic(err)
	}
}

// Ready notes that the gradient of leaf i is ready, and starts to average the next buckets that are
// complete.
func (n *reduction) Ready(i int) { n.came(i) }

// Missed notes that leaf i gets no gradient in this run, and starts to average the next buckets
// that are complete.
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

// launch starts to average the gradients of the next bucket.
func (n *reduction) launch() {
	r, b := n.r, n.r.buckets[n.next]
	n.next++
	scope := r.g.recorded()
	n.fill(b, scope)
	all := b.flat.buffer
	if scope != nil {
		all = all.In(scope)
	}
	average := func(x *tensor.Tensor) *Work {
		return r.g.begin(signature{op: "all reduce", kind: device.KindAllReduce, combine: Mean, weighted: r.weighted}, b.name, x, x, r.weight)
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

// fill copies the gradients into the bucket b and makes them views of it. The argument scope is the
// scope of a capture, or nil.
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
		case !n.hasGrad(i):
			n.saveGrad(i, g)
		}
	}
	b.flat.pack(scope, from)
	for k, i := range b.leaves {
		if from[k] != nil && n.hasGrad(i) {
			b.views[k] = b.flat.view(k)
			r.leaves[i].SetGrad(b.views[k])
		}
	}
}

// saveGrad copies an old gradient that is already in the bucket, if this rank's Backward adds
// nothing to it. If no rank adds to the gradient, the copy is restored later. The averaged value
// may differ from the old one: even the mean of equal numbers has rounding errors.
func (n *reduction) saveGrad(i int, g *tensor.Tensor) {
	if n.kept == nil {
		n.kept = map[int]*tensor.Tensor{}
	}
	n.kept[i] = g.Detach().Clone()
}

// hasGrad reports whether this rank has a gradient of leaf i that has not been averaged yet.
func (n *reduction) hasGrad(i int) bool { return n.reached[i] || n.r.unsynced[i] }

// status is what a rank tells the other ranks at the end of Backward.
type status struct {
	used  []bool
	order []int
}

// End waits until all ranks have finished their Backward. The ranks tell each other whether it
// succeeded. If Backward failed on some rank, the step becomes void on all ranks. An error that is
// not one of the library ends the [Run].
func (n *reduction) End(failed error) {
	r := n.r
	r.running = nil
	defer func() {
		for _, x := range n.kept {
			x.Free()
		}
	}()
	if failed != nil {
		if _, ours := failed.(device.Raised); ours {
			r.group.void(failed)
		}
		return
	}
	var lowest int
	var anywhere []bool
	r.attempt(func() { lowest, anywhere = n.agree() })
	// The other ranks have finished the step, so it cannot become void any more.
	if err := tensor.Try(func() { n.publish(lowest, anywhere) }); err != nil {
		r.g.core.raise(r.g.rank, err)
		panic(err)
	}
}

// agree waits for all ranks. It returns the lowest rank that has data, and for each leaf whether
// any rank reached it.
func (n *reduction) agree() (lowest int, anywhere []bool) {
	r := n.r
	for n.next < len(r.buckets) {
		n.launch()
	}
	for _, f := range n.finish {
		f()
	}
	me := status{used: make([]bool, len(r.leaves))}
	for i := range me.used {
		me.used[i] = n.hasGrad(i)
	}
	if !r.ordered {
		me.order = n.order
	}
	lowest, anywhere = -1, make([]bool, len(r.leaves))
	for rank, v := range r.g.exchange("end of backward", me, nil) {
		s, there := v.(status)
		if !there { // the rank has no more data
			continue
		}
		if lowest < 0 {
			lowest = rank
			if s.order != nil {
				r.reorder(s.order)
			}
		}
		for i, used := range s.used {
			anywhere[i] = anywhere[i] || used
		}
	}
	return lowest, anywhere
}

// publish makes the averaged gradients visible on this rank, and copies the buffers of the rank
// with the number lowest to all ranks.
func (n *reduction) publish(lowest int, anywhere []bool) {
	r := n.r
	n.share(lowest)
	for _, b := range r.buckets {
		for k, i := range b.leaves {
			switch g := r.leaves[i].Grad(); {
			case !anywhere[i]:
				if x := n.kept[i]; x != nil {
					g.Copy(x)
				}
			case g == nil || g != b.views[k] && !n.hasGrad(i):
				b.views[k] = b.flat.view(k)
				r.leaves[i].SetGrad(b.views[k])
			}
		}
	}
	clear(r.unsynced)
}

// reorder arranges the buckets by the given order of leaves, for the next run of Backward.
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

// share copies the model's buffers from rank root to all ranks.
func (n *reduction) share(root int) {
	r := n.r
	if len(r.bufs) == 0 || r.keepBuffers {
		return
	}
	for k, f := range r.statics {
		r.broadcast(f, pick(r.bufs, r.packed[k]), root, "buffers")
	}
}

// makeStatics allocates the tensors that hold all the model's buffers for a broadcast.
func (r *Reducer) makeStatics() {
	if r.statics != nil {
		return
	}
	r.packed = packs(r.bufs, r.laterBytes, r.laterBytes)
	for _, list := range r.packed {
		part := pick(r.bufs, list)
		r.statics = append(r.statics, r.newFlat(part))
	}
}

// Void makes the current step void on all ranks, as [Group.Void] does, because this rank has failed
// with err. If err is nil, the step is not void: this rank takes part in the averaging without a
// gradient.
func (r *Reducer) Void(err error) {
	switch {
	case r.g.World() == 1:
	case err != nil:
		r.group.Void(err)
	case r.quiet == 0:
		r.Begin(nil, make([]bool, len(r.leaves))).End(nil)
	}
}
