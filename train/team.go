package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/tensor"
)

// A team computes the gradients of a batch on several devices. Rank 0 owns the team and makes all
// decisions. It sends a job to every rank, collects the outcomes, and sends the next job.
type team struct {
	t     *trainer
	me    *member
	ctx   context.Context // ends when a rank fails
	jobs  []chan *job     // for each rank, the channel of its jobs
	done  chan outcome
	again bool // whether the last job failed

	readers sync.WaitGroup // number of ranks that work on a job and may read its batch
	broken  bool           // whether the last job is still running on some rank

	drop  bool // whether the next job must free the captured steps of all ranks
	moved bool // whether replays have changed rank 0's parameters and buffers

	versions []uint32 // versions of rank 0's tensors that the other ranks have
	trained  []bool   // which tensors require a gradient in the other ranks' models
	flags    []bool   // training flags of the layers in the other ranks' models

	// owned holds the gradients of a step's earlier batches. Collective operations do not overwrite
	// its memory.
	owned []*tensor.Tensor
	alone bool // whether the log has said that batches cannot be distributed
}

func newTeam(t *trainer, me *member, ctx context.Context, jobs []chan *job, done chan outcome) *team {
	m := &team{t: t, me: me, ctx: ctx, jobs: jobs, done: done, owned: make([]*tensor.Tensor, len(t.adapt.params))}
	m.versions, m.trained, m.flags = m.versionsNow(), m.trainedNow(), flagsOf(me.layers)
	return m
}

func (t *team) world() int { return len(t.jobs) }

// sayAlone logs once that batches are computed on one device, and why.
func (t *team) sayAlone(why string) {
	if !t.alone {
		t.alone = true
		t.t.print(fmt.Sprintf("computed on %s alone: %s", t.me.c.Device.Name(), why))
	}
}

func (t *team) versionsNow() []uint32 {
	list := make([]uint32, len(t.me.state))
	for i, p := range t.me.state {
		list[i] = p.Tensor.Version()
	}
	return list
}

func (t *team) trainedNow() []bool {
	list := make([]bool, len(t.me.state))
	for i, p := range t.me.state {
		list[i] = !p.Buffer && p.Tensor.NeedsGrad()
	}
	return list
}

// copyGrads copies the gradients of a step's earlier batches out of memory that collective
// operations overwrite.
func (t *team) copyGrads() error {
	a := t.t.adapt
	return a.Do("the gradients of earlier batches of a step", func() {
		for i, p := range a.params {
			if g := p.Grad(); g != nil && g != t.owned[i] {
				y := g.Clone()
				p.SetGrad(y)
				t.owned[i] = y
			}
		}
	})
}

// plan makes a job for a batch.
func (t *team) plan(b *data.Batch, n, ranks, k int, weight float64) *job {
	a := t.t.adapt
	j := &job{b: b, n: n, ranks: ranks, k: k, pairs: a.pairs, weight: weight, reduction: a.c.Reduction, checkpointing: a.recomputes,
		again: t.again, params: t.again || t.moved, buffers: t.again || t.moved}
	j.seed, j.offset = a.c.Generator.State()
	j.drop, t.drop = t.drop, false
	if now := t.trainedNow(); !slices.Equal(now, t.trained) {
		t.trained, j.trained = now, now
	}
	if now := flagsOf(t.me.layers); t.again || !slices.Equal(now, t.flags) {
		t.flags, j.flags = now, now
	}
	now := t.versionsNow()
	for i, p := range t.me.state {
		switch changed := now[i] != t.versions[i]; {
		case p.Buffer:
			j.buffers = j.buffers || changed
		case t.trained[i]:
			j.params = j.params || changed
		case changed:
			j.frozen = append(j.frozen, i)
		}
	}
	t.versions = now
	t.moved = false
	return j
}

// inSync reports whether the other ranks' models have the same training flags as rank 0's model,
// and the same tensors that require gradients.
func (t *team) inSync() bool {
	return slices.Equal(t.trainedNow(), t.trained) && slices.Equal(flagsOf(t.me.layers), t.flags)
}

// try computes a batch on all ranks. Its results are those of Adapt.try.
func (t *team) try(b *data.Batch, n, ranks, k int, weight float64) (lone bool, err, fatal error) {
	outcomes, fatal := t.run(t.plan(b, n, ranks, k, weight))
	if fatal != nil {
		return false, nil, fatal
	}
	void := false
	for _, o := range outcomes {
		lone = lone || o.lone
		void = void || o.otherFailed
		// An error that would occur again in another attempt takes precedence.
		if o.err != nil && (err == nil || retryMayHelp(err) && !retryMayHelp(o.err)) {
			err = o.err
		}
	}
	if err != nil {
		return false, err, nil
	}
	if void && !lone { // some ranks say that another rank has failed, but none has an error
		return false, nil, &Error{"Devices", "a step was void on one device, and failed on none"}
	}
	t.again = lone
	return lone, nil, nil
}

// free frees a batch. If other ranks still read it when the training ends, free waits for them in
// the background.
func (t *team) free(b *data.Batch) {
	if t == nil || !t.broken {
		b.Free()
		return
	}
	go func() {
		t.readers.Wait()
		b.Free()
	}()
}

// run sends a job to all ranks and returns their outcomes. The error fatal ends the training.
func (t *team) run(j *job) (outcomes []outcome, fatal error) {
	t.again, t.broken, j.readers = true, true, &t.readers
	for _, c := range t.jobs[1:] {
		t.readers.Add(1)
		select {
		case c <- j:
		case <-t.ctx.Done():
			t.readers.Done()
			return nil, context.Cause(t.ctx)
		}
	}
	outcomes = make([]outcome, t.world())
	if failed := tensor.Try(func() { outcomes[0] = t.me.work(j) }); errors.Is(failed, dist.ErrAborted) {
		<-t.ctx.Done()
		return nil, context.Cause(t.ctx)
	} else if failed != nil {
		panic(failed)
	}
	for range t.jobs[1:] {
		select {
		case o := <-t.done:
			outcomes[o.rank] = o
		case <-t.ctx.Done():
			return nil, context.Cause(t.ctx)
		}
	}
	t.broken = false
	return outcomes, nil
}
