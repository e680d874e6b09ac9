package dist

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flambeau-go/flambeau/device"
)

// A StepError says that a rank has failed in a step, which is void on all ranks: each rank's
// Backward, or whichever collective it comes to first, panics with it. The program may go on, if
// all ranks do the step again: see [Group.Void].
type StepError struct {
	Rank   int // that failed, of the world
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

// Void makes the step void on all ranks, where this one has failed in it by err: the others panic
// with a *[StepError] of err in their Backward, or in the collective that they come to first. What
// they have begun and not all ranks have come to is dropped, its tensors are as they are. Then
// collectives go on with those that each rank calls next, in the group and in those of [DDP].
//
// Every rank that got an error in a step calls it, with that error:
//
//	if err := tensor.Try(step); err != nil {
//		g.Void(err)
//		…ZeroGrad, and the step again on all ranks: in smaller parts…
//	}
//
// A Backward that averages has done so itself when it panics; the call does nothing then. The step
// of the optimizer is not part of it: by then other ranks may have done theirs.
func (g *Group) Void(err error) {
	if err == nil || g.World() == 1 {
		return
	}
	g.void(err)
	g.gone = nil
}

// void is Void that Backward calls.
func (g *Group) void(err error) {
	if g.gone != nil && errors.Is(err, g.gone) {
		return
	}
	g.gone = err
	step, told := err.(*StepError)
	if !told {
		step = &StepError{g.core.members[g.rank], g.Device().Name(), err}
	}
	g.core.void(g.rank, step)
	for _, c := range g.clones {
		c.core.void(g.rank, step)
	}
	for _, r := range g.reducers {
		clear(r.unsynced)
	}
}

// A voided is a step that is void, until all ranks know.
type voided struct {
	err   *StepError
	known []bool        // by rank
	done  chan struct{} // closed when all know
}

// void notes that a rank's step is void, and drops what waits for other ranks.
func (c *core) void(rank int, err *StepError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(err)
	c.voided.known[rank] = true
	c.renew()
}

// drop makes the step void, of which no rank knows yet. c.mu is held.
func (c *core) drop(err *StepError) {
	if c.voided != nil {
		return
	}
	c.voided = &voided{err, make([]bool, len(c.members)), make(chan struct{})}
	for _, sl := range append(c.ready, c.open()...) {
		sl.void = err
		sl.end(true)
	}
	c.ready = nil
	clear(c.slots)
	clear(c.pairs)
}

// told is what a rank panics with: its own failure, or that of another.
func (e *StepError) told(rank int) error {
	if e.Rank == rank {
		return e.Err
	}
	o := *e
	return &o
}

// renew begins anew when all ranks know that a step is void. c.mu is held.
func (c *core) renew() {
	if c.voided == nil || len(c.unknowing()) > 0 {
		return
	}
	most := slices.Max(c.next)
	for r := range c.next {
		c.next[r] = most
	}
	close(c.voided.done)
	c.voided = nil
	c.steps++
}

// unknowing lists the ranks that do not know yet that the step is void. c.mu is held.
func (c *core) unknowing() (ranks []int) {
	for r, known := range c.voided.known {
		if !known && !c.joined[r] {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// past returns when a rank may make a call: with a *StepError if it has to know first that a step
// is void, else when all know. c.mu is held, and given up meanwhile.
func (c *core) past(k *call) error {
	for c.voided != nil {
		v := c.voided
		if !v.known[k.rank] {
			return v.err.told(c.members[k.rank])
		}
		late := c.ofWorld(c.unknowing())
		if at := c.world.returned(late); at >= 0 {
			return c.raise(k.rank, c.fault(k.rank, ErrLeft, k, fmt.Sprintf("rank %d, on %s, returned from its function and never learns that a step is void: %v", at, c.world.devices[at].Name(), v.err)))
		}
		c.mu.Unlock()
		limit := time.NewTimer(c.world.timeout)
		var err error
		select {
		case <-v.done:
		case <-c.world.failed:
			err = c.fault(k.rank, c.world.aborted(), k, "the run ended while others did not know that a step is void")
		case <-limit.C:
			e := c.fault(k.rank, ErrTimeout, k, fmt.Sprintf("within %v %s did not come to learn that a step is void: %v", c.world.timeout, ranksOf(late), v.err))
			e.Stacks = c.world.stacks(late)
			err = c.raise(k.rank, e)
		}
		limit.Stop()
		c.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

var _ device.Raised = (*StepError)(nil)
