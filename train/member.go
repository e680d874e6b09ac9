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

// A job is what rank 0 asks of all ranks, itself too: the gradients of a batch.
type job struct {
	b        *data.Batch
	n, ranks int // its samples, and to how many ranks they are dealt
	k        int // parts that the rank with most samples computes them in
	pairs    bool
	weight   float64 // of its loss
	measured bool    // outputs and losses are asked for, and no gradients
	readers  *sync.WaitGroup

	seed, offset  uint64 // of the training's generator
	reduction     Reduction
	checkpointing bool // activations are computed again
	again         bool // the last job was in vain

	// What has changed in rank 0's model.
	params, buffers bool
	// parameters that require no gradient, by their number among all that it holds
	frozen  []int
	trained []bool // which require one; nil: those as before
	flags   []bool // of the layers in training; nil: as before
}

// An outcome is what has become of a job on a rank. On all others it is in vain if it is on one.
type outcome struct {
	rank int
	err  error // an out of memory
	lone bool  // a part is of a single sample, of which batch normalisation does not learn
	void bool  // another rank has failed

	// Of a batch that is measured, on rank 0's device. nil: the rank has no samples, or there is
	// none.
	output, target, loss *tensor.Tensor
}

// A member is a rank's side of a training on several devices. Whatever happens to one in a job, it
// takes part in all that the others wait for.
type member struct {
	g       *dist.Group
	c       *Config // with the rank's own copy of the model
	a       *Adapt
	state   []nn.Param
	layers  []trained
	reducer *dist.Reducer
	loss    *tensor.Tensor // [] float64: of the batch
	scale   *tensor.Tensor // [] float32: that of the scaler; nil without one
	one     *tensor.Tensor // [] 1, on rank 0
}

// newMember makes the member of a rank. All ranks call it.
func newMember(g *dist.Group, c *Config, a *Adapt) *member {
	m := &member{g: g, c: c, a: a, state: nn.Named(c.Model), layers: layersWithFlags(c.Model)}
	at := tensor.Root().On(g.Device())
	m.loss = at.Typed(dtype.F64).Zeros()
	a.loss, a.quiet = m.loss, g.NoSync
	if s := c.Scaler; s != nil && s.Enabled() {
		m.scale, m.one = at.Typed(dtype.F32).Zeros(), at.Typed(dtype.F32).Ones()
		if g.Rank() > 0 {
			a.c.Scale = func(loss *tensor.Tensor) *tensor.Tensor { return loss.Mul(m.scale) }
		}
	}
	m.reduce()
	g.AllReduce(m.loss, dist.Sum) // takes what memory it needs
	g.Barrier()
	return m
}

// reduce has the gradients of the parameters that require one averaged.
func (m *member) reduce() {
	m.reducer = m.g.NewReducer(m.c.Model, dist.FixedBuckets(), dist.KeepBuffers())
	m.reducer.Reserve()
}

// close gives back what the member holds.
func (m *member) close() {
	nn.ZeroGrad(m.c.Model)
	m.reducer.Close()
	for _, x := range [...]*tensor.Tensor{m.loss, m.scale, m.one} {
		if x != nil {
			x.Free()
		}
	}
	m.a.loss, m.a.quiet = nil, nil
}

// work does a job. What is neither an out of memory nor another rank's failure is a panic.
func (m *member) work(j *job) (out outcome) {
	out.rank = m.g.Rank()
	if out.rank > 0 {
		m.prepare(j)
	}
	if j.trained != nil {
		m.retrain(j.trained)
	}
	lo, hi := dealt(j.n, j.ranks, out.rank)
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
				m.a.keep.take()
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
	if out.void = errors.As(err, &void); !out.void {
		out.err = err
	}
	return out
}

// prepare brings a rank but 0 to where rank 0 is.
func (m *member) prepare(j *job) {
	nn.ZeroGrad(m.c.Model)
	if j.again {
		m.c.Device.Empty()
	}
	m.c.Generator.SetState(seedOf(j.seed, m.g.Rank()), j.offset)
	m.a.c.Reduction, m.a.pairs = j.reduction, j.pairs
	if j.checkpointing && !m.a.anew {
		nn.SetCheckpointing(m.c.Model, true)
		m.a.anew = true
	}
	if j.flags != nil {
		setFlags(m.layers, j.flags)
	}
}

// retrain has the gradients of other parameters averaged than before.
func (m *member) retrain(trained []bool) {
	m.reducer.Close()
	for i, p := range m.state {
		if !p.Buffer && m.g.Rank() > 0 && p.Tensor.NeedsGrad() != trained[i] {
			p.Tensor.SetRequiresGrad(trained[i])
		}
	}
	m.reduce()
}

// receive brings what has changed on rank 0 to the others. It takes part in all of it, also where
// it returns an error, an out of memory.
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
	if m.scale != nil {
		if m.g.Rank() == 0 {
			note(func() {
				tensor.Do(func(s *tensor.Scope) { m.scale.In(s).Copy(m.c.Scaler.Scale(m.one.In(s))) }, tensor.NoGrad())
			})
		}
		m.g.Broadcast(m.scale, 0)
	}
	return failed
}

// broadcast gives all ranks a tensor of rank 0.
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

// attempted is outOfMemory that also returns another rank's failure, by which a step is void.
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
