package dist

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// Capture records one step of all ranks, and returns the graph of it: one launch replays the step
// on all devices. All ranks call it, each with its own f: forward, Backward, which [DDP] averages,
// an optimizer's Step and ZeroGrad. f runs once, but none of its work is done: see
// [tensor.Capture], whose rules hold. Its scope has the rank's device and generator and these
// options, and ends with the graph. What s.Capture().FeedOn provides on g.Device() is the rank's.
//
//	graph, err := g.Capture(func(s *tensor.Scope) {
//		nn.CrossEntropy(model.Forward(x.In(s)), y.In(s)).Backward()
//		opt.Step()
//		opt.ZeroGrad()
//	})
//	for … {
//		x.Copy(batch)
//		err = graph.Replay()
//	}
//
// The ranks record one after the other, in order, from collective to collective: the graph is the
// same each time. Other waits of one rank's f for another's would have no end. Collectives in f are
// copies and kernels of this library, also where eager ones are those of a driver's. What ranks
// tell each other on the host is of the time of the capture, and the same in every replay: which
// parameters a step reaches, [Reducer.Weigh]. Do a step or two before: from the second Backward on
// DDP's buckets are in the order in which gradients are ready, and a graph keeps the order.
//
// The error is a *[CaptureError], and on all ranks the same. Nothing of the capture is left then,
// gradients that were put into leaves meanwhile are gone, and the ranks may go on. On the CPU
// it is of the kind tensor.ErrCapture. An end of the run comes as an *[Error].
func (g *Group) Capture(f func(s *tensor.Scope), opts ...tensor.Option) (*Graph, error) {
	const op = "capture"
	g.member(op)
	switch {
	case f == nil:
		panic(g.misuse(op, tensor.ErrValue, "the function is nil"))
	case g.capture() != nil:
		panic(g.misuse(op, tensor.ErrCapture, "it is called within a capture"))
	}
	var t *capture
	err := tensor.Try(func() {
		t = g.exchange(op, g, func(values []any) (any, error) { return g.core.newCapture(values), nil })[g.rank].(*capture)
	})
	switch {
	case err != nil:
		return nil, err
	case t.refused != nil:
		return nil, t.refused
	case g.rank == 0:
		t.lead(g, f, opts)
	default:
		t.follow(g, f, opts)
	}
	select {
	case <-t.ended:
	case <-g.core.world.failed:
		return nil, g.core.fault(g.rank, g.core.world.aborted(), nil, "the run ended in the capture")
	}
	if t.made == nil {
		return nil, t.err
	}
	return &Graph{g: g, of: t.made}, nil
}

// A capture is one call of [Group.Capture] by all ranks. Rank 0 makes the recording, and the others
// join it.
type capture struct {
	turns
	refused error           // why nothing has begun
	graph   *tensor.Graph   // from opened on
	scopes  []*tensor.Scope // by rank
	opened  chan struct{}
	others  sync.WaitGroup // who record, but rank 0
	ended   chan struct{}
	made    *sharedGraph // nil: there is none

	by     map[*core]*carrier
	slots  []begun
	guards map[*Reducer]bool
}

// begun is a collective of a capture.
type begun struct {
	c  *core
	sl *slot
}

// A carrier is what carries the data of a group's collectives in a capture: streams that stand in
// for the group's, and room that belongs to the graph.
type carrier struct {
	streams []device.Stream
	comm    device.Communicator
}

// newCapture begins a capture. All ranks have come to it.
func (c *core) newCapture(values []any) *capture {
	t := &capture{scopes: make([]*tensor.Scope, len(c.members)), opened: make(chan struct{}), ended: make(chan struct{}),
		by: map[*core]*carrier{}, guards: map[*Reducer]bool{}}
	t.begin(c)
	t.others.Add(len(c.members) - 1)
	if r := slices.Index(values, nil); r >= 0 {
		t.fail(r, c.fault(r, ErrLeft, nil, "it has no more data (Join), and a capture is of all ranks"))
	}
	c.world.mu.Lock()
	cores := slices.Clone(c.world.cores)
	c.world.mu.Unlock()
	for _, o := range cores {
		if t.lacks(o) >= 0 {
			continue
		}
		o.mu.Lock()
		var sl *slot
		for _, sl = range o.slots {
			break
		}
		o.mu.Unlock()
		if sl != nil {
			t.fail(t.rankIn(o, sl.first.rank), o.fault(sl.first.rank, ErrMismatch, sl.first, "others have not come to it, and are in a capture now"))
		}
	}
	t.refused = t.err
	return t
}

// lead makes the recording.
func (t *capture) lead(g *Group, f func(s *tensor.Scope), opts []tensor.Option) {
	defer func() {
		if t.made == nil {
			t.fail(-1, errEnded)
		}
		close(t.ended)
	}()
	graph, err := tensor.Capture(g.Device(), func(s *tensor.Scope) {
		t.graph = s.Capture()
		close(t.opened)
		func() {
			defer t.conclude() // the others are in it until then
			t.record(g, f, opts)
		}()
		if err := t.broken(); err != nil {
			panic(err)
		}
	}, tensor.Across(g.Devices()...))
	if err != nil {
		t.fail(-1, err)
		return
	}
	t.made = &sharedGraph{graph: graph}
	t.made.left.Store(int32(g.World()))
	w := g.core.world
	w.mu.Lock()
	w.graphs = append(w.graphs, t.made)
	w.mu.Unlock()
}

// follow joins the recording.
func (t *capture) follow(g *Group, f func(s *tensor.Scope), opts []tensor.Option) {
	select {
	case <-t.opened:
		defer t.others.Done()
		t.record(g, f, opts)
	case <-t.ended: // there is none
	}
}

// errEnded is what a capture fails with when a function of it neither returns nor raises an error.
var errEnded = errors.New("its function panicked, or ended its goroutine by runtime.Goexit")

// record runs a rank's function, when it is its turn.
func (t *capture) record(g *Group, f func(s *tensor.Scope), opts []tensor.Option) {
	here := &g.core.world.capturing[g.core.members[g.rank]]
	err := errEnded
	defer func() {
		here.Store(nil)
		if err != nil {
			t.fail(g.rank, err)
		}
		t.leave(g.rank)
	}()
	if e := t.await(g.rank); e != nil {
		err = e
		return
	}
	err = tensor.Try(func() {
		scope, leave := t.graph.Join(append(g.Options(), opts...)...)
		defer leave()
		t.scopes[g.rank] = scope
		here.Store(t)
		f(scope)
	})
}

// conclude waits until all ranks are done, and ends their collectives.
func (t *capture) conclude() {
	t.others.Wait()
	for _, b := range t.slots {
		b.c.mu.Lock()
		late := b.c.missingFrom(b.sl)
		b.c.mu.Unlock()
		if len(late) > 0 {
			k := b.sl.first
			t.fail(t.rankIn(b.c, k.rank), b.c.fault(k.rank, ErrLeft, k, t.absent(b.c, late)))
		}
	}
	for _, by := range t.by {
		_ = by.comm.Close() // its room is the graph's
	}
	if t.broken() == nil {
		return
	}
	for _, b := range t.slots {
		b.c.forget(b.sl)
		b.sl.end(false)
	}
}

// forget makes the ranks' next collectives belong together again, after a capture that failed. A
// slot of that may have some of them only.
func (c *core) forget(sl *slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slots[sl.key] == sl {
		delete(c.slots, sl.key)
	}
	most := slices.Max(c.next)
	for r := range c.next {
		c.next[r] = most
	}
	for at, n := range c.pairs {
		c.pairs[at] = [2]uint64{max(n[0], n[1]), max(n[0], n[1])}
	}
}

// carrier returns what carries the collectives of a group. The rank whose turn it is calls it.
func (t *capture) carrier(c *core) *carrier {
	by := t.by[c]
	if by == nil {
		by = &carrier{comm: newInProcess(c.devices)}
		for r, d := range c.devices {
			t.graph.Scope().Do(func(s *tensor.Scope) { by.streams = append(by.streams, s.Stream()) }, tensor.On(d), tensor.Stream(c.streams[r]))
		}
		t.by[c] = by
	}
	return by
}

// began notes a collective. c.mu is held.
func (t *capture) began(c *core, sl *slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots = append(t.slots, begun{c, sl})
}

// ran notes the end of a collective.
func (t *capture) ran(c *core, sl *slot, err error) {
	if err != nil {
		t.fail(t.rankIn(c, sl.first.rank), err)
		return
	}
	t.progress()
}

// refuses returns why a rank's collective is not recorded.
func (t *capture) refuses(c *core, k *call) error {
	if err := t.broken(); err != nil {
		return c.fault(k.rank, err, k, "the capture has failed")
	}
	if r := t.lacks(c); r >= 0 {
		return c.fault(k.rank, tensor.ErrCapture, k, fmt.Sprintf("rank %d, which comes to it too, takes no part in the capture", c.members[r]))
	}
	return nil
}

// guard puts a model back to what it is now, should the capture fail: to gradients as they are, and
// not to those that were never computed.
func (t *capture) guard(r *Reducer) {
	if t.guards[r] {
		return
	}
	t.guards[r] = true
	var had []*tensor.Tensor
	for _, leaf := range r.leaves {
		had = append(had, leaf.Grad())
	}
	unsynced := slices.Clone(r.unsynced)
	t.graph.Ended(func(ok bool) error {
		if ok {
			return nil
		}
		r.unsynced = unsynced
		for i, leaf := range r.leaves {
			if leaf.Grad() != had[i] {
				leaf.ZeroGrad()
			}
		}
		return nil
	})
}

// capture returns what the rank takes part in, nil when its work runs.
func (c *core) capture(rank int) *capture { return c.world.capturing[c.members[rank]].Load() }

func (g *Group) capture() *capture { return g.core.capture(g.rank) }

// recorded returns the scope of what the rank takes part in, nil when its work runs.
func (g *Group) recorded() *tensor.Scope {
	t := g.capture()
	if t == nil {
		return nil
	}
	return t.scopes[t.rankIn(g.core, g.rank)]
}
