package dist

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/internal/callsite"
	"github.com/flambeau-go/flambeau/tensor"
)

// core is the part of a group that all its ranks share. Each rank numbers its collectives. Calls of
// different ranks with the same number belong to the same collective, and are stored in one slot.
// The rank that calls last queues the work of all ranks, so no device ever waits for work that is
// not queued.
type core struct {
	world   *world
	members []int // the group's ranks, as rank numbers of the Run
	devices []device.Device
	streams []device.Stream
	comm    device.Communicator

	mu    sync.Mutex
	next  []uint64 // number of each rank's next collective
	slots map[slotKey]*slot
	// pairs holds, for each sender and receiver, how many messages were sent and how many
	// received.
	pairs   map[[2]int][2]uint64
	joined  []bool // ranks that have no more data (see Join) and take no part in collectives
	drain   *drain
	voided  *voided
	steps   int // number of void steps so far
	ready   []*slot
	issuing bool
}

// slotKey identifies a collective. Only messages use the fields src and dst.
type slotKey struct {
	number   uint64
	message  bool
	src, dst int
}

// slot holds the ranks' calls of one collective.
type slot struct {
	key    slotKey
	calls  []*call // calls by rank; nil for a rank that has not called the collective yet
	first  *call
	done   chan struct{}
	closed bool
	values []any      // values exchanged on the host, by rank
	void   *StepError // set if the step is void, so the calls are dropped
	steps  int        // number of void steps when the slot began
	in     *capture   // capture that records the collective; nil if it runs eagerly
}

// call is one rank's call of a collective.
type call struct {
	rank     int
	what     signature
	operands string // description of the operands for errors
	n        int
	pc       [24]uintptr
	src, dst *tensor.Hold
	inPlace  bool // whether src and dst are the same tensor
	weight   float64
	value    any
	// agree is called by the rank that calls last, with the values of all ranks. All ranks get its
	// result.
	agree func(values []any) (any, error)
}

// A signature holds the properties of a collective that must be equal in all ranks' calls.
type signature struct {
	op         string
	kind       device.CollectiveKind
	host       bool // the ranks exchange Go values instead of tensors
	combine    device.Combine
	weighted   bool
	root, peer int
	typ        dtype.Type
	part       int // number of elements of each part
}

// gives reports whether a rank has an operand in the collective: an output if out is true, an
// input if out is false.
func (a signature) gives(rank int, out bool) bool {
	c := device.Collective{Kind: a.kind, Root: a.root, Peer: a.peer}
	if out {
		return c.Gets(rank)
	}
	return c.Gives(rank)
}

// String returns a text such as "all reduce of 4096 float32, sum".
func (a signature) String() string {
	s := a.op
	if a.host {
		return s
	}
	s += fmt.Sprintf(" of %d %v", a.part, a.typ)
	switch a.kind {
	case device.KindAllReduce, device.KindReduceScatter:
		s += ", " + a.combine.String()
		if a.weighted {
			s += " by weight"
		}
	case device.KindBroadcast, device.KindScatter:
		s += fmt.Sprintf(" from rank %d", a.root)
	case device.KindGather:
		s += fmt.Sprintf(" to rank %d", a.root)
	case device.KindSendRecv:
		s += fmt.Sprintf(" from rank %d to rank %d", a.root, a.peer)
	}
	return s
}

// trace stores the stack of the call. Errors name the program's line in this stack.
func (k *call) trace() { k.n = runtime.Callers(2, k.pc[:]) }

func (k *call) site() string { return callsite.First(k.pc[:k.n]) }

// newCore returns the shared part of a group whose members are the given ranks of the world.
func (w *world) newCore(members []int) (*core, error) {
	c := &core{world: w, members: members, next: make([]uint64, len(members)), slots: map[slotKey]*slot{},
		pairs: map[[2]int][2]uint64{}, joined: make([]bool, len(members))}
	for _, m := range members {
		c.devices = append(c.devices, w.devices[m])
	}
	for _, d := range c.devices {
		if d.Info().Host {
			c.streams = append(c.streams, nil)
			continue
		}
		// the stream has a high priority, because other ranks wait for its work
		s, err := d.NewStream(1)
		if err != nil {
			return nil, err
		}
		c.streams = append(c.streams, s)
	}
	var err error
	if c.comm, err = w.connect(c.devices); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.cores = append(w.cores, c)
	w.mu.Unlock()
	return c, nil
}

// fault returns an *Error with the given rank of the group.
func (c *core) fault(rank int, kind error, k *call, msg string) *Error {
	e := &Error{Rank: c.members[rank], World: len(c.world.devices), Device: c.devices[rank].Name(), Msg: msg, Err: kind}
	if k != nil {
		e.Op, e.Of, e.Site = k.what.op, k.operands, k.site()
		if a := k.what; a.kind == device.KindSendRecv && !a.host && rank == a.peer {
			e.Op = "receive"
		}
	}
	return e
}

// call adds a rank's call to the slot of the rank's next collective, and returns the slot.
func (c *core) call(k *call) *slot {
	k.trace()
	t := c.capture(k.rank)
	if t != nil {
		if err := t.refuses(c, k); err != nil {
			k.release()
			panic(err)
		}
	}
	c.mu.Lock()
	select {
	case <-c.world.failed:
		c.mu.Unlock()
		k.release()
		panic(c.fault(k.rank, c.world.aborted(), k, "the run has ended"))
	default:
	}
	if err := c.awaitStep(k); err != nil {
		c.mu.Unlock()
		k.release()
		panic(err)
	}
	key, side := c.key(k)
	if side < 0 {
		c.next[k.rank]++
	} else {
		at := [2]int{key.src, key.dst}
		n := c.pairs[at]
		n[side]++
		c.pairs[at] = n
	}
	sl := c.slots[key]
	if sl == nil {
		sl = &slot{key: key, calls: make([]*call, len(c.members)), done: make(chan struct{}), first: k, steps: c.steps, in: t}
		c.slots[key] = sl
		if t != nil {
			t.began(c, sl)
		}
	}
	if err := c.match(sl, k); err != nil {
		c.mu.Unlock()
		k.release()
		panic(c.raise(k.rank, err))
	}
	sl.calls[k.rank] = k
	if err := c.absent(sl); err != nil {
		c.mu.Unlock()
		panic(c.raise(k.rank, err))
	}
	c.markReady(sl)
	c.issue() // issue unlocks c.mu
	return sl
}

// key returns the key of the slot for a rank's next call. For a message, side is 0 for the sender
// and 1 for the receiver. For other collectives it is -1. The caller holds c.mu.
func (c *core) key(k *call) (key slotKey, side int) {
	if k.what.kind != device.KindSendRecv || k.what.host {
		return slotKey{number: c.next[k.rank]}, -1
	}
	key = slotKey{message: true, src: k.what.root, dst: k.what.peer}
	if k.rank == key.dst {
		side = 1
	}
	key.number = c.pairs[[2]int{key.src, key.dst}][side]
	return key, side
}

// raise ends the capture, or the run if there is no capture, because a rank has failed. It
// returns the error with which the rank panics.
func (c *core) raise(rank int, err error) error {
	if c.capture(rank) != nil {
		return err // the error ends only the capture
	}
	c.world.fail(c.members[rank], err)
	return err
}

// match compares the call k with the first call in the slot. It returns an error if the two cannot
// belong to one collective.
func (c *core) match(sl *slot, k *call) error {
	o := sl.first
	if k.what == o.what || o == k {
		return nil
	}
	msg := fmt.Sprintf("it calls %v, where rank %d on %s calls %v", k.what, c.members[o.rank], c.devices[o.rank].Name(), o.what)
	if o.operands != "" {
		msg += " (" + o.operands + ")"
	}
	if at := o.site(); at != "" {
		msg += " at " + at
	}
	if !sl.key.message {
		msg += fmt.Sprintf("; it is each rank's collective number %d of the group", sl.key.number+1)
	}
	return c.fault(k.rank, ErrMismatch, k, msg)
}

// participates reports whether a rank takes part in the collective of a slot. The caller holds
// c.mu.
func (c *core) participates(sl *slot, rank int) bool {
	if sl.key.message {
		return rank == sl.key.src || rank == sl.key.dst
	}
	return !c.joined[rank]
}

// missingFrom lists the ranks that take part in a slot but have not called yet. The caller holds
// c.mu.
func (c *core) missingFrom(sl *slot) (ranks []int) {
	for r, k := range sl.calls {
		if k == nil && c.participates(sl, r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// ofWorld converts rank numbers of the group to rank numbers of the Run.
func (c *core) ofWorld(ranks []int) (list []int) {
	for _, r := range ranks {
		list = append(list, c.members[r])
	}
	return list
}

// open lists the collectives that not all ranks have called yet, in the order of their numbers. The
// caller holds c.mu.
func (c *core) open() []*slot {
	list := slices.Collect(maps.Values(c.slots))
	slices.SortFunc(list, func(a, b *slot) int {
		if a, b := a.key, b.key; a.message != b.message {
			if a.message {
				return 1
			}
			return -1
		} else if d := cmp.Compare(a.number, b.number); d != 0 {
			return d
		} else {
			return cmp.Or(cmp.Compare(a.src, b.src), cmp.Compare(a.dst, b.dst))
		}
	})
	return list
}

// absent returns an error if the slot waits for a rank whose function has returned. The caller
// holds c.mu.
func (c *core) absent(sl *slot) error {
	if r := c.world.returned(c.ofWorld(c.missingFrom(sl))); r >= 0 {
		return c.fault(sl.first.rank, ErrLeft, sl.first, fmt.Sprintf("rank %d, on %s, returned from its function and never comes to %v", r, c.world.devices[r].Name(), sl.first.what))
	}
	// ranks without data (Join) take part only in messages; so if a missing rank has no data, the
	// slot is a message
	for _, r := range c.missingFrom(sl) {
		if c.joined[r] {
			return c.fault(sl.first.rank, ErrLeft, sl.first, fmt.Sprintf("rank %d, on %s, has no more data (Join) and does not come to %v", c.members[r], c.devices[r].Name(), sl.first.what))
		}
	}
	return nil
}

// missing ends the run if a collective waits for the given rank, whose function has returned.
func (c *core) missing(rank int) {
	if !slices.Contains(c.members, rank) {
		return
	}
	c.mu.Lock()
	var err error
	first := -1
	for _, sl := range c.open() {
		if err = c.absent(sl); err != nil {
			first = sl.first.rank
			break
		}
	}
	if v := c.voided; v != nil && err == nil && !v.known[slices.Index(c.members, rank)] {
		if first = slices.Index(v.known, true); first < 0 {
			first = slices.Index(c.members, v.err.Rank)
		}
		err = c.neverInformed(first, nil, rank)
	}
	c.mu.Unlock()
	if err != nil {
		c.world.fail(c.members[first], err)
	}
}

// markReady moves a slot to the ready list if all its ranks have called the collective. The caller
// holds c.mu.
func (c *core) markReady(sl *slot) {
	if len(c.missingFrom(sl)) > 0 {
		return
	}
	delete(c.slots, sl.key)
	c.ready = append(c.ready, sl)
}

// issue queues the work of the ready slots in order. The caller holds c.mu, and issue unlocks it.
func (c *core) issue() {
	if c.issuing {
		c.mu.Unlock()
		return
	}
	c.issuing = true
	for len(c.ready) > 0 {
		sl := c.ready[0]
		c.ready = c.ready[1:]
		c.mu.Unlock()
		err := c.run(sl)
		var short *shortageError
		switch {
		case sl.in != nil:
			sl.in.ran(c, sl, err)
		case errors.As(err, &short):
			c.mu.Lock()
			sl.void = &StepError{c.members[short.rank], c.devices[short.rank].Name(), err}
			// if the numbers differ, the slot belongs to an older step that became void and has
			// ended
			if sl.steps == c.steps {
				c.drop(sl.void, sl.key.number)
			}
			sl.end(true)
			continue
		case err != nil:
			rank := c.members[sl.first.rank]
			if e, ok := err.(*Error); ok {
				rank = e.Rank
			}
			c.world.fail(rank, err)
		}
		sl.end(err == nil)
		c.mu.Lock()
	}
	c.issuing = false
	c.mu.Unlock()
}

func (c *core) run(sl *slot) error {
	if sl.first.what.host {
		sl.values = make([]any, len(sl.calls))
		for r, k := range sl.calls {
			if k != nil {
				sl.values[r] = k.value
			}
		}
		if f := sl.first.agree; f != nil {
			if r := slices.Index(sl.calls, nil); r >= 0 {
				return c.fault(sl.first.rank, ErrLeft, sl.first, fmt.Sprintf("rank %d, on %s, has no more data (Join), and all ranks take part in it", c.members[r], c.devices[r].Name()))
			}
			v, err := f(sl.values)
			if err != nil {
				return c.fault(sl.first.rank, err, sl.first, err.Error())
			}
			for r := range sl.values {
				sl.values[r] = v
			}
		}
		return nil
	}
	streams, comm := c.streams, c.comm
	if sl.in != nil {
		by := sl.in.carrier(c)
		streams, comm = by.streams, by.comm
	}
	a := sl.first.what
	op := device.Collective{Kind: a.kind, Combine: a.combine, Root: max(a.root, 0), Peer: max(a.peer, 0),
		Outs: make([]device.View, len(sl.calls)), Ins: make([]device.View, len(sl.calls))}
	if a.weighted {
		op.Weights = make([]float64, len(sl.calls))
	}
	for r, k := range sl.calls {
		if k == nil {
			continue
		}
		if a.weighted {
			op.Weights[r] = k.weight
		}
		for _, o := range [...]struct {
			h *tensor.Hold
			v *device.View
		}{{k.src, &op.Ins[r]}, {k.dst, &op.Outs[r]}} {
			if o.h == nil {
				continue
			}
			var err error
			if *o.v, err = o.h.On(streams[r]); err != nil {
				return c.fault(r, err, k, err.Error())
			}
		}
		if k.inPlace {
			op.Ins[r] = op.Outs[r]
		}
	}
	if err := c.gives(sl, &op); err != nil {
		return err
	}
	if r, arg, reason := op.Check(); reason != "" {
		k := sl.calls[r]
		if k == nil {
			r, k = sl.first.rank, sl.first
		}
		return c.fault(r, tensor.ErrValue, k, arg+": "+reason)
	}
	if err := comm.Collect(streams, &op); err != nil {
		var short *shortageError
		if errors.As(err, &short) {
			return c.fault(short.rank, err, sl.calls[short.rank], err.Error())
		}
		return c.fault(sl.first.rank, err, sl.first, err.Error())
	}
	return nil
}

// release lets ops use the tensors of the call again.
func (k *call) release() {
	for _, h := range [...]*tensor.Hold{k.src, k.dst} {
		if h != nil {
			h.Done()
		}
	}
	k.src, k.dst = nil, nil
}

// end releases the tensors of the slot's calls. If queued is true, it also wakes the ranks that
// wait for the slot.
func (sl *slot) end(queued bool) {
	if sl.closed {
		return
	}
	sl.closed = true
	if queued {
		close(sl.done)
	}
	for _, k := range sl.calls {
		if k != nil {
			k.release()
		}
	}
}

// close releases the group's resources. All ranks must have returned.
func (c *core) close() {
	c.mu.Lock()
	for _, sl := range c.slots {
		sl.end(false)
	}
	clear(c.slots)
	c.mu.Unlock()
	_ = c.comm.Close() // errors of the communicator have been reported before
}

// wait blocks a rank until the work of a slot is queued.
func (c *core) wait(sl *slot, k *call) error {
	select {
	case <-sl.done:
		return sl.dropped(c.members[k.rank])
	default:
	}
	if sl.in != nil {
		return sl.in.wait(c, sl, k)
	}
	limit := time.NewTimer(c.world.timeout)
	defer limit.Stop()
	select {
	case <-sl.done:
		return sl.dropped(c.members[k.rank])
	case <-c.world.failed:
	case <-limit.C:
		if err := c.late(sl, k); err != nil {
			return err
		}
		select { // all ranks have called, so the work will be queued soon
		case <-sl.done:
		case <-c.world.failed:
		}
	}
	select {
	case <-sl.done: // the slot may be done although the run has failed
		return sl.dropped(c.members[k.rank])
	default:
	}
	return c.fault(k.rank, c.world.aborted(), k, "the run ended while it waited for the others")
}

// dropped returns an error if the call of the given rank was dropped because its step became void.
// The rank is a number of the Run.
func (sl *slot) dropped(rank int) error {
	if sl.void == nil {
		return nil
	}
	return sl.void.errorFor(rank)
}

// late ends the run with an error if some ranks have not called the collective within the timeout.
func (c *core) late(sl *slot, k *call) error {
	c.mu.Lock()
	missing := c.missingFrom(sl)
	if len(missing) == 0 || sl.void != nil {
		c.mu.Unlock()
		return nil
	}
	// if the missing rank has not called an earlier collective either, report that earlier
	// collective
	for _, o := range c.open() {
		if mine := o.calls[k.rank]; mine != nil && o.calls[missing[0]] == nil && c.participates(o, missing[0]) {
			k = mine
			break
		}
	}
	c.mu.Unlock()
	ranks := c.ofWorld(missing)
	err := c.fault(k.rank, ErrTimeout, k, fmt.Sprintf("%s did not come to %v within %v", ranksOf(ranks), k.what, c.world.timeout))
	err.Stacks = c.world.stacks(ranks)
	c.world.fail(c.members[k.rank], err)
	return err
}
