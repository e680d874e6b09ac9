package dist

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// StepError says that a rank has failed in a step, so that the step is void on all ranks. Each
// other rank panics with it in its Backward or in its next collective, whichever comes first. The
// program may go on if all ranks repeat the step: see [Group.Void].
type StepError struct {
	Rank   int // rank that failed; its number in the Run
	Device string
	Err    error
}

func (e *StepError) Error() string {
	return fmt.Sprintf("dist: the step is void: rank %d, on %s, failed in it: %v", e.Rank, e.Device, e.Err)
}

// Unwrap returns the rank's error.
func (e *StepError) Unwrap() error { return e.Err }

// Raised marks the error as one that tensor.Try returns when a function panics with it.
func (e *StepError) Raised() {}

// Void makes the current step void on all ranks, because this rank has failed in it with err. The
// other ranks panic with a *[StepError] that wraps err, in their Backward or in their next
// collective. Collectives that other ranks have begun and that this rank has not called are
// dropped, and their tensors stay unchanged. The next collective that the ranks call belongs to a
// new step. This holds for the collectives of the group and for those that [DDP] calls.
//
// Every rank that gets an error in a step calls Void with that error:
//
//	if err := tensor.Try(step); err != nil {
//		g.Void(err)
//		…ZeroGrad, and the step again on all ranks: in smaller parts…
//	}
//
// If a Backward that averages panics, it has already called Void, and a second Void does nothing.
// The optimizer's Step must not be part of the repeated step, because other ranks may already have
// called it.
func (g *Group) Void(err error) {
	if err == nil || g.World() == 1 {
		return
	}
	g.void(err)
	g.gone = nil
}

// void does what [Group.Void] does, for a failure in Backward. It remembers err: a later Void with
// the same err does nothing.
func (g *Group) void(err error) {
	if g.capture() != nil {
		return // no work of a capture has run, and the capture fails on all ranks
	}
	if g.gone != nil && errors.Is(err, g.gone) {
		return
	}
	g.gone = err
	step, told := err.(*StepError)
	if !told {
		step = &StepError{g.core.members[g.rank], g.Device().Name(), err}
	}
	k := &call{rank: g.rank, what: signature{op: "void", host: true}}
	k.trace()
	g.core.void(k, step)
	for _, c := range g.clones {
		c.core.void(k, step)
	}
	for _, r := range g.reducers {
		clear(r.unsynced)
	}
}

// voided is a step that became void. It exists until all ranks know that the step is void.
type voided struct {
	err *StepError
	// for each rank, whether it knows that the step is void and has ended the step
	known []bool
	cut   uint64        // number of the first collective that some rank will not call
	done  chan struct{} // closed when all ranks know that the step is void
}

// void notes that this rank's step is void. If the previous step became void too, and some ranks do
// not know that yet, void first waits for these ranks.
func (c *core) void(k *call, err *StepError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.voided; v != nil && v.known[k.rank] && c.await(k, v) != nil {
		return // the run has ended
	}
	c.drop(err, c.next[k.rank])
	c.voided.known[k.rank] = true
	for _, sl := range c.open() { // messages that this rank will never send or receive
		if sl.key.message && sl.calls[k.rank] == nil && c.participates(sl, k.rank) {
			c.cancel(sl)
		}
	}
	c.renew()
}

// drop makes the step void. It drops all collectives from number cut on. Earlier collectives stay,
// because all ranks call them. The caller holds c.mu.
func (c *core) drop(err *StepError, cut uint64) {
	if c.voided == nil {
		c.voided = &voided{err, make([]bool, len(c.members)), cut, make(chan struct{})}
	}
	c.voided.cut = min(c.voided.cut, cut)
	for _, sl := range append(slices.Clone(c.ready), c.open()...) {
		if !sl.key.message && sl.key.number >= c.voided.cut {
			c.cancel(sl)
		}
	}
}

// cancel ends a slot because its step is void. The caller holds c.mu.
func (c *core) cancel(sl *slot) {
	c.ready = slices.DeleteFunc(c.ready, func(o *slot) bool { return o == sl })
	if c.slots[sl.key] == sl {
		delete(c.slots, sl.key)
	}
	sl.void = c.voided.err
	sl.end(true)
}

// dropped reports whether a slot was dropped and the given rank has already ended the void step.
func (c *core) dropped(sl *slot, rank int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return sl.void != nil && (sl.steps != c.steps || c.voided != nil && c.voided.known[rank])
}

// errorFor returns the error with which a rank panics. For the rank that failed, this is the rank's
// own error. For any other rank, it is the StepError.
func (e *StepError) errorFor(rank int) error {
	if e.Rank == rank {
		return e.Err
	}
	o := *e
	return &o
}

// renew begins a new step if all ranks know that the previous step is void. The caller holds c.mu.
func (c *core) renew() {
	if c.voided == nil || len(c.uninformed()) > 0 {
		return
	}
	most := slices.Max(c.next)
	for r := range c.next {
		c.next[r] = most
	}
	close(c.voided.done)
	for _, sl := range c.open() {
		c.cancel(sl)
	}
	clear(c.pairs)
	c.voided = nil
	c.steps++
}

// uninformed lists the ranks that do not know yet that the step is void. The caller holds c.mu.
func (c *core) uninformed() (ranks []int) {
	for r, known := range c.voided.known {
		if !known && !c.joined[r] {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// awaitStep waits until a rank may call a collective. It returns a *StepError if the rank does not
// know yet that a step is void. The caller holds c.mu, and awaitStep unlocks it while it waits.
func (c *core) awaitStep(k *call) error {
	for c.voided != nil {
		v := c.voided
		if !v.known[k.rank] {
			key, side := c.key(k)
			before := key.number < v.cut
			if key.message { // the other rank of the message may also be in the previous step
				before = c.slots[key] != nil || !v.known[[2]int{key.dst, key.src}[side]]
			}
			if before {
				return nil
			}
			return v.err.errorFor(c.members[k.rank])
		}
		if err := c.await(k, v); err != nil {
			return err
		}
	}
	return nil
}

// await waits until all ranks know of a void step. The caller holds c.mu, and await unlocks it
// while it waits.
func (c *core) await(k *call, v *voided) error {
	late := c.ofWorld(c.uninformed())
	if at := c.world.returned(late); at >= 0 {
		return c.raise(k.rank, c.neverInformed(k.rank, k, at))
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	limit := time.NewTimer(c.world.timeout)
	defer limit.Stop()
	select {
	case <-v.done:
		return nil
	case <-c.world.failed:
		return c.fault(k.rank, c.world.aborted(), k, "the run ended while others did not know that a step is void")
	case <-limit.C:
	}
	err := c.fault(k.rank, ErrTimeout, k, fmt.Sprintf("within %v %s did not come to learn that a step is void: %v", c.world.timeout, ranksOf(late), v.err))
	err.Stacks = c.world.stacks(late)
	return c.raise(k.rank, err)
}

// neverInformed returns an error for a rank that would wait forever for another rank: the other
// rank has returned without learning that a step is void. The caller holds c.mu.
func (c *core) neverInformed(rank int, k *call, other int) *Error {
	return c.fault(rank, ErrLeft, k, fmt.Sprintf("rank %d, on %s, returned from its function and never learns that a step is void: %v", other, c.world.devices[other].Name(), c.voided.err))
}

var _ device.Raised = (*StepError)(nil)
