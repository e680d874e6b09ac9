package dist

import (
	"fmt"
	"slices"

	"github.com/flambeau-go/flambeau/device"
	"github.com/flambeau-go/flambeau/tensor"
)

// Join calls f, which trains on this rank's batches. The ranks may have different numbers of
// batches: torch's Join. A rank whose f has returned takes no part in later reductions: sums and
// means are then over the ranks that still have data. Join returns when f has returned on all
// ranks. Then all ranks get the [DDP] models of the rank whose f returned last.
//
// Ranks with data may also call gathers, in which ranks without data contribute zeros. If a
// collective needs data from a rank that has none, it fails with an *[Error] of the kind [ErrLeft].
// Such collectives are Broadcast and Scatter from that rank, Send and Recv. A Gather to that rank
// fails in the same way.
func (g *Group) Join(f func()) {
	g.member("join")
	if g.capture() != nil {
		panic(g.misuse("join", tensor.ErrCapture, "the work of a capture is the same in each replay, and all ranks take part"))
	}
	f()
	cores := []*core{g.core}
	for _, c := range g.clones {
		cores = append(cores, c.core)
	}
	g.core.leaving(g.rank)
	for _, c := range cores[1:] {
		c.retire(g.rank, nil)
	}
	k := &call{rank: g.rank, what: signature{op: "join", host: true}}
	k.trace()
	last := g.core.ended(g.core.retire(g.rank, cores), k)
	for _, r := range g.reducers {
		r.rejoin(last)
	}
}

// drain is the phase of a Join that begins when the first rank has no more data and ends when no
// rank has any.
type drain struct {
	done chan struct{} // closed when no rank has data any more
	last int           // rank whose f was the last to return
}

// leaving notes that f has returned on a rank. It must be called before the rank retires from any
// core. Once a rank has retired from a core, the other ranks can reduce without it, and f may
// return on them too. They then call leaving after the retired rank has called it. The calls are
// therefore in the order in which f returned.
func (c *core) leaving(rank int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.currentDrain().last = rank
}

func (c *core) currentDrain() *drain {
	if c.drain == nil {
		c.drain = &drain{done: make(chan struct{})}
	}
	return c.drain
}

// retire notes that a rank has no more data, and releases the collectives that wait for this rank.
// If it was the last rank with data, retire ends the drain and resets all cores.
func (c *core) retire(rank int, cores []*core) *drain {
	c.mu.Lock()
	at := c.currentDrain()
	c.joined[rank] = true
	c.renew()
	if cores != nil && !slices.Contains(c.joined, false) {
		c.mu.Unlock()
		for _, o := range cores {
			o.mu.Lock()
			clear(o.joined)
			most := slices.Max(o.next)
			for r := range o.next {
				o.next[r] = most
			}
			o.drain = nil
			o.mu.Unlock()
		}
		close(at.done)
		return at
	}
	for _, sl := range c.open() {
		if !sl.key.message {
			c.markReady(sl)
		} else if err := c.absent(sl); err != nil {
			defer c.world.fail(c.members[sl.first.rank], err)
		}
	}
	c.issue() // issue unlocks c.mu
	return at
}

// ended waits for the end of the drain and returns the rank that had data last.
func (c *core) ended(at *drain, k *call) int {
	select {
	case <-at.done:
		return at.last
	case <-c.world.failed:
		panic(c.fault(k.rank, c.world.aborted(), k, "the run ended while others still had data"))
	}
}

// rejoin copies the model and the order of buckets to all ranks, from the rank with the number
// last.
func (r *Reducer) rejoin(last int) {
	if r.g.World() == 1 {
		return
	}
	type arranged struct {
		order   []int
		ordered bool
	}
	me := arranged{r.order, r.ordered}
	if me.order == nil {
		for _, b := range r.buckets {
			me.order = append(me.order, b.leaves...)
		}
	}
	lead := r.g.exchange("join", me, nil)[last].(arranged)
	r.order, r.ordered = nil, lead.ordered
	r.reorder(lead.order)
	r.spread(last)
}

// gives returns an error if the collective needs data from its root, and the root has no more data.
func (c *core) gives(sl *slot, op *device.Collective) error {
	for r, k := range sl.calls {
		if k != nil || !c.participates(sl, r) && sl.key.message {
			continue
		}
		if root := op.Root == r; root && (op.Kind == device.KindBroadcast || op.Kind == device.KindScatter || op.Kind == device.KindGather) {
			return c.fault(sl.first.rank, ErrLeft, sl.first, fmt.Sprintf("rank %d, on %s, is the root and has no more data (Join)", c.members[r], c.devices[r].Name()))
		}
	}
	return nil
}

var _ tensor.BackwardWatcher = (*Reducer)(nil)
