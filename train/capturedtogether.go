package train

import (
	"errors"

	"github.com/flambeau-go/flambeau/data"
	"github.com/flambeau-go/flambeau/dist"
	"github.com/flambeau-go/flambeau/nn"
	"github.com/flambeau-go/flambeau/tensor"
)

// On several devices, a captured step is one graph with the steps of all ranks. Rank 0 sends two
// jobs for each batch. In the first job, every rank copies its samples to the graph's memory. In
// the second job, after all ranks have done so, the graph is replayed. If there is no graph yet, it
// is captured first.

// wholeJob describes a rank's job for a captured step.
type wholeJob struct {
	form   int  // index of the batch's shape in the captured shapes
	replay bool // whether to replay the graph, or to copy the samples to the graph's memory
}

// wholeStep is a rank's part of a captured step.
type wholeStep struct {
	x, y  *tensor.Tensor // the rank's samples
	all   *tensor.Tensor // targets of the whole batch, on all ranks
	graph *dist.Graph    // nil until the first replay
}

// replayTogether does on several devices what replay does on one. form is the index of the batch's
// shape.
func (t *trainer) replayTogether(b *data.Batch, n, form int) (done bool, err error) {
	m := t.adapt.team
	for _, replay := range []bool{false, true} {
		moved := m.moved
		j := m.plan(b, n, m.world(), 1, 1)
		j.whole = &wholeJob{form, replay}
		outcomes, fatal := m.run(j)
		if fatal != nil {
			m.free(b)
			return false, fatal
		}
		m.again, m.moved = false, moved || replay
		for _, o := range outcomes {
			if o.err == nil {
				continue
			}
			if t.repeats(o.err) {
				return false, nil
			}
			b.Free()
			return false, o.err
		}
	}
	b.Free()
	t.stepped = true
	return true, t.noted(t.adapt.loss, n)
}

// whole does the job j of a captured step for this rank's samples lo … hi-1.
func (m *member) whole(j *job, lo, hi int) (err error) {
	w := m.steps[j.whole.form]
	if w == nil {
		w = &wholeStep{}
		m.steps[j.whole.form] = w
	}
	if !j.whole.replay {
		return m.feed(w, j, lo, hi)
	}
	if w.graph == nil {
		m.reducer.Weigh(float64(hi - lo))
		if w.graph, err = m.g.Capture(func(s *tensor.Scope) { m.record(s, w, j.n, lo, hi) }, m.a.options()...); err != nil {
			return err
		}
	}
	return w.graph.Replay()
}

// feed copies the rank's samples to the graph's memory.
func (m *member) feed(w *wholeStep, j *job, lo, hi int) error {
	for _, i := range j.frozen {
		m.broadcast(m.state[i].Tensor)
	}
	return outOfMemory(func() {
		scopeOf(j.b).Do(func(s *tensor.Scope) {
			own, all := part(s, j.b, lo, hi, j.n), part(s, &data.Batch{Y: j.b.Y}, 0, j.n, j.n)
			into := func(to **tensor.Tensor, x *tensor.Tensor) {
				if *to == nil {
					*to = tensor.Root().On(m.c.Device).Typed(x.Type()).Zeros(x.Shape().Slice()...)
				}
				(*to).In(s).Copy(x)
			}
			into(&w.x, own.X)
			into(&w.y, own.Y)
			into(&w.all, all.Y)
		}, append(m.a.options(), tensor.NoGrad())...)
	})
}

// record computes this rank's samples lo … hi-1 of a step of n samples, which is being captured.
func (m *member) record(s *tensor.Scope, w *wholeStep, n, lo, hi int) {
	buffers := false
	for _, p := range m.state {
		buffers = buffers || p.Buffer
	}
	m.reducer.Spread(0, true, buffers)
	m.sendScale(s)
	own := &data.Batch{X: w.x.In(s), Y: w.y.In(s), Index: unknown(hi - lo)}
	_, _, loss := m.c.computePart(s, own, &data.Batch{Y: w.all}, n)
	m.a.descend(s, loss, share{hi - lo, hi - lo, n}, 1, true, true)
	m.g.AllReduce(m.loss, dist.Sum)
	if m.update != nil {
		m.update(s)
	} else {
		nn.ZeroGrad(m.c.Model)
	}
}

// drop frees the captured steps on this rank.
func (m *member) drop() (err error) {
	for form, w := range m.steps {
		if w.graph != nil {
			err = errors.Join(err, w.graph.Close())
		}
		for _, x := range [...]*tensor.Tensor{w.x, w.y, w.all} {
			if x != nil {
				x.Free()
			}
		}
		delete(m.steps, form)
	}
	return err
}
