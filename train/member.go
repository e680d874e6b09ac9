package train

import (
	"errors"
	"sync"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/dtype"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// A job is a batch that rank 0 sends to all ranks, including itself. The ranks compute the batch's
// gradients or, in an evaluation, its outputs and losses.
type job struct {
	b        *data.Batch
	n, ranks int // numbers of samples in the batch and of ranks that get samples
	k        int // number of parts on the rank that has the most samples
	pairs    bool
	weight   float64   // factor of the batch's loss
	measured bool      // an evaluation: compute outputs and losses, but no gradients
	whole    *wholeJob // what to do for a captured step; nil for other jobs
	drop     bool      // first free the captured steps
	readers  *sync.WaitGroup

	seed, offset  uint64 // state of the training's generator
	reduction     Reduction
	checkpointing bool // whether Backward recomputes activations
	again         bool // whether the last job failed

	// params is true if the parameters of rank 0's model have changed, and buffers if its buffers
	// have.
	params, buffers bool
	// frozen has the indices, in a member's field state, of the parameters that require no gradient
	// and have changed since the last job.
	frozen  []int
	trained []bool // which tensors of a member's field state require a gradient; nil if unchanged
	flags   []bool // training flags of the layers; nil if unchanged
}

// An outcome is the result of a job on one rank. If a job fails on one rank, it fails on all.
type outcome struct {
	rank        int
	err         error // an out-of-memory error
	lone        bool  // whether a part would have one sample and batch normalisation needs more
	otherFailed bool  // whether another rank has failed

	// output, target and loss are the results of an evaluation, on rank 0's device. They are nil if
	// the rank has no samples or the model does not return them.
	output, target, loss *tensor.Tensor
}

// A member is one rank's part of a training on several devices. Even if its own work fails, a
// member takes part in every collective for which other ranks wait.
type member struct {
	g       *dist.Group
	c       *Config // configuration with this rank's copy of the model
	a       *Adapt
	state   []nn.Param
	layers  []trained
	reducer *dist.Reducer
	steps   map[int]*wholeStep
	// makes the optimizer's step in a captured step; nil except on rank 0
	update func(s *tensor.Scope)
	loss   *tensor.Tensor // loss of the batch, one float64
	scale  *tensor.Tensor // factor of the scaler, one float32; nil without a scaler
	unit   *tensor.Tensor // the number 1, on rank 0
}

// newMember returns the member of this rank. All ranks call it together.
func newMember(g *dist.Group, c *Config, a *Adapt) *member {
	m := &member{g: g, c: c, a: a, state: nn.Named(c.Model), layers: layersWithFlags(c.Model), steps: map[int]*wholeStep{}}
	at := tensor.Root().On(g.Device())
	m.loss = at.Typed(dtype.F64).Zeros()
	a.loss, a.quiet = m.loss, g.NoSync
	if s := c.Scaler; s != nil && s.Enabled() {
		m.scale, m.unit = at.Typed(dtype.F32).Zeros(), at.Typed(dtype.F32).Ones()
		if g.Rank() > 0 {
			a.c.Scale = func(loss *tensor.Tensor) *tensor.Tensor { return loss.Mul(m.scale) }
		}
	}
	m.reduce()
	g.AllReduce(m.loss, dist.Sum) // the first call allocates the collective's memory
	g.Barrier()
	return m
}

// reduce makes the reducer, which averages the gradients of the parameters that require gradients.
func (m *member) reduce() {
	m.reducer = m.g.NewReducer(m.c.Model, dist.FixedBuckets(), dist.KeepBuffers())
	m.reducer.Reserve()
}

func (m *member) close() (err error) {
	err = m.drop()
	nn.ZeroGrad(m.c.Model)
	m.reducer.Close()
	for _, x := range [...]*tensor.Tensor{m.loss, m.scale, m.unit} {
		if x != nil {
			x.Free()
		}
	}
	m.a.loss, m.a.quiet = nil, nil
	return err
}

// work does a job. The outcome has an error if this rank or another one ran out of memory. Any
// other failure panics.
func (m *member) work(j *job) (out outcome) {
	out.rank = m.g.Rank()
	if j.drop {
		if err := m.drop(); err != nil {
			panic(err)
		}
	}
	if out.rank > 0 {
		m.prepare(j)
	}
	if j.trained != nil {
		m.retrain(j.trained)
	}
	lo, hi := dealt(j.n, j.ranks, out.rank)
	if j.whole != nil {
		out.err = m.whole(j, lo, hi)
		return out
	}
	failed := m.receive(j)
	if j.measured {
		if out.err = failed; failed == nil && hi > lo {
			m.measure(j, lo, hi, &out)
		}
		return out
	}
	m.reducer.Weigh(float64(hi - lo))
	err := attempted(func() {
		m.reducer.Once(func() {
			if failed != nil {
				panic(failed)
			}
			m.loss.Zero()
			if out.rank == 0 {
				m.a.keep.save()
			}
			if hi > lo {
				k := min(j.k, m.a.mostParts(hi-lo))
				out.lone = m.a.attempt(j.b, j.n, lo, hi, k, j.weight, func(s *tensor.Scope, part *data.Batch) *tensor.Tensor {
					_, _, loss := m.c.computePart(s, part, j.b, j.n)
					return loss
				})
			}
		})
	})
	m.g.AllReduce(m.loss, dist.Sum)
	var void *dist.StepError
	if out.otherFailed = errors.As(err, &void); !out.otherFailed {
		out.err = err
	}
	return out
}

// prepare gives this rank the settings that rank 0 has.
func (m *member) prepare(j *job) {
	nn.ZeroGrad(m.c.Model)
	if j.again {
		m.c.Device.Empty()
	}
	m.c.Generator.SetState(seedOf(j.seed, m.g.Rank()), j.offset)
	m.a.c.Reduction, m.a.pairs = j.reduction, j.pairs
	if j.checkpointing && !m.a.recomputes {
		nn.SetCheckpointing(m.c.Model, true)
		m.a.recomputes = true
	}
	if j.flags != nil {
		setFlags(m.layers, j.flags)
	}
}

// retrain replaces the reducer after a change in which parameters require gradients. On every rank
// except rank 0, it first makes this change to the parameters.
func (m *member) retrain(trained []bool) {
	m.reducer.Close()
	for i, p := range m.state {
		if !p.Buffer && m.g.Rank() > 0 && p.Tensor.NeedsGrad() != trained[i] {
			p.Tensor.SetRequiresGrad(trained[i])
		}
	}
	m.reduce()
}

// receive copies the changed tensors of rank 0 to this rank. It takes part in all collectives, even
// if it returns an out-of-memory error.
func (m *member) receive(j *job) (failed error) {
	note := func(f func()) {
		if err := outOfMemory(f); failed == nil {
			failed = err
		}
	}
	if j.params || j.buffers {
		note(func() { m.reducer.Spread(0, j.params, j.buffers) })
	}
	for _, i := range j.frozen {
		m.broadcast(m.state[i].Tensor)
	}
	note(func() { m.sendScale(tensor.Root()) })
	return failed
}

// sendScale sends the factor of the scaler to all ranks, in scope s. It takes part in the
// collective operation even if it panics because memory has run out.
func (m *member) sendScale(s *tensor.Scope) {
	if m.scale == nil {
		return
	}
	defer m.g.Broadcast(m.scale, 0)
	if m.g.Rank() == 0 {
		s.Do(func(s *tensor.Scope) { m.scale.In(s).Copy(m.c.Scaler.Scale(m.unit.In(s))) }, tensor.NoGrad())
	}
}

// broadcast copies a tensor of rank 0 to all ranks.
func (m *member) broadcast(x *tensor.Tensor) {
	tensor.Youngest(x).Do(func(s *tensor.Scope) {
		x := x.Detach().In(s)
		y := x.Contiguous()
		m.g.Broadcast(y, 0)
		if y != x && m.g.Rank() > 0 {
			x.Copy(y)
		}
	}, tensor.NoGrad())
}

// attempted does what outOfMemory does. If another rank's failure has made the step void, it
// returns that failure as a *dist.StepError.
func attempted(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			void, ok := r.(*dist.StepError)
			if !ok {
				panic(r)
			}
			err = void
		}
	}()
	return outOfMemory(f)
}
