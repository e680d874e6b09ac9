package dist

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// turns lets the ranks take turns in recording one graph. One rank runs until it must wait for
// other ranks. Then the next rank runs. The recorded work thus has the same order in each run of
// the program.
type turns struct {
	core   *core
	failed chan struct{}

	mu sync.Mutex
	// a channel for each rank; a value in it tells the rank that its turn has come
	wake []chan struct{}
	out  []bool // for each rank, whether it has finished
	idle int    // number of consecutive turns in which no rank made progress
	err  error  // the *CaptureError, if the capture has failed
}

// begin prepares the turns of the members of c, and gives the first turn to rank 0.
func (t *turns) begin(c *core) {
	t.core, t.failed, t.out = c, make(chan struct{}), make([]bool, len(c.members))
	for range t.out {
		t.wake = append(t.wake, make(chan struct{}, 1))
	}
	t.wake[0] <- struct{}{}
}

// rankIn converts a rank of group c to a rank of the capture's group, or to -1 if the rank is not
// in the capture's group.
func (t *turns) rankIn(c *core, rank int) int { return slices.Index(t.core.members, c.members[rank]) }

// absentMember returns the index of a rank of group c that takes no part in the capture, or -1.
func (t *turns) absentMember(c *core) int {
	return slices.IndexFunc(c.members, func(m int) bool { return !slices.Contains(t.core.members, m) })
}

func (t *turns) await(rank int) error {
	w := t.core.world
	limit := time.NewTimer(w.timeout)
	defer limit.Stop()
	select {
	case <-t.wake[rank]:
		return t.broken()
	case <-t.failed:
		return t.broken()
	case <-w.failed:
		return t.core.fault(rank, w.aborted(), nil, "the run ended in the capture")
	case <-limit.C:
	}
	t.mu.Lock()
	var late []int
	for r, out := range t.out {
		if !out && r != rank {
			late = append(late, t.core.members[r])
		}
	}
	t.mu.Unlock()
	err := t.core.fault(rank, ErrTimeout, nil, fmt.Sprintf("in the capture it was not its turn within %v: one of %s goes on and waits for nothing", w.timeout, ranksOf(late)))
	err.Stacks = w.stacks(late)
	w.fail(t.core.members[rank], err)
	return err
}

// pass gives the turn to the next rank that has not finished. If every other rank has finished,
// this rank itself goes on. The caller holds t.mu.
func (t *turns) pass(rank int) {
	for i := range t.out {
		if next := (rank + 1 + i) % len(t.out); !t.out[next] {
			t.wake[next] <- struct{}{}
			return
		}
	}
}

func (t *turns) markFinished(rank int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out[rank], t.idle = true, 0
	if t.err == nil {
		t.pass(rank)
	}
}

// progress notes that a rank that waits may now be able to continue.
func (t *turns) progress() {
	t.mu.Lock()
	t.idle = 0
	t.mu.Unlock()
}

// wait gives the turn to other ranks until the collective of the slot is recorded.
func (t *turns) wait(c *core, sl *slot, k *call) error {
	rank := t.rankIn(c, k.rank)
	for {
		select {
		case <-sl.done:
			return nil
		default:
		}
		if err := t.broken(); err != nil {
			return c.fault(k.rank, err, k, "the capture has failed")
		}
		if err := t.stuck(c, sl, k); err != nil {
			t.fail(rank, err)
			return err
		}
		t.mu.Lock()
		t.idle++
		t.pass(rank)
		t.mu.Unlock()
		if err := t.await(rank); err != nil {
			return err
		}
	}
}

// stuck returns an error if all ranks wait for each other.
func (t *turns) stuck(c *core, sl *slot, k *call) error {
	t.mu.Lock()
	live := 0
	for _, out := range t.out {
		if !out {
			live++
		}
	}
	idle := t.idle
	t.mu.Unlock()
	if idle < live {
		return nil
	}
	c.mu.Lock()
	late := c.missingFrom(sl)
	c.mu.Unlock()
	return c.fault(k.rank, ErrLeft, k, t.absent(c, late))
}

// absent explains why the given ranks will not call a collective.
func (t *turns) absent(c *core, late []int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []int
	out := true
	for _, r := range late {
		names = append(names, c.members[r])
		out = out && t.out[t.rankIn(c, r)]
	}
	if out {
		return ranksOf(names) + " returned from the function of the capture and never came to it"
	}
	return "in the capture " + ranksOf(names) + " never came to it: each rank waits for another"
}

// broken returns the error of a capture that has failed.
func (t *turns) broken() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// fail ends the capture because of the failure of a rank. The rank is -1 if no single rank failed.
// Later calls have no effect.
func (t *turns) fail(rank int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return
	}
	e := &CaptureError{Rank: -1, Err: err}
	if rank >= 0 {
		e.Rank = t.core.members[rank]
	}
	var step *StepError
	// the failure is that of step.Rank, which has not reported it yet; this rank passes it on
	if errors.As(err, &step) {
		e.Rank, e.Err = step.Rank, step.Err
	}
	if e.Rank >= 0 {
		e.Device = t.core.world.devices[e.Rank].Name()
	}
	t.err = e
	close(t.failed)
}
