package dist

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// Capture records one step of all ranks and returns its graph: one launch replays the step on all
// devices. All ranks call it, each with its own f. f runs a forward pass, Backward, an optimizer's
// Step and ZeroGrad; [DDP] averages the gradients. f runs once, and its work is only recorded, so
// the rules of [tensor.Capture] hold. The scope s that f gets has the rank's device and generator
// and the given options. It ends when the graph is closed. For memory that each replay fills, a
// rank calls s.Capture().FeedOn with g.Device().
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
// The ranks record one after the other, each until its next collective. The order is fixed, so the
// graph is the same in each run of the program. If one rank's f waits for another rank's f by means
// other than a collective, it waits forever. Collectives in f use copies and kernels of this
// library, even if eager collectives use NCCL. Ranks exchange some data on the host: which
// parameters a step reaches, and the weights of [Reducer.Weigh]. They do so only during the
// capture, and every replay uses the same data. Run one or two steps before the capture, because
// the graph keeps the order of DDP's buckets. This order changes at the second Backward, to the
// order in which gradients become ready.
//
// The error is a *[CaptureError], the same on all ranks. After an error nothing of the capture is
// left: the gradients that the capture put into leaves are removed. The ranks may continue. If the
// [Run] ends during the capture, the error is an *[Error].
//
// Ranks of the CPU are recorded as one list of work. All workers of the CPU run the list, one op
// after the other.
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
	if t.shared == nil {
		return nil, t.err
	}
	return &Graph{g: g, shared: t.shared}, nil
}

// capture is the state of one call of [Group.Capture] by all ranks. Rank 0 makes the recording, and
// the other ranks record into it.
type capture struct {
	turns
	refused error           // why the capture could not begin
	graph   *tensor.Graph   // may be read once "opened" is closed
	scopes  []*tensor.Scope // scopes in which the ranks record, by rank
	opened  chan struct{}
	others  sync.WaitGroup // ranks other than 0 that are recording
	ended   chan struct{}
	shared  *sharedGraph // the graph of all ranks; nil if none was made

	carriers map[*core]*carrier
	slots    []begun
	guards   map[*Reducer]bool
}

// begun is a collective that a rank has called during a capture.
type begun struct {
	c  *core
	sl *slot
}

// carrier moves the data of a group's collectives during a capture. It uses streams of the
// recording and not the group's own streams, and its buffers belong to the graph.
type carrier struct {
	streams []device.Stream
	comm    device.Communicator
}

// newCapture creates the state of a capture. It is called once, when all ranks have called Capture.
func (c *core) newCapture(values []any) *capture {
	t := &capture{scopes: make([]*tensor.Scope, len(c.members)), opened: make(chan struct{}), ended: make(chan struct{}),
		carriers: map[*core]*carrier{}, guards: map[*Reducer]bool{}}
	t.begin(c)
	t.others.Add(len(c.members) - 1)
	if r := slices.Index(values, nil); r >= 0 {
		t.fail(r, c.fault(r, ErrLeft, nil, "it has no more data (Join), and a capture is of all ranks"))
	}
	c.world.mu.Lock()
	cores := slices.Clone(c.world.cores)
	c.world.mu.Unlock()
	for _, o := range cores {
		if t.absentMember(o) >= 0 {
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

// lead records rank 0's step: it starts the recording, calls f and ends the recording.
func (t *capture) lead(g *Group, f func(s *tensor.Scope), opts []tensor.Option) {
	defer func() {
		if t.shared == nil {
			t.fail(-1, errEnded)
		}
		close(t.ended)
	}()
	graph, err := tensor.Capture(g.Device(), func(s *tensor.Scope) {
		t.graph = s.Capture()
		close(t.opened)
		func() {
			defer t.conclude() // wait for the other ranks before the recording ends
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
	t.shared = &sharedGraph{graph: graph}
	t.shared.left.Store(int32(g.World()))
	w := g.core.world
	w.mu.Lock()
	w.graphs = append(w.graphs, t.shared)
	w.mu.Unlock()
}

// follow records the step of a rank other than 0 in rank 0's recording.
func (t *capture) follow(g *Group, f func(s *tensor.Scope), opts []tensor.Option) {
	select {
	case <-t.opened:
		defer t.others.Done()
		t.record(g, f, opts)
	case <-t.ended: // rank 0 could not begin a recording
	}
}

// errEnded is the error of a capture in which some rank's f ended its goroutine, or panicked with a
// value that is not an error of the library.
var errEnded = errors.New("its function panicked, or ended its goroutine by runtime.Goexit")

// record waits for the rank's turn to record, and calls f.
func (t *capture) record(g *Group, f func(s *tensor.Scope), opts []tensor.Option) {
	here := &g.core.world.capturing[g.core.members[g.rank]]
	err := errEnded
	defer func() {
		here.Store(nil)
		if err != nil {
			t.fail(g.rank, err)
		}
		t.markFinished(g.rank)
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

// conclude waits until f has returned on all ranks. The capture fails if a rank has not called a
// collective that other ranks have called. In a capture that failed, conclude ends the collectives
// that wait for a rank.
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
	for _, by := range t.carriers {
		_ = by.comm.Close() // ignore the error: the graph owns the communicator's buffers
	}
	if t.broken() == nil {
		return
	}
	for _, b := range t.slots {
		b.c.forget(b.sl)
		b.sl.end(false)
	}
}

// forget gives all ranks the same count of collectives after a failed capture. The counts may
// differ because some ranks did not reach a collective.
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

// carrier returns the carrier of the group c. Only the rank that records at the moment may call it.
func (t *capture) carrier(c *core) *carrier {
	by := t.carriers[c]
	if by == nil {
		by = &carrier{comm: newInProcess(c.devices)}
		for r, d := range c.devices {
			t.graph.Scope().Do(func(s *tensor.Scope) { by.streams = append(by.streams, s.Stream()) }, tensor.On(d), tensor.Stream(c.streams[r]))
		}
		t.carriers[c] = by
	}
	return by
}

// began adds a collective to the capture. The caller holds c.mu.
func (t *capture) began(c *core, sl *slot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots = append(t.slots, begun{c, sl})
}

// ran ends a collective of the capture. The collective was recorded, or it failed with err.
func (t *capture) ran(c *core, sl *slot, err error) {
	if err != nil {
		t.fail(t.rankIn(c, sl.first.rank), err)
		return
	}
	t.progress()
}

// refuses returns the reason why a rank's collective cannot be recorded, or nil.
func (t *capture) refuses(c *core, k *call) error {
	if err := t.broken(); err != nil {
		return c.fault(k.rank, err, k, "the capture has failed")
	}
	if r := t.absentMember(c); r >= 0 {
		return c.fault(k.rank, tensor.ErrCapture, k, fmt.Sprintf("rank %d, which comes to it too, takes no part in the capture", c.members[r]))
	}
	return nil
}

// guard saves the model's gradients before the capture, and restores them if it fails. The
// gradients that the failed capture put into leaves were recorded but never computed.
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

// capture returns the capture that the rank is recording in. It returns nil if no capture records
// the rank's work.
func (c *core) capture(rank int) *capture { return c.world.capturing[c.members[rank]].Load() }

func (g *Group) capture() *capture { return g.core.capture(g.rank) }

// recorded returns the scope in which the rank records its capture. It returns nil if no capture
// records the rank's work.
func (g *Group) recorded() *tensor.Scope {
	t := g.capture()
	if t == nil {
		return nil
	}
	return t.scopes[t.rankIn(g.core, g.rank)]
}
